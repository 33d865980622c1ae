"""Plots of the benches. Each function raises StoreError if its PNG file cannot be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from practicum.analysis.png import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, SKY, new_figure, plain, write_png
from practicum.bench.overload import OverloadRow
from practicum.bench.robustness import RobustnessRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _legend_below(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)


# ---- overload

LOOKS: Mapping[str, tuple[str, str, str, str]] = {
    "sequential": ("one at a time (ACE)", INK, "o", "--"),
    "combee": ("combee", BLUE, "D", "-"),
    "unaccounted": ("combee, no accounting", SKY, "s", "-"),
    "level-1": ("level 1 only", GREEN, "^", "-."),
    "exact": ("combee, as in the paper", PURPLE, "v", "-"),
    "naive": ("naive, one call", RED, "X", "-"),
    "summarized": ("summarized", ORANGE, "P", ":"),
    "top_k": ("top-K", GREY, "d", ":"),
}
"""Method → label, colour, marker and dash of the method's line."""


def overload_plot(rows: Sequence[OverloadRow], path: Path, model: str) -> None:
    """Plot the share of readable facts by the number of lessons, with a line for each method. Stopped rows are omitted.
    The legend shows the share at the largest number of lessons."""
    figure = new_figure(8.6, 5.2)
    axes = figure.add_subplot(xscale="log")
    by_method: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if not row.stopped:
            by_method.setdefault(row.method, []).append((row.n, 100 * row.readable))
    for order, (method, points) in enumerate(by_method.items()):
        name, colour, marker, dash = LOOKS[method]
        # Give later lines smaller markers, so that overlapping lines are all visible.
        look: dict[str, Any] = {"linewidth": 2, "markersize": 10 - 0.6 * order}
        if method == "sequential":
            # Draw the baseline on top, with hollow markers that do not hide the other lines.
            look = {"linewidth": 1.5, "markersize": 14, "markerfacecolor": "none", "zorder": 5}
        label = f"{name}  {max(points)[1]:.0f}%"
        axes.plot(*zip(*sorted(points), strict=True), color=colour, marker=marker, linestyle=dash, label=label, **look)
    plain(axes, "both", labelsize=11)
    sizes = sorted({row.n for row in rows})
    axes.set_xticks(sizes, labels=[str(size) for size in sizes])
    axes.minorticks_off()
    axes.set(xlim=(sizes[0] / 1.12, sizes[-1] * 1.12), ylim=(-3, 105))
    axes.yaxis.set_major_formatter("{x:.0f}%")
    axes.set_xlabel("lessons in the update", fontsize=12)
    axes.set_title("Facts still readable after one update", loc="left", fontsize=14, pad=24)
    # If the model's name is a path or an address, show only its last part.
    subtitle = f"each lesson states one distinct fact; curator: {model.rpartition('/')[2]}"
    axes.text(0, 1.03, subtitle, transform=axes.transAxes, fontsize=10, color=GREY)
    _legend_below(figure)
    write_png(figure, path)


# ---- robustness


def robustness_plot(rows: Sequence[RobustnessRow], path: Path) -> None:
    """Plot the scores with a harmful reflector on the left (ACE, table 17), and with a simulated weak reflector on the
    right (table 16). The bands extend from the worst to the best seed."""
    weak = [row for row in rows if row.setting.noise or not row.setting.every]
    simulated = any(row.setting.noise for row in rows)
    figure = new_figure(11.0 if simulated else 6.6, 4.4)
    left, *right = figure.subplots(1, 1 + simulated, sharey=True, squeeze=False)[0]
    _plot_gates(left, [row for row in rows if not row.setting.noise], "a harmful reflector")
    for axes in right:
        _plot_gates(axes, weak, "a weak reflector")
    left.set_ylabel("score of the last context")
    _legend_below(figure)
    write_png(figure, path)


def _plot_gates(axes: Axes, rows: Sequence[RobustnessRow], title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_ylim(0, 1)
    plain(axes)
    names = list(dict.fromkeys(row.setting.name for row in rows))
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n").replace(" every", "\nevery") for name in names])
    for gate, label, colour, style in ((False, "without the gate", RED, "D--"), (True, "with the gate", BLUE, "o-")):
        if not (scores := [row.scores for row in rows if row.gate == gate]):
            continue
        axes.plot([mean(each) for each in scores], style, color=colour, linewidth=2, label=label)
        low, high = [min(each) for each in scores], [max(each) for each in scores]
        axes.fill_between(range(len(scores)), low, high, color=colour, alpha=0.12)
    if rows:
        axes.axhline(mean(rows[0].base), color=GREY, linewidth=1.5, linestyle=":", label="base (no context)")
