"""Several runs of each task under one context, and which of them are reflected on (RCL, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from practicum.blocks.reflect import tagged
from practicum.context import Context
from practicum.loop import Attempt, Batch, Reflect
from practicum.run import Act, Run
from practicum.types import Lesson, Rollout, Trace

Job = tuple[str, Callable[[Run], Awaitable[list[Rollout]]]]

WARM = 0.7
"""Temperature of the further runs of a group: at 0 they would all be the same."""


def grouped(attempt: Attempt, size: int, warmth: float = WARM) -> Attempt:
    """Each task `size` times, all at once. The first run is as in evaluation and is the one that reports count."""

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        jobs: list[Job] = [("run 1", partial(attempt, batch, context))]
        jobs += [(f"run {n}", partial(_warm, attempt, batch, context, warmth)) for n in range(2, size + 1)]
        runs = await run.gather(jobs)
        return [replace(one, siblings=tuple(others)) for one, *others in zip(*runs, strict=True)]

    return wrapped


async def _warm(attempt: Attempt, batch: Batch, context: Context, warmth: float, run: Run) -> list[Rollout]:
    return await attempt(batch, context, replace(run, warmth=warmth))


def annotated_twin(attempt: Attempt, twin: Act) -> Attempt:
    """Each task once more with an annotated view, at the same time (dual-trace credit assignment).

    The annotated run shows which entries were consulted, doubted or missed. What it scored is kept with its trace, to
    look at; nothing uses it, since the annotation changes what the agent does.
    """

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        plain: Job = ("plain", partial(attempt, batch, context))
        annotated: Job = ("annotated", partial(_each, twin, batch, context))
        both = await run.gather([plain, annotated])
        return [replace(one, twin=_observed(other)) for one, other in zip(*both, strict=True)]

    return wrapped


async def _each(twin: Act, batch: Batch, context: Context, run: Run) -> list[Rollout]:
    # No verdict is made of it, so a judge is not asked.
    run = replace(run, teaches=False)
    jobs = [(f"{i}.{task.id}", partial(twin, task, context)) for i, task in enumerate(batch.tasks)]
    return await run.gather(jobs)


def _observed(rollout: Rollout) -> Trace:
    value = None if rollout.score is None else rollout.score.value
    return replace(rollout.trace, data={**rollout.trace.data, "score": value})


def chosen(reflect: Reflect, most: int) -> Reflect:
    """`reflect` on up to `most` tasks that failed; of the others only what was used is counted.

    Groups with both outcomes come first, then those whose runs differ most, then the order of the batch.
    """

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        failing = [r for r in rollouts if any(x.feedback.success is False and not x.trace.lost for x in r.group)]
        picked = sorted(failing, key=lambda r: _informs(r, run.house.labels), reverse=True)[:most]
        rest = [r for r in rollouts if r not in picked and not r.trace.lost]
        return [*await reflect(picked, context, run), *(tagged(r, r.place) for r in rest)]

    return wrapped


def _informs(rollout: Rollout, labels: bool) -> tuple[bool, float]:
    """Whether a group has contrast, and the variance of its outcomes: of scores where they may be seen."""
    outcomes = [r.feedback.success is True for r in rollout.group]
    seen = [r.score if labels else None for r in rollout.group]
    values = [float(ok) if score is None else score.value for score, ok in zip(seen, outcomes, strict=True)]
    mean = sum(values) / len(values)
    return any(outcomes), sum((v - mean) ** 2 for v in values) / len(values)
