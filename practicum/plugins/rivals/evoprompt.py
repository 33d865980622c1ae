"""EvoPrompt: a genetic algorithm over instructions; a model crosses two parents and mutates the result, and the best
instructions survive (Guo et al., 2024, section 3.2).

docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pydantic import Field

from practicum.core.edits import Entry
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import Method
from practicum.methods.worked_examples import CALENDAR, WORKSHOP
from practicum.plugins.rivals.ape import guesses
from practicum.plugins.rivals.examples import example
from practicum.plugins.rivals.search import BeamSettings, InstructionRequest, propose, roulette, search

DEMOS = 5
"""Number of cases from which an instruction of the first generation is inferred."""


class Settings(BeamSettings):
    steps: int = Field(default=11, ge=1)
    """Number of generations, including the first (paper: 10 after the first)."""
    candidates: int = Field(default=10, ge=1)
    """Number of new candidates per generation, each written by a separate call (paper: 10)."""
    beam: int = Field(default=10, ge=1)
    """Size of the population: number of best candidates, old and new, that are kept (paper: 10)."""


def method(s: Settings) -> Method:
    """Cross pairs of instructions, mutate the results, keep the best instructions."""

    def generation(
        candidates: Sequence[Entry], lessons: Sequence[Lesson], rng: random.Random
    ) -> list[InstructionRequest]:
        if len(candidates) < 2:
            return guesses(s.candidates, DEMOS, lessons, rng)  # fewer than two candidates, so no pair to cross
        return [crossed(*roulette(candidates, rng)) for _ in range(s.candidates)]

    return search("evoprompt", s, propose(generation, s.warmth))


def crossed(first: Entry, second: Entry) -> InstructionRequest:
    parts = (f"# First parent\n{first.text}", f"# Second parent\n{second.text}")
    return InstructionRequest(CROSS, parts, (first, second))


CROSS = Instructions(
    full="""\
You breed instructions for an agent. You see two parents, both of which work well. Make a child of them in two steps.

1. Cross them: write an instruction that takes parts from both. Where they differ, take what seems to help more.
2. Change it: alter a part of the result, such as a rule, the order, the form of the answer or the manner of \
speaking, so that the child says something that neither parent says.

Give the result of the second step only, as a whole instruction that can be used as it stands. It may have several \
lines. Do not say that it has parents.""",
    small="""\
You breed instructions for an agent. Put what is best in the two parents together, then change a part of the result. \
Write the child whole. Name no single task or answer.""",
    examples=(
        example(
            "Write the start of an event as 2026-05-09T14:30. If a tool returns an error, correct the call. Then tell "
            "the user in one sentence what was done.",
            CALENDAR, "# First parent\nWrite the start of an event as 2026-05-09T14:30.",
            "# Second parent\nUse the tools you have, and tell the user in one sentence what you did.",
        ),
        example(
            "Ask first whether the part gets wet: near salt water take bronze. Otherwise take steel if it has to be "
            "hard or to carry much, and oak if not.",
            WORKSHOP, "# First parent\nTake bronze for everything outdoors.",
            "# Second parent\nThink of what the part has to carry, and name a hard material for heavy loads.",
        ),
    ),
)  # fmt: skip
