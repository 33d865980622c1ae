"""Lessons from single rollouts, with votes on the entries that were used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import pvariance
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

    Without `rules_shown` it does not read the rules that the agent relied on, and the outcome alone votes on them. A
    reflection that fails or cannot be parsed is None, and counted.
    """

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        failed, _ = contrast(rollout)
        prompt = Prompt.from_parts(system, case(rollout, context, earlier, run, rules_shown), turns=examples)
        kind = Reflection if failed.feedback.success is False else Review
        said = await run.try_ask("reflector", prompt, kind, Count.LOST_REFLECTIONS)
        if said is None:
            return None
        votes = verdicts(said.tags, rollout, context, run) if rules_shown else judged_by_outcome(failed)
        return reflected_lesson(said, rollout, votes, run.place)

    return reflect


def reflected_lesson(said: Reflection, rollout: Rollout, votes: Mapping[str, Rating], id: str) -> Lesson:
    """The lesson of a reflection on a rollout."""
    data = {"kind": said.kind, "diagnosis": said.diagnosis, "correction": said.correction}
    return Lesson(id, said.insight.strip(), evidence(contrast(rollout)[0]), votes, rollout.sources, data=data)


def verdicts(tags: Sequence[Tag], rollout: Rollout, context: Context, run: Run) -> dict[str, Rating]:
    """The reflector's tags as votes on the entries that it was shown; an entry that was used and not tagged is neutral.
    Tags of other entries are counted. A reused attempt does not vote again."""
    if rollout.of:
        return {}
    shown = {entry.id for entry in relied_on(rollout, context)}
    tagged = {tag.id: tag.verdict for tag in tags if tag.id in shown}
    run.count(Count.UNKNOWN_TAGS, len(tags) - len(tagged))
    return {**dict.fromkeys(contrast(rollout)[0].trace.used, "neutral"), **tagged}


def judged_by_outcome(rollout: Rollout) -> dict[str, Rating]:
    """Entries that were used are helpful in a success, harmful in a failure, else neutral. A reused attempt does not
    vote again."""
    ratings: dict[bool | None, Rating] = {True: "helpful", False: "harmful", None: "neutral"}
    return {} if rollout.of else dict.fromkeys(rollout.trace.used, ratings[rollout.feedback.success])


async def without_reflector(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
    """The ablation: the raw attempt itself is the lesson, which the curator has to interpret."""
    # It is shortened: the curator's prompt holds other lessons too, and it may become an entry as it is.
    return tagged(rollout, run.place, brief(rollout))


def per_trace(reflector: Reflector, learn_from: LearnFrom = "all", only_confirmed: bool = False) -> ReflectSeam:
    """Reflect on every rollout by itself, all at once. Reflections made during the attempt are kept as they are.

    With `learn_from="failures"`, a success only votes on the entries it used, with no call. With `only_confirmed`, an
    insight counts only if the next try succeeded with it. Nothing is learned from a lost attempt.
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


def chosen(reflect: ReflectSeam, most: int) -> ReflectSeam:
    """Apply `reflect` to up to `most` tasks that failed; for the others, only count the entries that were used (RCL,
    section 3.1). Groups with both outcomes come first, then those whose runs differ most, then the order of the batch.
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
    made = [(r.score, r.feedback.success is True) for r in rollout.group if not r.trace.lost]
    # `pvariance` is exact: with rounding errors, equal scores would seem to vary.
    spread = pvariance(score.value if score is not None and labels else float(success) for score, success in made)
    return any(success for _, success in made), spread


async def as_experience(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """No reflection: the task with its answer or, after a failure, the right answer, and whether that is good. A
    failure without a known right answer is kept as bad, and not shown again."""
    lessons = []
    for rollout in rollouts:
        if rollout.trace.lost:
            continue
        known = rollout.feedback
        corrected = known.success is False and known.target is not None
        answer = known.target if corrected else rollout.trace.answer
        data = {"answer": answer, "good": known.success is True or corrected, "corrected": corrected}
        lessons.append(Lesson(rollout.place, rollout.task.input, sources=rollout.sources, data=data))
    return lessons


def tagged(rollout: Rollout, place: str, text: str = "") -> Lesson:
    """A lesson without a model: the outcome alone votes on the entries that were used."""
    return Lesson(place, text, evidence(rollout), judged_by_outcome(rollout), rollout.sources)
