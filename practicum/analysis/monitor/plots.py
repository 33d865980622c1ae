"""Pictures of a run's metrics: one PNG for each subject that has something to show.

A picture is a column of panels. A panel has lines over the steps, stacked areas over the steps, or bars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from practicum.analysis.monitor.series import SMALLEST_WINDOW, MetricGroup, Series, moving_average
from practicum.analysis.png import BLUE, COLOURS, DOTS, GREEN, GREY, GRID, INK, ORANGE, RED, write_png
from practicum.core.counts import Count
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, PANEL_HEIGHT, FRAME_HEIGHT, BAR_HEIGHT = 8.6, 2.9, 1.0, 0.42
"""Inches; the frame is what is around all panels, and a bar includes the space after it."""

MANY_STEPS = 40
"""From this number of steps on, noisy values are drawn faintly, below their moving average."""

MOST_DOMAINS = len(COLOURS)

Groups = Mapping[str, MetricGroup]


@dataclass(frozen=True, slots=True)
class Line:
    """A series against `x` (the steps where None), with an interval around it where `low` and `high` are given."""

    label: str
    y: Series
    colour: str = BLUE
    x: Sequence[float] | None = None
    low: Series | None = None
    high: Series | None = None


@dataclass(frozen=True, slots=True)
class LinePanel:
    """Lines in one panel; `noisy` ones vary from step to step, so that a moving average is drawn too."""

    ylabel: str
    lines: Sequence[Line]
    percent: bool = False
    noisy: bool = False
    xlabel: str = "step"


@dataclass(frozen=True, slots=True)
class AreaPanel:
    """Lines stacked on top of each other: the parts of a whole."""

    ylabel: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class BarPanel:
    """For each name one bar stacked from `pieces`, or one bar for each piece; `notes` are written at their ends."""

    xlabel: str
    names: Sequence[str]
    pieces: Mapping[str, Sequence[float]]
    stacked: bool = True
    notes: Sequence[str] = ()


Panel = LinePanel | AreaPanel | BarPanel


def check_folder(folder: Path) -> None:
    """Raise UsageError where the folder is a file. Commands check this before they start to work."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--plot {folder} is a file: give a folder, in which one picture per subject is drawn")


def monitor_plots(groups: Groups, steps: Sequence[int], folder: Path, title: str) -> list[Path]:
    """Draw all pictures into `folder` and return the files. Raises UsageError as `check_folder` does, and StoreError
    where a file cannot be written."""
    check_folder(folder)
    files = []
    for name, (subject, panels_of) in PICTURES.items():
        panels = [panel for panel in panels_of(groups) if _has_values(panel)]
        if panels:
            files.append(folder / f"{name}.png")
            _draw(panels, steps, f"{subject} · {title}", files[-1])
    return files


def _has_values(panel: Panel) -> bool:
    if isinstance(panel, BarPanel):
        return any(any(piece) for piece in panel.pieces.values())
    lines = panel.lines[:1] if isinstance(panel, AreaPanel) else panel.lines
    return any(value is not None for line in lines for value in line.y)


# The panels of each picture


def _success(groups: Groups) -> list[Panel]:
    series, window = groups["success"].by_step, groups["success"].numbers.get("window")
    if not series:
        return []
    line = Line("success", series["rate"], BLUE, None, series["low"], series["high"])
    panels: list[Panel] = [LinePanel(f"success rate, last {window:,} attempts\n(95% interval)", [line], percent=True)]
    if any(series["errors"]):
        panels.append(LinePanel(Count.FAILED_ATTEMPTS, [Line("errors", series["errors"], RED)], noisy=True))
    return panels


def _learning(groups: Groups) -> list[Panel]:
    """Only for several domains, since a single one is the picture of success."""
    domains: Mapping[str, Any] = groups["learning"].numbers["domains"] if "learning" in groups else {}
    if len(domains) < 2:
        return []
    largest = sorted(domains, key=lambda name: -domains[name]["attempts"])[:MOST_DOMAINS]
    with_interval = len(largest) <= 3
    lines = []
    for name, colour in zip(largest, COLOURS, strict=False):
        curve = domains[name]["by_attempt"]
        interval = (curve["low"], curve["high"]) if with_interval else (None, None)
        # Without its interval, the rate of the first few attempts would look more certain than it is.
        skipped = 0 if with_interval or domains[name]["attempts"] < SMALLEST_WINDOW else SMALLEST_WINDOW // 2
        rate = [None] * skipped + curve["rate"][skipped:]
        lines.append(Line(name, rate, colour, curve["attempt"], *interval))
    more = f"\n({len(domains) - MOST_DOMAINS} smaller domains not shown)" if len(domains) > MOST_DOMAINS else ""
    window = min(domains[name]["window"] for name in largest)
    ylabel = f"success rate, last {window:,} attempts or more{more}"
    return [LinePanel(ylabel, lines, percent=True, xlabel="attempt in its domain")]


