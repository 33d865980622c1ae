"""EvoPrompt: instructions evolve, by crossing the best ones and changing the result (Guo et al., 2024, genetic form).

Deviations: the parents are the best of the beam, not drawn by a roulette wheel; one call makes all offspring of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from practicum.blocks.search.candidates import cases, history
from practicum.core.edits import Entry
from practicum.core.types import Lesson
from practicum.engine.loop import Method
from practicum.methods.instruction_search import BeamSettings, search

Settings = BeamSettings


def method(s: Settings) -> Method:
    """Cross, change, select."""
    return search(s, "evoprompt", PROPOSER, parents)


def parents(candidates: Sequence[Entry], lessons: Sequence[Lesson]) -> str:
    # Without parents, the first generation is written from the tasks.
    return history(candidates) if candidates else cases(lessons)


PROPOSER = """\
You breed instructions for an agent. Take two of the instructions you see, put what is best in each together, then \
change a part of the result. Do so {most} times, with other parents or other changes each time. Where none are shown, \
write first ones for the tasks below. Each is complete in itself and names no single task or answer."""
