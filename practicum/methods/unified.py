"""ReasoningBank and ACE in one closed loop, with solved tasks: rules, memories and the most similar solved tasks are
each shown only where they pay (METHODS, section 5).

Memories inform the bullets, bullets guide the attempts, attempts enrich the memories, outcomes refine both. Deviations:
the three are sections of one context, so that versions, forgetting and budgets apply to all; evaluation shows what was
learned and proposes no new bullets, because it must change nothing; solved tasks and the comparison of the parts are
ours. Small models write rules about their failures, as in ACE, since their proposals are guesses. Without memory,
scaling and examples it is the specification's stand-alone ACE: bullets before the attempt. `preset=specification` is
the specification's learner without these additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.parts import PARTS, compared, paying, recorded, with_comparisons
from practicum.blocks.act.show import joined, rest, similar_turns, with_memories
from practicum.blocks.attempt.attempt import demonstrated, once, refined
from practicum.blocks.attempt.propose import Keep, Proposer, curated, prepared, with_last_outcomes, with_outcomes
from practicum.blocks.reflect.per_trace import alongside, as_experience, by_model, is_experience, per_trace
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import append, divided, newest_per_key, pruned, within_budget
from practicum.blocks.update.dedupe import deduplicated
from practicum.blocks.update.memory_bank import MEMORIES, append_memories, extract_memories, is_memory, usage_votes
from practicum.core.clashes import ON, Clash, needs
from practicum.engine.loop import Method
from practicum.methods.ace import REFLECTOR
from practicum.methods.episodes import EPISODES
from practicum.methods.memory import MemorySettings, acting
from practicum.methods.worked_examples import WITHOUT_RULES

SPECIFICATION: Mapping[str, Any] = {
    "retrieval": "cosine",
    "memory": True,
    "memories": 5,
    "extract": "chosen",
    "examples": 0,
    "weigh": False,
    "rules": "proposed",
    "passes": 3,
    "proposal": 0.7,
    "delta_min": 5,
    "delta_max": 10,
    "bullets": "all",
    "threshold": 0.85,
    "harmful": 0,
    "scaling": "parallel",
    "k": 3,
    "batch": 1,
}
"""The settings of `preset=specification`: the unified specification's learner alone, in both profiles."""


class Settings(MemorySettings):
    """Settings of the unified learner."""

    preset: Literal["routine", "standard", "critical", "specification"] | None = None  # type: ignore[assignment]
    """routine, standard, critical: attempts, memories shown and passes, by the importance of the tasks; specification:
    the learner of the specification alone."""
    rules: Literal["proposed", "reflected"] = "proposed"
    """proposed: bullets are proposed before each attempt; reflected: a failure teaches a rule, kept if the next try
    succeeds with it (for weak models)."""
    memory: bool = True
    """Whether there is a memory bank."""
    examples: int = Field(default=4, ge=0)
    """The number of solved tasks shown as earlier turns: the most similar ones; 0: none are kept."""
    weigh: bool = True
    """Show rules, memories and solved tasks only where they pay: in learning, attempt each task once more with one of
    them left out or put in."""
    passes: int = Field(default=3, ge=0)
    """Passes of reflection over the proposed bullets: clarity, actionability, then non-redundancy and conciseness."""
    proposal: float = Field(default=0.7, ge=0)
    """The temperature for proposing and refining bullets."""
    delta_min: int = Field(default=5, ge=0)
    """The fewest bullets of a proposal. One with fewer is requested once more, then kept, and counted."""
    delta_max: int = Field(default=10, ge=1, le=50)
    """The most bullets of a proposal, and of a pass over it. Those beyond are dropped, and counted."""
    outcomes: int = Field(default=3, ge=0)
    """The number of last outcomes that are kept, and shown to proposals."""
    bullets: Keep = "all"
    """all: keep all proposed bullets; relied_on: only those that the attempt cited (weak models propose many)."""
    budget: int = Field(default=80_000, ge=1)
    """The most tokens of the playbook."""
    harmful: int = Field(default=3, ge=0)
    """A rule with so many more harmful than helpful votes is deleted at once; 0: only when the budget is exceeded."""

    SMALL: ClassVar[Mapping[str, Any]] = {
        "rules": "reflected", "memory": False, "scaling": "none", "batch": 4, "proposal": 0.0, "delta_min": 0
    }  # fmt: skip

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {**MemorySettings.PRESETS, "specification": SPECIFICATION}

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        needs("items", "extract", "extraction", "index", "consolidate", memory=True),
        needs("memories", memory=True, preset=ON),
        needs("passes", "proposal", "delta_min", "delta_max", "outcomes", "bullets", rules="proposed"),
        Clash(lambda s: s.delta_min > s.delta_max, "delta_min exceeds delta_max={s.delta_max}: lower delta_min"),
    )


