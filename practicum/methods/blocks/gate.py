"""Acceptance gate for any method: a delta is kept only if the context is not worse on held-out tasks with the delta
than without it, by a paired test.

The contexts without and with the delta are scored on the same tasks, a few at a time, in a random order for each delta.
A sequential test is evaluated after every pair of scores, so that a large difference needs few tasks.

The test is a bet (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"). A wealth of
1 is staked against the claim that the delta is not worse: the mean difference of scores, in [-1, 1], is at least 0. If
the claim is true, the wealth does not grow on average, and by Ville's inequality the probability that the wealth ever
reaches 1/alpha is at most alpha, even if the test is evaluated after every pair. So the test drops at most the share
alpha of deltas that are not worse. A second bet, in the other direction, keeps clearly better deltas at the same error
rate. Stakes from small to large share the wealth, so that no stake needs to be tuned, no variance is assumed, and
scores may lie between 0 and 1.

If the tasks are used up and neither bet is won, the sample decides: the delta is kept unless the mean score with the
delta is below the mean score without it. Most small harm is detected only by this last decision. The error of this
decision is not bounded by alpha: a delta that changes nothing on average is dropped nearly half the time, at no loss.
The same held-out tasks judge every step, so alpha holds for one delta, not for a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit, Resolution, Vote
from practicum.core.types import Attempt, Lesson, Task
from practicum.engine.loop import AcceptSeam, UpdateSeam
from practicum.engine.run import ActSeam, Run

# ---- without a gate: every delta is accepted


async def always(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
    """Accept every delta."""
    return delta


def always_after(wrap: Callable[[UpdateSeam], UpdateSeam]) -> AcceptSeam:
    """Build an accept seam that applies wrappers of an update (de-duplication, budget) to every delta, and accepts the
    result. This is for schedules in which the context may change between the making of a delta and its application."""

    async def accept(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
        async def unchanged(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            return delta

        return await wrap(unchanged)((), context, run)

    return accept


# ---- the gate

TOGETHER = 8
"""Number of tasks that are scored concurrently. At an alpha of 0.05, the test is decided if the scores of the first
seven tasks fall from 1 to 0."""

STAKES = (np.arange(20) + 0.5) / 20
"""Stakes of a bet. Each stake is a share. It has a part of the wealth, and bets its share of this part. At the start,
all parts are equal."""

WORSE = "the gate dropped the edits: worse on held-out tasks"
"""Reason in the resolution of a lesson whose edits the gate dropped."""


@dataclass
class Trial:
    """Trial of a delta: by task, the difference of the scores (with the delta minus without it), and the wealth of the
    two bets.

    `parts`, of shape (2, stakes), is the wealth of each stake in the bet that the delta is worse, and in the bet that
    the delta is better. The trial is not decided before `least` tasks were scored. The test is valid after any number
    of tasks, because the wealth is an e-value."""

    alpha: float
    least: int = 0
    differences: dict[str, float] = field(default_factory=dict)
    parts: np.ndarray = field(default_factory=lambda: np.ones((2, len(STAKES))))

    @property
    def wealth(self) -> list[float]:
        """Wealth of the bet that the delta is worse, and of the bet that the delta is better: two e-values."""
        return [float(wealth) for wealth in self.parts.mean(axis=1)]

    @property
    def decided(self) -> bool:
        """Whether a bet is won."""
        return len(self.differences) >= self.least and max(self.wealth) >= 1 / self.alpha

    @property
    def better(self) -> bool:
        """Whether the bet that the delta is better is won."""
        return self.decided and self.wealth[1] > self.wealth[0]

    @property
    def mean(self) -> float:
        """Mean of the differences; 0 without a difference."""
        return sum(self.differences.values()) / max(len(self.differences), 1)

    @property
    def accepted(self) -> bool:
        """Whether the delta is kept: by the bet that is won or, if no bet is won, by the mean difference."""
        worse, better = self.wealth
        return better > worse if self.decided else sum(self.differences.values()) >= 0

    def take(self, task: str, difference: float) -> None:
        """Add the difference of one more task, in [-1, 1], unless a bet is won already."""
        if not self.decided:
            self.differences[task] = difference
            self.parts *= 1 + np.outer((-difference, difference), STAKES)

    def as_json(self) -> dict[str, Any]:
        """Return the evidence in the form that is stored with the step."""
        return {
            "gate": "kept" if self.accepted else "dropped", "by": "test" if self.decided else "mean",
            "alpha": self.alpha, "tasks": len(self.differences),
            "mean": self.mean,
            "e_worse": self.wealth[0], "e_better": self.wealth[1], "differences": dict(self.differences),
        }  # fmt: skip


async def tried(
    trial: Trial, act: ActSeam, split: str, tasks: Sequence[Task], context: Context, new: Context, run: Run
) -> Trial:
    """Try the context `new` against `context` on these tasks, until the trial is decided or the tasks are used up."""
    order = run.rng("gate").sample(tasks, len(tasks))
    for start in range(0, len(order), TOGETHER):
        some = order[start : start + TOGETHER]
        before = await run.evaluate(act, split, some, context)
        after = await run.evaluate(act, split, some, new)
        for task, one, other in zip(some, before, after, strict=True):
            # An attempt that was lost or not scored does not count as evidence about the delta.
            one, other = one.first, other.first
            if one.score and other.score and not (one.trace.lost or other.trace.lost):
                trial.take(task.id, other.score.value - one.score.value)
        if trial.decided:
            break
    return trial


def gate(accept: AcceptSeam, act: ActSeam, tasks: Sequence[Task], alpha: float) -> AcceptSeam:
    """Build an accept seam that applies `accept`, and then keeps the resulting delta only if the trial on the held-out
    tasks `tasks` accepts the delta. Of a dropped delta, only `unshown_part` is applied.

    Scores come from `run.evaluate`, which evaluates no context twice and shares its results with validation. A delta
    that changes no shown text, such as a delta of votes, passes without evaluation."""

    async def accepted(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
        delta = await accept(context, delta, attempts, run)
        new = context.apply(delta).context
        if new.digest == context.digest:
            return delta
        trial = await tried(Trial(alpha), act, "val", tasks, context, new, run)
        run.count(Count.GATED_DELTAS, not trial.accepted)
        return replace(delta if trial.accepted else unshown_part(context, delta), evidence=trial.as_json())

    return accepted


def unshown_part(context: Context, delta: Delta) -> Delta:
    """Return the part of a delta that changes no shown text: votes, and edits of hidden entries. The lessons of all
    other edits are resolved as dropped, even if votes of these lessons pass."""
    passing: list[Edit] = []
    # Each edit is tried on the context with the passing edits before it. A ref is valid only within its delta, so an
    # addition with a ref is applied together with the edits after it.
    now, together = context, list[Edit]()
    for edit in delta.edits:
        outcome = now.apply(Delta((*together, edit)))
        if len(outcome.applied) <= len(together) or outcome.context.digest != context.digest:
            continue
        passing.append(edit)
        if together or (isinstance(edit, Add) and edit.ref):
            together.append(edit)
        else:
            now = outcome.context
    refs = {edit.ref for edit in passing if isinstance(edit, Add)}
    valid = [r for r in delta.resolutions if not r.entry or r.entry in refs or r.entry in context]
    settled = {id for edit in passing if not isinstance(edit, Vote) for id in edit.lessons} | {r.lesson for r in valid}
    named = [id for edit in delta.edits if not isinstance(edit, Vote) for id in edit.lessons]
    named += [resolution.lesson for resolution in delta.resolutions]
    dropped = [Resolution(id, reason=WORSE) for id in dict.fromkeys(named) if id not in settled]
    return Delta(tuple(passing), (*valid, *dropped))
