"""How a batch is attempted: wraps `act`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from practicum.blocks.act.show import Answer, learning_feedback
from practicum.blocks.reflect.per_trace import LearnFrom, Reflector
from practicum.core.context import Context
from practicum.core.types import Feedback, Rollout, Round, Task, Trace
from practicum.engine.loop import AttemptSeam, Batch, Method
from practicum.engine.run import ActSeam, Run

Refine = Literal["retry", "critique"]


def once(act: ActSeam) -> AttemptSeam:
    """Each task of the batch once, all at once."""
    return each(act)


def each(do: Callable[[Task, Context, Run], Awaitable[Rollout]]) -> AttemptSeam:
    """`do` for each task of the batch, all at once, each at its own place and with its own provenance."""

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        jobs = [(f"{i}.{task.id}", partial(_one, do, task, context)) for i, task in enumerate(batch.tasks)]
        return await run.gather(jobs)

    return attempt


async def _one(
    do: Callable[[Task, Context, Run], Awaitable[Rollout]], task: Task, context: Context, run: Run
) -> Rollout:
    about = Rollout(task, _NOTHING, None, _UNKNOWN, run.place).sources
    return await do(task, context, replace(run, about=about))


def shown_answers() -> AttemptSeam:
    """No attempt: each task with its right answer, as a solved example. Costs nothing."""

    async def show(task: Task, context: Context, run: Run) -> Rollout:
        if task.target is None:
            return Rollout(task, _NOTHING, None, Feedback(None, "No right answer is known."), run.place)
        said = Feedback(True, "This is the right answer.", task.target)
        return Rollout(task, Trace(answer=task.target), None, said, run.place)

    return each(show)


def stored() -> AttemptSeam:
    """No attempt: what an agent did on each task before this run, as it was recorded (Combee, section 4.1: learning
    from released traces). Its score is used where it has one; else a scorer may make one; else a judge may speak."""

    async def show(task: Task, context: Context, run: Run) -> Rollout:
        if task.recorded is None:
            return Rollout(task, replace(_NOTHING, error="no trace", lost=True), None, _UNKNOWN, run.place)
        # What it relied on were entries of another context.
        trace, score = replace(task.recorded.trace, used=()), task.recorded.score
        score = score if score is not None else await run.score(task, trace)
        return Rollout(task, trace, score, await learning_feedback(task, trace, score, run), run.place)

    return each(show)


def reading(method: Method) -> Method:
    """The same method, learning from stored traces: nothing is attempted, so nothing is tried again."""
    return replace(method, attempt=stored())


def reflected(act: ActSeam, reflector: Reflector, learn_from: LearnFrom) -> AttemptSeam:
    """Each task once, and its reflection as soon as it is done: nobody waits for the slowest attempt of the batch.

    What `per_trace` makes of such rollouts is what it would make of them by itself.
    """

    async def attempt(task: Task, context: Context, run: Run) -> Rollout:
        rollout = await act(task, context, run)
        known = learn_from == "failures" and rollout.feedback.success is True
        if rollout.trace.lost or known:
            return rollout
        lesson = await reflector(rollout, context, (), run.at("reflect"))
        # One that was lost is asked for once more, by `per_trace`.
        return rollout if lesson is None else replace(rollout, rounds=(Round(lesson),))

    return each(attempt)


def refined(act: Answer, reflector: Reflector, rounds: int, refine: Refine) -> AttemptSeam:
    """ACE's refinement. An attempt is reflected on up to `rounds` times; the lessons of all rounds are kept.

    `retry`: on a failure the agent tries again with the reflection, until the first success; that reflection is then
    confirmed. `critique`: the reflector improves its own lesson until it has nothing to add.
    """

    async def retry(task: Task, context: Context, run: Run) -> Rollout:
        first = await act(task, context, run)
        rounds_: list[Round] = []
        trace, said = first.trace, first.feedback
        while len(rounds_) < rounds and said.success is False and not trace.lost:
            at = run.at(f"round {len(rounds_) + 1}")
            lesson = await reflector(replace(first, trace=trace, feedback=said), context, rounds_, at)
            if lesson is None:
                break
            again = await act(task, context, at.at("again"), NOTE.format(lesson.text)) if lesson.text else None
            if again is not None and not again.trace.lost:
                trace, said = again.trace, again.feedback
                lesson = replace(lesson, confirmed=said.success is True)
            rounds_.append(Round(lesson, trace, said))
            if again is None:
                break
        return replace(first, rounds=tuple(rounds_))

    async def critique(task: Task, context: Context, run: Run) -> Rollout:
        first = await act(task, context, run)
        rounds_: list[Round] = []
        while len(rounds_) < rounds and first.feedback.success is not True and not first.trace.lost:
            lesson = await reflector(first, context, rounds_, run.at(f"round {len(rounds_) + 1}"))
            if lesson is None or (rounds_ and lesson.text == rounds_[-1].lesson.text):
                break
            # It is one attempt however often it is reflected on, so its entries are counted once: by the last word.
            rounds_ = [Round(replace(round.lesson, votes={})) for round in rounds_]
            rounds_.append(Round(lesson))
        return replace(first, rounds=tuple(rounds_))

    return each(retry if refine == "retry" else critique)


NOTE = "An earlier answer to this was not right. A reflection on it: {}"
"""What the agent is told when it tries again: the insight, never the right answer itself."""

_NOTHING = Trace(answer="")
_UNKNOWN = Feedback(None, "")
