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
from practicum.methods.worked_examples import CALENDAR, MEETING, NOTICES, SHOP, WORKSHOP
from practicum.plugins.rivals.examples import DATES, MATERIAL_CASES, MATERIALS, PRICES, SHORT, example
from practicum.plugins.rivals.search import BeamSettings, InstructionRequest, demonstrated, propose, search


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

    def guesses_or_variants(
        known: Sequence[Entry], lessons: Sequence[Lesson], rng: random.Random
    ) -> list[InstructionRequest]:
        if not known:
            return guesses(s.candidates, s.demos, lessons, rng)
        varied = [known[n % len(known)] for n in range(s.candidates)]
        return [InstructionRequest(VARY, (f"# The instruction\n{one.text}",), (one,)) for one in varied]

    return search("ape", s, propose(guesses_or_variants, s.warmth))


def guesses(most: int, demos: int, lessons: Sequence[Lesson], rng: random.Random) -> list[InstructionRequest]:
    """Requests for `most` instructions, each guessed from `demos` cases drawn for it."""
    drawn = [tuple(rng.sample(lessons, min(demos, len(lessons)))) for _ in range(most if lessons else 0)]
    return [InstructionRequest(INDUCE, (demonstrated(shown),), lessons=shown) for shown in drawn]


INDUCE = Instructions(
    full="""\
Somebody worked under an instruction that you do not see. Find it out from cases of the work.

Under the heading "Inputs with their right outputs", each output is what the instruction leads to for its input. \
Under the heading "Attempts, with what is known of each", an agent without the instruction gave the answers: the \
instruction leads to answers like those that were found good, and away from those that were found bad.

Look for what holds in all cases at once: what is to be done with an input, by which rules or steps, what has to be \
known for it, and in which form the output is given. Write the instruction as it would be given to somebody who has \
not seen the cases and will get other inputs of the same kind. It may have several lines. Do not name single \
cases.""",
    small="""\
Guess the instruction that leads from the inputs to their right outputs. Where you see attempts instead, guess the \
instruction that leads to the good ones and away from the bad ones. Write it whole, so that it helps with other \
inputs of the same kind. Name no single case.""",
    examples=(
        example(MATERIALS, WORKSHOP, MATERIAL_CASES, "Input: the beams of a covered porch\nOutput: oak"),
        example(DATES, CALENDAR, "# Attempts, with what is known of each", MEETING),
    ),
)

VARY = Instructions(
    full="""\
You see the instruction that an agent works under. Write another version of it with the same meaning: say everything \
that it says, and nothing else, in other words and, where that reads better, in another order. Keep exactly what must \
not vary, such as names, numbers, formulas, code and the form of the answer.""",
    small="""\
Write another version of the instruction: the same meaning in other words. Keep names, numbers and the form of the \
answer as they are.""",
    examples=(
        example(
            "Begin with the sum of the full prices. From the sum that a discount applies to, take that discount away; "
            "for 25% of 80, multiply 80 by 25 and divide by 100. Give the amount that remains to be paid.",
            SHOP, f"# The instruction\n{PRICES}",
        ),
        example(
            "Name the event and its time, and leave out greetings and reasons. Use no more than 12 words, and count "
            "them.", NOTICES, f"# The instruction\n{SHORT}",
        ),
    ),
)  # fmt: skip
