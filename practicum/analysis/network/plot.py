"""The picture of a network's pools: how many experiences of each kind they hold, and how rewards are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from practicum.analysis.network.pools import KIND_COLOURS, Pool
from practicum.analysis.png import new_figure, plain, write_png


def plot_pools(pools: Sequence[Pool], path: Path) -> None:
    """Draw one row per agent: sizes by kind of step, and rewards as box plots. Raises StoreError where the file cannot
    be written."""
    from matplotlib.ticker import MaxNLocator

    rows = np.arange(len(pools))
    figure = new_figure(9.0, max(2.8, 1.9 + 0.45 * len(pools)))
    sizes, rewards = figure.subplots(1, 2, sharey=True)
    left = np.zeros(len(pools))
    for kind, colour in KIND_COLOURS.items():
        width = [sum(entry.data["kind"] == kind for entry in pool.entries) for pool in pools]
        sizes.barh(rows, width, left=left, color=colour, label=kind)
        left += width
    sizes.set_xlabel("experiences")
    sizes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    rewards.boxplot([pool.rewards for pool in pools], positions=rows, orientation="horizontal", widths=0.5)
    rewards.set(xlim=(-0.03, 1.03), xlabel="reward", yticks=rows, yticklabels=[pool.agent for pool in pools])
    sizes.invert_yaxis()
    plain(sizes, "x")
    plain(rewards, "x")
    figure.legend(loc="outside upper center", ncols=len(KIND_COLOURS), fontsize=9, frameon=False)
    write_png(figure, path)
