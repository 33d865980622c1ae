"""Combee's dynamic batch size controller (section 3.3): try a few sizes, then keep the one that pays off.

The trials are ordinary steps, so no work is wasted. Each step stores the decision and its reason. The decision follows
from the history before the step alone, so a resume, which finds the same seconds there, decides the same.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from practicum.blocks.sample.delay import Point, fit_delay
from practicum.blocks.sample.orders import shuffled
from practicum.core.types import Task
from practicum.engine.loop import Batch, History, SampleSeam
from practicum.engine.run import Run

NEWEST = 20
"""Measurements of one size that count: delays change as the context grows, and each step keeps its own fit."""


def controlled(epochs: int, tau: float = 0.05, max_batch: int = 100, first: int = 10) -> SampleSeam:
    """Go through all tasks `epochs` times, shuffled anew each time, in batches of a size that is tuned during the run.

    The sizes `first`, 2 x `first`, 4 x `first` and so on, up to a quarter of the tasks, are tried once each. From then
    on each step takes the largest size, up to `max_batch`, at which one more task still shortens an epoch by `tau`
    times what it does at the smallest size. A batch's `data` holds the size, the reason, and the fit (None during the
    trials).

    Raises:
        ValueError: `epochs`, `max_batch` or `first` is below 1, or `tau` is not between 0 and 1.
    """
    if min(epochs, max_batch, first) < 1 or not 0 < tau < 1:
        raise ValueError("epochs, max_batch and first must be at least 1, and tau between 0 and 1")

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        by_size: dict[int, deque[Point]] = defaultdict(lambda: deque(maxlen=NEWEST))
        read = 0
        for epoch in range(1, epochs + 1):
            order = shuffled(tasks, epoch, run)
            while order:
                for point in _measurements(history[read:]):
                    by_size[point.batch].append(point)
                read = len(history)
                points = [point for newest in by_size.values() for point in newest]
                decision = _decide(len(tasks), points, tau, max_batch, first)
                batch, order = order[: decision["size"]], order[decision["size"] :]
                yield Batch(tuple(batch), epoch, data=decision)

    return sample


def candidates(tasks: int, first: int, max_batch: int) -> list[int]:
    """The sizes to try on this many tasks, smallest first. Together they take at most half of them, or one step."""
    limit = min(max(1, tasks // 4), max_batch)
    sizes = [min(first, limit)]
    while sizes[-1] * 2 <= limit:
        sizes.append(sizes[-1] * 2)
    return sizes


def _decide(tasks: int, points: Sequence[Point], tau: float, max_batch: int, first: int) -> Mapping[str, Any]:
    sizes = candidates(tasks, first, max_batch)
    untried = sorted(set(sizes) - {point.batch for point in points})
    if untried:
        why = f"size {len(sizes) - len(untried) + 1} of {len(sizes)} is being tried"
        return {"size": untried[0], "why": why, "fit": None}
    fit = fit_delay(points, tasks, sizes[0], max_batch, tau)
    return {"size": fit.chosen, "why": fit.why, "fit": fit.as_json()}


def _measurements(steps: History) -> Iterator[Point]:
    """The times of these steps. A step does not count that a stop or the end of an epoch cut short, or in which the
    provider lost every attempt; a trial of its size is repeated."""
    for report in steps:
        size, lost = len(report.batch.tasks), [r.trace.lost for r in report.rollouts]
        if report.seconds is not None and size == report.batch.data.get("size") and not (lost and all(lost)):
            yield Point(size, report.seconds)
