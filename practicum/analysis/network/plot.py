"""The picture of a network's pools: how many experiences of each kind they hold, and how rewards are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from practicum.analysis.network.pools import KIND_COLOURS, Pool
from practicum.analysis.png import DOTS, SIZE, write_png


def pools_plot(pools: Sequence[Pool], path: Path) -> None:
    """Draw one row per agent: sizes by kind of step, and rewards as box plots. Raises StoreError where the file cannot
    be written."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = range(len(pools))
    figure = Figure(figsize=(SIZE[0] + 1, max(2.8, 1.9 + 0.45 * len(pools))), dpi=DOTS, layout="constrained")
    sizes, rewards = figure.subplots(1, 2, sharey=True)
    left = [0] * len(pools)
    for kind, colour in KIND_COLOURS.items():
        width = [len(by_kind[kind].entries) if kind in (by_kind := pool.by_kind()) else 0 for pool in pools]
        sizes.barh(rows, width, left=left, color=colour, label=kind)
        left = [a + b for a, b in zip(left, width, strict=True)]
    sizes.set_yticks(rows, [pool.agent for pool in pools])
    sizes.invert_yaxis()
    sizes.set_xlabel("experiences")
    sizes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    rewards.boxplot([pool.rewards for pool in pools], positions=rows, orientation="horizontal", widths=0.5)
    rewards.set_yticks(rows, [pool.agent for pool in pools])
    rewards.set(xlim=(-0.03, 1.03), xlabel="reward")
    for axes in (sizes, rewards):
        axes.grid(axis="x", alpha=0.25)
        axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=len(KIND_COLOURS), fontsize=9)
    write_png(figure, path)
