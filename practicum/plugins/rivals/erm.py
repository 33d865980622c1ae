"""ERM, Exemplar-guided Reflection with Memory: typical failures are worked out before an instruction is criticised;
criticisms and worked failures that help are remembered, others forgotten (Yan et al., 2025, section 3).

docs/methods/erm.md says what differs from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from practicum.blocks.act.show import answer
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.examples import HINGE, SHOP, WORKSHOP
from practicum.blocks.sample.orders import drawn
from practicum.core.types import Instructions, Turn
from practicum.engine.loop import Method
from practicum.methods.settings import RetrievalSettings
from practicum.plugins.rivals.ape import VARY
from practicum.plugins.rivals.examples import CUPS_WRONG
from practicum.plugins.rivals.exemplars import (
    Exemplar,
    Reflected,
    by_exemplars,
    judging_exemplars,
    judging_feedback,
    remembering,
    with_exemplars,
)
from practicum.plugins.rivals.expansion import NONE, Expansion, expanded, gradients
from practicum.plugins.rivals.instruction_search import SearchSettings
from practicum.plugins.rivals.protegi import EDIT
from practicum.plugins.rivals.search import best_instruction, each_once, keep_best


class Settings(SearchSettings, RetrievalSettings):
    SMALL: ClassVar[Mapping[str, Any]] = {"steps": 4, "batch": 16, "feedback": 2, "recalled": 1, "k": 3}

    steps: int = Field(default=6, ge=1)
    """The number of steps."""
    batch: int = Field(default=50, ge=1)
    """Tasks on which every instruction is scored: the same ones in each step, drawn once."""
    beam: int = Field(default=4, ge=1)
    """The number of instructions kept: the best ones (paper: 4)."""
    errors: int = Field(default=8, ge=1)
    """Failures of an instruction that one reflection sees."""
    feedback: int = Field(default=4, ge=1)
    """The most criticisms that a reflection gives, each of which gives a new instruction."""
    recalled: int = Field(default=2, ge=0)
    """Remembered criticisms that each instruction is also edited by; 0: none."""
    k: int = Field(default=5, ge=0)
    """The number of exemplars that the agent is shown (paper: 5); 0: none."""


def method(s: Settings) -> Method:
    """Work out failures, criticise, edit by new and remembered criticism, keep the best and what helped."""
    attempt = each_once(answer(best_instruction))
    act = answer(with_exemplars(s.k))
    how = Expansion(1, s.errors, 0, s.feedback + s.recalled)
    return Method(
        name="erm",
        sample=drawn(s.steps, s.batch, anew=False),
        act=act,
        attempt=once(act),
        reflect=judging_exemplars(gradients(by_exemplars(REFLECT, s.feedback), how, attempt)),
        update=remembering(expanded(EDIT, VARY, how, s.warmth), s.recalled),
        accept=judging_feedback(keep_best(attempt, s.beam)),
        roles=("curator", "reflector"),
        costs="trying the beam on the batch, a reflection on each, an edit by each criticism, trying the edits",
    )


REFLECTED = (
    Turn(
        f"{SHOP}\n\n# The instruction\nAnswer with the discount.\n\n# What failed under it\nCase 1\n{CUPS_WRONG}",
        Reflected(
            exemplars=[Exemplar(case=1, solution="3 x 4 = 12, and 12 - 2 = 10.", answer="10")],
            feedback=["It asks for the discount, but what is left to pay is wanted: the sum less the discount."],
        ).model_dump_json(),
    ),
    Turn(
        f"{WORKSHOP}\n\n# The instruction\n{NONE}\n\n# What failed under it\nCase 1\n{HINGE}",
        Reflected(
            exemplars=[Exemplar(case=1, solution="Salt air rusts steel; bronze stands it.", answer="bronze")],
            feedback=["Nothing says what a material has to stand: parts near salt water are made of bronze."],
        ).model_dump_json(),
    ),
)
"""Failures worked out, and what they say about the instruction."""

REFLECT = Instructions(
    full="""\
You find out why an instruction fails. You see the instruction that an agent works under, and numbered cases at which \
the agent failed with it.

exemplars: choose the cases that show most, up to five and each of another kind, and work each of them out: every \
step that leads to the right result, with the facts and rules that it takes, and then the right answer, in exactly the \
form that is wanted.
feedback: with these solutions in mind, say what is wrong with the instruction. What does it not say that a solution \
needs, what does it say wrongly, and what leads astray? Make each point by itself, so exact that the instruction can \
be corrected by that point alone, and let no two points say the same. Do not write a new instruction.""",
    small="""\
An agent failed at tasks because its instruction was not good enough. First work out the most telling cases: how each \
is solved, and its right answer. Then say what the instruction lacks or says wrongly, a point each. Do not write a new \
instruction.""",
    examples=REFLECTED,
)
