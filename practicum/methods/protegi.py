"""ProTeGi: text gradients and a beam. The failures of a batch are put into words as faults of the instructions, and new
instructions correct them (Pryzant et al., 2023, sections 2.1 to 2.3).

Deviations: there is one gradient for each failed attempt, all at once; all candidates of a step are tried on its batch,
where the paper selects them by bandits; paraphrases are requested in the same call as the edits.
"""

from __future__ import annotations

from collections.abc import Sequence

from practicum.blocks.reflect.per_trace import by_model, per_trace
from practicum.blocks.search.candidates import history
from practicum.core.edits import Entry
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import Method
from practicum.methods.instruction_search import BeamSettings, search

Settings = BeamSettings


def method(s: Settings) -> Method:
    """Say what is wrong, edit against it, keep the best."""
    gradients = per_trace(by_model(Instructions(GRADIENT), rules_shown=False), "failures")
    return search(s, "protegi", PROPOSER, corrections, gradients, shown=1)


def corrections(candidates: Sequence[Entry], lessons: Sequence[Lesson]) -> str:
    said = [f"- {x.data.get('diagnosis') or 'it failed'}; {x.text}" for x in lessons if x.text]
    return f"{history(candidates)}\n\n# What was wrong with them\n" + ("\n".join(said) or "(nothing failed)")


GRADIENT = """\
An agent failed at a task because its instructions were not good enough. Say what the instructions lack.

kind: what kind of task this is. correction: what would have been right. insight: what the instructions should say for \
tasks of this kind, in one sentence: "If ..., ...". diagnosis: why the instructions led to the failure. \
tags: leave empty."""

PROPOSER = """\
You mend an agent's instructions. You see the best ones so far and what was found wrong with them. Write {most} new \
versions: some that put right what was wrong, and some that say the same as the best one in other words. Each is \
complete in itself, general, and keeps what works."""
