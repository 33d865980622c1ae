"""Plots of a run's metrics: one PNG per subject with data.

A plot is a column of panels. A panel has lines over the steps, stacked areas over the steps, or bars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from practicum.analysis.monitor.series import MetricGroup, Series
from practicum.analysis.png import BLUE, COLOURS, GREEN, GREY, INK, ORANGE, RED, new_figure, plain, write_png
from practicum.core.errors import UsageError
from practicum.core.metrics import METRICS, MetricKind
from practicum.core.windows import SMALLEST_WINDOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, PANEL_HEIGHT, FRAME_HEIGHT, BAR_HEIGHT = 8.6, 2.9, 1.0, 0.42
"""Sizes (inches). The frame is the space around all panels. The height of a bar includes the space between this bar and
the next."""

MANY_STEPS = 40
"""With at least this number of steps, noisy values are drawn faintly, with their moving average."""

MOST_DOMAINS = len(COLOURS)

Groups = Mapping[str, MetricGroup]
Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Line:
    """A series over `x` (None: over the steps). If `low` and `high` are set, the interval between `low` and `high` is
    drawn, too."""

    label: str
    y: Series
    colour: str = BLUE
    x: Sequence[float] | None = None
    low: Series | None = None
    high: Series | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """A panel of lines. `stacked`: draw the series as stacked areas, because the series are parts of a whole. `noisy`:
    the values vary from step to step, so also draw a moving average."""

    ylabel: str
    lines: Sequence[Line]
    percent: bool = False
    noisy: bool = False
    stacked: bool = False
    xlabel: str = "step"


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel of bars. `names`: labels of the rows. `pieces`: name of a quantity → lengths of this quantity, one per
    row. If `stacked`, each row has one bar, in which the quantities follow each other; else each row has one bar per
    quantity. `notes`: texts after the bars, one per row."""

    xlabel: str
    names: Sequence[str]
    pieces: Mapping[str, Sequence[float]]
    notes: Sequence[str]
    stacked: bool = True


Panel = Lines | Bars


def check_folder(folder: Path) -> None:
    """Raise UsageError if `folder` is a file or ends in .png. Commands call this function before they start their
    work."""
    if (folder.exists() and not folder.is_dir()) or folder.suffix.lower() == ".png":
        raise UsageError(
            "file.wrong_kind", f"`plot={folder}` is a file: pass a folder, because there is one plot per subject"
        )


def monitor_plots(groups: Groups, steps: Sequence[int], folder: Path, title: str) -> list[Path]:
    """Draw all plots into `folder`. Returns the files. Raises UsageError as `check_folder` does, and StoreError if a
    file cannot be written."""
    check_folder(folder)
    files = []
    for name, (subject, group, more) in PICTURES.items():
        panels = [*_series(name, groups), *(more(groups[group]) if more is not None and group in groups else ())]
        if panels := [panel for panel in panels if _has_values(panel)]:
            files.append(folder / f"{name}.png")
            _draw(panels, steps, f"{subject} · {title}", files[-1])
    return files


def _has_values(panel: Panel) -> bool:
    if isinstance(panel, Bars):
        return any(any(piece) for piece in panel.pieces.values())
    return any(value is not None for line in panel.lines for value in line.y)


# The panels of each plot


def _series(picture: str, groups: Groups) -> list[Panel]:
    """Return the panels of the plot `picture` in `SERIES_PANELS`. Series that the run does not have are left out."""
    panels: list[Panel] = []
    for name, title, metrics, options in SERIES_PANELS:
        shown = {METRICS[metric]: colour for metric, colour in metrics.items() if name == picture}
        lines = [
            Line(metric.title, groups[metric.group].by_step[metric.field], colour)
            for metric, colour in shown.items()
            if metric.group in groups and metric.field in groups[metric.group].by_step
        ]
        if lines:
            (first, *_) = shown
            panels.append(Lines(title or _axis(first), lines, **options))
    return panels


def _axis(metric: MetricKind) -> str:
    """Return the title of the axis of a metric, wrapped if it is long."""
    return fill(metric.title, 26)


NOISY, NOISY_SHARE = {"noisy": True}, {"noisy": True, "percent": True}

SERIES_PANELS: tuple[tuple[str, str, Mapping[str, str], Mapping[str, Any]], ...] = (
    (
        "memory", "memories", {"memory.successes": GREEN, "memory.failures": RED, "memory.others": GREY},
        {"stacked": True},
    ),
    (
        "retrieval", "similarity of entries\nto the task",
        {"retrieval.best": ORANGE, "retrieval.similarity": BLUE}, NOISY,
    ),
    ("retrieval", "retrieved entries that\nthe agent cited", {"retrieval.relied_on": GREEN}, NOISY_SHARE),
    ("context", "", {"context.entries": BLUE}, {}),
    ("context", "", {"context.tokens": ORANGE}, {}),
    ("drift", "", {"context.from_first": BLUE}, {}),
    ("drift", "", {"context.drift": RED}, {}),
    ("drift", "", {"context.coherence": GREEN}, {}),
    ("contrast", "attempts that agree with\nthe chosen answer", {"contrast.agreement": BLUE}, NOISY_SHARE),
    ("pace", "", {"latency.step_seconds": BLUE}, NOISY),
    ("pace", "", {"latency.attempt_seconds": ORANGE}, NOISY),
    ("pace", "", {"agent.actions": GREEN}, NOISY),
)  # fmt: skip
"""Panels of series: plot, title of the axis (empty: the title of the metric), metrics with colours, and options of
`Lines`."""


