"""Reflection in three heads: failure attribution, root cause, coverage gap (RCL, section 3.3); and reflection on
several attempts by one call (section 4.7).

Only a failure that guidance could have prevented leads to an edit. An attempt that failed by chance, or that no
guidance could have saved, is counted, and nothing is learned from it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.reflect.evidence import case, contrast, evidence, relied_on
from practicum.blocks.reflect.per_trace import LearnFrom, Reflection, Reflector, Tag, reflected_lesson, tagged, verdicts
from practicum.blocks.specifics import answers_named
from practicum.core.bounded import MaxChars, MaxItems, Output, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import ordered_union
from practicum.core.errors import OutputError, ProviderError
from practicum.core.types import Lesson, Profile, Prompt, Rollout, Round, Turn
from practicum.engine.loop import ReflectSeam, sources_of
from practicum.engine.run import Run
from practicum.models.client import JSON
from practicum.models.prompting import json_schema

FailureKind = Literal["actionable_gap", "execution_variance", "intractable"]

ATTRIBUTED = {
    "actionable_gap": Count.ACTIONABLE_GAPS,
    "execution_variance": Count.EXECUTION_VARIANCE,
    "intractable": Count.INTRACTABLE_FAILURES,
}
"""The counter of each attribution."""


class Attribution(Output):
    """Whether guidance could have changed the outcome."""

    evidence: Annotated[str, MaxChars(160)] = Field(description="what in the attempt decides it")
    attribution: FailureKind


class RootCause(Output):
    """Why it failed."""

    cause: Annotated[str, MaxChars(160)] = Field(description="the first wrong step, and why it was taken")
    tags: Annotated[list[Tag], MaxItems(3)] = Field(description="a verdict on each rule that was relied on")


class CoverageGap(Output):
    """What the playbook does not say."""

    kind: Annotated[str, MaxChars(80)] = Field(description="what kind of task this is, by its subject")
    gap: Annotated[str, MaxChars(120)] = Field(description="what no rule says yet, or a rule says wrongly")
    insight: Annotated[str, rule_schema(160, empty=False)] = Field(description="the rule that closes the gap")


class Diagnosis(CoverageGap, RootCause, Attribution):
    """All three in one answer."""


def possible(rollout: Rollout, context: Context, choices: Sequence[str] = ()) -> tuple[FailureKind, ...]:
    """The attributions that the case allows. Chance needs a rule that was shown and not followed, or another run that
    succeeded; if one succeeded, the task is not intractable. A small model would say any of them at random."""
    failed, passed = contrast(rollout)
    slipped = passed or any(_unfollowed(rule.text, failed, choices) for rule in relied_on(rollout, context))
    chance: tuple[FailureKind, ...] = ("execution_variance",) if slipped else ()
    return ("actionable_gap", *chance, *(() if passed else ("intractable",)))


def _unfollowed(rule: str, failed: Rollout, choices: Sequence[str]) -> bool:
    """Whether a failed attempt may not have followed this rule. If answers are choices and the rule names some, it must
    name the target or, if learning may not see that, another choice than the answer."""
    named, target = answers_named(rule, choices), failed.feedback.target
    if target is None:
        return not named or not named <= answers_named(failed.trace.answer, choices)
    return not named or not named.isdisjoint(answers_named(target, choices))


@lru_cache(maxsize=64)
def attributing(shape: type[Output], kinds: tuple[FailureKind, ...], profile: Profile) -> JSON:
    """The form's schema, limited to these attributions; a server that enforces schemas allows no others."""
    schema = deepcopy(json_schema(shape, profile))
    if attribution := schema["properties"].get("attribution"):
        attribution["enum"] = [*kinds]
    return schema


