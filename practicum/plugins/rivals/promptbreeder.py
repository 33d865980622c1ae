"""PromptBreeder: instructions evolve, and with them the advice by which they are changed. In binary tournaments a
changed copy of the better one takes the place of the other (Fernando et al., 2024, sections 3.1 and 3.2).

docs/methods/promptbreeder.md says what differs from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from practicum.core.types import Instructions
from practicum.engine.loop import Method
from practicum.plugins.rivals.breeding import Breeding, bred
from practicum.plugins.rivals.demonstrations import INDUCE
from practicum.plugins.rivals.examples import ADVISED, CONTINUED, FOLLOWED, STARTED
from practicum.plugins.rivals.instruction_search import BeamSettings, search


class Settings(BeamSettings):
    SMALL: ClassVar[Mapping[str, Any]] = {**BeamSettings.SMALL, "candidates": 2}

    steps: int = Field(default=21, ge=1)
    """The first generation, and the generations after it (paper: 20 to 30)."""
    candidates: int = Field(default=10, ge=1)
    """Tournaments of a generation: an instruction takes part in one of them at most."""
    beam: int = Field(default=20, ge=2)
    """The size of the population (paper: 50)."""

    def conflicts(self) -> Iterator[tuple[object, str]]:
        yield from super().conflicts()
        pairs = self.beam // 2
        many = self.given("candidates") and self.candidates > pairs
        yield many, f"a population of {self.beam} has {pairs} pairs for tournaments: lower candidates, or raise beam"


def method(s: Settings) -> Method:
    """Pair, compare, change the better one, replace the other."""
    how = Breeding(START, FOLLOW, CONTINUE, ADVISE, INDUCE, ADVICE, THINKING)
    return search(s, "promptbreeder", bred(how, s.beam, s.candidates, s.warmth))


ADVICE = (
    "Say the same in plainer words, as to somebody who does such work for the first time.",
    "Add the one step that people forget when they do such work.",
    "Leave out everything that does not change what is done.",
    "Turn it into a procedure: numbered steps, each with what it starts from and what it gives.",
    "Say how to check a result before it is given, and what to do if the check fails.",
    "Name the cases that are easily confused, and what tells them apart.",
    "Begin with what a good result is, and only then say how to get there.",
    "Make it bolder: change the approach itself, not the words.",
    "Add what an expert in the field knows and takes for granted.",
    "Say exactly in which form a result is given, and what must not be in it.",
)
"""Advice on how to change an instruction, for the first generation. Later advice is written by the model."""

THINKING = (
    "What would make this work simple?",
    "Divide the work into parts, and look at each by itself.",
    "Which mistakes are likely here, and how are they prevented?",
    "What have all cases in common, and in what do they differ?",
    "Work backwards from the result that is wanted.",
    "What does one have to know to do this, and what can be left out?",
    "How would a careful expert go about it, step by step?",
    "Look for the exception that breaks the obvious rule.",
)
"""Ways to think about the work."""

START = Instructions(
    full="""\
You write instructions for an agent. You see some cases of its work, a way to think about it, and perhaps a piece of \
advice on how instructions are written. Think about the cases in that way, follow the advice, and write one \
instruction that helps with other tasks of this kind. It is complete in itself, may have several lines, and names no \
single case.""",
    small="Write an instruction for an agent that does tasks like these. Think as you are told and follow the advice, "
    "if there is any. Write it whole. Name no single case.",
    examples=STARTED,
)

FOLLOW = Instructions(
    full="""\
You change the instruction that an agent works under, and you are given a piece of advice on how. Follow the advice. \
Write the whole instruction as it is after the change. It may become quite different; it has to stay an instruction \
for the same work, complete in itself.""",
    small="Change the instruction as the advice says. Write it whole, for the same work.",
    examples=FOLLOWED,
)

CONTINUE = Instructions(
    full="""\
You see a list of instructions for the same work of an agent; its heading says in which order they stand. Write the \
instruction that comes next. It goes on where the list leads, and differs from all that are in it. It is complete in \
itself, since nobody sees the list.""",
    small="You see a list of instructions for the same work. Write the one that comes next. It differs from all of "
    "them and is complete.",
    examples=CONTINUED,
)

ADVISE = Instructions(
    full="""\
You write advice on how an instruction for an agent is changed so that it gets better. Where you see a piece of \
advice, sum it up and improve it: make it more exact, more useful, or of another kind. Where you see cases of the \
agent's work and a way to think, say what instructions for such work should be changed in. The advice is about \
instructions of this kind in general, not about a single one. Write it as `instruction`.""",
    small="Write advice on how an instruction for an agent is made better. If you see advice, write better advice. "
    "Otherwise write advice for work like the cases. Write it as `instruction`.",
    examples=ADVISED,
)