def _success(group: MetricGroup) -> list[Panel]:
    series, window = group.by_step, group.numbers.get("window")
    if not series:
        return []
    lines = [Line("first attempts", series["rate"], low=series["low"], high=series["high"])]
    lines += [Line(METRICS["success.best_of_k"].title, series["best_of_k"], ORANGE)] if "best_of_k" in series else []
    panels: list[Panel] = [Lines(f"success rate, last {window:,} attempts\n(95% interval)", lines, percent=True)]
    if any(series["errors"]):
        panels.append(Lines(METRICS["success.errors"].title, [Line("errors", series["errors"], RED)], noisy=True))
    return panels


def _learning(group: MetricGroup) -> list[Panel]:
    """Return the panel of learning by domain. If all tasks have the same domain, return no panel, because the plot
    `success` shows the same curve."""
    domains: Mapping[str, Any] = group.numbers["domains"]
    if len(domains) < 2:
        return []
    largest = sorted(domains, key=lambda name: -domains[name]["attempts"])[:MOST_DOMAINS]
    with_interval = len(largest) <= 3
    lines = []
    for name, colour in zip(largest, COLOURS, strict=False):
        curve = domains[name]["by_attempt"]
        interval = (curve["low"], curve["high"]) if with_interval else (None, None)
        # Leave out the rate of the first few attempts if no interval is drawn: without an interval, the rate of a few
        # attempts would look too certain.
        skipped = 0 if with_interval or domains[name]["attempts"] < SMALLEST_WINDOW else SMALLEST_WINDOW // 2
        rate = [None] * skipped + curve["rate"][skipped:]
        lines.append(Line(name, rate, colour, curve["attempt"], *interval))
    more = f"\n({len(domains) - MOST_DOMAINS} smaller domains not shown)" if len(domains) > MOST_DOMAINS else ""
    window = min(domains[name]["window"] for name in largest)
    ylabel = f"success rate,\nlast {window:,} attempts or more{more}"
    return [Lines(ylabel, lines, percent=True, xlabel="attempt in its domain")]


def _chosen_by(group: MetricGroup) -> list[Panel]:
    by: Mapping[str, int] = group.numbers["by"]
    notes = [f"{n:,}" for n in by.values()]
    return [Bars("tasks, by how the answer was chosen", [*by], {"tasks": [*by.values()]}, notes)]


def _latency(group: MetricGroup) -> list[Panel]:
    rows = [row for row in group.numbers["components"] if "median" in row]
    names = [row["component"] + ("\n(evaluation)" if row["stage"] == "evaluation" else "") for row in rows]
    pieces = {"median": [row["median"] for row in rows], "95th percentile": [row["p95"] for row in rows]}
    notes = [f"{row['share'] or 0:.0%} of all seconds, {row['calls']:,} calls" for row in rows]
    return [Bars("seconds per call", names, pieces, notes, stacked=False)]


def _tokens(group: MetricGroup) -> list[Panel]:
    if "learning" not in group.numbers:
        return []
    costs = group.numbers["learning"]
    roles, tasks = costs["by_role"], costs["tasks"] or 1
    lines = [Line(role, group.by_step[role], colour) for role, colour in zip(roles, COLOURS, strict=False)]
    pieces = {
        "input": [(u["input_tokens"] - u["cached_tokens"]) / tasks for u in roles.values()],
        "cached input": [u["cached_tokens"] / tasks for u in roles.values()],
        "output": [u["output_tokens"] / tasks for u in roles.values()],
    }
    notes = [f"{sum(parts):,.0f}" for parts in zip(*pieces.values(), strict=True)]
    bars = Bars("tokens per task, all steps", [*roles], pieces, notes)
    return [Lines(METRICS["tokens.tokens"].title, lines, stacked=True), bars]


PICTURES: Mapping[str, tuple[str, str, Callable[[MetricGroup], list[Panel]] | None]] = {
    "success": ("Success", "success", _success),
    "learning_curve": ("Learning by domain", "learning", _learning),
    "memory": ("Memories", "memory", None),
    "retrieval": ("Retrieval", "retrieval", None),
    "context": ("Size of the context", "context", None),
    "drift": ("Drift of the context", "context", None),
    "contrast": ("Agreement of attempts", "contrast", _chosen_by),
    "latency": ("Latency by component", "latency", _latency),
    "pace": ("Pace", "latency", None),
    "tokens": ("Tokens", "tokens", _tokens),
}
"""Name of a plot → its title, the group of its metrics, and the function that returns the panels after the panels from
`SERIES_PANELS` (None: no further panels)."""


