"""What rollouts teach: lessons with votes on the entries that were used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.reflect.evidence import brief, case, contrast, evidence, relied_on
from practicum.core.bounded import EntryId, MaxChars, MaxItems, Output, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Lesson, Prompt, Rating, Rollout, Round, Turn
from practicum.engine.loop import ReflectSeam
from practicum.engine.run import Run

Reflector = Callable[[Rollout, Context, Sequence[Round], Run], Awaitable[Lesson | None]]
LearnFrom = Literal["all", "failures"]


class Tag(Output):
    """A verdict on one entry the agent relied on."""

    id: EntryId
    verdict: Rating


class Reflection(Output):
    """What a reflector writes of a failure (ACE, section 3).

    The kind of task comes first: a small model that begins with what went wrong goes on about that, and its rule
    repeats the rule that was relied on.
    """

    kind: Annotated[str, MaxChars(80)] = Field(description="what kind of task this is, by its subject")
    correction: Annotated[str, MaxChars(60)] = Field(description="what would have been right")
    insight: Annotated[str, rule_schema(160, empty=False)] = Field(
        description="the rule to keep for tasks of this kind"
    )
    diagnosis: Annotated[str, MaxChars(100)] = Field(description="what went right or wrong, and why")
    tags: Annotated[list[Tag], MaxItems(3)] = Field(description="a verdict on each rule that was relied on")


class Review(Reflection):
    """What a reflector writes of a success, which need not teach anything."""

    insight: Annotated[str, rule_schema(160, empty=True)] = Field(
        description="the rule to keep; empty if it is known already"
    )


def by_model(system: str, examples: tuple[Turn, ...] = (), rules_shown: bool = True) -> Reflector:
    """Ask the reflector about one attempt, after some worked examples.

    Without `rules_shown` it does not read the rules the agent relied on, and the outcome alone votes on them. Gives
    None, and counts it, where no usable reflection comes back.
    """

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        failed, _ = contrast(rollout)
        prompt = Prompt.from_parts(system, case(rollout, context, earlier, run, rules_shown), turns=examples)
        kind = Reflection if failed.feedback.success is False else Review
        said = await run.try_ask("reflector", prompt, kind, Count.LOST_REFLECTIONS)
        if said is None:
            return None
        return Lesson(
            id=run.place,
            text=said.insight.strip(),
            detail=evidence(failed),
            votes=verdicts(said.tags, rollout, context, run) if rules_shown else judged_by_outcome(failed),
            sources=rollout.sources,
            data={"kind": said.kind, "diagnosis": said.diagnosis, "correction": said.correction},
        )

    return reflect


def verdicts(tags: Sequence[Tag], rollout: Rollout, context: Context, run: Run) -> dict[str, Rating]:
    """The reflector's tags, for entries that it was shown; what was used and not tagged is neutral. Others count. An
    attempt that stands for another has voted already."""
    if rollout.of:
        return {}
    shown = {entry.id for entry in relied_on(rollout, context)}
    tagged = {tag.id: tag.verdict for tag in tags if tag.id in shown}
    run.count(Count.UNKNOWN_TAGS, len(tags) - len(tagged))
    return {**dict.fromkeys(contrast(rollout)[0].trace.used, "neutral"), **tagged}


def judged_by_outcome(rollout: Rollout) -> dict[str, Rating]:
    """What was used on a success helped, on a failure harmed, else is neutral; once for an attempt that was made."""
    return {} if rollout.of else dict.fromkeys(rollout.trace.used, _verdict(rollout))


def without_reflector() -> Reflector:
    """The ablation: the raw attempt itself is the lesson, for the curator to make sense of."""

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        # It stands in the curator's prompt beside the playbook and others, and may become an entry as it is.
        return tagged(rollout, run.place, brief(rollout))

    return reflect


def per_trace(reflector: Reflector, learn_from: LearnFrom = "all", only_confirmed: bool = False) -> ReflectSeam:
    """Every rollout by itself, all at once. Reflections made during the attempt are taken as they are.

    With `learn_from="failures"` a success only counts the entries it used, with no call. With `only_confirmed` an
    insight counts only if the next try succeeded with it. What the provider lost teaches nothing.
    """

    async def one(rollout: Rollout, context: Context, run: Run) -> list[Lesson]:
        if rollout.rounds:
            lessons = [round.lesson for round in rollout.rounds]
            return [x if x.confirmed or not only_confirmed else replace(x, text="") for x in lessons]
        if learn_from == "failures" and contrast(rollout)[0].feedback.success is True:
            return [tagged(rollout, run.place)]
        lesson = await reflector(rollout, context, (), replace(run, about=rollout.sources))
        return [lesson] if lesson is not None else []

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in rollouts if not r.trace.lost]
        jobs = [(f"{i}.{r.task.id}", partial(one, r, context)) for i, r in enumerate(usable)]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


def as_experience() -> ReflectSeam:
    """No reflection: what was asked, what was answered or would have been right, and how good that was.

    A failure with a known right answer is kept as that answer; one without is kept as bad, and not shown again.
    """

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        return [_experience(r) for r in rollouts if not r.trace.lost]

    return reflect


def _experience(rollout: Rollout) -> Lesson:
    said = rollout.feedback
    corrected = said.success is False and said.target is not None
    good = said.success is True or corrected
    answer = said.target if corrected and said.target is not None else rollout.trace.answer
    return Lesson(
        id=rollout.place,
        text=rollout.task.input,
        sources=rollout.sources,
        data={"answer": answer, "good": good, "corrected": corrected},
    )


def tagged(rollout: Rollout, place: str, text: str = "") -> Lesson:
    """Votes without a model: the outcome alone judges what was used."""
    return Lesson(place, text, evidence(rollout), judged_by_outcome(rollout), rollout.sources)


def _verdict(rollout: Rollout) -> Rating:
    match rollout.feedback.success:
        case True:
            return "helpful"
        case False:
            return "harmful"
        case None:
            return "neutral"
