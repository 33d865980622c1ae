"""Pictures of a run that is watched: one PNG for each thing there is to see, and none for what there is not.

A picture is a column of panels, a panel some lines over the steps, areas on top of each other, or bars. Colours are
those of Okabe and Ito (2008), which people of any colour vision tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from practicum.analysis.monitor.series import LEAST, Column, Part, smooth
from practicum.analysis.png import DOTS, write_png
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GREY = "#333333", "#9A9A9A"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, INK, GREY)

WIDTH, PANEL, FRAME, BAR = 8.6, 2.9, 1.0, 0.42
"""Inches: of a picture, of a panel's height, around all panels, and of a bar with the space after it."""

NOISY = 40
"""Steps from which on a value for each is drawn faintly, under a mean over several."""

MOST = len(COLOURS)
"""Domains in one picture: those with most attempts."""

Parts = Mapping[str, Part]


@dataclass(frozen=True, slots=True)
class Line:
    """A column against `x`, the steps where None; with an interval around it where `low` and `high` are given."""

    label: str
    y: Column
    colour: str = BLUE
    x: Sequence[float] | None = None
    low: Column | None = None
    high: Column | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines in one panel. `noisy` ones vary from step to step, so that their mean is drawn too."""

    ylabel: str
    lines: Sequence[Line]
    percent: bool = False
    noisy: bool = False
    xlabel: str = "step"


@dataclass(frozen=True, slots=True)
class Areas:
    """Lines on top of each other: parts of a whole."""

    ylabel: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Bars:
    """For each name a bar made of `pieces` in a row, or a bar a piece where they do not add up; `notes` at the end."""

    xlabel: str
    names: Sequence[str]
    pieces: Mapping[str, Sequence[float]]
    stacked: bool = True
    notes: Sequence[str] = ()


Panel = Lines | Areas | Bars


def check_folder(folder: Path) -> None:
    """Raise UsageError where no pictures can go: better before the work than after it."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--plot {folder} is a file: give a folder, which gets a picture for each thing there is")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install matplotlib")


def monitor_plots(parts: Parts, steps: Sequence[int], folder: Path, title: str) -> list[Path]:
    """Draw what there is into `folder`; gives the files. Raises UsageError as `check_folder` does, and StoreError where
    a file cannot be written."""
    check_folder(folder)
    made = []
    for name, (about, panels_of) in PICTURES.items():
        panels = [panel for panel in panels_of(parts) if _has(panel)]
        if panels:
            made.append(folder / f"{name}.png")
            _draw(panels, steps, f"{about} · {title}", made[-1])
    return made


def _has(panel: Panel) -> bool:
    """Whether there is anything to see in it."""
    if isinstance(panel, Bars):
        return any(any(piece) for piece in panel.pieces.values())
    if isinstance(panel, Areas):
        return any(value is not None for value in panel.lines[0].y)
    return any(value is not None for line in panel.lines for value in line.y)


def _success(parts: Parts) -> list[Panel]:
    part = parts["success"]
    columns, window = part.by_step, part.numbers.get("window")
    if not columns:
        return []
    line = Line("success", columns["rate"], BLUE, None, columns["low"], columns["high"])
    panels: list[Panel] = [Lines(f"success, last {window:,} attempts\n(95% interval)", [line], percent=True)]
    if any(columns["errors"]):
        panels.append(Lines("attempts that failed", [Line("errors", columns["errors"], VERMILION)], noisy=True))
    return panels


def _learning(parts: Parts) -> list[Panel]:
    """Only where there are several domains: one alone is the picture of success."""
    domains: Mapping[str, Any] = parts["learning"].numbers["domains"] if "learning" in parts else {}
    if len(domains) < 2:
        return []
    largest = sorted(domains, key=lambda name: -domains[name]["attempts"])[:MOST]
    with_band = len(largest) <= 3
    lines = []
    for name, colour in zip(largest, COLOURS, strict=False):
        c = domains[name]["by_attempt"]
        band = (c["low"], c["high"]) if with_band else (None, None)
        # Without its interval the share of the first few attempts looks like more than it is.
        skipped = 0 if with_band or domains[name]["attempts"] < LEAST else LEAST // 2
        lines.append(Line(name, [None] * skipped + c["rate"][skipped:], colour, c["attempt"], *band))
    left = f"\n({len(domains) - MOST} smaller domains left out)" if len(domains) > MOST else ""
    window = min(domains[name]["window"] for name in largest)
    return [Lines(f"success, last {window:,} attempts or more{left}", lines, True, xlabel="attempt in its domain")]


def _memory(parts: Parts) -> list[Panel]:
    names = {"successes": GREEN, "failures": VERMILION, "others": GREY}
    labels = {"successes": "of successes", "failures": "of failures", "others": "others"}
    columns = parts["memory"].by_step if "memory" in parts else {}
    lines = [Line(labels[name], columns[name], colour) for name, colour in names.items() if name in columns]
    return [Areas("memories", lines)] if lines else []


