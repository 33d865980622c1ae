"""ReasoningBank and ACE in one closed loop: memories inform the bullets, bullets guide the attempts, attempts enrich
the memories, outcomes refine both (METHODS, section 5).

Deviations: memory and playbook are two sections of one context, so that versions, forgetting and budgets apply to both;
evaluation shows what was learned and proposes no new bullets, because it must change nothing. Without memory and
scaling it is the specification's stand-alone ACE: bullets before the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import full_view, with_memories
from practicum.blocks.attempt.attempt import once
from practicum.blocks.attempt.propose import Keep, Proposer, curated, prepared, with_last_outcomes, with_outcomes
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import pruned, within_budget
from practicum.blocks.update.dedupe import deduplicated
from practicum.blocks.update.memory_bank import MEMORIES, append_memories, extract_memories, usage_votes
from practicum.engine.loop import Method
from practicum.methods.expel import both
from practicum.methods.memory import MemorySettings, acting
from practicum.methods.settings import is_off


class Settings(MemorySettings):
    """Settings of the unified learner."""

    memory: bool = True
    """Whether there is a memory bank; without it and with scaling=none this is the specification's stand-alone ACE."""
    passes: int = Field(default=3, ge=0)
    """Passes of reflection over the proposed bullets: clarity, actionability, conciseness."""
    proposal: float = Field(default=0.7, ge=0)
    """The temperature for proposing and refining bullets."""
    bullets: Keep = "all"
    """all: keep all proposed bullets; relied_on: only those that the attempt cited (weak models propose many)."""
    budget: int = Field(default=80_000, ge=1)
    """The most tokens of the playbook."""
    harmful: int = Field(default=3, ge=0)
    """A rule with so many more harmful than helpful votes is deleted at once; 0: only when the budget is exceeded."""

    SMALL: ClassVar[Mapping[str, Any]] = {"proposal": 0.0}

    @classmethod
    def unused(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Without a memory bank its settings have no effect; a preset may still set the number of memories."""
        if not is_off(values.get("memory", True)):
            return super().unused(values)
        memories = () if values.get("preset") else ("memories",)
        bank = ("items", "extract", "extraction", "index", "consolidate", *memories)
        return {**super().unused(values), **dict.fromkeys(bank, "needs memory=true")}


def method(s: Settings) -> Method:
    """Retrieve, propose, refine, curate, attempt, extract memories."""
    bank = MEMORIES if s.memory else ""
    show = with_memories(s.memories, MEMORIES, rest=True) if s.memory else full_view
    rules = deduplicated(curated(SECTION), s.threshold)
    propose = Proposer(s.passes, s.memories, bank, rules, s.proposal)
    distil = extract_memories(s.items, s.extract, s.extraction, s.index) if s.memory else usage_votes
    # Rules are pruned and kept within their budget; memories only grow.
    new = both(curated(SECTION) if s.consolidate else rules, append_memories)
    new = deduplicated(new, s.threshold) if s.consolidate else new
    kept = pruned(new, s.harmful, besides=MEMORIES) if s.harmful else new
    return Method(
        name="unified",
        sample=batches(s.online, s.epochs, s.batch),
        act=acting(s, show, blind=True),
        attempt=once(prepared(acting(s, show, blind=s.online), propose)),
        reflect=with_outcomes(distil, s.bullets),
        update=with_last_outcomes(within_budget(kept, s.budget, besides=MEMORIES)),
        accept=always,
        roles=("reflector", "judge"),
        act_roles=s.act_roles,
        act_calls=s.act_calls,
        costs="as reasoning_bank, with a proposal and three passes over it for each task",
    )


SECTION = "rules"
"""The section of bullets."""
