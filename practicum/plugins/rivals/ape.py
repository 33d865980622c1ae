"""APE: a model infers instructions from inputs with their right outputs; the instructions are scored, and the best are
paraphrased (Zhou et al., 2023, section 3).

docs/learn/methods/reproductions.md lists the differences from the paper.
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
    """Number of steps. The first step infers instructions; each later step paraphrases the best instructions."""
    candidates: int = Field(default=50, ge=1)
    """Number of new candidates per step, each written by a separate call (paper: 50)."""
    demos: int = Field(default=5, ge=1)
    """Number of cases (tasks with right answers, or attempts) that an instruction is inferred from; drawn again for
    each candidate (paper: 5)."""
    beam: int = Field(default=4, ge=1)
    """Number of best candidates that are kept after each step. The next step paraphrases these candidates."""


def method(s: Settings) -> Method:
    """Infer instructions from cases, then paraphrase the best instructions."""

    def guesses_or_variants(
        candidates: Sequence[Entry], lessons: Sequence[Lesson], rng: random.Random
    ) -> list[InstructionRequest]:
        if not candidates:
            return guesses(s.candidates, s.demos, lessons, rng)
        varied = [candidates[n % len(candidates)] for n in range(s.candidates)]
        return [InstructionRequest(VARY, (f"# The instruction\n{entry.text}",), (entry,)) for entry in varied]

    return search("ape", s, propose(guesses_or_variants, s.warmth))


def guesses(count: int, demos: int, lessons: Sequence[Lesson], rng: random.Random) -> list[InstructionRequest]:
    """Return requests for `count` instructions, each to be inferred from `demos` random cases."""
    drawn = [tuple(rng.sample(lessons, min(demos, len(lessons)))) for _ in range(count if lessons else 0)]
    return [InstructionRequest(INDUCE, (demonstrated(cases),), lessons=cases) for cases in drawn]


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
