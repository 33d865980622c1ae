"""The pools of a network's agents as numbers: how much is in them, what it is worth, and what of it is used (MAEL)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from practicum.agents.network import Kind
from practicum.blocks.act.network import POOL
from practicum.core.context import Context
from practicum.core.edits import Entry

KINDS: tuple[Kind, ...] = ("judge", "decompose", "solve", "critique", "aggregate")

TENTHS = 10


@dataclass(frozen=True)
class Pool:
    """The experiences of one agent, in the order they were made; at least one."""

    agent: str
    entries: tuple[Entry, ...]

    @property
    def rewards(self) -> list[float]:
        """Rewards, lowest first."""
        return sorted(float(entry.data["reward"]) for entry in self.entries)

    @property
    def mean(self) -> float:
        """Mean reward."""
        return fmean(self.rewards)

    @property
    def median(self) -> float:
        """Median reward."""
        return median(self.rewards)

    @property
    def shown(self) -> int:
        """How often an experience of this pool was shown in training."""
        return sum(entry.uses for entry in self.entries)

    def by_kind(self) -> Mapping[Kind, Pool]:
        """The pool divided by kinds of steps, those it has."""
        parts = {kind: tuple(e for e in self.entries if e.data["kind"] == kind) for kind in KINDS}
        return {kind: Pool(self.agent, entries) for kind, entries in parts.items() if entries}

    def spread(self) -> list[int]:
        """How many rewards fall into each tenth from 0 to 1; 1 belongs to the last."""
        tenths = [min(int(reward * TENTHS + 1e-9), TENTHS - 1) for reward in self.rewards]
        return [tenths.count(n) for n in range(TENTHS)]

    def most_used(self, k: int) -> list[Entry]:
        """Experiences that were shown, most often first, the older on ties; at most k."""
        used = [entry for entry in self.entries if entry.uses]
        return sorted(used, key=lambda entry: (-entry.uses, entry.number))[:k]

    def as_json(self, k: int) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        used = [
            {"id": e.id, "kind": e.data["kind"], "reward": e.data["reward"], "shown": e.uses, "given": e.key,
             "done": e.text}
            for e in self.most_used(k)
        ]  # fmt: skip
        return {
            "agent": self.agent, **self._numbers(),
            "by_kind": {kind: part._numbers() for kind, part in self.by_kind().items()},
            "most_used": used,
        }  # fmt: skip

    def _numbers(self) -> dict[str, Any]:
        spread = {"mean_reward": round(self.mean, 4), "median_reward": round(self.median, 4), "rewards": self.spread()}
        return {"size": len(self.entries), "shown": self.shown, **spread}


def pools_of(context: Context) -> list[Pool]:
    """The pools of a context by name of agent."""
    found: dict[str, list[Entry]] = {}
    for entry in context:
        if entry.section.startswith(POOL) and "reward" in entry.data:
            found.setdefault(entry.section.removeprefix(POOL), []).append(entry)
    return [Pool(agent, tuple(entries)) for agent, entries in sorted(found.items())]
