"""How tasks are attempted: once, in reflection rounds, in a group, with an annotated twin, or not at all.

`reflected`, `refined` and `demonstrated` wrap the attempt at one task. `once` applies it to each task of a batch, and
`grouped` and `annotated_twin` wrap that.
"""

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
"""Temperature of the further runs of a group: at 0 they would all be the same."""


def once(act: ActSeam) -> AttemptSeam:
    """Attempt each task of the batch once, all at once, each at its own place and with its own provenance."""

    async def one(task: Task, context: Context, run: Run) -> Attempt:
        source, *tags = task.sources
        return await act(task, context, replace(run, about=(source, f"attempt:{run.place}", *tags)))

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        return await run.gather([(f"{i}.{task.id}", partial(one, task, context)) for i, task in enumerate(batch.tasks)])

    return attempt


def shown_answers(act: ActSeam) -> AttemptSeam:
    """No attempt at a task whose right answer is known: return it with that answer, as a solved example. This costs
    nothing. Other tasks are attempted, and so is every task of an agent that has more to show than its answer, such as
    calls of tools."""

    async def show(task: Task, context: Context, run: Run) -> Attempt:
        if task.target is None or not run.answers_known or not run.only_answers:
            return await act(task, context, run)
        feedback = Feedback(True, "This is the right answer.", task.target)
        return Attempt(task, Trace(task.target), None, feedback, run.place)

    return once(show)


def stored() -> AttemptSeam:
    """No attempt: return the recorded trace of each task, from before this run (Combee, section 4.1: learning from
    released traces). A trace without a score is scored or, without a scorer, judged."""

    async def show(task: Task, context: Context, run: Run) -> Attempt:
        if task.recorded is None:
            return Attempt(task, Trace("", error="no trace", lost=True), None, Feedback(None, ""), run.place)
        recorded = task.recorded
        # The entries that an attempt from elsewhere used were those of another context.
        used = tuple(id for id in recorded.trace.used if recorded.own and id in context)
        trace, score = replace(recorded.trace, used=used), recorded.score
        score = score if score is not None else await run.score(task, trace)
        known = await learning_feedback(task, trace, score, run)
        return Attempt(task, trace, score, known, run.place, retrieved=recorded.retrieved)

    return once(show)


def reflected(act: ActSeam, reflector: Reflector, learn_from: LearnFrom) -> ActSeam:
    """Attempt the task, and reflect on it as soon as it is done, without waiting for the rest of the batch.
    `per_trace` makes the same lessons of such attempts as of others."""

    async def one(task: Task, context: Context, run: Run) -> Attempt:
        attempt = await act(task, context, run)
        if attempt.trace.lost or (learn_from == "failures" and attempt.feedback.success is True):
            return attempt
        lesson = await reflector(attempt, context, (), run.at("reflect"))
        # `per_trace` asks once more for a reflection that was lost.
        return attempt if lesson is None else replace(attempt, rounds=(Round(lesson),))

    return one


def refined(act: ActWithNote, reflector: Reflector, rounds: int, refine: Refine) -> ActSeam:
    """ACE's refinement: reflect on an attempt up to `rounds` times, and keep the lessons of all rounds.

    `retry`: after a failure the agent tries again with the reflection, until the first success; that reflection is then
    confirmed. `critique`: the reflector improves its own lesson until it has nothing to add.
    """

    async def retry(task: Task, context: Context, run: Run) -> Attempt:
        first = await act(task, context, run)
        made: list[Round] = []
        trace, known = first.trace, first.feedback
        while len(made) < rounds and known.success is False and not trace.lost:
            at = run.at(f"round {len(made) + 1}")
            lesson = await reflector(replace(first, trace=trace, feedback=known), context, made, at)
            if lesson is None:
                break
            if not lesson.text:
                made.append(Round(lesson, trace, known))
                break
            again = await act(task, context, at.at("again"), NOTE.format(lesson.texts))
            if not again.trace.lost:
                trace, known = again.trace, again.feedback
                lesson = replace(lesson, confirmed=known.success is True)
            made.append(Round(lesson, trace, known))
        return replace(first, rounds=(*first.rounds, *made))

    async def critique(task: Task, context: Context, run: Run) -> Attempt:
        first = await act(task, context, run)
        made: list[Round] = []
        while len(made) < rounds and first.feedback.success is not True and not first.trace.lost:
            lesson = await reflector(first, context, made, run.at(f"round {len(made) + 1}"))
            if lesson is None or (made and lesson.texts == made[-1].lesson.texts):
                break
            # It is one attempt however often it is reflected on, so only the last reflection votes on its entries.
            made = [Round(replace(round.lesson, votes={})) for round in made]
            made.append(Round(lesson))
        return replace(first, rounds=(*first.rounds, *made))

    return retry if refine == "retry" else critique


def demonstrated(attempt: ActSeam, act: ActWithNote) -> ActSeam:
    """Apply `attempt`, and try a task that no try solved once more, told what was wrong. What succeeds then is an
    example of how the task is solved, as the right answer is where an agent only answers (the rationalization of STaR,
    Zelikman et al. 2022, section 3.2). It confirms no rule, and reports do not count it."""

    async def told(task: Task, context: Context, run: Run) -> Attempt:
        made = await attempt(task, context, run)
        if run.only_answers or made.solved or made.feedback.success is None or made.trace.lost:
            return made
        again = await act(task, context, run.at("told"), TOLD.format(made.feedback.text))
        lesson = Lesson(run.place, "", sources=made.sources)
        return replace(made, rounds=(*made.rounds, Round(lesson, again.trace, again.feedback)))

    return told


def grouped(attempt: AttemptSeam, size: int, warmth: float = WARM) -> AttemptSeam:
    """Run each task `size` times, all at once (RCL, section 3.1). The first run is as in evaluation, and reports count
    it alone."""

    async def member(number: int, batch: Batch, context: Context, run: Run) -> list[Attempt]:
        return await attempt(batch, context, replace(run, warmth=warmth, member=number) if number > 1 else run)

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        runs = await run.gather([(f"run {n}", partial(member, n, batch, context)) for n in range(1, size + 1)])
        return [replace(one, siblings=tuple(others)) for one, *others in zip(*runs, strict=True)]

    return wrapped


def annotated_twin(attempt: AttemptSeam, twin: ActSeam) -> AttemptSeam:
    """Run each task once more with an annotated view, at the same time (dual-trace credit assignment; RCL,
    section 3.2).

    The annotated run shows which entries were consulted, doubted or missed. Its score is kept in its trace to look at;
    nothing uses it, because the annotation changes what the agent does.
    """

    async def annotated(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        # Nothing is learned from the outcome of this run, so no judge is asked about it.
        return await once(twin)(batch, context, replace(run, teaches=False))

    async def wrapped(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        jobs: list[tuple[str, Callable[[Run], Awaitable[list[Attempt]]]]] = [
            ("plain", partial(attempt, batch, context)),
            ("annotated", partial(annotated, batch, context)),
        ]
        made = []
        for one, other in zip(*await run.gather(jobs), strict=True):
            score = None if other.score is None else other.score.value
            made.append(replace(one, twin=replace(other.trace, data={**other.trace.data, "score": score})))
        return made

    return wrapped


TOLD = "An earlier try was not right, and nothing of it is left. What was found: {}"
"""The note for a try that shows how a task is solved."""

NOTE = "An earlier answer to this was not right. A reflection on it: {}"
"""The note for the next try: the insight, never the right answer itself."""
