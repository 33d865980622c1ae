"""APE: instructions are guessed from cases of inputs and right outputs, then scored, and the best ones varied (Zhou et
al., 2023, section 3).

docs/methods/ape.md says what differs from the paper.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pydantic import Field

from practicum.core.edits import Entry
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import Method
from practicum.plugins.rivals.demonstrations import INDUCE, demonstrated
from practicum.plugins.rivals.examples import VARIED
from practicum.plugins.rivals.instruction_search import BeamSettings, search
from practicum.plugins.rivals.search import Request, propose


class Settings(BeamSettings):
    steps: int = Field(default=1, ge=1)
    """The number of steps: in the first one instructions are guessed, in each further one the best are varied."""
    candidates: int = Field(default=50, ge=1)
    """New candidates of a step, each written by a call of its own (paper: 50)."""
    demos: int = Field(default=5, ge=1)
    """Cases that an instruction is guessed from, drawn anew for each candidate (paper: 5)."""
    beam: int = Field(default=4, ge=1)
    """The number of candidates kept, and varied in further steps: the best ones."""


def method(s: Settings) -> Method:
    """Guess the instruction behind cases, then vary the best guesses."""

    def guesses(known: Sequence[Entry], lessons: Sequence[Lesson], rng: random.Random) -> list[Request]:
        if known:
            varied = [known[n % len(known)] for n in range(s.candidates)]
            return [Request(VARY, (f"# The instruction\n{one.text}",), (one,)) for one in varied]
        drawn = [tuple(rng.sample(lessons, min(s.demos, len(lessons)))) for _ in range(s.candidates if lessons else 0)]
        return [Request(INDUCE, (demonstrated(shown),), lessons=shown) for shown in drawn]

    return search(s, "ape", propose(guesses, s.warmth))


VARY = Instructions(
    full="""\
You see the instruction that an agent works under. Write another version of it with the same meaning: say everything \
that it says, and nothing else, in other words and, where that reads better, in another order. Keep exactly what must \
not vary, such as names, numbers, formulas, code and the form of the answer.""",
    small="""\
Write another version of the instruction: the same meaning in other words. Keep names, numbers and the form of the \
answer as they are.""",
    examples=VARIED,
)
