"""Failure replay: tasks that failed come back until they are learned or prove intractable (RCL, section 3.4; METHODS,
section 3). The sampler also decides how many tasks a step attempts, so that enough of them fail to be reflected on
(section 3.1).

The replay buffer follows from the rollouts and lessons of the steps alone. So it needs no store of its own, a resume
finds it again, and `practicum show --replay` computes it from the rows of a run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from practicum.blocks.sample.orders import shuffled_indices
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, History, SampleSeam
from practicum.engine.run import Run
from practicum.tasks.stored import picked

RolloutCount = int | Literal["auto"] | None
"""Tasks that a step attempts: a number, "auto" for as many as make enough failures likely, or None for `batch`."""

LIKELY = 0.8
"""Probability of enough failures that "auto" aims for."""

MOST = 10
"""Most tasks that "auto" attempts for each failure to reflect on."""

NEWEST = 50
"""Attempts that the failure rate is estimated from: an agent that learns fails less often than it used to."""


def replayed(
    epochs: int, batch: int, ratio: float, rollouts: RolloutCount = None, graduate: int = 3, evict: int = 3
) -> SampleSeam:
    """Go through all tasks `epochs` times, shuffled anew each time, and mix in tasks that failed before.

    A step attempts `rollouts` tasks, of which `batch` are expected to fail and be reflected on. The share `ratio` of
    them is drawn at random from the replay buffer, as far as it goes; tasks that are new in this epoch fill the rest. A
    task that is replayed before its turn counts as seen. Two steps in a row never consist of replayed tasks alone, so
    the run always ends. For `graduate` and `evict` see `replay_buffer`.

    A batch's `data` holds the number of rollouts, the replayed tasks, the buffer and, for "auto", the reason.

    Raises:
        ValueError: a setting is out of its range.
    """
    if min(epochs, batch, graduate, evict) < 1 or not 0 <= ratio <= 1:
        raise ValueError("epochs, batch, graduate and evict must be at least 1, and ratio between 0 and 1")
    if isinstance(rollouts, int) and rollouts < 1:
        raise ValueError("rollouts must be at least 1")

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        # Of tasks that were attempted, which alone are replayed.
        index: dict[str, int] = {}
        buffer: dict[str, BufferedTask] = {}
        failed: deque[bool] = deque(maxlen=NEWEST)
        step, read, all_replayed = 0, 0, False
        for epoch in range(1, epochs + 1):
            order = shuffled_indices(tasks, epoch, run)
            seen, at = set[int](), 0
            while at < len(order):
                step += 1
                # Each step is read once, so a long run does not slow down.
                for report in history[read:]:
                    results = task_results(report.step, report.rollouts, report.lessons)
                    replay_buffer(results, graduate, evict, buffer=buffer)
                    # A group with one failed run can be reflected on, even if its best run keeps it out of the buffer.
                    failed.extend(not all(known) for r in report.rollouts if (known := _successes(r)))
                read = len(history)
                size, reason = _size(batch, rollouts, failed)
                inside = [item for item in buffer.values() if item.inside] if ratio else []
                # After a step of replayed tasks alone, keep room for a new one: tasks that neither pass nor leave the
                # buffer would go on for ever.
                wanted = min(share(ratio, size), size - all_replayed, len(inside))
                drawn = [item.task for item in run.rng(f"replay {step}").sample(inside, wanted)]
                seen.update(index[id] for id in drawn)
                fresh = list[int]()
                while len(fresh) < size - wanted and at < len(order):
                    fresh += [order[at]] if order[at] not in seen else []
                    at += 1
                while at < len(order) and order[at] in seen:
                    at += 1
                all_replayed = not fresh
                batch_tasks = tuple(picked(tasks, [*(index[id] for id in drawn), *fresh]))
                index.update(zip((task.id for task in batch_tasks[len(drawn) :]), fresh, strict=True))
                names = ("task", "entered", "passes", "failures")
                rows = [{name: getattr(item, name) for name in names} for item in inside]
                data = {"rollouts": size, "replayed": drawn, "buffer": rows, **reason}
                yield Batch(batch_tasks, epoch, data=data)

    return sample


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one step says about one task. `passed` is None if nothing new is known: the attempt was lost, or reused."""

    step: int
    task: str
    passed: bool | None
    reflected: bool = False


@dataclass(frozen=True, slots=True)
class BufferedTask:
    """A task that is in the replay buffer, or was. `entered`, `graduated` and `evicted` are step numbers. `passes` and
    `failures` count how many there were in a row; only failures that were reflected on are counted."""

    task: str
    entered: int
    passes: int = 0
    failures: int = 0
    graduated: int | None = None
    evicted: int | None = None

    @property
    def inside(self) -> bool:
        """Whether it is still in the buffer."""
        return self.graduated is None and self.evicted is None


