"""Failure replay: tasks that failed come back until they are learned or prove intractable (RCL, section 3.4; METHODS,
section 3). And how many tasks a step attempts, so that enough of them fail to be reflected on (section 3.1).

The buffer follows from what each step's rollouts and lessons say, and from nothing else: it needs no store of its own,
a resume finds it again, and `practicum show --replay` works it out from the rows of a run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, History, Sample, StepReport
from practicum.engine.run import Run

SURE = 0.8
"""Chance of enough failures that a rollout batch should have."""

NEWEST = 50
"""Attempts that the running failure rate is taken of: an agent that learns fails less often than it did."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step says of one task. `passed` is None where nothing is known or the attempt was lost."""

    step: int
    task: str
    passed: bool | None
    reflected: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A task in the buffer, or one that left it. `entered`, `graduated` and `evicted` are steps; `passes` and
    `failures` count how many there were in a row, of failures those reflected on."""

    task: str
    entered: int
    passes: int = 0
    failures: int = 0
    graduated: int | None = None
    evicted: int | None = None

    @property
    def inside(self) -> bool:
        """Whether it is in the buffer still."""
        return self.graduated is None and self.evicted is None


def buffer(outcomes: Iterable[Outcome], graduate: int = 3, evict: int = 3) -> dict[str, Row]:
    """The buffer after these outcomes, in the order of entry, with the tasks that left it.

    A task enters when it fails. It graduates after `graduate` passes in a row and is evicted after `evict` failures in
    a row that were reflected on, the one it entered with included; then it may enter anew.
    """
    rows: dict[str, Row] = {}
    for outcome in outcomes:
        _fold(rows, outcome, graduate, evict)
    return rows


def _fold(rows: dict[str, Row], outcome: Outcome, graduate: int, evict: int) -> None:
    row = rows.get(outcome.task)
    if row is not None and not row.inside:
        row = None
    if outcome.passed is True and row is not None:
        passes = row.passes + 1
        left = outcome.step if passes >= graduate else None
        rows[row.task] = replace(row, passes=passes, failures=0, graduated=left)
    elif outcome.passed is False:
        if row is None:
            # One that comes back is the newest again.
            rows.pop(outcome.task, None)
            row = Row(outcome.task, outcome.step)
        failures = row.failures + outcome.reflected
        left = outcome.step if failures >= evict else None
        rows[row.task] = replace(row, passes=0, failures=failures, evicted=left)


def outcomes_of(report: StepReport) -> list[Outcome]:
    """What a step says of each of its tasks."""
    return outcomes(report.step, report.rollouts, report.lessons)


def outcomes(step: int, rollouts: Sequence[Rollout], lessons: Sequence[Lesson]) -> list[Outcome]:
    """The same, from the parts of a step. Of a group the best run decides."""
    reflected = {source for lesson in lessons if _reflects(lesson) for source in _about(lesson)}
    return [Outcome(step, r.task.id, _passed(_known(r)), f"task:{r.task.id}" in reflected) for r in rollouts]


def _reflects(lesson: Lesson) -> bool:
    """Whether someone thought about the attempt. A diagnosis without a rule counts, mere votes do not."""
    return bool(lesson.text or any(lesson.data.get(said) for said in ("diagnosis", "cause", "attribution")))


def _about(lesson: Lesson) -> Sequence[str]:
    """What the lesson is about: the one task it names, where it comes from several; else what it comes from."""
    return [f"task:{lesson.data['task_id']}"] if "task_id" in lesson.data else lesson.sources


def _known(rollout: Rollout) -> list[bool]:
    """Outcomes of a task's runs, as far as they are known."""
    return [r.feedback.success for r in rollout.group if r.feedback.success is not None and not r.trace.lost]


def _passed(known: Sequence[bool]) -> bool | None:
    return any(known) if known else None


MOST = 10
"""Tasks that a step attempts at most for each failure it is to reflect on."""


