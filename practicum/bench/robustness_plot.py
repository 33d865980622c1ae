"""The picture of `practicum bench robustness`: score by how often the reflector harms or errs, and the base."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from practicum.analysis.png import BLUE, DOTS, GREY, RED, write_png
from practicum.bench.robustness import RobustnessRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ARMS = ((False, RED, "D", "--", "without the gate"), (True, BLUE, "o", "-", "with the gate"))


def robustness_plot(rows: Sequence[RobustnessRow], path: Path) -> None:
    """Harmful steps on the left (table 17), weak reflectors on the right (table 16); bands from the worst to the best
    seed. Raises StoreError where the file cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.4), dpi=DOTS, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, [row for row in rows if not row.setting.noise], "a harmful reflector")
    _draw(right, [row for row in rows if row.setting.noise or not row.setting.every], "a weak reflector")
    left.set_ylabel("score of the last context")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    write_png(figure, path)


def _draw(axes: Axes, rows: Sequence[RobustnessRow], title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    names = list(dict.fromkeys(row.setting.name for row in rows))
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n").replace(" every", "\nevery") for name in names])
    for gate, colour, mark, dash, label in ARMS:
        line = [row for row in rows if row.gate == gate]
        axes.plot(
            range(len(line)), [mean(r.scores) for r in line], dash, color=colour, marker=mark, linewidth=2, label=label
        )
        low, high = [min(r.scores) for r in line], [max(r.scores) for r in line]
        axes.fill_between(range(len(line)), low, high, color=colour, alpha=0.12)
    if rows:
        axes.axhline(mean(rows[0].base), color=GREY, linewidth=1.5, linestyle=":", label="base (no context)")
