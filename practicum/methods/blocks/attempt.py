"""Attempts at tasks: once, in reflection rounds, in a group, with an annotated twin, or from stored traces.

`reflected`, `refined` and `demonstrated` wrap the attempt at one task. `once` applies the attempt to each task of a
batch, and `grouped` and `annotated_twin` wrap `once`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from practicum.core.context import Context
from practicum.core.types import Attempt, Feedback, Lesson, Round, Task, Trace
from practicum.engine.loop import AttemptSeam, Batch
from practicum.engine.run import ActSeam, Run
from practicum.methods.blocks.reflect import LearnFrom, Reflector
from practicum.methods.blocks.show import ActWithNote, learning_feedback

Refine = Literal["retry", "critique"]

WARM = 0.7
"""Temperature of all runs of a group except the first: at 0 all runs would be the same."""


def once(act: ActSeam) -> AttemptSeam:
    """Build an attempt seam that attempts each task of the batch once, concurrently. Each attempt has a separate place,
    and the sources of its task."""

    async def one(task: Task, context: Context, run: Run) -> Attempt:
        source, *tags = task.sources
        return await act(task, context, replace(run, about=(source, f"attempt:{run.place}", *tags)))

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        return await run.gather([(f"{i}.{task.id}", partial(one, task, context)) for i, task in enumerate(batch.tasks)])

    return attempt


def shown_answers(act: ActSeam) -> AttemptSeam:
    """Build an attempt seam that returns each task with its right answer as a solved example, without an attempt, at no
    cost. Tasks without a known answer are attempted. If attempts of the agent show more than the answer, such as tool
    calls, all tasks are attempted."""

    async def show(task: Task, context: Context, run: Run) -> Attempt:
        if task.target is None or not run.targets_are_answers or not run.only_answers:
            return await act(task, context, run)
        feedback = Feedback(True, "This is the right answer.", task.target)
        return Attempt(task, Trace(task.target), None, feedback, run.place)

    return once(show)


def stored() -> AttemptSeam:
    """Build an attempt seam that returns the recorded trace of each task, from before this run (Combee, section 4.1:
    learning from released traces). A trace without a score is scored or, without a scorer, judged."""

    async def show(task: Task, context: Context, run: Run) -> Attempt:
        if task.recorded is None:
            return Attempt(task, Trace("", error="no trace", lost=True), None, Feedback(None, ""), run.place)
        recorded = task.recorded
        # If the trace was recorded in another run, the entries that it used belong to another context.
        used = tuple(id for id in recorded.trace.used if recorded.own and id in context)
        trace, score = replace(recorded.trace, used=used), recorded.score
        score = score if score is not None else await run.score(task, trace)
        feedback = await learning_feedback(task, trace, score, run)
        return Attempt(task, trace, score, feedback, run.place, retrieved=recorded.retrieved)

    return once(show)


def reflected(act: ActSeam, reflector: Reflector, learn_from: LearnFrom) -> ActSeam:
    """Build an act that attempts the task and immediately reflects on the attempt, without waiting for the batch. With
    `learn_from="failures"`, a success is not reflected on. The reflection is stored with the attempt. `per_trace` then
    returns the lessons of this reflection, and does not reflect again, even if the reflection was lost."""

    async def one(task: Task, context: Context, run: Run) -> Attempt:
        attempt = await act(task, context, run)
        if attempt.trace.lost or (learn_from == "failures" and attempt.feedback.success is True):
            return attempt
        at = run.at("reflect")
        lesson = await reflector(attempt, context, (), at)
        return replace(attempt, rounds=(Round(lesson or without_text(attempt, at)),))

    return one


def without_text(attempt: Attempt, run: Run) -> Lesson:
    """Return the lesson of a lost reflection. The reflector's model was asked, and asked again to mend its output, so a
    third question with the same prompt would be paid for nothing."""
    return Lesson(run.place, "", sources=attempt.sources)


def refined(act: ActWithNote, reflector: Reflector, rounds: int, refine: Refine) -> ActSeam:
    """Build an act that reflects on an attempt up to `rounds` times, as in ACE, and keeps the lessons of all rounds. A
    lost reflection ends the rounds.

    `retry`: after a failure the agent tries again with the reflection, until the first success, which confirms the last
    reflection. `critique`: the reflector improves its lesson, until the new lesson equals the lesson before."""

    async def retry(task: Task, context: Context, run: Run) -> Attempt:
        first = await act(task, context, run)
        done: list[Round] = []
        trace, latest = first.trace, first.feedback
        while len(done) < rounds and latest.success is False and not trace.lost:
            at = run.at(f"round {len(done) + 1}")
            tried = replace(first, trace=trace, feedback=latest)
            lesson = await reflector(tried, context, done, at) or without_text(first, at)
            if not lesson.text:
                done.append(Round(lesson, trace, latest))
                break
            again = await act(task, context, at.at("again"), NOTE.format(lesson.texts))
            if not again.trace.lost:
                trace, latest = again.trace, again.feedback
                lesson = replace(lesson, confirmed=latest.success is True)
            done.append(Round(lesson, trace, latest))
        return replace(first, rounds=(*first.rounds, *done))

    async def critique(task: Task, context: Context, run: Run) -> Attempt:
        first = await act(task, context, run)
        done: list[Round] = []
        while len(done) < rounds and first.feedback.success is not True and not first.trace.lost:
            at = run.at(f"round {len(done) + 1}")
            lesson = await reflector(first, context, done, at)
            if done and (lesson is None or lesson.texts == done[-1].lesson.texts):
                break
            lesson = lesson or without_text(first, at)
            # All rounds reflect on one attempt, so only the last reflection votes on the entries that the attempt used.
            done = [Round(replace(round.lesson, votes={})) for round in done]
            done.append(Round(lesson))
        return replace(first, rounds=(*first.rounds, *done))

    return retry if refine == "retry" else critique


def demonstrated(attempt: ActSeam, act: ActWithNote) -> ActSeam:
    """Build an act that applies `attempt`. If the task stays unsolved, an agent that does more than answer attempts the
    task once more, with the feedback. If this second attempt succeeds, it is an example of how the task is solved (the
    rationalization of STaR, Zelikman et al. 2022, section 3.2). The second attempt confirms no rule, and reports do not
    count it."""

    async def with_demonstration(task: Task, context: Context, run: Run) -> Attempt:
        attempted = await attempt(task, context, run)
        if run.only_answers or attempted.solved or attempted.feedback.success is None or attempted.trace.lost:
            return attempted
        again = await act(task, context, run.at("told"), TOLD.format(attempted.feedback.text))
        lesson = Lesson(run.place, "", sources=attempted.sources)
        return replace(attempted, rounds=(*attempted.rounds, Round(lesson, again.trace, again.feedback)))

    return with_demonstration


def grouped(attempt: AttemptSeam, size: int, warmth: float = WARM) -> AttemptSeam:
    """Build an attempt seam that attempts each task `size` times, concurrently (RCL, section 3.1). The first attempt at
    a task is made as in evaluation, and reports count only this attempt."""

    async def member(number: int, batch: Batch, context: Context, run: Run) -> list[Attempt]:
        return await attempt(batch, context, replace(run, warmth=warmth, member=number) if number > 1 else run)

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        runs = await run.gather([(f"run {n}", partial(member, n, batch, context)) for n in range(1, size + 1)])
        return [replace(one, siblings=tuple(others)) for one, *others in zip(*runs, strict=True)]

    return wrapped


def annotated_twin(attempt: AttemptSeam, twin: ActSeam) -> AttemptSeam:
    """Build an attempt seam that attempts each task once more with an annotated view, concurrently (dual-trace credit
    assignment; RCL, section 3.2).

    The annotated attempt shows which entries were consulted, doubted or missed. The score of this attempt is stored in
    the trace of the attempt, but only for inspection, because the annotation changes the agent's behavior."""

    async def annotated(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        # Nothing is learned from the outcome of this attempt, so no judge is asked about it.
        return await once(twin)(batch, context, replace(run, teaches=False))

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        jobs: list[tuple[str, Callable[[Run], Awaitable[list[Attempt]]]]] = [
            ("plain", partial(attempt, batch, context)),
            ("annotated", partial(annotated, batch, context)),
        ]
        with_twins = []
        for one, other in zip(*await run.gather(jobs), strict=True):
            score = None if other.score is None else other.score.value
            with_twins.append(replace(one, twin=replace(other.trace, data={**other.trace.data, "score": score})))
        return with_twins

    return wrapped


TOLD = "An earlier try was not right, and nothing of it is left. What was found: {}"
"""Note for the second attempt of `demonstrated`."""

NOTE = "An earlier answer to this was not right. A reflection on it: {}"
"""Note for the next try: the insights of the reflection, without the feedback."""
