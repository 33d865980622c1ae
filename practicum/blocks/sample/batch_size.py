"""Combee's dynamic batch size controller (section 3.3): try some sizes, then keep the one that pays.

The trial iterations are iterations like any other, so nothing is thrown away. What was decided, and from what, is in
the step's row. All is worked out anew from the history at each step: a resume, which finds the same seconds there,
decides the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from practicum.blocks.sample.delay import Point, fit_delay
from practicum.core.types import Task
from practicum.engine.loop import Batch, History, Sample, StepReport
from practicum.engine.run import Run

NEWEST = 20
"""Measurements of one size that count: delays change as the context grows, and each step keeps its own fit."""


def controlled(epochs: int, tau: float = 0.05, max_batch: int = 100, first: int = 10) -> Sample:
    """All tasks, `epochs` times, each time in another order, in batches of a size found on the way.

    Sizes `first`, twice that, and so on up to a quarter of the tasks are tried once each; then the largest at which
    one more task still saves the fraction `tau` of what it saves at the smallest, never above `max_batch`. A batch's
    `data` holds size, why, and the fit (None while sizes are tried). Raises ValueError for settings that cannot be.
    """
    if min(epochs, max_batch, first) < 1 or not 0 < tau < 1:
        raise ValueError("epochs, max_batch and first must be at least 1, and tau between 0 and 1")

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for epoch in range(1, epochs + 1):
            order = list(tasks)
            run.rng(f"epoch {epoch}").shuffle(order)
            while order:
                decided = _decide(len(tasks), history, tau, max_batch, first)
                batch, order = order[: decided["size"]], order[decided["size"] :]
                yield Batch(tuple(batch), epoch, data=decided)

    return sample


def candidates(tasks: int, first: int, max_batch: int) -> list[int]:
    """The sizes to try on so many tasks, smallest first; together they are at most half of them, or one batch."""
    limit = min(max(1, tasks // 4), max_batch)
    sizes = [min(first, limit)]
    while sizes[-1] * 2 <= limit:
        sizes.append(sizes[-1] * 2)
    return sizes


def _decide(tasks: int, history: History, tau: float, max_batch: int, first: int) -> Mapping[str, Any]:
    sizes = candidates(tasks, first, max_batch)
    points = _measured(history)
    # One that a stop or the end of an epoch cut short is tried again.
    left = sorted(set(sizes) - {point.batch for point in points})
    if left:
        return {"size": left[0], "why": f"{len(left)} of {len(sizes)} sizes are yet to be tried", "fit": None}
    fit = fit_delay(points, tasks, sizes[0], max_batch, tau)
    return {"size": fit.chosen, "why": fit.why, "fit": fit.as_json()}


def _measured(history: History) -> list[Point]:
    by_size: dict[int, list[Point]] = defaultdict(list)
    for report in history:
        if report.seconds is not None and _whole(report):
            size = len(report.batch.tasks)
            by_size[size].append(Point(size, report.seconds))
    return [point for points in by_size.values() for point in points[-NEWEST:]]


def _whole(report: StepReport) -> bool:
    """Whether the step did all it was asked to: one that was cut, or lost to the provider, says nothing of delay."""
    lost = bool(report.rollouts) and all(r.trace.lost for r in report.rollouts)
    return len(report.batch.tasks) == report.batch.data.get("size") and not lost