def method(s: Settings) -> Method:
    """Retrieve, propose, refine, curate, attempt, extract memories, keep solved tasks."""
    parts = {"rules": rest(MEMORIES, EPISODES)}
    if s.memory:
        parts["memories"] = with_memories(s.memories, MEMORIES)
    if s.examples:
        parts["examples"] = similar_turns(s.examples, EPISODES)
    show = s.noting(paying(parts) if s.weigh else joined(*parts.values()))
    reflecting = s.rules == "reflected"
    act = acting(s, show, blind=s.online)
    act = compared(act, parts, s.temperature) if s.weigh else act
    bank = MEMORIES if s.memory else ""
    rules = append(SECTION, data=False) if reflecting else curated(SECTION)
    rules = deduplicated(rules, s.threshold)
    propose = Proposer(
        passes=s.passes, memories=s.memories, bank=bank, curate=rules, least=s.delta_min, most=s.delta_max,
        outcomes=s.outcomes, temperature=s.proposal, besides=(EPISODES,),
    )  # fmt: skip
    attempt = refined(act, REFLECT, 1, "retry") if reflecting else prepared(act, propose)
    blind = acting(s, show, blind=True)
    attempt = demonstrated(attempt, blind) if s.examples else attempt
    reflects = {"rules": per_trace(REFLECT, "failures", only_confirmed=True) if reflecting else usage_votes}
    if s.memory:
        reflects["memories"] = extract_memories(s.items, s.extract, s.extraction, s.index)
    reflect = alongside(**reflects)
    reflect = with_comparisons(reflect if reflecting else with_outcomes(reflect, s.bullets, s.outcomes))
    # A task that was solved in a retry or in a comparison is a solved task, too.
    reflect = alongside(work=reflect, examples=as_experience) if s.examples else reflect
    # Rules are pruned and kept within their budget; memories and solved tasks only grow.
    kept = divided(is_memory, deduplicated(append_memories, s.threshold) if s.consolidate else append_memories, rules)
    kept = pruned(kept, s.harmful, MEMORIES, EPISODES, PARTS) if s.harmful else kept
    kept = within_budget(kept, s.budget, MEMORIES, EPISODES)
    kept = kept if reflecting else with_last_outcomes(kept, s.outcomes)
    update = divided(is_experience, newest_per_key(append(EPISODES)), kept)
    return Method(
        name="unified",
        show=show,
        sample=batches(s.online, s.epochs, s.batch),
        act=blind,
        attempt=once(attempt),
        reflect=reflect,
        update=recorded(update),
        accept=always,
        roles=("reflector", "judge"),
        act_roles=s.act_roles,
        act_calls=s.act_calls,
        costs="a second attempt at each task, and with tools one more at each that stays unsolved; as reasoning_bank, "
        "with a proposal and three passes over it for each task, or (rules=reflected) a reflection and a retry for "
        "each failure",
    )


SECTION = "rules"
"""The section of bullets."""

REFLECT = by_model(replace(REFLECTOR, examples=WITHOUT_RULES), rules_shown=False)
"""A rule from a failure, as ACE's reflector writes it."""
