"""learn(): the only loop. It knows six seams and no method.

    sample -> attempt (wraps act) -> reflect -> update -> accept -> apply

A method is a value of six functions; blocks that wrap each other make it up (see `methods/`). Later methods add
blocks, never a branch here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from practicum.core.context import Context
from practicum.core.edits import Applied, Delta, Refused, Resolution, ordered_union
from practicum.core.errors import ProviderError
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.run import Act, Run
from practicum.engine.state import House

ENDED = "ended"
"""The note of when a step was first done, in seconds since 1970: what its numbers are dated by for those who watch."""

ALL = 1_000_000
"""The batch of a method that counts its calls over all tasks at once, however many there are."""

LOST_STEPS = 3
"""Steps in a row lost to the provider after which going on makes no sense."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step works on. `arm` is the candidate to start from, for methods that keep several (GEPA); `data` is
    what the sampler has to say of its choice, as JSON values, kept with the step; `steps` is how many steps there will
    be in all, None where that is found on the way."""

    tasks: tuple[Task, ...]
    epoch: int = 1
    arm: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step: what was tried, what was learned from it, what the context became.

    `seconds` is how long the sitting that made the step took for it; None where a stop cut it in two.
    """

    step: int
    batch: Batch
    rollouts: tuple[Rollout, ...]
    lessons: tuple[Lesson, ...]
    context: Context
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]
    resolutions: tuple[Resolution, ...]
    seconds: float | None
    val: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


History = Sequence[StepReport]
Sample = Callable[[Sequence[Task], History, Run], Iterator[Batch]]
Attempt = Callable[[Batch, Context, Run], Awaitable[list[Rollout]]]
Reflect = Callable[[Sequence[Rollout], Context, Run], Awaitable[list[Lesson]]]
Update = Callable[[Sequence[Lesson], Context, Run], Awaitable[Delta]]
Accept = Callable[[Context, Delta, Sequence[Rollout], Run], Awaitable[Delta]]
Schedule = Callable[
    ["Method", Sequence[Task], Context, Run, "Validation | None"],
    AsyncIterator[StepReport],
]


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
    ProviderError when three steps in a row were lost; what was yielded before is good.
    """
    history: list[StepReport] = []
    losses = Losses(run.house)
    for step, batch in enumerate(method.sample(tasks, history, run.at("sample")), 1):
        at = run.at(f"step {step}")
        clock = Clock(at)
        rollouts = await method.attempt(batch, context, at.at("attempt"))
        reflecting = at.at("reflect")
        lessons = await method.reflect(rollouts, context, reflecting)
        losses.count(rollouts, lessons, reflecting.unread)
        delta = await method.update(lessons, context, at.at("update", about(lessons)))
        delta = await method.accept(context, delta, rollouts, at.at("accept"))
        outcome = context.apply(delta)
        context = outcome.context
        seconds = clock.stop()
        val = None
        if validation is not None and step % validation.every == 0:
            val = await validation.score(method, context, run)
        report = StepReport(
            step, batch, tuple(rollouts), tuple(lessons), context, outcome.applied, outcome.refused, delta.resolutions,
            seconds, val, delta.evidence,
        )  # fmt: skip
        history.append(report)
        yield report
    losses.close()


class Clock:
    """Measures a step once: a resume finds what was measured, and does not take its own haste for it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._hits = run.house.journal.hits
        self._began = time.monotonic()

    def stop(self) -> float | None:
        """Seconds since the start; None where a part of the work came from the journal, and nothing was measured."""
        known = self.run.recall("seconds")
        if known is not None:
            return float(known)
        cut = self.run.house.journal.hits > self._hits
        seconds = None if cut else time.monotonic() - self._began
        self.run.note("seconds", seconds)
        self.run.note(ENDED, time.time())
        return seconds


@dataclass
class Losses:
    """Steps in a row that gave nothing, through no fault of the agent."""

    house: House
    row: int = 0
    ever: bool = False

    def count(self, rollouts: Sequence[Rollout], lessons: Sequence[Lesson], unread: bool = False) -> None:
        """Raises ProviderError at the third, where going on makes no sense.

        A step is lost where every attempt was, or every reflection; `unread` says that a reflection could not be read.
        Answers of that kind stop the run only where there was never another: the journal holds them, so that a resume
        could not get past them. Where nothing was attempted, nothing is said.
        """
        if not rollouts:
            return
        failed = bool(self.house.failures) or unread
        lost = all(r.trace.lost for r in rollouts) or (failed and not any(x.text or x.votes for x in lessons))
        if not lost:
            self.row, self.ever = 0, True
            return
        self.row += 1
        if self.row >= LOST_STEPS and (self.house.failures or not self.ever):
            raise ProviderError(f"{LOST_STEPS} steps in a row were lost: {self.house.trouble}")

    def close(self) -> None:
        """Raises ProviderError where every step of a run was lost, however few there were."""
        if self.row and not self.ever:
            raise ProviderError(f"every step was lost: {self.house.trouble}")


class Costs(Protocol):
    """Model calls, or attempts, of one step over a batch of this size: the fewest and the most."""

    def __call__(self, batch: int) -> tuple[int, int]: ...


def one_each(batch: int) -> tuple[int, int]:
    """Each task of a batch once."""
    return batch, batch


@dataclass(frozen=True)
class Method:
    """A way to learn. `act` is one attempt exactly as in evaluation; `roles` are asked beside the agent; `schedule`
    drives the six functions. `models` are those of seats beside the roles, such as single agents of a network.

    For the estimate: `calls`, `traced` (the same where stored traces are read; None: one attempt fewer a task),
    `attempted` (attempts of a step, which a judge may have to score), `heard` (those of them that learning hears of,
    which a judge may have to rule on; None: all), `batch`, `first`, `steps`, `epochs`, `tries` (attempts one `act`
    makes, fewest and most) and `asides` (which other roles `act` itself asks, as a judge that chooses among attempts,
    and how often at most). What is asked about attempts by the scorer, or as feedback, is in none of the calls, but for
    a method with a judge among its `roles`: its calls have the verdicts on attempts that it makes.
    """

    name: str
    sample: Sample
    act: Act
    attempt: Attempt
    reflect: Reflect
    update: Update
    accept: Accept
    calls: Costs
    batch: int = 1
    first: Callable[[int], int] | None = None
    """Tasks of the first step, of so many in all, where the sampler works out its sizes; None: a batch."""
    steps: Callable[[int], int] | None = None
    """Most steps over so many tasks, where they are not cut into batches; None: one a batch."""
    epochs: int = 1
    reuses: bool = False
    """Whether a task is not run again under a context that shows the same."""
    roles: tuple[str, ...] = ()
    schedule: Schedule = learn
    tries: tuple[int, int] = (1, 1)
    asides: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    traced: Costs | None = None
    attempted: Costs = one_each
    heard: Costs | None = None
    gated: bool = False
    """Whether each delta is tried on the validation tasks."""
    scans: int = 0
    """Times at most that the schedule itself goes through the validation tasks."""


def about(what: Iterable[Lesson | Rollout]) -> tuple[str, ...]:
    """What these lessons or attempts come from, each source once."""
    return ordered_union(one.sources for one in what)


def mean_score(rollouts: Sequence[Rollout]) -> float:
    """Mean of the scores of round 0. An attempt that failed scores 0; one that nothing could score counts nowhere."""
    scores = [r.score.value for r in rollouts if r.score is not None]
    return sum(scores) / len(scores) if scores else 0.0
