"""RCL, Reflective Context Learning: all optimization primitives together, on ACE's loop without de-duplication by
embedding and with one reflection (Reflective Context Learning, section 4.1; METHODS, section 3).

Deviations: a step concurrently attempts a number of tasks that makes enough failures likely. The mutator may also
report that a rule covers a lesson already, so that every diagnosis is accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from practicum.engine.loop import Method
from practicum.methods.ace import ACT, REFLECTOR, curated, playbook, reflector
from practicum.methods.blocks.dedupe import DedupeWhen
from practicum.methods.blocks.reflect import LearnFrom
from practicum.methods.blocks.show import reused
from practicum.methods.primitives import Attempted, PrimitiveSettings, with_primitives


class Settings(PrimitiveSettings):
    """Settings of RCL: the primitives, all on."""

    rounds: int = Field(default=0, ge=0)
    """Rounds of reflection within an attempt; the primitives reflect once, after all runs."""
    learn_from: LearnFrom = "failures"
    """failures: a success only votes for the entries that it used; all: reflect on successes too."""
    merge: bool = False
    """Whether the curator may merge entries; RCL's structural constraint forbids it (section 3)."""
    dedupe: DedupeWhen = "never"
    """never: RCL manages the playbook only by explicit edits; proactive, lazy: as in ACE."""
    batch: int = Field(default=3, ge=1)
    """Failures reflected on in a step."""
    attempted: Attempted = "auto"
    """Tasks attempted in a step; auto: a number that makes `batch` failures likely; none: `batch`."""
    group: int = Field(default=3, ge=1)
    """Runs of each task under one context (section 3.1)."""
    twin: bool = True
    """Attempt each task once more with an annotated playbook (section 3.2)."""
    heads: bool = True
    """Reflection in three heads (section 3.3)."""
    replay: float = Field(default=0.5, ge=0, le=1)
    """Share of the attempted tasks that is drawn from tasks that failed before (section 3.4)."""
    SMALL: ClassVar[Mapping[str, Any]] = {"guards": True, "gated_heads": True}

    state: bool = True
    """A rolling document of changes, assessments and hypotheses that the mutator sees (section 3.5)."""


def method(settings: Settings) -> Method:
    """Build the method with the composed update (section 3, equation 14)."""

    def rcl(s: PrimitiveSettings) -> Method:
        update = curated(s, merges=s.merge, guards=s.guards)
        return playbook(s, "rcl", update, s.batch, reused(ACT), COSTS)

    return with_primitives(settings, rcl, reflector, REFLECTOR)


COSTS = "further attempts, three reflections for each failure, one curation and one note per step"