def _retrieval(parts: Parts) -> list[Panel]:
    if "retrieval" not in parts:
        return []
    columns = parts["retrieval"].by_step
    near = [Line("best", columns["best"], ORANGE), Line("mean", columns["similarity"], BLUE)]
    panels: list[Panel] = [Lines("similarity of what is\nretrieved to its task", near, noisy=True)]
    if "relied_on" in columns:
        line = Line("relied on", columns["relied_on"], GREEN)
        panels.append(Lines("retrieved entries the\nagent relied on", [line], percent=True, noisy=True))
    return panels


def _context(parts: Parts) -> list[Panel]:
    columns = parts["context"].by_step
    return [
        Lines("entries", [Line("entries", columns["entries"], BLUE)]),
        Lines("tokens", [Line("tokens", columns["tokens"], ORANGE)]),
    ]


def _drift(parts: Parts) -> list[Panel]:
    columns = parts["context"].by_step
    if "drift" not in columns:
        return []
    return [
        Lines("distance from\nthe first version", [Line("first", columns["from_first"], BLUE)]),
        Lines("distance from\nthe step before", [Line("step", columns["drift"], VERMILION)]),
        Lines("coherence: similarity\nof entries to their mean", [Line("coherence", columns["coherence"], GREEN)]),
    ]


def _contrast(parts: Parts) -> list[Panel]:
    if "contrast" not in parts:
        return []
    part = parts["contrast"]
    line = Line("agreement", part.by_step["agreement"], BLUE)
    by = part.numbers["by"]
    return [
        Lines("attempts that came to\nwhat was chosen", [line], percent=True, noisy=True),
        Bars("tasks, by who chose", list(by), {"tasks": list(by.values())}, notes=[f"{n:,}" for n in by.values()]),
    ]


def _latency(parts: Parts) -> list[Panel]:
    rows = [row for row in parts["latency"].numbers["components"] if "median" in row]
    names = [row["component"] + ("\n(evaluation)" if row["stage"] == "evaluation" else "") for row in rows]
    pieces = {"median": [row["median"] for row in rows], "95th percentile": [row["p95"] for row in rows]}
    notes = [f"{row['share'] or 0:.0%} of all seconds, {row['calls']:,} calls" for row in rows]
    return [Bars("seconds of a call", names, pieces, False, notes)]


def _pace(parts: Parts) -> list[Panel]:
    columns = parts["latency"].by_step
    named = (("step_seconds", "seconds of a step", BLUE), ("attempt_seconds", "seconds of an attempt", ORANGE))
    panels: list[Panel] = [
        Lines(words, [Line(words, columns[name], colour)], noisy=True)
        for name, words, colour in named
        if name in columns
    ]
    if "agent" in parts:
        line = Line("actions", parts["agent"].by_step["actions"], GREEN)
        panels.append(Lines("actions of an attempt", [line], noisy=True))
    return panels


def _tokens(parts: Parts) -> list[Panel]:
    part = parts.get("tokens", Part())
    if "learning" not in part.numbers:
        return []
    cost = part.numbers["learning"]
    roles, tasks = cost["by_role"], cost["tasks"] or 1
    lines = [Line(role, part.by_step[role], colour) for role, colour in zip(roles, COLOURS, strict=False)]
    pieces = {
        "input": [(u["input_tokens"] - u["cached_tokens"]) / tasks for u in roles.values()],
        "input from a cache": [u["cached_tokens"] / tasks for u in roles.values()],
        "output": [u["output_tokens"] / tasks for u in roles.values()],
    }
    notes = [f"{sum(piece[i] for piece in pieces.values()):,.0f}" for i in range(len(roles))]
    every = Bars("tokens for each task, all steps", [*roles], pieces, notes=notes)
    return [Areas("tokens for each task", lines), every]


PICTURES: Mapping[str, tuple[str, Callable[[Parts], list[Panel]]]] = {
    "success": ("Success", _success),
    "learning_curve": ("Learning by domain", _learning),
    "memory": ("Memories", _memory),
    "retrieval": ("Retrieval", _retrieval),
    "context": ("Size of the context", _context),
    "drift": ("Drift of the context", _drift),
    "contrast": ("Agreement of attempts", _contrast),
    "latency": ("Latency by component", _latency),
    "pace": ("Pace", _pace),
    "tokens": ("Tokens", _tokens),
}
"""File, title, and what is in it."""


