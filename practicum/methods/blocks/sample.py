"""Samplers, which choose the tasks of each step. A sampler takes the tasks, the steps so far and the run, and yields a
`Batch` for each step. The module contains plain orders, Combee's controller of the batch size, and RCL's failure
replay.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import exp, floor, isfinite, lgamma, log, log1p, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from practicum.core.student import t_quantile
from practicum.core.types import Attempt, Lesson, Task
from practicum.engine.loop import Batch, History, SampleSeam
from practicum.engine.run import Run
from practicum.tasks.stored import picked

# ---- plain orders


def shuffled_epochs(epochs: int, batch: int) -> SampleSeam:
    """Build a sampler that goes through all tasks `epochs` times, `batch` tasks per step. The run's seed shuffles the
    tasks again for each epoch."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for epoch in range(1, epochs + 1):
            yield from _in_batches(shuffled(tasks, epoch, run), batch, epoch, epochs)

    return sample


def stream(batch: int) -> SampleSeam:
    """Build a sampler that goes through the tasks once, in their order, `batch` tasks per step. This is online
    learning: the agent attempts each task before the method learns from the attempt."""
    return lambda tasks, history, run: _in_batches(tasks, batch)


def batches(online: bool, epochs: int, batch: int) -> SampleSeam:
    """Return `stream(batch)` for online learning, else `shuffled_epochs(epochs, batch)`."""
    return stream(batch) if online else shuffled_epochs(epochs, batch)


ENDLESS = 10**9
"""Number of epochs that is never reached, because `first_steps` ends the learning before."""


