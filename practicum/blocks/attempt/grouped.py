"""Several runs of each task under one context, and which of them are reflected on (RCL, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import pvariance

from practicum.blocks.attempt.attempt import each
from practicum.blocks.reflect.per_trace import tagged
from practicum.core.context import Context
from practicum.core.types import Lesson, Rollout, Trace
from practicum.engine.loop import AttemptSeam, Batch, ReflectSeam
from practicum.engine.run import ActSeam, Run

Job = tuple[str, Callable[[Run], Awaitable[list[Rollout]]]]

WARM = 0.7
"""Temperature of the further runs of a group: at 0 they would all be the same."""


def grouped(attempt: AttemptSeam, size: int, warmth: float = WARM) -> AttemptSeam:
    """Each task `size` times, all at once. The first run is as in evaluation and is the one that reports count."""

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        jobs: list[Job] = [("run 1", partial(attempt, batch, context))]
        jobs += [(f"run {n}", partial(_warm, attempt, batch, context, warmth, n)) for n in range(2, size + 1)]
        runs = await run.gather(jobs)
        return [replace(one, siblings=tuple(others)) for one, *others in zip(*runs, strict=True)]

    return wrapped


async def _warm(
    attempt: AttemptSeam, batch: Batch, context: Context, warmth: float, member: int, run: Run
) -> list[Rollout]:
    return await attempt(batch, context, replace(run, warmth=warmth, member=member))


def annotated_twin(attempt: AttemptSeam, twin: ActSeam) -> AttemptSeam:
    """Each task once more with an annotated view, at the same time (dual-trace credit assignment).

    The annotated run shows which entries were consulted, doubted or missed. What it scored is kept with its trace, to
    look at; nothing uses it, since the annotation changes what the agent does.
    """

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        plain: Job = ("plain", partial(attempt, batch, context))
        annotated: Job = ("annotated", partial(_unjudged, each(twin), batch, context))
        both = await run.gather([plain, annotated])
        return [replace(one, twin=_observed(other)) for one, other in zip(*both, strict=True)]

    return wrapped


async def _unjudged(attempt: AttemptSeam, batch: Batch, context: Context, run: Run) -> list[Rollout]:
    # Its outcome teaches nothing, so no judge is asked for a verdict on it.
    return await attempt(batch, context, replace(run, teaches=False))


def _observed(rollout: Rollout) -> Trace:
    value = None if rollout.score is None else rollout.score.value
    return replace(rollout.trace, data={**rollout.trace.data, "score": value})


def chosen(reflect: ReflectSeam, most: int) -> ReflectSeam:
    """`reflect` on up to `most` tasks that failed; of the others only what was used is counted.

    Groups with both outcomes come first, then those whose runs differ most, then the order of the batch.
    """

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in rollouts if not r.trace.lost]
        failing = [r for r in usable if any(x.feedback.success is False for x in _made(r))]
        picked = sorted(failing, key=lambda r: _informs(r, run.labels), reverse=True)[:most]
        places = {r.place for r in picked}
        rest = [tagged(r, r.place) for r in usable if r.place not in places]
        return [*await reflect(picked, context, run), *rest]

    return wrapped


def _informs(rollout: Rollout, labels: bool) -> tuple[bool, float]:
    """Whether a group has contrast, and the variance of its outcomes: of scores where they may be seen."""
    outcomes = [r.feedback.success is True for r in _made(rollout)]
    seen = [r.score if labels else None for r in _made(rollout)]
    values = [float(ok) if score is None else score.value for score, ok in zip(seen, outcomes, strict=True)]
    # Exact: by rounding, equal scores would seem to vary.
    return any(outcomes), pvariance(values)


def _made(rollout: Rollout) -> list[Rollout]:
    """The runs of a group that the provider did not lose."""
    return [r for r in rollout.group if not r.trace.lost]