def _draw(panels: Sequence[Panel], steps: Sequence[int], title: str, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    heights = [_height(panel) for panel in panels]
    layout = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1)
    figure = Figure(figsize=(WIDTH, FRAME + sum(heights)), dpi=DOTS, layout=layout)
    figure.suptitle(title, x=0.02, ha="left", fontsize=13, color=INK)
    grid = figure.add_gridspec(len(panels), 1, height_ratios=heights)
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(grid[i])
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=10)
        match panel:
            case Lines():
                _lines(axes, panel, steps)
            case Areas():
                _areas(axes, panel, steps)
            case Bars():
                _bars(axes, panel)
            case _:
                assert_never(panel)
    write_png(figure, path)


def _height(panel: Panel) -> float:
    if not isinstance(panel, Bars):
        return PANEL
    return 1.1 + BAR * len(panel.names) * (1 if panel.stacked else 1.6)


def _lines(axes: Axes, panel: Lines, steps: Sequence[int]) -> None:
    times = 100 if panel.percent else 1
    averaged = panel.noisy and len(steps) >= NOISY
    window = max(5, len(steps) // 20)
    for line in panel.lines:
        x = steps if line.x is None else line.x
        drawn = smooth(line.y, window) if averaged else line.y
        # A line through few points shows where they are.
        mark = "o" if len(x) <= NOISY else None
        if averaged:
            axes.plot(x, _scaled(line.y, times), color=line.colour, lw=0.7, alpha=0.3)
        axes.plot(x, _scaled(drawn, times), color=line.colour, lw=2, marker=mark, ms=3.5, label=line.label)
        if line.low is not None and line.high is not None:
            low, high = _scaled(line.low, times), _scaled(line.high, times)
            axes.fill_between(x, low, high, color=line.colour, alpha=0.15, lw=0)
    mean = f"\n(mean of {window:,} steps)" if averaged else ""
    _frame(axes, panel.ylabel + mean, panel.xlabel, len(panel.lines))
    if panel.percent:
        from matplotlib.ticker import PercentFormatter

        axes.set_ylim(-2, 102)
        axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
        return
    values = [value for line in panel.lines for value in line.y if value is not None]
    bottom, top = min(0.0, *values), max(0.0, *values)
    axes.set_ylim(1.05 * bottom, 1.05 * top or 1.0)


def _scaled(column: Column, times: float) -> list[float]:
    return [float("nan") if value is None else value * times for value in column]


def _areas(axes: Axes, panel: Areas, steps: Sequence[int]) -> None:
    """Where the first part has no value, none has: such steps are left out."""
    there = [i for i, value in enumerate(panel.lines[0].y) if value is not None]
    # A single point would have no area.
    x = [steps[i] for i in there] if len(there) > 1 else [steps[there[0]] - 0.5, steps[there[0]] + 0.5]
    columns = [[line.y[i] or 0.0 for i in there] * (2 // len(there) or 1) for line in panel.lines]
    colours, labels = [line.colour for line in panel.lines], [line.label for line in panel.lines]
    axes.stackplot(x, columns, colors=colours, labels=labels, alpha=0.75, lw=0)
    axes.set_ylim(bottom=0)
    _frame(axes, panel.ylabel, "step", len(panel.lines))


def _frame(axes: Axes, ylabel: str, xlabel: str, lines: int) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.set_ylabel(ylabel, fontsize=10.5)
    axes.set_xlabel(xlabel, fontsize=10.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.grid(axis="y", color="#E4E4E4", lw=0.8)
    axes.margins(x=0.02)
    if lines > 1:
        _legend(axes, lines)


def _legend(axes: Axes, entries: int) -> None:
    """Above the panel, where it hides nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=min(entries, 4), frameon=False, fontsize=10, borderaxespad=0.2
    )


def _bars(axes: Axes, panel: Bars) -> None:
    import numpy as np
    from matplotlib.ticker import StrMethodFormatter

    at = np.arange(len(panel.names))
    pieces = list(panel.pieces.items())
    thick = 0.62 if panel.stacked else 0.76 / len(pieces)
    ends = np.zeros(len(at))
    for i, (name, values) in enumerate(pieces):
        where = at if panel.stacked else at + (i - (len(pieces) - 1) / 2) * thick
        start = ends if panel.stacked else None
        axes.barh(where, values, thick, left=start, color=COLOURS[i], label=name)
        ends = ends + values if panel.stacked else np.maximum(ends, values)
    for y, end, note in zip(at, ends, panel.notes, strict=False):
        axes.annotate(note, (end, y), (6, 0), textcoords="offset points", va="center", fontsize=9.5, color=INK)
    axes.set_yticks(at, panel.names)
    axes.invert_yaxis()
    longest = max(map(len, panel.notes), default=0)
    axes.set_xlim(0, float(ends.max()) * (1.04 + longest / 70))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xlabel(panel.xlabel, fontsize=10.5)
    axes.grid(axis="x", color="#E4E4E4", lw=0.8)
    if len(pieces) > 1:
        _legend(axes, len(pieces))
