"""Reflection in three heads: failure attribution, root cause, coverage gap (RCL, section 3.3); and reflection on
several attempts by one call (section 4.7).

The curator reads the findings of all heads. An attempt that failed by chance, or that no guidance could have saved, is
counted and never votes against an entry. With `gated`, such an attempt gives no insight either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from practicum.core.bounded import LongText, Output, read_short, short_form
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import ordered_union
from practicum.core.errors import OutputError, ProviderError
from practicum.core.types import Attempt, Instructions, Lesson, Prompt, Round, Turn
from practicum.engine.loop import ReflectSeam, sources_of
from practicum.engine.run import Run
from practicum.engine.specifics import answers_named
from practicum.methods.blocks.reflect import (
    KIND,
    RULE,
    Insight,
    LearnFrom,
    Reflection,
    Reflector,
    Tag,
    case,
    case_prompt,
    cases_prompt,
    contrast,
    of_one_insight,
    reflected_lesson,
    relied_on,
    tagged,
    verdicts,
)
from practicum.methods.blocks.telling import telling
from practicum.methods.worked_examples import written
from practicum.models.client import JSON
from practicum.models.prompting import json_schema

FailureKind = Literal["actionable_gap", "execution_variance", "intractable"]

ATTRIBUTED = {
    "actionable_gap": Count.ACTIONABLE_GAPS,
    "execution_variance": Count.EXECUTION_VARIANCE,
    "intractable": Count.INTRACTABLE_FAILURES,
}
"""Counter of each attribution."""


class Attribution(Output):
    """Whether guidance could have changed the outcome."""

    evidence: LongText = Field(description="what in the attempt decides it")
    attribution: FailureKind

    SHORT: ClassVar = {"evidence": 160, "attribution": None}


class RootCause(Output):
    """Why it failed."""

    cause: LongText = Field(description="the first wrong step, and why it was taken")
    tags: list[Tag] = Field(description="a verdict on each entry that the agent used")

    SHORT: ClassVar = {"cause": 160, "tags": 3}


class CoverageGap(Output):
    """What the playbook does not say, or says wrongly."""

    kind: SkipJsonSchema[str] = ""
    gap: LongText = Field(description="what is missing, wrong, or not where it would be found")
    correction: LongText = Field(description="the correct approach, concretely")
    insights: list[Insight] = Field(description="what closes the gap; none if there is none")

    SHORT: ClassVar = {"kind": KIND, "gap": 120, "insight": RULE}
    from_short = staticmethod(of_one_insight)


class Diagnosis(CoverageGap, RootCause, Attribution):
    """All three in one answer."""

    SHORT: ClassVar = {**Attribution.SHORT, **RootCause.SHORT, **CoverageGap.SHORT}


HEADS: tuple[type[Output], ...] = (Attribution, RootCause, CoverageGap)


def possible(attempt: Attempt, context: Context, choices: Sequence[str] = ()) -> tuple[FailureKind, ...]:
    """Return the attributions that are possible for this failure. Chance (`execution_variance`) requires a rule that
    the agent relied on and may not have followed, or another run of the task that succeeded. If a run of the task
    succeeded, the task is not intractable. Without these limits a small model chooses at random."""
    failed, passed = contrast(attempt)
    slipped = passed or any(_unfollowed(rule.text, failed, choices) for rule in relied_on(attempt, context))
    chance: tuple[FailureKind, ...] = ("execution_variance",) if slipped else ()
    return ("actionable_gap", *chance, *(() if passed else ("intractable",)))


def _unfollowed(rule: str, failed: Attempt, choices: Sequence[str]) -> bool:
    """Return whether a failed attempt may not have followed this rule. This is possible if the rule names none of the
    possible answers, or names the right answer. If learning may not see the right answer, the second condition is that
    the rule names an answer that the agent did not give."""
    named, target = answers_named(rule, choices), failed.feedback.target
    if target is None:
        return not named or not named <= answers_named(failed.trace.answer, choices)
    return not named or not named.isdisjoint(answers_named(target, choices))


@lru_cache(maxsize=64)
def attributing(form: type[Output], kinds: tuple[FailureKind, ...]) -> JSON:
    """Return the form's schema for a small model, limited to the attributions `kinds`. A server that enforces the
    schema allows no other attribution."""
    schema = deepcopy(json_schema(form, "small"))
    if attribution := schema["properties"].get("attribution"):
        attribution["enum"] = [*kinds]
    return schema


@dataclass(frozen=True)
class Heads:
    """Reflector with three heads on one failure: three concurrent calls, or one structured call.

    `case` holds the instructions that all heads share, and `heads` the further instructions of each head: attribution,
    root cause, gap. Attempts that did not fail go to the reflector `otherwise`. With `gated`, a failure that was due to
    chance, or that no guidance could prevent, gives no insight. Without `gated`, the curator reads the attribution with
    the insight, and decides whether to use the insight. `examples` are cases for small models, with diagnoses; each
    head sees its part of a diagnosis."""

    case: Instructions
    heads: tuple[Instructions, Instructions, Instructions]
    otherwise: Reflector
    gated: bool = False
    one_call: bool = False
    examples: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    async def __call__(self, attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        failed, _ = contrast(attempt)
        if failed.feedback.success is not False:
            return await self.otherwise(attempt, context, earlier, run)
        prompt = await case_prompt(self.case, attempt, context, earlier, run)
        kinds = possible(attempt, context, run.choices)
        try:
            if self.one_call:
                answers = [await self._ask(self.heads, prompt, Diagnosis, kinds, run)]
            else:
                jobs = [
                    (form.__name__.lower(), partial(self._ask, (head,), prompt, form, kinds))
                    for head, form in zip(self.heads, HEADS, strict=True)
                ]
                answers = await run.gather(jobs)
        except (OutputError, ProviderError):
            run.count(Count.LOST_REFLECTIONS)
            return None
        diagnosis = Diagnosis.model_validate({name: value for answer in answers for name, value in answer})
        run.count(ATTRIBUTED[diagnosis.attribution])
        gap = diagnosis.attribution == "actionable_gap"
        votes = verdicts(diagnosis.tags, attempt, context, run)
        if not gap:
            # A failure that no rule caused must not count against a rule.
            votes = dict.fromkeys(votes, "neutral")
        lesson = reflected_lesson(diagnosis, attempt, votes, run, run.place, keep=gap or not self.gated)
        lesson = await telling(lesson, attempt, run)
        return lesson if gap or not self.gated else replace(lesson, data={**lesson.data, "gated": True})

    async def _ask(
        self, heads: Sequence[Instructions], case: Prompt, form: type[Output], kinds: tuple[FailureKind, ...], run: Run
    ) -> Output:
        # The instructions of a head come last: prompts begin alike, so that a prefix cache serves the playbook.
        closing = "\n\n".join(head.text(run.profile) for head in heads)
        if run.profile == "full":
            return await run.ask_fitted("reflector", replace(case, closing=f"# What to say of it\n{closing}"), form)
        turns = tuple(
            Turn(case, written({name: expected[name] for name in form.SHORT})) for case, expected in self.examples
        )
        prompt = replace(case, system=f"{case.system}\n\n{closing}", turns=turns)
        return await run.ask_fitted("reflector", prompt, form, form=attributing(form, kinds))


AT_ONCE = 24
"""Maximum number of attempts that one call reflects on."""


class OfMany(Reflection):
    """One reflection among several."""

    attempt: int = Field(description="number of the attempt", json_schema_extra={"minimum": 1, "maximum": AT_ONCE})

    SHORT: ClassVar = {**Reflection.SHORT, "attempt": None}


class Reflections(Output):
    """What a reflector writes about several attempts at once."""

    reflections: list[OfMany] = Field(min_length=1, description="one for each attempt")

    SHORT: ClassVar = {
        "reflections": (
            list[short_form(OfMany)],  # type: ignore[misc]
            Field(min_length=1, max_length=AT_ONCE, description="one for each attempt"),
        )
    }  # fmt: skip

    @classmethod
    def from_short(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"reflections": [read_short(OfMany, one) for one in values["reflections"]]}


def batched(instructions: Instructions, learn_from: LearnFrom) -> ReflectSeam:
    """Build a reflect seam that reflects on all attempts of a step in one call (RCL, section 4.7).

    With `learn_from="failures"`, a success only votes on the entries that it used. If the model's answer omits an
    attempt, `tagged` makes the lesson of this attempt, and the omission is counted."""

    async def reflect(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in attempts if not r.trace.lost]
        passing = [r for r in usable if learn_from == "failures" and contrast(r)[0].feedback.success is True]
        places = {r.place for r in passing}
        asked = [r for r in usable if r.place not in places]
        answers = await ask(asked, context, run) if asked else {}
        lessons: list[Lesson] = []
        for n, attempt in enumerate(asked, 1):
            if n not in answers:
                lessons.append(tagged(attempt, attempt.place))
                continue
            votes = verdicts(answers[n].tags, attempt, context, run)
            lesson = reflected_lesson(answers[n], attempt, votes, run, f"{run.place}/{attempt.place}")
            lesson = await telling(lesson, attempt, run)
            # The reflector saw all attempts, so the lesson has the sources of all attempts, although the lesson is
            # about one attempt.
            sources = ordered_union((attempt.sources, sources_of(asked)))
            data = {**lesson.data, "task_id": attempt.task.id}
            lessons += [replace(x, sources=sources, data=data) for x in lesson.each]
        return [*lessons, *(tagged(r, r.place) for r in passing)]

    async def ask(asked: Sequence[Attempt], context: Context, run: Run) -> Mapping[int, OfMany]:
        """Return the reflections by the number of the attempt in the prompt, from 1. If the call failed, the result is
        empty."""
        cases = [case(r, context, (), run) for r in asked]
        parts = [part for n, (first, *rest) in enumerate(cases, 1) for part in (f"# Case {n}\n{first}", *rest)]
        about = replace(run, about=sources_of(asked))
        try:
            prompt = await cases_prompt(instructions, parts, asked, context, about)
            answer = await about.ask_fitted("reflector", prompt, Reflections)
        except (OutputError, ProviderError):
            run.count(Count.LOST_REFLECTIONS, len(asked))
            return {}
        answers = {x.attempt: x for x in answer.reflections}
        run.count(Count.UNREFLECTED_ATTEMPTS, sum(n not in answers for n in range(1, len(asked) + 1)))
        return answers

    return reflect
