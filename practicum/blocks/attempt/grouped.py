"""Several runs of each task under one context, and which of them are reflected on (RCL, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import pvariance

from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.per_trace import tagged
from practicum.core.context import Context
from practicum.core.types import Lesson, Rollout
from practicum.engine.loop import AttemptSeam, Batch, ReflectSeam
from practicum.engine.run import ActSeam, Run

WARM = 0.7
"""Temperature of the further runs of a group: at 0 they would all be the same."""


def grouped(attempt: AttemptSeam, size: int, warmth: float = WARM) -> AttemptSeam:
    """Run each task `size` times, all at once. The first run is as in evaluation, and reports count it alone."""

    async def member(number: int, batch: Batch, context: Context, run: Run) -> list[Rollout]:
        return await attempt(batch, context, replace(run, warmth=warmth, member=number) if number > 1 else run)

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        runs = await run.gather([(f"run {n}", partial(member, n, batch, context)) for n in range(1, size + 1)])
        return [replace(one, siblings=tuple(others)) for one, *others in zip(*runs, strict=True)]

    return wrapped


def annotated_twin(attempt: AttemptSeam, twin: ActSeam) -> AttemptSeam:
    """Run each task once more with an annotated view, at the same time (dual-trace credit assignment).

    The annotated run shows which entries were consulted, doubted or missed. Its score is kept in its trace to look at;
    nothing uses it, because the annotation changes what the agent does.
    """

    async def annotated(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        # Nothing is learned from the outcome of this run, so no judge is asked about it.
        return await once(twin)(batch, context, replace(run, teaches=False))

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        jobs: list[tuple[str, Callable[[Run], Awaitable[list[Rollout]]]]] = [
            ("plain", partial(attempt, batch, context)),
            ("annotated", partial(annotated, batch, context)),
        ]
        made = []
        for one, other in zip(*await run.gather(jobs), strict=True):
            score = None if other.score is None else other.score.value
            made.append(replace(one, twin=replace(other.trace, data={**other.trace.data, "score": score})))
        return made

    return wrapped


def chosen(reflect: ReflectSeam, most: int) -> ReflectSeam:
    """Apply `reflect` to up to `most` tasks that failed; for the others, only count the entries that were used.

    Groups with both outcomes come first, then those whose runs differ most, then the order of the batch.
    """

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in rollouts if not r.trace.lost]
        failing = [r for r in usable if any(x.feedback.success is False for x in r.group if not x.trace.lost)]
        picked = sorted(failing, key=lambda r: _contrast(r, run.labels), reverse=True)[:most]
        places = {r.place for r in picked}
        rest = [tagged(r, r.place) for r in usable if r.place not in places]
        return [*await reflect(picked, context, run), *rest]

    return wrapped


def _contrast(rollout: Rollout, labels: bool) -> tuple[bool, float]:
    """Whether a run of the group succeeded, and the variance of the outcomes: of scores if learning may see them."""
    made = [r for r in rollout.group if not r.trace.lost]
    successes = [r.feedback.success is True for r in made]
    values = [
        float(success) if r.score is None or not labels else r.score.value
        for r, success in zip(made, successes, strict=True)
    ]
    # `pvariance` is exact: with rounding errors, equal scores would seem to vary.
    return any(successes), pvariance(values)
