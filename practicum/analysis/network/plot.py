"""A picture of a network's pools: how many steps of each kind, and how their rewards are spread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from practicum.analysis.network.page import COLOURS
from practicum.analysis.network.pools import KINDS, Pool
from practicum.analysis.png import DOTS, SIZE, write_png


def pools_plot(found: Sequence[Pool], path: Path) -> None:
    """Sizes by kind of step, and rewards as boxes, an agent a row. Raises StoreError where it cannot be written."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = range(len(found))
    height = max(2.8, 1.9 + 0.45 * len(found))
    figure = Figure(figsize=(SIZE[0] + 1, height), dpi=DOTS, layout="constrained")
    sizes, rewards = figure.subplots(1, 2, sharey=True)
    left = [0] * len(found)
    for kind in KINDS:
        width = [len(pool.by_kind()[kind].entries) if kind in pool.by_kind() else 0 for pool in found]
        sizes.barh(rows, width, left=left, color=COLOURS[kind], label=kind)
        left = [a + b for a, b in zip(left, width, strict=True)]
    sizes.set_yticks(rows, [pool.agent for pool in found])
    sizes.invert_yaxis()
    sizes.set_xlabel("experiences")
    sizes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    rewards.boxplot([pool.rewards for pool in found], positions=rows, orientation="horizontal", widths=0.5)
    rewards.set_yticks(rows, [pool.agent for pool in found])
    rewards.set(xlim=(-0.03, 1.03), xlabel="reward")
    for axes in (sizes, rewards):
        axes.grid(axis="x", alpha=0.25)
        axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=len(KINDS), fontsize=9)
    write_png(figure, path)