def _memory(groups: Groups) -> list[Panel]:
    kinds = {"successes": ("from successes", GREEN), "failures": ("from failures", RED), "others": ("others", GREY)}
    series = groups["memory"].by_step if "memory" in groups else {}
    lines = [Line(label, series[name], colour) for name, (label, colour) in kinds.items() if name in series]
    return [AreaPanel("memories", lines)] if lines else []


def _retrieval(groups: Groups) -> list[Panel]:
    if "retrieval" not in groups:
        return []
    series = groups["retrieval"].by_step
    similarity = [Line("best", series["best"], ORANGE), Line("mean", series["similarity"], BLUE)]
    panels: list[Panel] = [LinePanel("similarity of retrieved\nentries to the task", similarity, noisy=True)]
    if "relied_on" in series:
        line = Line("relied on", series["relied_on"], GREEN)
        panels.append(LinePanel("retrieved entries that\nthe agent relied on", [line], percent=True, noisy=True))
    return panels


def _context(groups: Groups) -> list[Panel]:
    series = groups["context"].by_step
    return [
        LinePanel("entries", [Line("entries", series["entries"], BLUE)]),
        LinePanel("tokens", [Line("tokens", series["tokens"], ORANGE)]),
    ]


def _drift(groups: Groups) -> list[Panel]:
    series = groups["context"].by_step
    if "drift" not in series:
        return []
    return [
        LinePanel("cosine distance from\nthe first version", [Line("first", series["from_first"], BLUE)]),
        LinePanel("cosine distance from\nthe step before", [Line("step", series["drift"], RED)]),
        LinePanel("coherence: similarity\nof entries to their mean", [Line("coherence", series["coherence"], GREEN)]),
    ]


def _contrast(groups: Groups) -> list[Panel]:
    if "contrast" not in groups:
        return []
    group = groups["contrast"]
    line = Line("agreement", group.by_step["agreement"], BLUE)
    by = group.numbers["by"]
    return [
        LinePanel("attempts that agree with\nthe chosen answer", [line], percent=True, noisy=True),
        BarPanel("tasks, by what chose", list(by), {"tasks": list(by.values())}, notes=[f"{n:,}" for n in by.values()]),
    ]


def _latency(groups: Groups) -> list[Panel]:
    rows = [row for row in groups["latency"].numbers["components"] if "median" in row]
    names = [row["component"] + ("\n(evaluation)" if row["stage"] == "evaluation" else "") for row in rows]
    pieces = {"median": [row["median"] for row in rows], "95th percentile": [row["p95"] for row in rows]}
    notes = [f"{row['share'] or 0:.0%} of all seconds, {row['calls']:,} calls" for row in rows]
    return [BarPanel("seconds per call", names, pieces, False, notes)]


def _pace(groups: Groups) -> list[Panel]:
    series = groups["latency"].by_step
    named = (("step_seconds", "seconds per step", BLUE), ("attempt_seconds", "seconds per attempt", ORANGE))
    panels: list[Panel] = [
        LinePanel(words, [Line(words, series[name], colour)], noisy=True)
        for name, words, colour in named
        if name in series
    ]
    if "agent" in groups:
        line = Line("actions", groups["agent"].by_step["actions"], GREEN)
        panels.append(LinePanel("actions per attempt", [line], noisy=True))
    return panels


def _tokens(groups: Groups) -> list[Panel]:
    if "tokens" not in groups or "learning" not in groups["tokens"].numbers:
        return []
    costs, series = groups["tokens"].numbers["learning"], groups["tokens"].by_step
    roles, tasks = costs["by_role"], costs["tasks"] or 1
    lines = [Line(role, series[role], colour) for role, colour in zip(roles, COLOURS, strict=False)]
    pieces = {
        "input": [(u["input_tokens"] - u["cached_tokens"]) / tasks for u in roles.values()],
        "cached input": [u["cached_tokens"] / tasks for u in roles.values()],
        "output": [u["output_tokens"] / tasks for u in roles.values()],
    }
    notes = [f"{sum(piece[i] for piece in pieces.values()):,.0f}" for i in range(len(roles))]
    return [
        AreaPanel("tokens per task", lines),
        BarPanel("tokens per task, all steps", [*roles], pieces, notes=notes),
    ]


