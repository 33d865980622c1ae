"""What all methods that grow a playbook by reflector and curator share: settings, and how they put the blocks together.

The recipes (`ace`, `combee`, `rcl`, the baselines) differ in how tasks are tried and in how lessons become edits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import Answer, answer, full_view
from practicum.blocks.attempt.attempt import Refine, once, refined, reflected
from practicum.blocks.reflect.per_trace import LearnFrom, Reflector, by_model, per_trace, without_reflector
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import append, pruned, within_budget
from practicum.blocks.update.coverage import accounted
from practicum.blocks.update.curator import Curator, rewrite
from practicum.blocks.update.dedupe import DedupeWhen, deduplicated
from practicum.engine.loop import AttemptSeam, Method, UpdateSeam
from practicum.methods.prompts import CURATED, CURATOR, EXAMPLES, REFLECTOR, REWRITER, WITHOUT_RULES
from practicum.methods.settings import MethodSettings

ACT = answer(full_view)
"""The agent sees the whole playbook."""


class Learning(MethodSettings):
    """Settings of every method that grows a playbook with a reflector and a curator."""

    rounds: int = Field(default=3, ge=0)
    """Most reflections on one attempt (paper: 5; 1 extracts too little, 10 can harm); 0 reflects once, after it."""
    refine: Refine = "retry"
    """retry: on a failure try again with the reflection; critique: the reflector improves its own lesson."""
    learn_from: LearnFrom = "all"
    """all: reflect on successes too; failures: a success only counts the entries it used."""
    lessons: Literal["all", "confirmed"] = "all"
    """all: the insights of all rounds; confirmed: only those with which the next try succeeded (for weak models)."""
    rules_shown: bool = True
    """Whether the reflector reads the rules the agent relied on; a weak model copies them into its insight."""
    reflector: bool = True
    """Whether a reflector stands between attempt and curator (the ablation of table 3)."""
    curator: Literal["edits", "append", "rewrite"] = "edits"
    """edits: small deltas by a model; append: each lesson is an entry, no call; rewrite: all anew (table 18)."""
    threshold: float = Field(default=0.85, gt=0, le=1)
    """Cosine similarity from which two entries of a section say the same (0.5 to 0.9 behave alike, table 20)."""
    dedupe: DedupeWhen = "proactive"
    """proactive: after each delta; lazy: only when the playbook is over its budget; never."""
    budget: int = Field(default=80_000, ge=1)
    """Most tokens of the playbook (paper: 10,000 to 100,000 behave alike, table 21)."""
    harmful: int = Field(default=3, ge=0)
    """An entry whose harmful votes lead by this many is dropped at once; 0 keeps it until the budget is exceeded."""

    TRACES: ClassVar = {"rounds": 0}

    @property
    def tries(self) -> int:
        """Rounds of reflection within an attempt."""
        return self.rounds

    @property
    def whole_step(self) -> bool:
        """Whether reflection needs all runs of a step, and so cannot begin before the last of them ends."""
        return False

    @model_validator(mode="after")
    def _can_act(self) -> Self:
        if self.lessons == "confirmed" and (self.refine != "retry" or not self.rounds):
            raise ValueError(
                "lessons=confirmed needs refine=retry and at least one round, or nothing is ever confirmed"
            )
        return self


def playbook(s: Learning, name: str, update: UpdateSeam, *, batch: int, epochs: int) -> Method:
    """What all methods that grow a playbook share; they differ in how lessons become edits."""
    return Method(
        name=name,
        sample=batches(s.online, epochs, batch),
        act=ACT,
        attempt=attempts(s),
        reflect=per_trace(reflector(s), s.learn_from, s.lessons == "confirmed"),
        update=settled(s)(update),
        accept=always,
        roles=roles(s),
        costs="reflections, retries, one curation a step",
    )


def reflector(s: Learning) -> Reflector:
    """Who makes lessons of attempts."""
    if not s.reflector:
        return without_reflector()
    return by_model(REFLECTOR, EXAMPLES if s.rules_shown else WITHOUT_RULES, s.rules_shown)


def attempts(s: Learning, act: Answer = ACT) -> AttemptSeam:
    """How a task is tried. A raw attempt holds the right answer, which no retry may see."""
    if s.whole_step or not s.reflector:
        return once(act)
    return refined(act, reflector(s), s.tries, s.refine) if s.tries else reflected(act, reflector(s), s.learn_from)


def curator(s: Learning) -> UpdateSeam:
    """How lessons become edits, before anything is wrapped around it."""
    match s.curator:
        case "edits":
            return Curator(CURATOR, SECTION, CURATED)
        case "append":
            return append(SECTION)
        case "rewrite":
            return rewrite(REWRITER)


def dropping(s: Learning) -> UpdateSeam:
    """The curator as the papers have it: what it does not mention is lost. Here it is counted."""
    return accounted(curator(s), "drop", SECTION) if s.curator == "edits" else curator(s)


def settled(s: Learning) -> Callable[[UpdateSeam], UpdateSeam]:
    """What is done to every delta: pruning, then de-duplication, then the budget, which has the last word."""

    def wrap(update: UpdateSeam) -> UpdateSeam:
        update = pruned(update, s.harmful) if s.harmful else update
        return within_budget(deduplicated(update, s.threshold, s.dedupe, s.budget), s.budget)

    return wrap


def roles(s: Learning) -> tuple[str, ...]:
    """Who is asked beside the agent."""
    return (*(["reflector"] if s.reflector else []), *(["curator"] if s.curator != "append" else []))


SECTION = "rules"
"""Where entries go for which the curator names no section."""
