"""learn(): the only loop. It knows six seams and no method.

    sample -> attempt (wraps act) -> reflect -> update -> accept -> apply

A method is a value of six functions; blocks that wrap each other make it up (see `methods/`). Later methods add
blocks, never a branch here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from practicum.context import Applied, Context, Delta, Refused
from practicum.errors import ProviderError
from practicum.run import Act, Run
from practicum.types import Lesson, Rollout, Task

LOST_STEPS = 3
"""Steps in a row lost to the provider after which going on makes no sense."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step works on. `arm` is the candidate to start from, for methods that keep several (GEPA)."""

    tasks: tuple[Task, ...]
    epoch: int = 1
    arm: str | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step: what was tried, what was learned from it, what the context became."""

    step: int
    batch: Batch
    rollouts: tuple[Rollout, ...]
    lessons: tuple[Lesson, ...]
    context: Context
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]
    seconds: float
    val: float | None = None


History = Sequence[StepReport]
Sample = Callable[[Sequence[Task], History, Run], Iterator[Batch]]
Attempt = Callable[[Batch, Context, Run], Awaitable[list[Rollout]]]
Reflect = Callable[[Sequence[Rollout], Context, Run], Awaitable[list[Lesson]]]
Update = Callable[[Sequence[Lesson], Context, Run], Awaitable[Delta]]
Accept = Callable[[Context, Delta, Sequence[Rollout], Run], Awaitable[Delta]]


class Costs(Protocol):
    """Model calls of one step over a batch of this size: the fewest and the most."""

    def __call__(self, batch: int) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Method:
    """A way to learn. `act` is one attempt exactly as in evaluation; `calls`, `batch` and
    `epochs` serve the estimate only."""

    name: str
    sample: Sample
    act: Act
    attempt: Attempt
    reflect: Reflect
    update: Update
    accept: Accept
    calls: Costs
    batch: int = 1
    epochs: int = 1


@dataclass(frozen=True)
class Validation:
    """Held-out tasks scored after every `every` steps, to keep the best context."""

    tasks: Sequence[Task]
    every: int = 1

    async def score(self, method: Method, context: Context, run: Run) -> float:
        """Mean score under `context`; a context that shows the same as an earlier one costs nothing."""
        rollouts = await run.evaluate(method.act, "val", self.tasks, context)
        return mean_score(rollouts)


async def learn(
    method: Method, tasks: Sequence[Task], context: Context, run: Run, validation: Validation | None = None
) -> AsyncIterator[StepReport]:
    """Learn from `tasks`, starting at `context`; yields each step once it is done.

    Ends when the method has no more batches. Raises Stopped when a budget is spent or a stop was asked for, and
    ProviderError when three steps in a row were lost to the provider; what was yielded before is good.
    """
    history: list[StepReport] = []
    lost = 0
    for step, batch in enumerate(method.sample(tasks, history, run.at("sample")), 1):
        began = time.monotonic()
        run.house.budget.check()
        at = run.at(f"step {step}")
        rollouts = await method.attempt(batch, context, at.at("attempt"))
        lost = lost + 1 if rollouts and all(r.trace.lost for r in rollouts) else 0
        if lost == LOST_STEPS:
            raise ProviderError(f"{LOST_STEPS} steps in a row were lost: {rollouts[0].trace.error}")
        lessons = await method.reflect(rollouts, context, at.at("reflect"))
        delta = await method.update(lessons, context, at.at("update", _about(lessons)))
        delta = await method.accept(context, delta, rollouts, at.at("accept"))
        outcome = context.apply(delta)
        context = outcome.context
        val = None
        if validation is not None and step % validation.every == 0:
            val = await validation.score(method, context, run)
        if not lost:
            await run.house.settle_failures()
        report = StepReport(
            step, batch, tuple(rollouts), tuple(lessons), context, outcome.applied, outcome.refused,
            time.monotonic() - began, val,
        )  # fmt: skip
        history.append(report)
        yield report


def _about(lessons: Sequence[Lesson]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source for lesson in lessons for source in lesson.sources))


def mean_score(rollouts: Sequence[Rollout]) -> float:
    """Mean of the scores of round 0; an attempt that failed counts 0."""
    scores = [r.score.value for r in rollouts if r.score is not None]
    return sum(scores) / len(scores) if scores else 0.0