def task_results(step: int, rollouts: Sequence[Rollout], lessons: Sequence[Lesson]) -> list[TaskResult]:
    """What a step says about each of its tasks. The best run of a group decides; see `_outcome`."""
    reflected: set[str] = set()
    for lesson in lessons:
        # A diagnosis without an insight is a reflection, votes alone are not.
        if lesson.text or any(said for key, said in lesson.data.items() if key not in ("kind", "task_id")):
            # A lesson from several tasks names the one it is about.
            reflected |= {f"task:{lesson.data['task_id']}"} if "task_id" in lesson.data else {*lesson.sources}
    return [TaskResult(step, r.task.id, _outcome(r), f"task:{r.task.id}" in reflected) for r in rollouts]


def replay_buffer(
    results: Iterable[TaskResult], graduate: int = 3, evict: int = 3, *, buffer: dict[str, BufferedTask] | None = None
) -> dict[str, BufferedTask]:
    """The buffer after these results, by task, in the order of entry. Tasks that left it are included.

    A task enters when it fails. It graduates after `graduate` passes in a row. It is evicted after `evict` failures in
    a row that were reflected on, including the one it entered with. After that it may enter again. A given `buffer` is
    continued in place.
    """
    buffer = {} if buffer is None else buffer
    for result in results:
        item = buffer.get(result.task)
        if item is not None and not item.inside:
            item = None
        if result.passed is True and item is not None:
            passes = item.passes + 1
            left = result.step if passes >= graduate else None
            buffer[item.task] = replace(item, passes=passes, failures=0, graduated=left)
        elif result.passed is False:
            if item is None:
                # A task that enters again goes to the end.
                buffer.pop(result.task, None)
                item = BufferedTask(result.task, result.step)
            failures = item.failures + result.reflected
            left = result.step if failures >= evict else None
            buffer[item.task] = replace(item, passes=0, failures=failures, evicted=left)
    return buffer


def _outcome(rollout: Rollout) -> bool | None:
    """Whether the best run of the group passed, if that is new: a reused run says nothing that its step did not say."""
    if any(_successes(rollout)):
        return any(_successes(rollout, made=True)) or None
    return False if _successes(rollout, made=True) else None


def _successes(rollout: Rollout, made: bool = False) -> list[bool]:
    """Whether each run of the group passed, or each that was not reused; those of unknown outcome are left out."""
    runs = [r for r in rollout.group if not r.trace.lost and not (made and r.of)]
    return [r.feedback.success for r in runs if r.feedback.success is not None]


def share(ratio: float, size: int) -> int:
    """The number of tasks of a step to replay. Halves round up: Python's `round` takes them to the even number, and a
    step of one task would never replay anything."""
    return math.floor(ratio * size + 0.5)


def rollouts_needed(batch: int, rate: float) -> tuple[int, float]:
    """How many tasks to attempt for `batch` failures at this failure rate.

    Returns the smallest number, from `batch` to MOST times that, with which `batch` failures are LIKELY, and their
    probability. Returns the largest number if none is enough.
    """
    sizes = np.arange(batch, MOST * batch + 1)
    # The chance that failure number `batch` comes with exactly this attempt, by its logarithm: factorials are huge.
    last = [
        math.lgamma(n) - math.lgamma(batch) - math.lgamma(n - batch + 1)
        + batch * math.log(rate) + (n - batch) * math.log1p(-rate)
        for n in sizes
    ]  # fmt: skip
    chances = np.minimum(np.cumsum(np.exp(last)), 1.0)
    index = int(np.argmax(chances >= LIKELY)) if chances[-1] >= LIKELY else -1
    return int(sizes[index]), float(chances[index])


def _size(batch: int, rollouts: RolloutCount, failed: Sequence[bool]) -> tuple[int, dict[str, str]]:
    """How many tasks to attempt, and for "auto" the reason. `failed` says of the newest attempts whether they did."""
    if rollouts != "auto":
        return rollouts or batch, {}
    # One failure and one success are added, so that the rate is never 0 or 1.
    rate = (sum(failed) + 1) / (len(failed) + 2)
    size, chance = rollouts_needed(batch, rate)
    failures = "1 failure" if batch == 1 else f"at least {batch} failures"
    why = f"{failures} among {size} tasks at a failure rate of {rate:.0%}: a chance of {chance:.0%}"
    return size, {"why": why if chance >= LIKELY else f"{why}, but more are never tried at once"}