def replayed(
    epochs: int,
    batch: int,
    ratio: float,
    rollouts: int | Literal["auto"] | None = None,
    graduate: int = 3,
    evict: int = 3,
) -> Sample:
    """All tasks, `epochs` times, each time in another order, and among them tasks that failed before.

    A step attempts `rollouts` tasks: `batch` where None; for "auto" as many as make `batch` failures likely, at most
    MOST times `batch`. The share `ratio` of them is drawn at random from the buffer, as far as it goes; tasks not yet
    seen in this epoch fill up. One that is replayed before its turn has been seen. Two steps in a row never attempt
    replayed tasks alone, so that it ends. A batch's `data` holds the size, what was replayed, the buffer, and for
    "auto" why. Raises ValueError for settings that cannot be.
    """
    if min(epochs, batch, graduate, evict) < 1 or not 0 <= ratio <= 1:
        raise ValueError("epochs, batch, graduate and evict must be at least 1, and ratio between 0 and 1")
    if isinstance(rollouts, int) and rollouts < 1:
        raise ValueError("rollouts must be at least 1")

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        by_id = {task.id: task for task in tasks}
        memory = _Memory(graduate, evict)
        step, stale = 0, False
        for epoch in range(1, epochs + 1):
            unseen = list(tasks)
            run.rng(f"epoch {epoch}").shuffle(unseen)
            while unseen:
                step += 1
                memory.read(history)
                size, why = _size(batch, rollouts, memory)
                inside = memory.inside if ratio else []
                # After replayed tasks alone, one at least is new: what never passes nor leaves would keep it going.
                wanted = min(share(ratio, size), size - stale, len(inside))
                drawn = {row.task: by_id[row.task] for row in run.rng(f"replay {step}").sample(inside, wanted)}
                unseen = [task for task in unseen if task.id not in drawn]
                fresh, unseen = unseen[: size - wanted], unseen[size - wanted :]
                stale = not fresh
                data = {"rollouts": size, "replayed": [*drawn], "buffer": [_brief(row) for row in inside], **why}
                yield Batch((*drawn.values(), *fresh), epoch, data=data)

    return sample


def first_size(batch: int, rollouts: int | Literal["auto"] | None) -> int:
    """Tasks that the first step attempts: nothing failed before it."""
    return _size(batch, rollouts, _Memory(graduate=1, evict=1))[0]


def share(ratio: float, size: int) -> int:
    """Tasks of a rollout batch that are to be replayed: halves go up, where Python's `round` takes them to the even
    number and a batch of one would never replay anything."""
    return math.floor(ratio * size + 0.5)


def enough(batch: int, rate: float) -> tuple[int, float]:
    """The smallest number of tasks, from `batch` to MOST times that, among which `batch` failures are likely at this
    failure rate, and how likely they are; the largest where none is enough."""
    from scipy.stats import binom

    sizes = np.arange(batch, MOST * batch + 1)
    chances = binom.sf(batch - 1, sizes, rate)
    index = int(np.argmax(chances >= SURE)) if chances[-1] >= SURE else -1
    return int(sizes[index]), float(chances[index])


@dataclass
class _Memory:
    """What the steps so far come to. Each is read once, so that a long run does not slow down."""

    graduate: int
    evict: int
    rows: dict[str, Row] = field(default_factory=dict)
    failed: deque[bool] = field(default_factory=lambda: deque(maxlen=NEWEST))
    steps: int = 0

    def read(self, history: History) -> None:
        """Take in what is new."""
        for report in history[self.steps :]:
            for outcome in outcomes_of(report):
                _fold(self.rows, outcome, self.graduate, self.evict)
            # A group with one failed run can be reflected on, though its best run keeps it out of the buffer.
            self.failed.extend(not all(known) for r in report.rollouts if (known := _known(r)))
        self.steps = len(history)

    @property
    def inside(self) -> list[Row]:
        return [row for row in self.rows.values() if row.inside]

    @property
    def rate(self) -> float:
        """The failure rate, with one failure and one success added, so that it is never 0 or 1."""
        return (sum(self.failed) + 1) / (len(self.failed) + 2)


def _size(batch: int, rollouts: int | Literal["auto"] | None, memory: _Memory) -> tuple[int, dict[str, str]]:
    """How many tasks to attempt, and why where that was worked out."""
    if rollouts != "auto":
        return rollouts or batch, {}
    size, chance = enough(batch, memory.rate)
    why = f"{_failures(batch)} among {size} tasks at a failure rate of {memory.rate:.0%}: a chance of {chance:.0%}"
    return size, {"why": why if chance >= SURE else f"{why}, but more are never tried at once"}


def _failures(batch: int) -> str:
    return "1 failure" if batch == 1 else f"at least {batch} failures"


def _brief(row: Row) -> dict[str, Any]:
    """A row of the buffer as JSON values: what it has before it leaves."""
    return {"task": row.task, "entered": row.entered, "passes": row.passes, "failures": row.failures}
