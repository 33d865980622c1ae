"""An acceptance gate for any method: a delta is kept only where it is not worse on held-out tasks, by a paired test.

Both contexts, without and with the delta, are scored on the same tasks, a few at a time, in an order drawn anew for
each delta. A sequential test looks after every pair, so that a large difference costs few tasks.

The test is a bet (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"). A wealth of
1 is staked against the claim that the mean difference, of numbers in [-1, 1], is not below 0. Where the claim holds,
wealth does not grow on average, and by Ville's inequality it ever reaches 1/alpha with a chance of at most alpha,
however often one looks. So the test drops at most the share alpha of deltas that are not worse; a second bet, the other
way round, keeps what is clearly better with the same error. Stakes from small to large share the wealth, so that none
needs to be tuned, no variance is assumed, and scores may lie between 0 and 1.

Where the tasks are used up and neither bet is won, the sample has the word: the delta is kept unless its mean is below
that of the old context. Most small harm is seen only there. The error of this last word is not bounded by alpha: a
delta that changes nothing on average is dropped nearly as often as not, at no loss. And the same held-out tasks judge
every step, so alpha is that of one delta, not of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit, Resolution, Vote
from practicum.core.types import Rollout, Task
from practicum.engine.loop import AcceptSeam, Method
from practicum.engine.run import ActSeam, Run

AT_ONCE = 8
"""Tasks scored together: seven in a row that are lost outright decide at an alpha of 0.05."""

STAKES = tuple((n + 0.5) / 20 for n in range(20))
"""Shares of the wealth that are bet, each by an equal part of it."""

WORSE = "the gate dropped it: worse on held-out tasks"
"""Why a lesson has no edit."""


@dataclass
class Wealth:
    """What a bet that differences are above 0 on average made of 1."""

    parts: list[float] = field(default_factory=lambda: [1.0] * len(STAKES))

    def take(self, difference: float) -> float:
        """The wealth after one more difference, in [-1, 1]: an e-value."""
        self.parts = [part * (1 + stake * difference) for part, stake in zip(self.parts, STAKES, strict=True)]
        return self.value

    @property
    def value(self) -> float:
        return sum(self.parts) / len(self.parts)


@dataclass
class Trial:
    """A delta on trial: differences (new score less old) by task, and what the two bets made of them."""

    alpha: float
    differences: dict[str, float] = field(default_factory=dict)
    worse: Wealth = field(default_factory=Wealth)
    better: Wealth = field(default_factory=Wealth)

    @property
    def decided(self) -> bool:
        """Whether a bet is won."""
        return max(self.worse.value, self.better.value) >= 1 / self.alpha

    @property
    def kept(self) -> bool:
        """The verdict: that of the bet that is won, else that of the mean."""
        if self.decided:
            return self.better.value > self.worse.value
        return sum(self.differences.values()) >= 0

    def take(self, task: str, difference: float) -> None:
        """One more pair; once decided, none counts."""
        if not self.decided:
            self.differences[task] = difference
            self.worse.take(-difference)
            self.better.take(difference)

    def as_json(self) -> dict[str, Any]:
        """The evidence, as it is kept with the step."""
        found = self.differences.values()
        return {
            "gate": "kept" if self.kept else "dropped",
            "by": "test" if self.decided else "mean",
            "alpha": self.alpha,
            "tasks": len(found),
            "mean": sum(found) / len(found) if found else 0.0,
            "e_worse": self.worse.value,
            "e_better": self.better.value,
            "differences": dict(self.differences),
        }


@dataclass(frozen=True)
class Gate:
    """An accept seam around another one. Scores come from `run.evaluate`, which pays for none twice, and which
    validation shares; what changes nothing that is shown, as votes, passes at no cost."""

    accept: AcceptSeam
    act: ActSeam
    tasks: Sequence[Task]
    alpha: float

    async def __call__(self, context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        delta = await self.accept(context, delta, rollouts, run)
        new = context.apply(delta).context
        if new.digest == context.digest:
            return delta
        trial = await self._tried(context, new, run)
        if trial.kept:
            return replace(delta, evidence=trial.as_json())
        run.count(Count.GATED_DELTAS)
        return replace(unshown_part(context, delta), evidence=trial.as_json())

    async def _tried(self, old: Context, new: Context, run: Run) -> Trial:
        trial = Trial(self.alpha)
        tasks = run.rng("gate").sample(self.tasks, len(self.tasks))
        for start in range(0, len(tasks), AT_ONCE):
            some = tasks[start : start + AT_ONCE]
            before = await run.evaluate(self.act, "val", some, old)
            after = await run.evaluate(self.act, "val", some, new)
            for task, one, other in zip(some, before, after, strict=True):
                # What the provider lost, or nothing could score, says nothing of the delta.
                if one.score and other.score and not (one.trace.lost or other.trace.lost):
                    trial.take(task.id, other.score.value - one.score.value)
            if trial.decided:
                break
        return trial


def gated(method: Method, tasks: Sequence[Task], alpha: float) -> Method:
    """The method with a gate on these held-out tasks around its accept seam."""
    return replace(method, accept=Gate(method.accept, method.act, tuple(tasks), alpha))


def unshown_part(context: Context, delta: Delta) -> Delta:
    """What of a delta changes nothing that is shown: votes, and edits of what is hidden from the agent. The lessons of
    all other edits are told as dropped, whatever they voted."""
    kept: list[Edit] = []
    # Each edit is tried on what those before it came to. Only a name lives no longer than its delta, so that an
    # addition with one is applied together with what comes after it.
    now, together = context, list[Edit]()
    for edit in delta.edits:
        outcome = now.apply(Delta((*together, edit)))
        if len(outcome.applied) <= len(together) or outcome.context.digest != context.digest:
            continue
        kept.append(edit)
        if together or (isinstance(edit, Add) and edit.ref):
            together.append(edit)
        else:
            now = outcome.context
    refs = {edit.ref for edit in kept if isinstance(edit, Add)}
    told = {id for edit in kept if not isinstance(edit, Vote) for id in edit.lessons}
    stand = [
        resolution
        for resolution in delta.resolutions
        if not resolution.entry or resolution.entry in refs or resolution.entry in context
    ]
    told |= {resolution.lesson for resolution in stand}
    changes = [edit for edit in delta.edits if not isinstance(edit, Vote)]
    named = [*(id for edit in changes for id in edit.lessons), *(resolution.lesson for resolution in delta.resolutions)]
    lost = [Resolution(id, reason=WORSE) for id in dict.fromkeys(named) if id not in told]
    return Delta(tuple(kept), (*stand, *lost))
