"""Experience pools of the agents of a network: sizes, rewards and use, in numbers and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from practicum.agents.network import Kind
from practicum.analysis.png import BLUE, GREEN, GREY, PURPLE, RED, new_figure, plain, write_png
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.methods.blocks.network import POOL

KIND_COLOURS: Mapping[Kind, str] = {
    "judge": GREY, "decompose": BLUE, "solve": GREEN, "critique": RED, "aggregate": PURPLE,
}  # fmt: skip
"""Kind of step → its colour in plots."""


@dataclass(frozen=True)
class ExperiencePool:
    """Experiences of one agent, oldest first. A pool has at least one experience."""

    agent: str
    entries: tuple[Entry, ...]

    @property
    def rewards(self) -> list[float]:
        """All rewards, lowest first."""
        return sorted(float(entry.data["reward"]) for entry in self.entries)

    @property
    def mean(self) -> float:
        return fmean(self.rewards)

    @property
    def median(self) -> float:
        return median(self.rewards)

    @property
    def shown(self) -> int:
        """How often experiences of this pool were shown in training, in total."""
        return sum(entry.uses for entry in self.entries)

    def by_kind(self) -> Mapping[Kind, ExperiencePool]:
        """Divide the pool by kind of step. Kinds without experiences are left out."""
        parts = {kind: tuple(e for e in self.entries if e.data["kind"] == kind) for kind in KIND_COLOURS}
        return {kind: ExperiencePool(self.agent, entries) for kind, entries in parts.items() if entries}

    def spread(self) -> list[int]:
        """Return the histogram of rewards in ten equal bins of [0, 1]. A reward of 1 is in the last bin."""
        tenths = [min(int(10 * reward + 1e-9), 9) for reward in self.rewards]
        return [tenths.count(n) for n in range(10)]

    def most_used(self, k: int) -> list[Entry]:
        """Return at most k experiences that were shown, most shown first. Among equally often shown
        experiences, older ones come first."""
        used = [entry for entry in self.entries if entry.uses]
        return sorted(used, key=lambda entry: (-entry.uses, entry.number))[:k]

    def as_json(self, k: int) -> dict[str, Any]:
        """Return JSON values, as printed by `--json`, with the k most used experiences."""
        most_used = [
            {"id": e.id, "kind": e.data["kind"], "reward": e.data["reward"], "shown": e.uses, "given": e.key,
             "done": e.text}
            for e in self.most_used(k)
        ]  # fmt: skip
        return {
            "agent": self.agent, **self._numbers(),
            "by_kind": {kind: part._numbers() for kind, part in self.by_kind().items()},
            "most_used": most_used,
        }  # fmt: skip

    def _numbers(self) -> dict[str, Any]:
        spread = {"mean_reward": round(self.mean, 4), "median_reward": round(self.median, 4), "rewards": self.spread()}
        return {"size": len(self.entries), "shown": self.shown, **spread}


def pools_of(context: Context) -> list[ExperiencePool]:
    """Return the pools of a context, sorted by agent name."""
    entries: dict[str, list[Entry]] = {}
    for entry in context:
        if entry.section.startswith(POOL) and "reward" in entry.data:
            entries.setdefault(entry.section.removeprefix(POOL), []).append(entry)
    return [ExperiencePool(agent, tuple(own)) for agent, own in sorted(entries.items())]


def plot_pools(pools: Sequence[ExperiencePool], path: Path) -> None:
    """Draw one row per agent: sizes by kind of step, and rewards as box plots. Raises StoreError if the file cannot be
    written."""
    rows = np.arange(len(pools))
    figure = new_figure(9.0, max(2.8, 1.9 + 0.45 * len(pools)))
    from matplotlib.ticker import MaxNLocator

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
