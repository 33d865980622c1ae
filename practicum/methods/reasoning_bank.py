"""ReasoningBank with memory-aware test-time scaling: strategies are extracted from successes and failures, retrieved by
similarity, and learned from several attempts at each task (Ouyang et al. 2025; METHODS, section 4).

Deviations: attempts with the same outcome share one verdict and one extraction of memories; in evaluation no score
chooses the attempt; an attempt without a verdict is counted and not learned from.
"""

from __future__ import annotations

from typing import ClassVar

from practicum.core.clashes import needs
from practicum.engine.loop import Method
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.curate import without_outdated
from practicum.methods.blocks.dedupe import deduplicated
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.memory import MEMORIES, append_memories, extract_memories, usage_votes
from practicum.methods.blocks.reflect import alongside
from practicum.methods.blocks.sample import batches
from practicum.methods.blocks.show import with_memories
from practicum.methods.memory import MemorySettings, acting


class Settings(MemorySettings):
    CLASHES: ClassVar = (needs("threshold", consolidate=True),)


def method(s: Settings) -> Method:
    """Build the method: attempt with the most similar memories, choose an attempt, extract new memories, append
    them."""
    show = s.noting(with_memories(s.memories, MEMORIES))
    update = append_memories
    return Method(
        name="reasoning_bank",
        show=show,
        sample=batches(s.online, s.epochs, s.batch),
        act=acting(s, show, blind=True),
        attempt=once(acting(s, show, blind=s.online)),
        reflect=alongside(votes=usage_votes, memories=extract_memories(s.items, s.extract, s.extraction, s.index)),
        update=without_outdated(deduplicated(update, s.threshold)) if s.consolidate else update,
        accept=always,
        roles=("reflector", "judge"),
        act_roles=s.act_roles,
        act_calls=s.act_calls,
        costs="further attempts, verdicts, one contrast per task, an extraction for each outcome",
    )
