"""The pictures of the benches. Each function raises StoreError if its PNG file cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from practicum.analysis.png import BLUE, DOTS, GREY, RED, write_png
from practicum.bench.mael import NO_EXPERIENCE, MaelRow
from practicum.bench.overload import OverloadRow
from practicum.bench.robustness import RobustnessRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS, layout="constrained")


def _legend_below(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)


# ---- overload

LOOKS: Mapping[str, tuple[str, str, str, str]] = {
    "sequential": ("one at a time (ACE)", "#333333", "o", "--"),
    "combee": ("combee", "#0072B2", "D", "-"),
    "unaccounted": ("combee, no accounting", "#56B4E9", "s", "-"),
    "level-1": ("level 1 alone", "#009E73", "^", "-."),
    "exact": ("combee, paper's way", "#CC79A7", "v", "-"),
    "naive": ("naive, one call", "#D55E00", "X", "-"),
    "summarized": ("summarized", "#E69F00", "P", ":"),
    "top_k": ("top-K", "#777777", "d", ":"),
}
"""Label, colour (Okabe and Ito 2008, distinct with any colour vision), marker and dash of each method."""

LABEL_GAP = 5.0
"""Percent between two labels, so that they do not overlap."""


def overload_plot(rows: Sequence[OverloadRow], path: Path, model: str) -> None:
    """The share of facts still readable by the number of lessons, a line for each method; without stopped rows."""
    figure = _figure(8.6, 5.2)
    axes = figure.add_subplot(xscale="log")
    by_method: dict[str, list[OverloadRow]] = {}
    for row in rows:
        if not row.stopped:
            by_method.setdefault(row.method, []).append(row)
    for order, (method, line) in enumerate(by_method.items()):
        _, colour, marker, dash = LOOKS[method]
        points = sorted((row.n, 100 * row.readable) for row in line)
        # Later lines have smaller markers, so that lines on top of one another can all be seen.
        look: dict[str, Any] = {"linewidth": 2, "markersize": 10 - 0.6 * order}
        if method == "sequential":
            # The baseline lies on top, with hollow markers that show the other lines.
            look = {"linewidth": 1.5, "markersize": 14, "markerfacecolor": "none", "zorder": 5}
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, linestyle=dash, **look)
    _label_lines(axes, by_method)
    sizes = sorted({row.n for row in rows})
    axes.set_xticks(sizes, labels=[str(size) for size in sizes])
    axes.minorticks_off()
    axes.set(xlim=(sizes[0] / 1.12, sizes[-1] * 1.12), ylim=(-3, 105))
    axes.set_yticks(range(0, 101, 20), labels=[f"{share}%" for share in range(0, 101, 20)])
    axes.set_xlabel("lessons in the update", fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Facts still readable after one update", loc="left", fontsize=14, pad=24)
    # Of a model that is a file or an address, the last part is enough.
    subtitle = f"each lesson carries one fact of its own; curator: {model.rpartition('/')[2]}"
    axes.text(0, 1.03, subtitle, transform=axes.transAxes, fontsize=10, color="#555555")
    write_png(figure, path)


def _label_lines(axes: Axes, by_method: Mapping[str, Sequence[OverloadRow]]) -> None:
    """Write a label and a share at the end of each line, spread so that they do not overlap."""
    ends = sorted((max(line, key=lambda row: row.n).readable * 100, method) for method, line in by_method.items())
    # Push the labels up from the lowest one, then down from the top, so that all stay in the picture.
    heights: list[float] = []
    for share, _ in ends:
        heights.append(max(share, heights[-1] + LABEL_GAP) if heights else share)
    highest = 100.0
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], highest)
        highest = heights[i] - LABEL_GAP
    for (share, method), height in zip(ends, heights, strict=True):
        label, colour, *_ = LOOKS[method]
        axes.annotate(
            f"{label}  {share:.0f}%", (1.02, height), xycoords=("axes fraction", "data"), color=colour, fontsize=10.5,
            va="center", annotation_clip=False,
        )  # fmt: skip


# ---- robustness


def robustness_plot(rows: Sequence[RobustnessRow], path: Path) -> None:
    """Scores with a harmful reflector on the left (ACE, table 17), with a weak one on the right (table 16). The bands
    reach from the worst to the best seed."""
    figure = _figure(11.0, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    _plot_gates(left, [row for row in rows if not row.setting.noise], "a harmful reflector")
    _plot_gates(right, [row for row in rows if row.setting.noise or not row.setting.every], "a weak reflector")
    left.set_ylabel("score of the last context")
    _legend_below(figure)
    write_png(figure, path)


def _plot_gates(axes: Axes, rows: Sequence[RobustnessRow], title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    names = list(dict.fromkeys(row.setting.name for row in rows))
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n").replace(" every", "\nevery") for name in names])
    for gate, colour, marker, dash in ((False, RED, "D", "--"), (True, BLUE, "o", "-")):
        scores = [row.scores for row in rows if row.gate == gate]
        label = "with the gate" if gate else "without the gate"
        look: dict[str, Any] = {"color": colour, "marker": marker, "linewidth": 2, "label": label}
        axes.plot(range(len(scores)), [*map(mean, scores)], dash, **look)
        axes.fill_between(range(len(scores)), [*map(min, scores)], [*map(max, scores)], color=colour, alpha=0.12)
    if rows:
        axes.axhline(mean(rows[0].base), color=GREY, linewidth=1.5, linestyle=":", label="base (no context)")


# ---- mael

MEASURES: tuple[tuple[str, Callable[[MaelRow], float]], ...] = (
    ("score", lambda row: row.score),
    ("tokens a task", lambda row: row.tokens),
    ("rounds of critique", lambda row: row.rounds),
)
"""What is drawn of each row."""


def pools_plot(rows: Sequence[MaelRow], path: Path) -> None:
    """Score with its interval, tokens and rounds by the number of tasks in the pools (MAEL, figures 2 to 4)."""
    figure = _figure(11.0, 4.0)
    none = next(row for row in rows if row.name == NO_EXPERIENCE)
    for n, (axes, (name, measure)) in enumerate(zip(figure.subplots(1, 3), MEASURES, strict=True)):
        axes.axhline(measure(none), color=GREY, linewidth=1.2, linestyle=":", label="without experience")
        for retrieval, colour, marker, dash in (("step", BLUE, "o", "-"), ("task", RED, "D", "--")):
            grown = [r for r in rows if r.retrieval == retrieval and (r.similarity, r.reward) == ("high", "high")]
            line = [none, *grown]
            pools = [row.pool for row in line]
            look: dict[str, Any] = {"color": colour, "marker": marker, "linewidth": 2, "label": f"{retrieval}-wise"}
            axes.plot(pools, [measure(row) for row in line], dash, **look)
            if not n:
                low, high = zip(*(row.ci95 for row in line), strict=True)
                axes.fill_between(pools, low, high, color=colour, alpha=0.12)
        axes.set(title=name, xlabel="tasks in the pools", xticks=sorted({row.pool for row in rows}))
        axes.set_ylim(*((-0.03, 1.03) if not n else (0, None)))
        axes.grid(alpha=0.25)
    _legend_below(figure)
    write_png(figure, path)


def cells_plot(rows: Sequence[MaelRow], path: Path) -> None:
    """Score, tokens and rounds by the similarity and the reward of the experience shown (MAEL, table 3)."""
    cells = experience_cells(rows)
    none = next(row for row in rows if row.name == NO_EXPERIENCE)
    figure = _figure(11.0, 3.4)
    figure.suptitle("Experience by similarity and reward; the better the darker", x=0.01, ha="left", fontsize=12)
    for n, (axes, (name, measure)) in enumerate(zip(figure.subplots(1, 3), MEASURES, strict=True)):
        _plot_cells(axes, [[measure(row) for row in line] for line in cells], higher_is_better=not n)
        axes.set_title(f"{name} (without: {_number(measure(none))})", fontsize=11)
    write_png(figure, path)


def experience_cells(rows: Sequence[MaelRow]) -> list[list[MaelRow]]:
    """The 2 x 2 rows of the largest pools: high similarity, then low; in each, high reward, then low."""
    most = max(row.pool for row in rows)
    by_cell = {(r.similarity, r.reward): r for r in rows if r.retrieval == "step" and r.pool == most}
    return [[by_cell[similarity, reward] for reward in ("high", "low")] for similarity in ("high", "low")]


def _plot_cells(axes: Axes, values: Sequence[Sequence[float]], higher_is_better: bool) -> None:
    flat = [value for line in values for value in line]
    low, high = min(flat), max(flat)
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            place = 0.5 if high - low < 1e-9 else (value - low) / (high - low)
            shade = place if higher_is_better else 1 - place
            axes.text(j, i, _number(value), ha="center", va="center", fontsize=13, color="w" if shade > 0.6 else "k")
            axes.axvspan(j - 0.5, j + 0.5, 0.5 - i / 2, 1 - i / 2, color=BLUE, alpha=0.08 + 0.82 * shade, linewidth=0)
    axes.set(xlim=(-0.5, 1.5), ylim=(1.5, -0.5), xlabel="reward", ylabel="similarity")
    axes.set_xticks([0, 1], ["high", "low"])
    axes.set_yticks([0, 1], ["high", "low"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