# Drawing


def _draw(panels: Sequence[Panel], steps: Sequence[int], title: str, path: Path) -> None:
    heights = [
        1.1 + BAR_HEIGHT * len(panel.names) * (1 if panel.stacked else 1.6) if isinstance(panel, Bars) else PANEL_HEIGHT
        for panel in panels
    ]
    figure = new_figure(WIDTH, FRAME_HEIGHT + sum(heights))
    figure.suptitle(title, x=0.02, ha="left", fontsize=13, color=INK)
    rows = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
    for (axes,), panel in zip(rows, panels, strict=True):
        if isinstance(panel, Bars):
            _draw_bars(axes, panel)
        else:
            _draw_lines(axes, panel, np.array(steps))
    write_png(figure, path)


def _draw_lines(axes: Axes, panel: Lines, steps: Values) -> None:
    from matplotlib.ticker import MaxNLocator

    plain(axes)
    averaged, window = panel.noisy and len(steps) >= MANY_STEPS, max(5, len(steps) // 20)
    axes.set_ylabel(panel.ylabel + (f"\n(mean of {window:,} steps)" if averaged else ""), fontsize=10.5)
    axes.set_xlabel(panel.xlabel, fontsize=10.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.margins(x=0.02)
    scale = 100 if panel.percent else 1
    if panel.stacked:
        _draw_areas(axes, panel, steps)
    for line in () if panel.stacked else panel.lines:
        x, y = steps if line.x is None else line.x, scale * _values(line.y)
        if averaged:
            axes.plot(x, y, color=line.colour, lw=0.7, alpha=0.3)
            y = moving_average(y, window)
        # Draw markers if there are few points.
        mark = "o" if len(x) <= MANY_STEPS else None
        axes.plot(x, y, color=line.colour, lw=2, marker=mark, ms=3.5, label=line.label)
        if line.low is not None and line.high is not None:
            low, high = scale * _values(line.low), scale * _values(line.high)
            axes.fill_between(x, low, high, color=line.colour, alpha=0.15, lw=0)
    if panel.percent:
        axes.set_ylim(-2, 102)
        axes.yaxis.set_major_formatter("{x:.0f}%")
    else:
        low, high = axes.dataLim.intervaly
        axes.set_ylim(1.05 * min(0.0, low), 1.05 * max(0.0, high) or 1.0)
    _legend(axes, len(panel.lines))


def _draw_areas(axes: Axes, panel: Lines, steps: Values) -> None:
    """Draw stacked areas. Steps at which the first line has no value are left out: at these steps, the other lines have
    no value either."""
    parts = np.stack([_values(line.y) for line in panel.lines])
    present = ~np.isnan(parts[0])
    x, parts = steps[present].astype(float), np.nan_to_num(parts[:, present])
    if len(x) == 1:
        # A single point would have no area.
        x, parts = np.array([x[0] - 0.5, x[0] + 0.5]), parts.repeat(2, axis=1)
    colours, labels = [line.colour for line in panel.lines], [line.label for line in panel.lines]
    axes.stackplot(x, parts, colors=colours, labels=labels, alpha=0.75, lw=0)


def _values(series: Series) -> Values:
    """Convert a series to an array, with NaN for None."""
    return np.array(series, dtype=float)


def moving_average(values: Values, window: int) -> Values:
    """Return the mean of each value and the `window` - 1 values before it; NaN if the value itself is NaN."""
    present = ~np.isnan(values)
    totals, counts = (np.convolve(v, np.ones(window))[: len(values)] for v in (np.nan_to_num(values), present))
    return np.where(present, totals / np.maximum(counts, 1), np.nan)


def _draw_bars(axes: Axes, panel: Bars) -> None:
    plain(axes, "x")
    rows, ends = np.arange(len(panel.names)), np.zeros(len(panel.names))
    thickness = 0.62 if panel.stacked else 0.76 / len(panel.pieces)
    for i, (name, values) in enumerate(panel.pieces.items()):
        places = rows if panel.stacked else rows + (i - (len(panel.pieces) - 1) / 2) * thickness
        axes.barh(places, values, thickness, left=ends if panel.stacked else None, color=COLOURS[i], label=name)
        ends = ends + values if panel.stacked else np.maximum(ends, values)
    for y, end, note in zip(rows, ends, panel.notes, strict=True):
        axes.annotate(note, (end, y), (6, 0), textcoords="offset points", va="center", fontsize=9.5, color=INK)
    axes.set_yticks(rows, panel.names)
    axes.invert_yaxis()
    axes.set_xlim(0, float(ends.max()) * (1.04 + max(map(len, panel.notes)) / 70))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel(panel.xlabel, fontsize=10.5)
    _legend(axes, len(panel.pieces))


def _legend(axes: Axes, entries: int) -> None:
    """Add a legend above the panel, outside of the data, if there are several lines or bars."""
    if entries > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(entries, 4), frameon=False, borderaxespad=0.2)