def first_steps(sample: SampleSeam, steps: int) -> SampleSeam:
    """Build a sampler of the first `steps` batches of another sampler. Each batch holds the total number of steps.
    Without tasks, the sampler yields no batch."""

    def first(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for batch in islice(sample(tasks, history, run), steps if tasks else 0):
            yield replace(batch, steps=steps)

    return first


def drawn(steps: int, most: int, redraw: bool) -> SampleSeam:
    """Build a sampler that draws up to `most` tasks in each of `steps` steps, by the run's seed. With `redraw`, each
    step draws new tasks; otherwise all steps have the same tasks."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for step in range(1, steps + 1 if tasks else 1):
            yield Batch(tuple(shuffled(tasks, step if redraw else 1, run)[:most]), steps=steps)

    return sample


def everything(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
    """Yield all tasks in one step. Without tasks, yield no step."""
    if tasks:
        yield Batch(tuple(tasks), steps=1)


def nothing(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
    """Yield no step, for an agent without learning."""
    return iter(())


def shuffled(tasks: Sequence[Task], epoch: int, run: Run) -> Sequence[Task]:
    """Return the tasks in the order of this epoch, which depends only on the run's seed. All samplers share this order.
    Tasks of a store are read only when they are taken."""
    return picked(tasks, shuffled_indices(tasks, epoch, run))


def shuffled_indices(tasks: Sequence[Task], epoch: int, run: Run) -> MutableSequence[int]:
    """Return the indices of the tasks in the order of `shuffled`."""
    order = array("q", range(len(tasks)))
    run.rng(f"epoch {epoch}").shuffle(order)
    return order


def _in_batches(order: Sequence[Task], batch: int, epoch: int = 1, epochs: int = 1) -> Iterator[Batch]:
    starts = range(0, len(order), batch)
    for start in starts:
        yield Batch(tuple(order[start : start + batch]), epoch, steps=epochs * len(starts))


# ---- the delay model of Combee's controller (section 3.3, reconstructed)
#
# A step with batch size b takes d(b) seconds, so an epoch of N tasks takes T(b) = N/b · d(b). The power law T(b) = A ·
# b^-alpha is fitted in log space. Its slope |T'(b)| = A · alpha · b^(-alpha-1) is steepest at the smallest candidate
# b_min. The controller chooses the largest b whose slope is at least tau times the slope at b_min: b* = b_min ·
# tau^(-1/(alpha+1)).

MIN_ALPHA = 0.1
"""Limit of alpha: a batch larger than b_min is chosen only if the lower end of alpha's interval is above this limit.
For an alpha near 0, b* is large and saves almost no time."""

PRIOR_NOISE, PRIOR_WEIGHT = 0.15, 2
"""Assumed noise of a step's time before measuring (15%), and the number of measurements that the assumption counts as.
"""

MIN_OUTLIER_DISTANCE = log(2)
"""Points within a factor of 2 of the curve are never outliers: the ordinary noise of a model server is that large."""


class Point(NamedTuple):
    """Measurement of one step: its number of tasks, and its duration (s)."""

    batch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DelayFit:
    """Power law of epoch times, T(b) = A · b^-alpha at batch size b, and the batch size that was chosen by this law.

    `why` is the reason for the chosen size, in words that continue "chosen: 55, because". The law was fitted to
    `points`. `outliers` are too far from the law to count. `left_out` is the number of points with an unusable time:
    zero, negative or not finite. `tasks` is the number of tasks of an epoch. `A` is the duration (s) of an epoch at
    batch size 1. `A` and `alpha` are None if no law could be fitted, for example because all points have the same batch
    size. `alpha_ci95` (95% confidence interval of alpha) and `r2` (in log space) are None with only two points.
    """

    chosen: int
    why: str
    points: tuple[Point, ...]
    outliers: tuple[Point, ...]
    left_out: int
    tasks: int
    b_min: int
    max_batch: int
    tau: float
    A: float | None = None
    alpha: float | None = None
    alpha_ci95: tuple[float, float] | None = None
    r2: float | None = None

    def epoch_seconds(self, point: Point) -> float:
        """Return the duration (s) of a whole epoch at the pace of this point."""
        return self.tasks / point.batch * point.seconds

    def curve(self, batch: float) -> float:
        """Return the duration (s) of an epoch by the fitted law. Raises ValueError if no law was fitted."""
        if self.A is None or self.alpha is None:
            raise ValueError("no curve was fitted: measure at least two batch sizes")
        return float(self.A * batch**-self.alpha)

    def as_json(self) -> dict[str, Any]:
        """Return the fit as JSON values, for `from_json`."""
        return dict(_FIT.dump_python(self, mode="json"))

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> DelayFit:
        """Load a fit from the output of `as_json`."""
        return _FIT.validate_python(value)


_FIT = TypeAdapter(DelayFit)


def fit_delay(
    points: Sequence[Point], tasks: int, b_min: int = 10, max_batch: int = 100, tau: float = 0.05
) -> DelayFit:
    """Fit a curve of epoch times, for epochs of `tasks` tasks, to measured steps, and choose a batch size in [b_min,
    max_batch].

    The size never exceeds the number of tasks.

    Raises:
        ValueError: the bounds leave no size to choose, or `tau` is not between 0 and 1.
    """
    at_most = min(max_batch, tasks)
    if not 1 <= b_min <= at_most:
        raise ValueError(f"b_min must lie between 1 and {at_most}, the smaller of max_batch and tasks; it is {b_min}")
    if not 0 < tau < 1:
        raise ValueError(f"tau must lie between 0 and 1; it is {tau}")
    usable = [Point(b, d) for b, d in points if b >= 1 and isfinite(d) and d > 0]
    fitted, outliers = _without_outliers(usable)
    left_out = len(points) - len(usable)
    fit = _fit_law(DelayFit(b_min, "", fitted, outliers, left_out, tasks, b_min, max_batch, tau))
    chosen, why = _size_of_fit(fit)
    return replace(fit, chosen=chosen, why=why)


def _without_outliers(points: Sequence[Point]) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Split the points into points to fit and outliers.

    One slow step at the largest size (a rate limit, a hanging task) reverses the slope of a least squares line. With
    four sizes it also reverses a soft_l1 fit and the Theil-Sen line, since half of all slopes between two points are
    wrong. Siegel's repeated medians (1982) withstand such a step but are imprecise. So the repeated medians only find
    the outliers, and a least squares line is fitted to the other points (reweighting after Rousseeuw and Leroy,
    1987)."""
    # With three points, the outlier cannot be identified.
    if len(points) < 4 or len({p.batch for p in points}) < 2:
        return tuple(points), ()
    x, y = np.log([p.batch for p in points]), np.log([p.seconds for p in points])
    slopes = [np.median((y[apart] - y[i]) / (x[apart] - x[i])) for i in range(len(x)) for apart in [x != x[i]]]
    slope = np.median(slopes)
    distance = np.abs(y - np.median(y - slope * x) - slope * x)
    # 1.4826 times the median distance is one standard deviation if the noise is normal.
    near = distance <= max(MIN_OUTLIER_DISTANCE, 3 * 1.4826 * float(np.median(distance)))
    fitted = tuple(p for p, is_near in zip(points, near, strict=True) if is_near)
    if len({p.batch for p in fitted}) < 2:
        return tuple(points), ()
    return fitted, tuple(p for p, is_near in zip(points, near, strict=True) if not is_near)


def _fit_law(fit: DelayFit) -> DelayFit:
    """Fit the power law by least squares in log space. From a single size, or if A would be too large for a float, no
    law is fitted.

    With three or four points, an interval that is computed from only the scatter of these points is far too wide, or
    empty if the points happen to lie on a line. So the variance is shrunk towards the prior noise (Smyth, 2004)."""
    points = fit.points
    if len({p.batch for p in points}) < 2:
        return fit
    x = np.log([p.batch for p in points])
    y = np.log([p.seconds for p in points]) - x + log(fit.tasks)
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy / (dx @ dx))
    intercept = float(y.mean() - slope * x.mean())
    if abs(intercept) > 700:
        return fit
    alpha = -slope
    fit = replace(fit, A=exp(intercept), alpha=alpha)
    if len(points) == 2:
        return fit
    freedom = len(points) - 2 + PRIOR_WEIGHT
    scatter = float(((y - intercept - slope * x) ** 2).sum()) + PRIOR_WEIGHT * PRIOR_NOISE**2
    error = sqrt(scatter / freedom / float(dx @ dx))
    half = t_quantile(0.975, freedom) * error
    r2 = min(1.0, slope * float(dx @ dy) / spread) if (spread := float(dy @ dy)) else 0.0
    return replace(fit, alpha_ci95=(alpha - half, alpha + half), r2=r2)


