"""ProTeGi: text gradients and a beam. What is wrong with each instruction of the beam is put into words, new ones
correct it, and a bandit chooses among them (Pryzant et al., 2023, sections 2.1 to 2.3).

docs/methods/protegi.md says what differs from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from practicum.blocks.act.show import answer
from practicum.blocks.reflect.examples import HINGE, SHOP, WORKSHOP
from practicum.blocks.sample.orders import drawn
from practicum.core.types import Instructions, Turn
from practicum.engine.loop import Method
from practicum.plugins.rivals.ape import VARY
from practicum.plugins.rivals.bandit import Bandit, keep_best_by
from practicum.plugins.rivals.examples import CUPS_WRONG, EDITED
from practicum.plugins.rivals.expansion import NONE, Criticism, Expansion, by_criticism, expanded, gradients
from practicum.plugins.rivals.instruction_search import SearchSettings
from practicum.plugins.rivals.search import best_instruction, each_once


class Settings(SearchSettings):
    SMALL: ClassVar[Mapping[str, Any]] = {
        "steps": 4, "batch": 16, "gradients": 2, "paraphrases": 1, "successors": 4,
        "rounds": 4, "arms": 4, "samples": 8,
    }  # fmt: skip

    steps: int = Field(default=6, ge=1)
    """The number of steps (paper: 6)."""
    batch: int = Field(default=64, ge=1)
    """Tasks of a step, drawn anew for each: all instructions of the beam are tried on them (paper: 64)."""
    beam: int = Field(default=4, ge=1)
    """The number of instructions kept: the best ones (paper: 4)."""
    gradients: int = Field(default=4, ge=1)
    """Criticisms of each instruction of the beam, of which each gives an edit (paper: 4)."""
    errors: int = Field(default=4, ge=1)
    """Failures that a criticism is drawn from (paper: 4)."""
    paraphrases: int = Field(default=2, ge=0)
    """Paraphrases of each edit (paper: 2)."""
    successors: int = Field(default=8, ge=1)
    """Successors of each instruction of the beam that go to the bandit, drawn by chance (paper: 8)."""
    rounds: int = Field(default=8, ge=1)
    """Rounds of the bandit (the authors' code: 8)."""
    arms: int = Field(default=8, ge=1)
    """Instructions that are tried in a round: those with the highest upper confidence bound (the authors' code: 8)."""
    samples: int = Field(default=32, ge=1)
    """Tasks on which each of them is tried in a round (the authors' code: 32)."""


def method(s: Settings) -> Method:
    """Say what is wrong, edit against it, paraphrase, keep the best."""
    attempt = each_once(answer(best_instruction))
    how = Expansion(s.gradients, s.errors, s.paraphrases, s.successors)
    return Method(
        name="protegi",
        sample=drawn(s.steps, s.batch, anew=True),
        act=answer(best_instruction),
        attempt=attempt,
        reflect=gradients(by_criticism(GRADIENT), how, attempt),
        update=expanded(EDIT, VARY, how, s.warmth),
        accept=keep_best_by(Bandit(s.rounds, s.arms, s.samples), attempt, s.beam),
        roles=("curator", "reflector"),
        costs="trying the beam on the batch, criticisms, edits, paraphrases, trying these by a bandit",
    )


CRITICISED = (
    Turn(
        f"{SHOP}\n\n# The instruction\nAnswer with the discount.\n\n# What failed under it\n{CUPS_WRONG}",
        Criticism(
            reasons="It asks for the discount, but what is left to pay is wanted. It does not say that the prices are "
            "to be added first."
        ).model_dump_json(),
    ),
    Turn(
        f"{WORKSHOP}\n\n# The instruction\n{NONE}\n\n# What failed under it\n{HINGE}",
        Criticism(
            reasons="Nothing says what a material has to stand. Steel is strong, but it rusts in salt air; the agent "
            "needed to know that such parts are made of bronze."
        ).model_dump_json(),
    ),
)
"""What is wrong with two instructions."""

GRADIENT = Instructions(
    full="""\
You find out why an instruction fails. You see the instruction that an agent works under, and tasks at which the \
agent failed with it, each with what it did and what came of that.

Say what it is about the instruction that led to these failures: what it does not say and the agent needed, what it \
says wrongly or so that it can be misread, what it says that does not matter and leads astray. Give every reason that \
the failures support, the most important first. Be exact about what would have helped, with the facts, rules, steps \
or formulas that are missing. Do not write a new instruction.""",
    small="""\
An agent failed at tasks because its instruction was not good enough. Say why the instruction led to these failures, \
and what it lacks for tasks of this kind. Do not write a new instruction.""",
    examples=CRITICISED,
)

EDIT = Instructions(
    full="""\
You correct an instruction. You see the instruction that an agent works under, tasks at which the agent failed with \
it, and a criticism that says why. Write the whole instruction anew so that what the criticism finds is put right. \
Keep what the criticism does not touch. It must hold for other tasks of the same kind, so do not name the tasks you \
see. It may have several lines.""",
    small="""\
You mend an agent's instruction. You see it, what failed under it and what is wrong with it. Write a new version that \
puts right what is wrong. It is complete in itself, general, and keeps what works.""",
    examples=EDITED,
)