@dataclass(frozen=True)
class Heads:
    """Asks the three heads about one failure: at once (three calls), or in one structured call.

    `system` are the instructions of all heads, and `heads` those of each: attribution, root cause, gap. A success is
    left to `otherwise`. `examples` are cases with their diagnoses, of which each head sees its part.
    """

    system: str
    heads: tuple[str, str, str]
    otherwise: Reflector
    one_call: bool = False
    examples: tuple[tuple[str, Diagnosis], ...] = ()

    async def __call__(self, rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        failed, _ = contrast(rollout)
        if failed.feedback.success is not False:
            return await self.otherwise(rollout, context, earlier, run)
        parts, kinds = case(rollout, context, earlier, run), possible(rollout, context, run.choices)
        try:
            if self.one_call:
                answers = [await self._ask("\n\n".join((self.system, *self.heads)), parts, Diagnosis, kinds, run)]
            else:
                shapes: tuple[type[Output], ...] = (Attribution, RootCause, CoverageGap)
                jobs = [
                    (shape.__name__.lower(), partial(self._ask, f"{self.system}\n\n{head}", parts, shape, kinds))
                    for head, shape in zip(self.heads, shapes, strict=True)
                ]
                answers = await run.gather(jobs)
        except (OutputError, ProviderError):
            run.count(Count.LOST_REFLECTIONS)
            return None
        found = Diagnosis.model_validate({name: value for answer in answers for name, value in answer})
        run.count(ATTRIBUTED[found.attribution])
        gap = found.attribution == "actionable_gap"
        votes = verdicts(found.tags, rollout, context, run)
        if not gap:
            # A failure that no rule caused must not count against a rule.
            votes = dict.fromkeys(votes, "neutral")
        text = found.insight.strip() if gap else ""
        data = {key: getattr(found, key) for key in ("attribution", "cause", "gap", "kind")}
        return Lesson(run.place, text, evidence(failed), votes, rollout.sources, data=data)

    async def _ask(
        self, system: str, parts: list[str], shape: type[Output], kinds: tuple[FailureKind, ...], run: Run
    ) -> Output:
        fields = set(shape.model_fields)
        turns = tuple(Turn(case, diagnosis.model_dump_json(include=fields)) for case, diagnosis in self.examples)
        prompt, form = Prompt.from_parts(system, parts, turns=turns), attributing(shape, kinds, run.profile)
        return await run.ask_fitted("reflector", prompt, shape, form=form)


AT_ONCE = 24
"""Most attempts that one call reflects on."""


class OfMany(Reflection):
    """One reflection among several."""

    attempt: int = Field(description="number of the attempt", json_schema_extra={"minimum": 1, "maximum": AT_ONCE})


class Reflections(Output):
    """What a reflector writes of several attempts at once."""

    reflections: list[OfMany] = Field(min_length=1, max_length=AT_ONCE, description="one for each attempt")


def batched(system: str, learn_from: LearnFrom, examples: tuple[Turn, ...] = ()) -> ReflectSeam:
    """One reflector call over all attempts, which can see what they have in common (RCL, section 4.7).

    With `learn_from="failures"`, a success only votes on the entries it used. An attempt that is missing from the
    answer votes by its outcome, and is counted.
    """

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        made = [r for r in rollouts if not r.trace.lost]
        passing = [r for r in made if learn_from == "failures" and contrast(r)[0].feedback.success is True]
        places = {r.place for r in passing}
        asked = [r for r in made if r.place not in places]
        answers = await ask(asked, context, run) if asked else {}
        lessons = []
        for n, rollout in enumerate(asked, 1):
            if n not in answers:
                lessons.append(tagged(rollout, rollout.place))
                continue
            votes = verdicts(answers[n].tags, rollout, context, run)
            lesson = reflected_lesson(answers[n], rollout, votes, f"{run.place}/{rollout.place}")
            # The reflector saw all attempts, so the lesson comes from all of them, and is about one.
            sources = ordered_union((rollout.sources, sources_of(asked)))
            lessons.append(replace(lesson, sources=sources, data={**lesson.data, "task_id": rollout.task.id}))
        return [*lessons, *(tagged(r, r.place) for r in passing)]

    async def ask(asked: Sequence[Rollout], context: Context, run: Run) -> dict[int, OfMany]:
        """The reflections by the numbers of their attempts; none if the call failed."""
        cases = [case(r, context, (), run) for r in asked]
        parts = [part for n, (first, *rest) in enumerate(cases, 1) for part in (f"# Case {n}\n{first}", *rest)]
        try:
            prompt = Prompt.from_parts(system, parts, turns=examples)
            found = await replace(run, about=sources_of(asked)).ask_fitted("reflector", prompt, Reflections)
        except (OutputError, ProviderError):
            run.count(Count.LOST_REFLECTIONS, len(asked))
            return {}
        answers = {x.attempt: x for x in found.reflections}
        run.count(Count.UNREFLECTED_ATTEMPTS, sum(n not in answers for n in range(1, len(asked) + 1)))
        return answers

    return reflect
