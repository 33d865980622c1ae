"""APE: instructions are induced from examples of inputs and right answers, then scored, then varied (Zhou et al., 2023,
section 3).

Deviations: induction and variation are one call, which sees the best instructions so far; scores are means over steps.
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
    """Guess the instruction behind examples."""
    return search(s, "ape", PROPOSER, induced, shown=1)


def induced(candidates: Sequence[Entry], lessons: Sequence[Lesson]) -> str:
    best = f"\n\n{history(candidates)}" if candidates else ""
    return f"{cases(lessons)}{best}"


PROPOSER = """\
Somebody gave an agent an instruction, and the right answers below followed from it. Guess it. Write {most} guesses \
that differ from each other; where an instruction is shown that works well already, let half of them be other ways to \
say it better. Each is complete in itself."""
