"""RCL, Reflective Context Learning: all optimization primitives together, on ACE's loop without de-duplication by
embedding and with one reflection (Reflective Context Learning, section 4.1; METHODS, section 3).

Deviations: a step concurrently attempts a number of tasks that makes enough failures likely. The mutator (RCL's
curator) may also report that a rule covers a lesson already, so that every diagnosis is accounted for."""

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
    """The number of rounds of reflection within an attempt: 0, because the primitives reflect once, after all runs of a
    step."""
    learn_from: LearnFrom = "failures"
    """failures: reflect only on failures, while a success just votes for the entries that it used; all: reflect on
    failures and successes."""
    merge: bool = False
    """Whether the curator may merge entries; RCL's structural constraint forbids merges (section 3)."""
    dedupe: DedupeWhen = "never"
    """never: RCL manages the playbook only by explicit edits; proactive, lazy: as in ACE."""
    batch: int = Field(default=3, ge=1)
    """The number of failures that a step reflects on."""
    attempted: Attempted = "auto"
    """The number of tasks that a step attempts; auto: enough tasks to make `batch` failures likely; none: `batch`
    tasks."""
    group: int = Field(default=3, ge=1)
    """The number of runs of each task under the same context (section 3.1)."""
    twin: bool = True
    """Run each task once more, with a request to note how each entry was used (section 3.2)."""
    heads: bool = True
    """Reflect on a failure by three heads: failure attribution, root cause, coverage gap (section 3.3)."""
    replay: float = Field(default=0.5, ge=0, le=1)
    """Share of the attempted tasks that is drawn from tasks that failed before (section 3.4)."""
    SMALL: ClassVar[Mapping[str, Any]] = {"guards": True, "gated_heads": True}

    state: bool = True
    """Keep a rolling document of changes, assessments and hypotheses, and show it to the curator (section 3.5)."""


def method(settings: Settings) -> Method:
    """Build the method with the composed update (section 3, equation 14)."""

    def rcl(s: PrimitiveSettings) -> Method:
        update = curated(s, merges=s.merge, guards=s.guards)
        return playbook(s, "rcl", update, s.batch, reused(ACT), COSTS)

    return with_primitives(settings, rcl, reflector, REFLECTOR)


COSTS = "further attempts, three reflections for each failure, one curation and one note per step"