def _size_of_fit(fit: DelayFit) -> tuple[int, str]:
    """Return the batch size to choose, and the reason."""
    sizes, at_most, b_min = sorted({p.batch for p in fit.points}), min(fit.max_batch, fit.tasks), fit.b_min
    if not sizes:
        return b_min, "no iteration was measured"
    if len(sizes) == 1:
        return max(b_min, min(sizes[0], at_most)), f"only batches of {sizes[0]} were measured"
    if fit.alpha is None:
        return b_min, "the measured times follow no power law"
    low, high = fit.alpha_ci95 or (fit.alpha, fit.alpha)
    if low <= MIN_ALPHA:
        interval = f", {low:z.2f} to {high:z.2f}" if fit.alpha_ci95 else ""
        return b_min, f"larger batches do not clearly shorten an epoch (alpha {fit.alpha:z.2f}{interval})"
    best = b_min * fit.tau ** (-1 / (fit.alpha + 1))
    # Any two points lie on a line, so a line through two sizes says nothing about larger sizes.
    limit = min(at_most, sizes[-1]) if len(sizes) == 2 else at_most
    gain = f"{100 * fit.tau:.3g}% of the saving at size {b_min}"
    if best < limit + 0.5:
        return max(b_min, min(round(best), limit)), f"above this size, one more task in a batch saves less than {gain}"
    bound = f"only {sizes[0]} and {sizes[1]} were measured" if limit < at_most else f"{at_most} is the most allowed"
    return max(b_min, limit), f"{bound}; one more task in a batch would still save more than {gain}"


# ---- Combee's controller of the batch size (section 3.3): try a few sizes, then keep the best
#
# The trials are ordinary steps, so no work is wasted. Each step stores the decision and its reason. The decision
# depends only on the history before the step, so a resume, which reads the stored seconds, decides the same.

