"""Pictures of what experience does for a network: by the size of its pools, and by which experience is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from practicum.analysis.png import BLUE, DOTS, GREY, RED, write_png
from practicum.bench.mael import NONE, MaelRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURES: tuple[tuple[str, Callable[[MaelRow], float]], ...] = (
    ("score", lambda row: row.score),
    ("tokens a task", lambda row: row.tokens),
    ("rounds of critique", lambda row: row.rounds),
)
"""What is drawn of each row."""

WAYS = (("step", BLUE, "o", "-", "step-wise"), ("task", RED, "D", "--", "task-wise"))


def pools_picture(rows: Sequence[MaelRow], path: Path) -> None:
    """Score with its interval, tokens and rounds by the number of tasks in the pools (figures 2 to 4). Raises
    StoreError where it cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.0), dpi=DOTS, layout="constrained")
    none = next(row for row in rows if row.name == NONE)
    for n, (axes, (name, of)) in enumerate(zip(figure.subplots(1, 3), MEASURES, strict=True)):
        axes.axhline(of(none), color=GREY, linewidth=1.2, linestyle=":", label="without experience")
        for how, colour, mark, dash, words in WAYS:
            line = [none, *(r for r in rows if r.retrieval == how and (r.similarity, r.reward) == ("high", "high"))]
            pools = [row.pool for row in line]
            axes.plot(pools, [of(r) for r in line], dash, color=colour, marker=mark, linewidth=2, label=words)
            if not n:
                axes.fill_between(pools, [r.ci95[0] for r in line], [r.ci95[1] for r in line], color=colour, alpha=0.12)
        axes.set(title=name, xlabel="tasks in the pools", xticks=sorted({row.pool for row in rows}))
        axes.set_ylim(*((-0.03, 1.03) if not n else (0, None)))
        axes.grid(alpha=0.25)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    write_png(figure, path)


def cells_picture(rows: Sequence[MaelRow], path: Path) -> None:
    """Score, tokens and rounds for like and unlike, good and bad experience (table 3), beside none."""
    from matplotlib.figure import Figure

    cells = cells_of(rows)
    none = next(row for row in rows if row.name == NONE)
    figure = Figure(figsize=(11.0, 3.4), dpi=DOTS, layout="constrained")
    figure.suptitle("Experience by similarity and reward; the better the darker", x=0.01, ha="left", fontsize=12)
    for n, (axes, (name, of)) in enumerate(zip(figure.subplots(1, 3), MEASURES, strict=True)):
        _cells(axes, [[of(row) for row in line] for line in cells], higher=not n)
        axes.set_title(f"{name} (without: {_written(of(none))})", fontsize=11)
    write_png(figure, path)


def cells_of(rows: Sequence[MaelRow]) -> list[list[MaelRow]]:
    """The 2 x 2: similarity high and low from above, reward high and low from the left."""
    most = max(row.pool for row in rows)
    used = {(r.similarity, r.reward): r for r in rows if r.retrieval == "step" and r.pool == most}
    return [[used[alike, good] for good in ("high", "low")] for alike in ("high", "low")]


def _cells(axes: Axes, values: Sequence[Sequence[float]], higher: bool) -> None:
    flat = [value for line in values for value in line]
    low, high = min(flat), max(flat)
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            place = 0.5 if high - low < 1e-9 else (value - low) / (high - low)
            shade = place if higher else 1 - place
            axes.text(j, i, _written(value), ha="center", va="center", fontsize=13, color="w" if shade > 0.6 else "k")
            axes.axvspan(j - 0.5, j + 0.5, 0.5 - i / 2, 1 - i / 2, color=BLUE, alpha=0.08 + 0.82 * shade, linewidth=0)
    axes.set(xlim=(-0.5, 1.5), ylim=(1.5, -0.5), xlabel="reward", ylabel="similarity")
    axes.set_xticks([0, 1], ["high", "low"])
    axes.set_yticks([0, 1], ["high", "low"])


def _written(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
