"""The pictures of a comparison: differences from a baseline, scores against costs, and learning curves.

Each is as wide as a phone's screen, so that its text stays readable there. Variants keep their number and colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from practicum.analysis.png import COLOURS, GREEN, GREY, INK, RED, new_figure, plain, round_ticks, time_unit
from practicum.core.formats import count, money, points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.2
"""Inches."""

VERDICT_COLOURS = {"better": GREEN, "worse": RED, "runs higher": GREEN, "runs lower": RED}
CLAIMS = ("better", "worse")
"""Verdicts about methods; the others are about these runs, or no claims."""

COST_AXES: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "alone_s": ("time alone in {unit}, test included", "{:,g}".format),
    "usd": ("cost in US dollars, test included", money),
    "tokens": ("tokens, test included", count),
}
"""For each kind of cost the title of its axis, and how its values are written."""


def colour(index: int) -> str:
    """The colour of a variant, by its place in the report."""
    return COLOURS[index % len(COLOURS)]


def differences_figure(rows: Sequence[Mapping[str, Any]], baseline: str) -> Figure | None:
    """Differences from the baseline with their 95% intervals, the largest on top. A filled dot is a claim about the
    methods, a coloured ring one about these runs only. None where there is nothing to compare."""
    rows = sorted((row for row in rows if "effect" in row), key=lambda row: row["effect"])
    if not rows:
        return None
    figure, axes = _figure(0.9 + 0.3 * len(rows), "x")
    axes.axvline(0, color=GREY, lw=1)
    for y, row in enumerate(rows):
        tint, claimed = VERDICT_COLOURS.get(row["verdict"], GREY), row["verdict"] in CLAIMS
        axes.plot([100 * end for end in row["ci95"]], [y, y], color=tint, lw=2.5 if claimed else 1.5)
        axes.plot(100 * row["effect"], y, "o", ms=7, mec=tint, mew=1.5, mfc=tint if claimed else "white")
    axes.set_yticks(range(len(rows)), [_shortened(row["name"]) for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.xaxis.set_major_formatter(lambda value, _: points(value / 100).removesuffix(".0") if value else "0")
    axes.set_xlabel(f"difference from {_shortened(baseline)} (percentage points)")
    return figure


def cost_figure(rows: Sequence[Mapping[str, Any]], axis: str, front: Sequence[str]) -> Figure | None:
    """Scores with 95% intervals against a cost, and the Pareto front as steps; None for fewer than two variants."""
    known = [(i, row) for i, row in enumerate(rows) if row["score"] is not None and row[axis] is not None]
    if len(known) < 2:
        return None
    title, write = COST_AXES[axis]
    name, size = time_unit(max(row[axis] for _, row in known)) if axis == "alone_s" else ("", 1.0)
    dots = [(row["name"], i, row[axis] / size, 100 * row["score"]) for i, row in known]
    figure, axes = _figure(3.8)
    costs = [x for _, _, x, _ in dots]
    logarithmic = min(costs) > 0 and max(costs) > 8 * min(costs)
    if logarithmic:
        room = (max(costs) / min(costs)) ** 0.1
        axes.set_xscale("log")
        axes.set_xlim(min(costs) / room, max(costs) * room)
        round_ticks(axes.xaxis, *axes.get_xlim())
    else:
        room = 0.1 * (max(costs) - min(costs)) or 0.1 * max(costs) or 1.0
        axes.set_xlim(min(costs) - room if min(costs) > room else 0, max(costs) + room)
        axes.locator_params("x", nbins=5)
    corners = [(x, y) for named in front for shown, _, x, y in dots if shown == named]
    # The front is level until the next better variant can be afforded.
    axes.step(
        [*(x for x, _ in corners), axes.get_xlim()[1]], [*(y for _, y in corners), corners[-1][1]],
        where="post", color=GREY, lw=1.2, ls="--", zorder=1,
    )  # fmt: skip
    for (shown, i, x, y), (_, row) in zip(dots, known, strict=True):
        axes.plot([x, x], [100 * end for end in row["ci95"]], color=colour(i), lw=2, alpha=0.35)
        axes.plot(x, y, "o", ms=8, mec=colour(i), mew=1.8, mfc=colour(i) if shown in front else "white")
    _percent_axis(axes, [100 * end for _, row in known for end in row["ci95"]])
    axes.xaxis.set_major_formatter(lambda value, _: write(value))
    axes.set_xlabel(title.format(unit=name) + (" (log scale)" if logarithmic else ""))
    axes.set_ylabel("score")
    _number_dots(figure, axes, [(i, x, y) for _, i, x, y in dots])
    return figure


def curves_figure(rows: Sequence[Mapping[str, Any]], field: str, ylabel: str) -> Figure | None:
    """One panel for each variant that learned in steps: its curve in colour before the others in grey, all on the same
    axes. `field` is "score" or "val" (shares), or "tokens"; None where no curve has a value."""
    scale = 1 if field == "tokens" else 100
    curves = {
        i: [(point["tasks"], scale * point[field]) for point in row["curve"] if point[field] is not None]
        for i, row in enumerate(rows)
        if len(row["curve"]) > 1
    }
    values = [value for curve in curves.values() for _, value in curve]
    if not values:
        return None
    lines = -(-len(curves) // 2)
    figure = new_figure(WIDTH, 0.4 + 1.6 * lines)
    from matplotlib.ticker import MaxNLocator

    panels = figure.subplots(lines, 2, sharex=True, sharey=True, squeeze=False).flatten()
    for i, axes in zip(curves, panels, strict=False):
        for j in (*(j for j in curves if j != i), i):
            look = {"color": colour(i), "lw": 2.2} if j == i else {"color": GREY, "lw": 1.2, "alpha": 0.3}
            axes.plot([x for x, _ in curves[j]], [y for _, y in curves[j]], **look)
        axes.set_title(f"{i + 1}: {_shortened(rows[i]['name'], 26)}", fontsize=9, loc="left", color=INK)
        plain(axes, labelsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: count(value))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        if field == "tokens":
            axes.set_ylim(0, 1.08 * max(*values, 1))
            axes.yaxis.set_major_formatter(lambda value, _: count(value))
        else:
            _percent_axis(axes, values)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    # The lowest panel of each column has the labels, also above an empty place.
    for axes in panels[: len(curves)][-2:]:
        axes.tick_params(labelbottom=True)
    figure.supxlabel("training tasks tried", fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    return figure


def _figure(height: float, grid: Literal["x", "y"] = "y") -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH, height)
    axes = figure.add_subplot()
    plain(axes, grid, labelsize=9)
    return figure, axes


def _percent_axis(axes: Axes, values: Sequence[float]) -> None:
    """Label the y-axis in percent, with limits around these values, never beyond 0% and 100% by more than a line's
    width."""
    room = max(5, 0.1 * (max(values) - min(values)))
    axes.set_ylim(max(-2, min(values) - room), min(102, max(values) + room))
    axes.yaxis.set_major_formatter("{x:.0f}%")


def _number_dots(figure: Figure, axes: Axes, dots: Sequence[tuple[int, float, float]]) -> None:
    """Write each variant's number beside its dot, where it covers no other dot or number."""
    from matplotlib.patheffects import withStroke

    figure.draw_without_rendering()
    # Places are in points from the lower left corner.
    scale = 72 / figure.dpi
    frame = axes.get_window_extent()
    places = [tuple(scale * axes.transData.transform((x, y))) for _, x, y in dots]
    taken = list(places)
    around = [(f * dx, f * dy) for f in (1, 2, 3) for dx, dy in product((12, -12, 0), (0, 11, -11)) if dx or dy]
    for (i, x, y), (left, up) in zip(dots, places, strict=True):
        inside = [(dx, dy) for dx, dy in around if frame.contains((left + dx) / scale, (up + dy) / scale)] or around
        free = [
            (dx, dy) for dx, dy in inside
            if all(abs(left + dx - a) > 11 or abs(up + dy - b) > 9 for a, b in taken)
        ]  # fmt: skip
        dx, dy = free[0] if free else inside[0]
        taken.append((left + dx, up + dy))
        # A number far from its dot is joined to it by a line.
        line = {"arrowstyle": "-", "color": colour(i)} if max(abs(dx), abs(dy)) > 12 else None
        number = axes.annotate(
            str(i + 1), (x, y), (dx, dy), textcoords="offset points", ha="center", va="center", fontsize=9,
            fontweight="bold", color=INK, arrowprops=line, path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip
        number.set_in_layout(False)


def _shortened(name: str, most: int = 20) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
