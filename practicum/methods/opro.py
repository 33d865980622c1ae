"""OPRO: the model as optimizer. It reads earlier instructions with their scores and writes better ones (Yang et al.,
2024, section 2).

Deviations: the tasks of a step are both the exemplars in the meta-prompt and the tasks that its candidates are scored
on; a candidate's score is the mean over all steps in which it was the best, not over one fixed subset.
"""

from __future__ import annotations

from collections.abc import Sequence

from practicum.blocks.search.candidates import cases, history
from practicum.core.edits import Entry
from practicum.core.types import Lesson
from practicum.engine.loop import Method
from practicum.methods.instruction_search import BeamSettings, search

EXEMPLARS = 3
"""Attempts shown in the meta-prompt (the paper's number)."""

Settings = BeamSettings


def method(s: Settings) -> Method:
    """Read the trajectory of instructions and scores, write better ones."""
    return search(s, "opro", PROPOSER, trajectory)


def trajectory(candidates: Sequence[Entry], lessons: Sequence[Lesson]) -> str:
    return f"{history(candidates)}\n\n{cases(lessons[:EXEMPLARS])}"


PROPOSER = """\
You look for the best instructions for an agent. You see earlier instructions with the share of tasks they solved, the \
best last, and some tasks. Write {most} new instructions that differ from all of these and from each other and will \
score higher. Each is complete in itself and general: no single task or answer is named in it."""
