"""What rollouts teach: lessons with votes on the entries that were used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from practicum.context import Context, Entry
from practicum.errors import OutputError, ProviderError
from practicum.loop import Reflect
from practicum.output import AtMost, EntryId, Output, Upto, rule
from practicum.run import Run
from practicum.types import Lesson, Prompt, Rollout, Round, Turn, Verdict
from practicum.views import line

Reflector = Callable[[Rollout, Context, Sequence[Round], Run], Awaitable[Lesson | None]]
LearnFrom = Literal["all", "failures"]


class Tag(Output):
    """A verdict on one entry the agent relied on."""

    id: EntryId
    verdict: Verdict


class Reflection(Output):
    """What a reflector writes of a failure (ACE, section 3).

    The kind of task comes first: a small model that begins with what went wrong goes on about that, and its rule
    repeats the rule that was relied on.
    """

    kind: Annotated[str, Upto(80)] = Field(description="what kind of task this is, by its subject")
    correction: Annotated[str, Upto(60)] = Field(description="what would have been right")
    insight: Annotated[str, rule(160, empty=False)] = Field(description="the rule to keep for tasks of this kind")
    diagnosis: Annotated[str, Upto(100)] = Field(description="what went right or wrong, and why")
    tags: Annotated[list[Tag], AtMost(3)] = Field(description="a verdict on each rule that was relied on")


class Review(Reflection):
    """What a reflector writes of a success, which need not teach anything."""

    insight: Annotated[str, rule(160, empty=True)] = Field(description="the rule to keep; empty if it is known already")


def by_model(system: str, examples: tuple[Turn, ...] = (), rules_shown: bool = True) -> Reflector:
    """Ask the reflector about one attempt, after some worked examples.

    Without `rules_shown` it does not read the rules the agent relied on, and the outcome alone votes on them. Gives
    None, and counts it, where no usable reflection comes back.
    """

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        used = _rules(rollout, context) if rules_shown else []
        case = _case(rollout, used, earlier, run.house.instructions)
        prompt = Prompt(system=system, user=case, turns=examples)
        try:
            kind = Reflection if rollout.feedback.success is False else Review
            said = await run.ask("reflector", prompt, kind)
        except (OutputError, ProviderError):
            run.house.counts["lost reflections"] += 1
            return None
        tags = said.tags if rules_shown else []
        verdicts = {tag.id: tag.verdict for tag in tags if tag.id in rollout.trace.used}
        run.house.counts["unknown tags"] += len(tags) - len(verdicts)
        return Lesson(
            id=run.place,
            text=said.insight.strip(),
            detail=evidence(rollout),
            votes={id: verdicts.get(id, "neutral" if rules_shown else _verdict(rollout)) for id in rollout.trace.used},
            sources=rollout.sources,
            data={"kind": said.kind, "diagnosis": said.diagnosis, "correction": said.correction},
        )

    return reflect


def without_reflector() -> Reflector:
    """The ablation: the raw attempt itself is the lesson, for the curator to make sense of."""

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        return _tagged(rollout, run.place, evidence(rollout))

    return reflect


def per_trace(reflector: Reflector, learn_from: LearnFrom = "all", only_confirmed: bool = False) -> Reflect:
    """Every rollout by itself, all at once. Reflections made during the attempt are taken as they are.

    With `learn_from="failures"` a success only counts the entries it used, with no call. With `only_confirmed` an
    insight counts only if the next try succeeded with it. What the provider lost teaches nothing.
    """

    async def one(rollout: Rollout, context: Context, run: Run) -> list[Lesson]:
        if rollout.rounds:
            lessons = [round.lesson for round in rollout.rounds]
            return [x if x.confirmed or not only_confirmed else replace(x, text="") for x in lessons]
        if learn_from == "failures" and rollout.feedback.success is True:
            return [_tagged(rollout, run.place, "")]
        lesson = await reflector(rollout, context, (), replace(run, about=rollout.sources))
        return [lesson] if lesson is not None else []

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in rollouts if not r.trace.lost]
        jobs = [(f"{i}.{r.task.id}", partial(one, r, context)) for i, r in enumerate(usable)]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


def as_experience() -> Reflect:
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


def _tagged(rollout: Rollout, place: str, text: str) -> Lesson:
    """Votes without a model: what was used on a success helped, on a failure harmed, else is neutral."""
    return Lesson(place, text, evidence(rollout), dict.fromkeys(rollout.trace.used, _verdict(rollout)), rollout.sources)


def _verdict(rollout: Rollout) -> Verdict:
    match rollout.feedback.success:
        case True:
            return "helpful"
        case False:
            return "harmful"
        case None:
            return "neutral"


def evidence(rollout: Rollout) -> str:
    """One attempt in words: what was asked, what was answered, what came of it."""
    parts = [f"Task: {rollout.task.input}"]
    parts += [f"{step.kind.capitalize()}: {step.text}" for step in rollout.trace.steps]
    if rollout.trace.reasoning:
        parts.append(f"Reasoning: {rollout.trace.reasoning}")
    parts += [f"Answer: {rollout.trace.answer}", f"Feedback: {rollout.feedback.text}"]
    return "\n".join(parts)


def _rules(rollout: Rollout, context: Context) -> list[Entry]:
    return [entry for id in rollout.trace.used if (entry := context.get(id)) is not None]


def _case(rollout: Rollout, used: Sequence[Entry], earlier: Sequence[Round], instructions: str) -> str:
    """What the reflector reads of one attempt; what is the same for all attempts comes first."""
    parts = [f"# What the agent is told\n{instructions}"] if instructions else []
    if used:
        parts.append("# Rules the agent relied on\n" + "\n".join(map(line, used)))
    if earlier:
        said = "\n".join(f"- {round.lesson.text or '(nothing)'}" for round in earlier)
        parts.append(f"# Your earlier insights on this task, which did not help\n{said}")
    parts.append(f"# The attempt\n{evidence(rollout)}")
    return "\n\n".join(parts)