NEWEST_TIMES = 20
"""Number of newest measurements of one size that count: delays change as the context grows. The limit also keeps the
fit small, which is stored with each step."""


def controlled(epochs: int, tau: float = 0.05, max_batch: int = 100, first: int = 10) -> SampleSeam:
    """Build a sampler that goes through all tasks `epochs` times, shuffled for each epoch, in batches whose size is
    tuned during the run.

    The sizes `first`, 2 x `first`, 4 x `first` and so on, up to a quarter of the tasks, are tried once each. Then each
    step takes the largest size, up to `max_batch`, at which one more task still shortens an epoch by at least `tau`
    times the time that one more task saves at the smallest size. A batch's `data` holds the size, the reason, and the
    fit (None during the trials).

    Raises:
        ValueError: `epochs`, `max_batch` or `first` is below 1, or `tau` is not between 0 and 1.
    """
    if min(epochs, max_batch, first) < 1 or not 0 < tau < 1:
        raise ValueError("epochs, max_batch and first must be at least 1, and tau between 0 and 1")

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        by_size: dict[int, deque[Point]] = defaultdict(lambda: deque(maxlen=NEWEST_TIMES))
        read = 0
        for epoch in range(1, epochs + 1):
            order = shuffled(tasks, epoch, run)
            while order:
                for point in _measurements(history[read:]):
                    by_size[point.batch].append(point)
                read = len(history)
                points = [point for newest in by_size.values() for point in newest]
                decision = _next_size(len(tasks), points, tau, max_batch, first)
                batch, order = order[: decision["size"]], order[decision["size"] :]
                yield Batch(tuple(batch), epoch, data=decision)

    return sample


