"""The experience pools of a network's agents in numbers: their sizes, their rewards and their use (MAEL)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from practicum.agents.network import Kind
from practicum.analysis.png import BLUE, GREEN, GREY, PURPLE, RED
from practicum.blocks.act.network import POOL
from practicum.core.context import Context
from practicum.core.edits import Entry

KIND_COLOURS: Mapping[Kind, str] = {
    "judge": GREY, "decompose": BLUE, "solve": GREEN, "critique": RED, "aggregate": PURPLE,
}  # fmt: skip
"""The kinds of steps, each with its colour."""


@dataclass(frozen=True)
class Pool:
    """The experiences of one agent (at least one), oldest first."""

    agent: str
    entries: tuple[Entry, ...]

    @property
    def rewards(self) -> list[float]:
        """All rewards, lowest first."""
        return sorted(float(entry.data["reward"]) for entry in self.entries)

    @property
    def mean(self) -> float:
        """The mean reward."""
        return fmean(self.rewards)

    @property
    def median(self) -> float:
        """The median reward."""
        return median(self.rewards)

    @property
    def shown(self) -> int:
        """How many times an experience of this pool was shown in training."""
        return sum(entry.uses for entry in self.entries)

    def by_kind(self) -> Mapping[Kind, Pool]:
        """The pool divided by kind of step, without empty kinds."""
        parts = {kind: tuple(e for e in self.entries if e.data["kind"] == kind) for kind in KIND_COLOURS}
        return {kind: Pool(self.agent, entries) for kind, entries in parts.items() if entries}

    def spread(self) -> list[int]:
        """How many rewards fall into each tenth of [0, 1]; a reward of 1 belongs to the last."""
        tenths = [min(int(10 * reward + 1e-9), 9) for reward in self.rewards]
        return [tenths.count(n) for n in range(10)]

    def most_used(self, k: int) -> list[Entry]:
        """At most k experiences that were shown, the most shown first, older ones first on ties."""
        used = [entry for entry in self.entries if entry.uses]
        return sorted(used, key=lambda entry: (-entry.uses, entry.number))[:k]

    def as_json(self, k: int) -> dict[str, Any]:
        """Plain values, as `--json` prints them, with the k most used experiences."""
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
    """The pools of a context, sorted by the agent's name."""
    entries: dict[str, list[Entry]] = {}
    for entry in context:
        if entry.section.startswith(POOL) and "reward" in entry.data:
            entries.setdefault(entry.section.removeprefix(POOL), []).append(entry)
    return [Pool(agent, tuple(own)) for agent, own in sorted(entries.items())]
