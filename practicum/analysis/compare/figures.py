"""The pictures of a comparison: differences from a baseline, scores against costs, and learning curves.

Each is as wide as a phone's screen, so that its text stays readable there. Variants keep their number and colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from practicum.analysis.formats import count, money, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.2
"""Inches."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#8C564B", "#666666")
"""Colours that people of any colour vision can tell apart (after Okabe and Ito 2008)."""

INK, SOFT, GRID = "#1a1a1a", "#6b7280", "#e2e4e8"

VERDICT_COLOURS = {"better": "#00785a", "worse": "#b3400a"}

ROUND_TIMES = (
    *(unit * n for unit in (0.01, 0.1) for n in (1, 2, 5)),
    *(unit * n for unit in (1, 60) for n in (1, 2, 5, 10, 20)),
    *(3600 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
"""Times in seconds that people call round."""

COST_AXES: Mapping[str, tuple[str, Callable[[float], str], Sequence[float]]] = {
    "alone_s": ("time alone, test included", seconds, ROUND_TIMES),
    "usd": ("cost in US dollars, test included", money, ()),
    "tokens": ("tokens, test included", count, ()),
}
"""For each kind of cost the title of its axis, how its values are written, and which ones are round."""


def colour(index: int) -> str:
    """The colour of a variant, by its place in the report."""
    return COLOURS[index % len(COLOURS)]


def differences_figure(rows: Sequence[Mapping[str, Any]], baseline: str) -> Figure:
    """Differences from the baseline with their 95% intervals, the largest on top; a filled dot is a claim."""
    rows = sorted((row for row in rows if "effect" in row), key=lambda row: row["effect"])
    figure, axes = _figure(0.9 + 0.3 * len(rows))
    axes.axvline(0, color=SOFT, lw=1)
    for y, row in enumerate(rows):
        tint = VERDICT_COLOURS.get(row["verdict"], SOFT)
        claimed = row["verdict"] in VERDICT_COLOURS
        axes.plot([100 * end for end in row["ci95"]], [y, y], color=tint, lw=2.5 if claimed else 1.5)
        axes.plot(100 * row["effect"], y, "o", ms=7, mec=tint, mew=1.5, mfc=tint if claimed else "white")
    axes.set_yticks(range(len(rows)), [_shortened(row["name"]) for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    axes.set_xlabel(f"score minus that of {_shortened(baseline)} (percentage points)")
    axes.grid(axis="x", color=GRID)
    return figure


def cost_figure(rows: Sequence[Mapping[str, Any]], axis: str, front: Sequence[str]) -> Figure | None:
    """Scores with 95% intervals against a cost, and the Pareto front as steps; None for fewer than two variants."""
    places = [(i, row) for i, row in enumerate(rows) if row["score"] is not None and row[axis] is not None]
    if len(places) < 2:
        return None
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    title, write, _ = COST_AXES[axis]
    figure, axes = _figure(3.8)
    costs = [row[axis] for _, row in places]
    logarithmic = min(costs) > 0 and max(costs) > 8 * min(costs)
    if logarithmic:
        room = (max(costs) / min(costs)) ** 0.1
        axes.set_xscale("log")
        axes.set_xlim(min(costs) / room, max(costs) * room)
        _mark_round_values(axes, axis)
    else:
        room = 0.1 * (max(costs) - min(costs)) or 0.1 * max(costs) or 1.0
        axes.set_xlim(min(costs) - room if min(costs) > room else 0, max(costs) + room)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    by_name = {row["name"]: row for _, row in places}
    corners = [(by_name[name][axis], 100 * by_name[name]["score"]) for name in front]
    # The front is level until the next better variant can be afforded.
    axes.step(
        [*(x for x, _ in corners), axes.get_xlim()[1]], [*(y for _, y in corners), corners[-1][1]],
        where="post", color=SOFT, lw=1.2, ls="--", zorder=1,
    )  # fmt: skip
    dots = []
    for i, row in places:
        x, y = row[axis], 100 * row["score"]
        axes.plot([x, x], [100 * end for end in row["ci95"]], color=colour(i), lw=2, alpha=0.35)
        axes.plot(x, y, "o", ms=8, mec=colour(i), mew=1.8, mfc=colour(i) if row["name"] in front else "white")
        dots.append((str(i + 1), x, y, colour(i)))
    _percent_limits(axes, [end for _, row in places for end in row["ci95"]])
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.xaxis.set_major_formatter(lambda value, _: write(value))
    axes.set_xlabel(title + (" (log scale)" if logarithmic else ""))
    axes.set_ylabel("score")
    axes.grid(axis="y", color=GRID)
    _number_dots(figure, axes, dots)
    return figure


def curves_figure(rows: Sequence[Mapping[str, Any]], field: str, ylabel: str) -> Figure | None:
    """One panel for each variant that learned in steps: its curve in colour before the others in grey, all on the same
    axes. `field` is "score" or "val" (shares), or "tokens"; None where no curve has a value."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

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
    figure = Figure(figsize=(WIDTH, 0.4 + 1.6 * lines), layout="constrained")
    panels = figure.subplots(lines, 2, sharex=True, sharey=True, squeeze=False).flatten()
    for (i, curve), axes in zip(curves.items(), panels, strict=False):
        for j, other in curves.items():
            if other and j != i:
                axes.plot(*zip(*other, strict=True), color=SOFT, lw=1.2, alpha=0.3)
        if curve:
            axes.plot(*zip(*curve, strict=True), color=colour(i), lw=2.2)
        axes.set_title(f"{i + 1}: {_shortened(rows[i]['name'], 26)}", fontsize=9, loc="left", color=INK)
        _plain(axes)
        axes.grid(axis="y", color=GRID)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: count(value))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        if field == "tokens":
            axes.set_ylim(0, 1.08 * max(*values, 1))
            axes.yaxis.set_major_formatter(lambda value, _: count(value))
        else:
            _percent_limits(axes, [value / 100 for value in values])
            axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    figure.supxlabel("training tasks tried", fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    return figure


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.set_axisbelow(True)


def _percent_limits(axes: Axes, shares: Sequence[float]) -> None:
    """Limits around these shares, never beyond 0% and 100% by more than a line's width."""
    room = max(0.05, 0.1 * (max(shares) - min(shares)))
    axes.set_ylim(100 * max(-0.02, min(shares) - room), 100 * min(1.02, max(shares) + room))


def _mark_round_values(axes: Axes, axis: str) -> None:
    """Put ticks at values that people call round, far enough apart for their labels; matplotlib knows only powers of
    ten."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = axes.get_xlim()
    decimal = [digit * 10.0**power for power in range(-9, 12) for digit in (1, 2, 5)]
    within = [mark for mark in COST_AXES[axis][2] or decimal if low <= mark <= high]
    # Every third of 1, 2, 5 is again a power of ten; every second would be an odd sequence.
    step = next((n for n in (1, 3, 6, 9) if all(b / a > (high / low) ** 0.14 for a, b in pairwise(within[::n]))), 12)
    axes.xaxis.set_major_locator(FixedLocator(within[::step]))
    axes.xaxis.set_minor_locator(NullLocator())


def _number_dots(figure: Figure, axes: Axes, dots: Sequence[tuple[str, float, float, str]]) -> None:
    """Write each variant's number beside its dot, where it covers no other dot or number."""
    from matplotlib.patheffects import withStroke

    figure.draw_without_rendering()
    scale = 72 / figure.dpi
    spots = [tuple(scale * axes.transData.transform((x, y))) for _, x, y, _ in dots]
    (left, bottom), (right, top) = scale * axes.get_window_extent().get_points()
    taken = list(spots)
    around = [(f * dx, f * dy) for f in (1, 2, 3) for dx, dy in product((12, -12, 0), (0, 11, -11)) if dx or dy]
    for (label, x, y, tint), (px, py) in zip(dots, spots, strict=True):
        inside = [(dx, dy) for dx, dy in around if left < px + dx < right and bottom < py + dy < top] or around
        free = (
            (dx, dy) for dx, dy in inside
            if all(abs(px + dx - a) > 11 or abs(py + dy - b) > 9 for a, b in taken)
        )  # fmt: skip
        dx, dy = next(free, inside[0])
        taken.append((px + dx, py + dy))
        distant = max(abs(dx), abs(dy)) > 12
        number = axes.annotate(
            label, (x, y), (dx, dy), textcoords="offset points", ha="center", va="center", fontsize=9,
            fontweight="bold", color=INK, arrowprops={"arrowstyle": "-", "color": tint} if distant else None,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip
        number.set_in_layout(False)


def _shortened(name: str, most: int = 20) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
