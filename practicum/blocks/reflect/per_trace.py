"""Lessons from single rollouts, with votes on the entries that were used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import pvariance
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.reflect.evidence import FINDINGS, brief, case_prompt, contrast, evidence, relied_on, solved_as
from practicum.blocks.sections import section_of
from practicum.core.bounded import EntryId, LongText, MaxChars, MaxItems, Output, clean, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Instructions, Lesson, Rating, Rollout, Round
from practicum.engine.loop import ReflectSeam
from practicum.engine.run import Run

Reflector = Callable[[Rollout, Context, Sequence[Round], Run], Awaitable[Lesson | None]]
LearnFrom = Literal["all", "failures"]


class Tag(Output):
    """A verdict on one entry the agent relied on."""

    id: EntryId
    verdict: Rating


class Insight(Output):
    """One thing worth keeping for later tasks."""

    section: str = Field(description="the section of the playbook that it belongs to")
    text: LongText = Field(description="what to keep, as long as it needs to be, at most 2,000 characters")


class Reflection(Output):
    """What a reflector writes about one attempt."""

    reasoning: LongText = Field(description="the analysis of the attempt, step by step")
    diagnosis: LongText = Field(description="what went right or wrong")
    cause: LongText = Field(description="the root cause of that")
    correction: LongText = Field(description="the correct approach, concretely")
    tags: list[Tag] = Field(description="a verdict on each entry that the agent used")
    insights: list[Insight] = Field(description="what is worth keeping; none if the playbook says it already")


class ShortReflection(Output):
    """What a reflector writes about a failure.

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

    @property
    def insights(self) -> list[Insight]:
        """Its one insight, in no section."""
        return [Insight(section="", text=self.insight)]


class ShortReview(ShortReflection):
    """What a reflector writes about a success, which need not teach anything."""

    insight: Annotated[str, rule_schema(160, empty=True)] = Field(
        description="the rule to keep; empty if it is known already"
    )


def by_model(told: Instructions, rules_shown: bool = True) -> Reflector:
    """Ask the reflector about one attempt (ACE, section 3.1).

    Without `rules_shown` it does not read the playbook, and the outcome alone votes on the entries that were used. A
    reflection that fails or cannot be parsed is None, and counted.
    """

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        failed, _ = contrast(rollout)
        prompt = await case_prompt(told, rollout, context, earlier, run, rules_shown)
        short = ShortReflection if failed.feedback.success is False else ShortReview
        form: type[ShortReflection] | type[Reflection] = short if run.profile == "small" else Reflection
        said = await run.try_ask("reflector", prompt, form, Count.LOST_REFLECTIONS)
        if said is None:
            return None
        votes = verdicts(said.tags, rollout, context, run) if rules_shown else judged_by_outcome(failed)
        return reflected_lesson(said, rollout, votes, run, run.place)

    return reflect


def reflected_lesson(
    said: Output, rollout: Rollout, votes: Mapping[str, Rating], run: Run, id: str, keep: bool = True
) -> Lesson:
    """The lesson of a reflection, of any form with `insights`. Its findings are kept as data; unless `keep`, its
    insights are not."""
    failed, _ = contrast(rollout)
    insights = [x for x in getattr(said, "insights", ()) if clean(x.text)] if keep else []
    data = {name: value for name, value in said if name in FINDINGS and value}
    if run.profile == "full":
        data |= {"feedback": failed.feedback.text, "verdicts": dict(votes)}
    lesson = Lesson(id, "", evidence(failed), votes, rollout.sources, data=data)
    made = [replace(lesson, text=clean(x.text), section=section_of(x.section, run)) for x in insights]
    if not made:
        return lesson
    others = enumerate(made[1:], 2)
    return replace(made[0], further=tuple(replace(x, id=f"{id}.{n}", detail="", votes={}, of=id) for n, x in others))


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
    return Lesson(run.place, brief(rollout, run), evidence(rollout), judged_by_outcome(rollout), rollout.sources)


def per_trace(reflector: Reflector, learn_from: LearnFrom = "all", only_confirmed: bool = False) -> ReflectSeam:
    """Reflect on every rollout by itself, all at once. Reflections made during the attempt are kept as they are.

    With `learn_from="failures"`, a success only votes on the entries it used, with no call. With `only_confirmed`, an
    insight counts only if the next try succeeded with it. Nothing is learned from a lost attempt.
    """

    async def one(rollout: Rollout, context: Context, run: Run) -> list[Lesson]:
        if rollout.rounds:
            lessons = [lesson for round in rollout.rounds for lesson in round.lesson.each]
            return [x if x.confirmed or not only_confirmed else replace(x, text="") for x in lessons]
        if learn_from == "failures" and contrast(rollout)[0].feedback.success is True:
            return [tagged(rollout, run.place)]
        lesson = await reflector(rollout, context, (), replace(run, about=rollout.sources))
        return [] if lesson is None else [*lesson.each]

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in rollouts if not r.trace.lost]
        jobs = [(f"{i}.{r.task.id}", partial(one, r, context)) for i, r in enumerate(usable)]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


def alongside(**reflects: ReflectSeam) -> ReflectSeam:
    """The lessons of all of these, each at the place of its name, in this order."""

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        made = await run.gather([(name, partial(reflect, rollouts, context)) for name, reflect in reflects.items()])
        return [lesson for lessons in made for lesson in lessons]

    return wrapped


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
    """No reflection: the task with its answer and the calls that led to it, of the attempt or else of a further try
    that succeeded; after a failure, the right answer. And whether that is good: a failure without a known right answer
    is kept as bad, and not shown again."""
    lessons = []
    for rollout in rollouts:
        if rollout.trace.lost:
            continue
        solved, target = rollout.solved, rollout.feedback.target if run.answers_known else None
        corrected = rollout.feedback.success is False and solved is None and target is not None
        made = {"answer": target} if corrected else solved_as(solved or rollout.trace)
        data = {**made, "good": solved is not None or corrected, "corrected": corrected}
        lessons.append(Lesson(rollout.place, rollout.task.input, sources=rollout.sources, data=data))
    return lessons


def is_experience(lesson: Lesson) -> bool:
    """Whether `as_experience` made this lesson."""
    return "corrected" in lesson.data


def tagged(rollout: Rollout, place: str) -> Lesson:
    """A lesson about an attempt that was not reflected on. In a success, the entries that were used helped. A failure
    may have other causes than the entries, so it only counts their use (METHODS, section 3)."""
    votes = judged_by_outcome(rollout)
    if rollout.feedback.success is False:
        votes = dict.fromkeys(votes, "neutral")
    return Lesson(place, "", evidence(rollout), votes, rollout.sources)