PICTURES: Mapping[str, tuple[str, Callable[[Groups], list[Panel]]]] = {
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
"""For each file its subject and its panels."""


# Drawing


def _draw(panels: Sequence[Panel], steps: Sequence[int], title: str, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    heights = [_height(panel) for panel in panels]
    layout = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1)
    figure = Figure(figsize=(WIDTH, FRAME_HEIGHT + sum(heights)), dpi=DOTS, layout=layout)
    figure.suptitle(title, x=0.02, ha="left", fontsize=13, color=INK)
    grid = figure.add_gridspec(len(panels), 1, height_ratios=heights)
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(grid[i])
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=10)
        match panel:
            case LinePanel():
                _draw_lines(axes, panel, steps)
            case AreaPanel():
                _draw_areas(axes, panel, steps)
            case BarPanel():
                _draw_bars(axes, panel)
            case _:
                assert_never(panel)
    write_png(figure, path)


def _height(panel: Panel) -> float:
    if not isinstance(panel, BarPanel):
        return PANEL_HEIGHT
    return 1.1 + BAR_HEIGHT * len(panel.names) * (1 if panel.stacked else 1.6)


def _draw_lines(axes: Axes, panel: LinePanel, steps: Sequence[int]) -> None:
    scale = 100 if panel.percent else 1
    averaged = panel.noisy and len(steps) >= MANY_STEPS
    window = max(5, len(steps) // 20)
    for line in panel.lines:
        x = steps if line.x is None else line.x
        # Few points are marked, so that it shows where they are.
        marker = "o" if len(x) <= MANY_STEPS else None
        if averaged:
            axes.plot(x, _scaled(line.y, scale), color=line.colour, lw=0.7, alpha=0.3)
        y = _scaled(moving_average(line.y, window) if averaged else line.y, scale)
        axes.plot(x, y, color=line.colour, lw=2, marker=marker, ms=3.5, label=line.label)
        if line.low is not None and line.high is not None:
            low, high = _scaled(line.low, scale), _scaled(line.high, scale)
            axes.fill_between(x, low, high, color=line.colour, alpha=0.15, lw=0)
    _frame(axes, panel.ylabel + (f"\n(mean of {window:,} steps)" if averaged else ""), panel.xlabel, len(panel.lines))
    if panel.percent:
        from matplotlib.ticker import PercentFormatter

        axes.set_ylim(-2, 102)
        axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
        return
    values = [value for line in panel.lines for value in line.y if value is not None]
    axes.set_ylim(1.05 * min(0.0, *values), 1.05 * max(0.0, *values) or 1.0)


def _scaled(series: Series, scale: float) -> list[float]:
    return [float("nan") if value is None else value * scale for value in series]


def _draw_areas(axes: Axes, panel: AreaPanel, steps: Sequence[int]) -> None:
    """Steps at which the first part has no value are left out; no other part has one there either."""
    known = [i for i, value in enumerate(panel.lines[0].y) if value is not None]
    # A single point would have no area.
    x = [steps[i] for i in known] if len(known) > 1 else [steps[known[0]] - 0.5, steps[known[0]] + 0.5]
    columns = [[line.y[i] or 0.0 for i in known] * (2 // len(known) or 1) for line in panel.lines]
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
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.margins(x=0.02)
    if lines > 1:
        _legend(axes, lines)


def _legend(axes: Axes, entries: int) -> None:
    """Above the panel, where it hides nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=min(entries, 4), frameon=False, fontsize=10, borderaxespad=0.2
    )


def _draw_bars(axes: Axes, panel: BarPanel) -> None:
    import numpy as np
    from matplotlib.ticker import StrMethodFormatter

    rows = np.arange(len(panel.names))
    pieces = list(panel.pieces.items())
    thickness = 0.62 if panel.stacked else 0.76 / len(pieces)
    ends = np.zeros(len(rows))
    for i, (name, values) in enumerate(pieces):
        places = rows if panel.stacked else rows + (i - (len(pieces) - 1) / 2) * thickness
        start = ends if panel.stacked else None
        axes.barh(places, values, thickness, left=start, color=COLOURS[i], label=name)
        ends = ends + values if panel.stacked else np.maximum(ends, values)
    for y, end, note in zip(rows, ends, panel.notes, strict=False):
        axes.annotate(note, (end, y), (6, 0), textcoords="offset points", va="center", fontsize=9.5, color=INK)
    axes.set_yticks(rows, panel.names)
    axes.invert_yaxis()
    longest = max(map(len, panel.notes), default=0)
    axes.set_xlim(0, float(ends.max()) * (1.04 + longest / 70))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xlabel(panel.xlabel, fontsize=10.5)
    axes.grid(axis="x", color=GRID, lw=0.8)
    if len(pieces) > 1:
        _legend(axes, len(pieces))