def candidates(tasks: int, first: int, max_batch: int) -> list[int]:
    """Return the sizes to try on this many tasks, smallest first. Trying each once takes at most half of the tasks. A
    single task is one batch of size 1."""
    limit = min(max(1, tasks // 4), max_batch)
    sizes = [min(first, limit)]
    while sizes[-1] * 2 <= limit:
        sizes.append(sizes[-1] * 2)
    return sizes


def _next_size(tasks: int, points: Sequence[Point], tau: float, max_batch: int, first: int) -> Mapping[str, Any]:
    sizes = candidates(tasks, first, max_batch)
    untried = sorted(set(sizes) - {point.batch for point in points})
    if untried:
        why = f"size {len(sizes) - len(untried) + 1} of {len(sizes)} is being tried"
        return {"size": untried[0], "why": why, "fit": None}
    fit = fit_delay(points, tasks, sizes[0], max_batch, tau)
    return {"size": fit.chosen, "why": fit.why, "fit": fit.as_json()}


def _measurements(steps: History) -> Iterator[Point]:
    """Yield the times of these steps. A step is left out if a stop or the end of an epoch cut it short, or if the
    provider lost every attempt. The size of a step that is left out is tried again."""
    for report in steps:
        size, lost = len(report.batch.tasks), [r.trace.lost for r in report.attempts]
        if report.seconds is not None and size == report.batch.data.get("size") and not (lost and all(lost)):
            yield Point(size, report.seconds)


# ---- failure replay (RCL, sections 3.1 and 3.4; METHODS, section 3)
#
# Tasks that failed come back until they are learned or prove intractable. The sampler also chooses the number of tasks
# of a step, so that enough of them fail to be reflected on.
#
# The replay buffer is computed only from the attempts and lessons of the steps. So it is not stored, a resume rebuilds
# it, and `practicum show --replay` computes it from the rows of a run.

AttemptedCount = int | Literal["auto"] | None
"""Number of tasks that a step attempts. "auto": a number that makes enough failures likely. None: `batch`."""

LIKELY = 0.8
"""Probability of enough failures that "auto" aims for."""

MOST = 10
"""Maximum number of tasks that "auto" attempts for each failure to reflect on."""

NEWEST_OUTCOMES = 50
"""Number of newest attempts for the estimate of the failure rate, because an agent that learns fails less over time."""


def replayed(
    epochs: int, batch: int, ratio: float, attempted: AttemptedCount = None, graduate: int = 3, evict: int = 3
) -> SampleSeam:
    """Build a sampler that goes through all tasks `epochs` times, shuffled for each epoch, and mixes in tasks that
    failed before.

    A step attempts `attempted` tasks; `batch` of them are expected to fail and be reflected on. The share `ratio` of
    the tasks is drawn at random from the replay buffer, or a smaller share if the buffer has too few tasks. The other
    tasks are tasks that this epoch has not had yet. A task that is replayed before its turn in the epoch is not
    attempted at its turn. After a step of only replayed tasks, the next step has at least one other task, so that the
    run always ends. For `graduate` and `evict` see `replay_buffer`.

    A batch's `data` holds the number of tasks to attempt, the replayed tasks, the buffer and, for "auto", the reason.

    Raises:
        ValueError: a setting is out of its range.
    """
    if min(epochs, batch, graduate, evict) < 1 or not 0 <= ratio <= 1:
        raise ValueError("epochs, batch, graduate and evict must be at least 1, and ratio between 0 and 1")
    if isinstance(attempted, int) and attempted < 1:
        raise ValueError("attempted must be at least 1")

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        # Index of each attempted task, by id. Only attempted tasks are replayed.
        index: dict[str, int] = {}
        buffer: dict[str, BufferedTask] = {}
        failed: deque[bool] = deque(maxlen=NEWEST_OUTCOMES)
        step, read, all_replayed = 0, 0, False
        for epoch in range(1, epochs + 1):
            order = shuffled_indices(tasks, epoch, run)
            seen, at = set[int](), 0
            while at < len(order):
                step += 1
                # Each step is read once, so that a long run does not slow down.
                for report in history[read:]:
                    results = task_results(report.step, report.attempts, report.lessons)
                    replay_buffer(results, graduate, evict, buffer=buffer)
                    # A group with one failed run can be reflected on, even if a successful run keeps its task out of
                    # the buffer.
                    failed.extend(not all(outcomes) for r in report.attempts if (outcomes := _successes(r)))
                read = len(history)
                size, reason = _attempted_count(batch, attempted, failed)
                inside = [item for item in buffer.values() if item.inside] if ratio else []
                # After a step of only replayed tasks, keep room for a new task. Otherwise tasks that neither pass nor
                # leave the buffer would be replayed forever.
                replay_count = min(share(ratio, size), size - all_replayed, len(inside))
                drawn = [item.task for item in run.rng(f"replay {step}").sample(inside, replay_count)]
                seen.update(index[id] for id in drawn)
                fresh = list[int]()
                while len(fresh) < size - replay_count and at < len(order):
                    fresh += [order[at]] if order[at] not in seen else []
                    at += 1
                while at < len(order) and order[at] in seen:
                    at += 1
                all_replayed = not fresh
                batch_tasks = tuple(picked(tasks, [*(index[id] for id in drawn), *fresh]))
                index.update(zip((task.id for task in batch_tasks[len(drawn) :]), fresh, strict=True))
                names = ("task", "entered", "passes", "failures")
                rows = [{name: getattr(item, name) for name in names} for item in inside]
                data = {"attempted": size, "replayed": drawn, "buffer": rows, **reason}
                yield Batch(batch_tasks, epoch, data=data)

    return sample


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one step for one task. `passed`: None if the step has no new outcome (see `_group_outcome`).
    `reflected`: whether a lesson of the step reflects on the task."""

    step: int
    task: str
    passed: bool | None
    reflected: bool = False


@dataclass(frozen=True, slots=True)
class BufferedTask:
    """Task that is or was in the replay buffer. `entered`, `graduated` and `evicted` are step numbers. `passes` counts
    the latest passes in a row. `failures` counts, among the latest failures in a row, the failures that were reflected
    on."""

    task: str
    entered: int
    passes: int = 0
    failures: int = 0
    graduated: int | None = None
    evicted: int | None = None

    @property
    def inside(self) -> bool:
        """Whether the task is still in the buffer."""
        return self.graduated is None and self.evicted is None


def task_results(step: int, attempts: Sequence[Attempt], lessons: Sequence[Lesson]) -> list[TaskResult]:
    """Return the result of a step for each of its tasks. The best run of a group decides; see `_group_outcome`."""
    reflected: set[str] = set()
    for lesson in lessons:
        # A diagnosis without an insight counts as a reflection. Votes without a diagnosis do not.
        if lesson.text or any(finding for key, finding in lesson.data.items() if key not in ("kind", "task_id")):
            # A lesson from several tasks names the task that it is about.
            reflected |= {f"task:{lesson.data['task_id']}"} if "task_id" in lesson.data else {*lesson.sources}
    return [TaskResult(step, r.task.id, _group_outcome(r), f"task:{r.task.id}" in reflected) for r in attempts]


def replay_buffer(
    results: Iterable[TaskResult], graduate: int = 3, evict: int = 3, *, buffer: dict[str, BufferedTask] | None = None
) -> dict[str, BufferedTask]:
    """Return the replay buffer after these results: an item for each task, in the order in which the tasks entered,
    including tasks that left the buffer.

    A task enters when it fails. It graduates after `graduate` passes in a row. It is evicted after `evict` failures in
    a row that were reflected on, including the failure with which it entered. Later it may enter again. If `buffer` is
    passed, it is updated in place.
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


def _group_outcome(attempt: Attempt) -> bool | None:
    """Return whether at least one run of the group passed. Return None if only reused runs show this outcome, because
    the steps of the original runs have counted the outcome, or if no run has an outcome."""
    if any(_successes(attempt)):
        return any(_successes(attempt, only_new=True)) or None
    return False if _successes(attempt, only_new=True) else None


def _successes(attempt: Attempt, only_new: bool = False) -> list[bool]:
    """Return whether each run of the group passed, except runs of unknown outcome and, if `only_new`, reused runs."""
    runs = [r for r in attempt.group if not r.trace.lost and not (only_new and r.of)]
    return [r.feedback.success for r in runs if r.feedback.success is not None]


def share(ratio: float, size: int) -> int:
    """Return the number of replayed tasks in a step of `size` tasks. Halves are rounded up: with Python's `round`,
    which takes 0.5 to 0, a step of one task would never replay a task at a ratio of 0.5."""
    return floor(ratio * size + 0.5)


def attempts_needed(batch: int, rate: float) -> tuple[int, float]:
    """Return the number of tasks to attempt for `batch` failures at this failure rate, and the probability of at least
    `batch` failures among these tasks.

    The number is the smallest from `batch` to MOST times `batch` with which this probability is at least LIKELY. If no
    number suffices, the result is MOST times `batch`."""
    sizes = np.arange(batch, MOST * batch + 1)
    # The probability that failure number `batch` occurs at exactly this attempt, as a logarithm: factorials are huge.
    last = [
        lgamma(n) - lgamma(batch) - lgamma(n - batch + 1)
        + batch * log(rate) + (n - batch) * log1p(-rate)
        for n in sizes
    ]  # fmt: skip
    chances = np.minimum(np.cumsum(np.exp(last)), 1.0)
    index = int(np.argmax(chances >= LIKELY)) if chances[-1] >= LIKELY else -1
    return int(sizes[index]), float(chances[index])


def _attempted_count(batch: int, attempted: AttemptedCount, failed: Sequence[bool]) -> tuple[int, dict[str, str]]:
    """Return the number of tasks to attempt, and for "auto" the reason. `failed`: whether each of the newest attempts
    failed."""
    if attempted != "auto":
        return attempted or batch, {}
    # One failure and one success are added, so that the rate is never 0 or 1.
    rate = (sum(failed) + 1) / (len(failed) + 2)
    size, chance = attempts_needed(batch, rate)
    failures = "1 failure" if batch == 1 else f"at least {batch} failures"
    why = f"{failures} among {size} tasks at a failure rate of {rate:.0%}: a chance of {chance:.0%}"
    return size, {"why": why if chance >= LIKELY else f"{why}, but a step never attempts more tasks"}
