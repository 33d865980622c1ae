"""Reflection in three heads: failure attribution, root cause, coverage gap (RCL, section 3.3); and reflection on
several attempts by one call (section 4.7).

What the heads say shapes the update: only a failure that guidance could have prevented leads to an edit. An attempt
that failed by chance, or that no guidance would have saved, is counted and teaches nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field

from practicum.blocks.reflect.evidence import case, contrast, evidence, relied_on
from practicum.blocks.reflect.per_trace import LearnFrom, Reflection, Reflector, Tag, tagged, verdicts
from practicum.blocks.specifics import answers_named
from practicum.core.bounded import MaxChars, MaxItems, Output, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import ordered_union
from practicum.core.errors import OutputError, ProviderError
from practicum.core.types import Lesson, Prompt, Rollout, Round, Turn
from practicum.engine.loop import ReflectSeam, sources_of
from practicum.engine.run import Run
from practicum.models.client import JSON
from practicum.models.prompting import json_schema

Kind = Literal["actionable_gap", "execution_variance", "intractable"]

ATTRIBUTED = {
    "actionable_gap": Count.ACTIONABLE_GAPS,
    "execution_variance": Count.EXECUTION_VARIANCE,
    "intractable": Count.INTRACTABLE_FAILURES,
}
"""The counter of each attribution."""


class Attribution(Output):
    """Whether guidance could have changed the outcome."""

    evidence: Annotated[str, MaxChars(160)] = Field(description="what in the attempt decides it")
    attribution: Kind


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


def possible(rollout: Rollout, context: Context, choices: Sequence[str] = ()) -> tuple[Kind, ...]:
    """What a failure may come from, by what the case shows. Chance shows in a rule that was there and not followed, or
    in another run that succeeded; and then the task is not intractable. A small model says either at will."""
    failed, passed = contrast(rollout)
    slipped = passed or any(_unfollowed(rule.text, failed, choices) for rule in relied_on(rollout, context))
    chance: tuple[Kind, ...] = ("execution_variance",) if slipped else ()
    return ("actionable_gap", *chance, *(() if passed else ("intractable",)))


def _unfollowed(rule: str, failed: Rollout, choices: Sequence[str]) -> bool:
    """Whether a failed attempt may have strayed from this rule. Where answers are choices and the rule names some, it
    has to name the target or, where learning may not see that, another than was answered."""
    named, target = answers_named(rule, choices), failed.feedback.target
    if target is not None:
        return not named or bool(named & answers_named(target, choices))
    return not named or bool(named - answers_named(failed.trace.answer, choices))


@lru_cache(maxsize=64)
def attributing(shape: type[Output], kinds: tuple[Kind, ...]) -> JSON:
    """The form's schema, in which a server that enforces schemas lets only these kinds be said."""
    schema = deepcopy(json_schema(shape))
    if said := schema["properties"].get("attribution"):
        said["enum"] = [*kinds]
    return schema


@dataclass(frozen=True)
class Heads:
    """Asks the three heads about one failure, at once (three calls), or as one structured call.

    `system` is what all of them are told, `heads` what each is asked, in the order attribution, root cause, gap; a
    success is left to `otherwise`. `examples` are cases with what is to be said of them, of which each head sees its
    part.
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
        told, kinds = case(rollout, context, earlier, run), possible(rollout, context, run.choices)
        try:
            said = await (self._together if self.one_call else self._apart)(told, kinds, run)
        except (OutputError, ProviderError):
            run.count(Count.LOST_REFLECTIONS)
            return None
        run.count(ATTRIBUTED[said["attribution"]])
        gap = said["attribution"] == "actionable_gap"
        votes = verdicts([Tag.model_validate(tag) for tag in said["tags"]], rollout, context, run)
        return Lesson(
            id=run.place,
            text=said["insight"].strip() if gap else "",
            detail=evidence(failed),
            # What is no rule's fault must not wear a rule down either.
            votes=votes if gap else dict.fromkeys(votes, "neutral"),
            sources=rollout.sources,
            data={k: said[k] for k in ("attribution", "cause", "gap", "kind")},
        )

    async def _apart(self, told: list[str], kinds: tuple[Kind, ...], run: Run) -> dict[str, Any]:
        shapes: tuple[type[Output], ...] = (Attribution, RootCause, CoverageGap)
        jobs = [
            (shape.__name__.lower(), partial(self._ask, f"{self.system}\n\n{head}", told, shape, kinds))
            for head, shape in zip(self.heads, shapes, strict=True)
        ]
        return {name: value for part in await run.gather(jobs) for name, value in part.items()}

    async def _together(self, told: list[str], kinds: tuple[Kind, ...], run: Run) -> dict[str, Any]:
        return await self._ask("\n\n".join((self.system, *self.heads)), told, Diagnosis, kinds, run)

    async def _ask(
        self, system: str, told: list[str], shape: type[Output], kinds: tuple[Kind, ...], run: Run
    ) -> dict[str, Any]:
        part = set(shape.model_fields)
        turns = tuple(Turn(case, whole.model_dump_json(include=part)) for case, whole in self.examples)
        prompt, form = Prompt.from_parts(system, told, turns=turns), attributing(shape, kinds)
        return (await run.ask_fitted("reflector", prompt, shape, form=form)).model_dump()


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

    With `learn_from="failures"` a success only counts the entries it used. An attempt that the reflector says nothing
    of leaves its votes, by its outcome, and is counted.
    """

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        made = [r for r in rollouts if not r.trace.lost]
        passing = [r for r in made if learn_from == "failures" and contrast(r)[0].feedback.success is True]
        places = {r.place for r in passing}
        lessons = await together([r for r in made if r.place not in places], context, run)
        return [*lessons, *(tagged(r, r.place) for r in passing)]

    async def together(usable: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        if not usable:
            return []
        cases = [case(r, context, (), run) for r in usable]
        told = [part for n, (first, *rest) in enumerate(cases, 1) for part in (f"# Case {n}\n{first}", *rest)]
        sources = sources_of(usable)
        try:
            prompt = Prompt.from_parts(system, told, turns=examples)
            said = await replace(run, about=sources).ask_fitted("reflector", prompt, Reflections)
        except (OutputError, ProviderError):
            run.count(Count.LOST_REFLECTIONS, len(usable))
            return [tagged(r, r.place) for r in usable]
        by_number = {x.attempt: x for x in said.reflections}
        run.count(Count.UNREFLECTED_ATTEMPTS, sum(n not in by_number for n in range(1, len(usable) + 1)))
        return [
            _lesson(r, by_number[n], sources, context, run) if n in by_number else tagged(r, r.place)
            for n, r in enumerate(usable, 1)
        ]

    return reflect


def _lesson(rollout: Rollout, said: OfMany, sources: tuple[str, ...], context: Context, run: Run) -> Lesson:
    """What was said with all attempts in view comes from all of them, and is about one."""
    return Lesson(
        id=f"{run.place}/{rollout.place}",
        text=said.insight.strip(),
        detail=evidence(contrast(rollout)[0]),
        votes=verdicts(said.tags, rollout, context, run),
        sources=ordered_union((rollout.sources, sources)),
        data={
            "kind": said.kind,
            "diagnosis": said.diagnosis,
            "correction": said.correction,
            "task_id": rollout.task.id,
        },
    )
