"""RCL, Reflective Context Learning: all optimization primitives together, on ACE's loop without de-duplication by
embedding and with one reflection (Reflective Context Learning, section 4.1; METHODS, section 3).

Deviations: the rollout batch is sized so that enough failures are likely, and runs at once; the mutator may also say
that a rule covers a lesson already, so that every diagnosis is accounted for.
"""

from __future__ import annotations

from pydantic import Field

from practicum.blocks.act.show import reused
from practicum.blocks.reflect.per_trace import LearnFrom
from practicum.blocks.update.coverage import accounted
from practicum.blocks.update.curator import Curator, Mutations
from practicum.blocks.update.dedupe import DedupeWhen
from practicum.engine.loop import Method
from practicum.methods.ace import ACT, REFLECTOR, SECTION, curator, playbook, reflector
from practicum.methods.primitives import PrimitiveSettings, Rollouts, with_primitives


class Settings(PrimitiveSettings):
    """Settings of RCL: the primitives, all on."""

    rounds: int = Field(default=0, ge=0)
    """Rounds of reflection within an attempt; the primitives reflect once, after all runs."""
    learn_from: LearnFrom = "failures"
    """failures: a success only counts the entries it used; all: reflect on successes too."""
    dedupe: DedupeWhen = "never"
    """RCL manages the playbook by explicit edits alone; proactive and lazy as in ACE."""
    batch: int = Field(default=3, ge=1)
    """Failures reflected on in a step."""
    rollouts: Rollouts = "auto"
    """Tasks attempted in a step; auto: so many that `batch` failures are likely; none: `batch`."""
    group: int = Field(default=3, ge=1)
    """Runs of each task under one context (section 3.1)."""
    twin: bool = True
    """Each task once more with an annotated playbook (section 3.2)."""
    heads: bool = True
    """Reflection in three heads (section 3.3)."""
    replay: float = Field(default=0.5, ge=0, le=1)
    """Share of the attempted tasks that are drawn from those that failed before (section 3.4)."""
    state: bool = True
    """A rolling document of changes, assessments and hypotheses that the mutator sees (section 3.5)."""


def method(settings: Settings) -> Method:
    """The composed update (section 3, equation 14)."""

    def rcl(s: PrimitiveSettings) -> Method:
        edits = accounted(Curator(MUTATOR, SECTION, output=Mutations), "drop", SECTION)
        return playbook(s, "rcl", edits if s.curator == "edits" else curator(s), s.batch, reused(ACT), COSTS)

    return with_primitives(settings, rcl, reflector, REFLECTOR)


COSTS = "further attempts, three reflections for each failure, one curation and one note a step"

MUTATOR = """\
You maintain the playbook of an agent: short rules, one a line, "[id] (section) text". The agent sees the playbook and \
nothing else of this. Below are diagnoses of its failures, each with the rule that would have helped and why it \
failed. Look for what several have in common; one that stands alone may be a matter of chance. Where your own notes \
say that a change was tried before, build on it rather than turn it back. Decide for each lesson:

ADD: no rule says what the lesson says. It becomes a new rule, word for word; give a text only to say it better.
UPDATE: one rule (its id in ids) says nearly this, or says it wrongly. Its new text takes in both.
DELETE: the lesson proves one rule (its id in ids) wrong.
COVERED: one rule (its id in ids) says all of the lesson already.

A rule gives one answer. Never join cases with different answers. Give your reason each time."""
