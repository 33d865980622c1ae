"""OPRO: a model is the optimizer; it reads earlier instructions with their scores and writes better instructions (Yang
et al., 2024, section 2).

In a step, 8 calls write 8 new instructions. The prompt shows the 20 best instructions, the best last, and 3 tasks.
docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from practicum.core.edits import Entry
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import Method
from practicum.methods.worked_examples import CLOSED, NOTICES, SHOP
from practicum.plugins.rivals.examples import CUPS, PRICES, SHORT, example
from practicum.plugins.rivals.search import BeamSettings, InstructionRequest, demonstrated, history, propose, search

EXEMPLARS = 3
"""Number of tasks in the prompt that asks for an instruction, as in the paper."""

Settings = BeamSettings


def method(s: Settings) -> Method:
    """Read earlier instructions with their scores, write better instructions."""

    def trajectory(
        candidates: Sequence[Entry], lessons: Sequence[Lesson], rng: random.Random
    ) -> list[InstructionRequest]:
        shown = tuple(rng.sample(lessons, min(EXEMPLARS, len(lessons))))
        return [
            InstructionRequest(OPTIMIZER, (history(candidates), demonstrated(shown)), tuple(candidates), shown)
        ] * s.candidates

    return search("opro", s, propose(trajectory, s.warmth))


SO_FAR = "# Instructions so far, the best last"

OPTIMIZER = Instructions(
    full="""\
You optimize the instruction that an agent works under. You see earlier instructions, each with its score: the mean \
over the same tasks, from 0 to 100, higher is better. They stand in ascending order, the best last. After them come a \
few of the tasks, so that you know what the work is.

Find out what the better instructions have and the worse ones lack. Then write one new instruction that differs from \
all of these and will score higher than the best of them. The agent reads it before every task, in addition to what \
it is told already, so it must hold for all tasks of this kind and name no single one. It must be complete in itself, \
since no earlier instruction is shown beside it. It may be short or have several lines, whichever scores higher.""",
    small="""\
You look for the best instruction for an agent. You see earlier instructions with their scores from 0 to 100, the \
best last, and some tasks. Write one new instruction that differs from all of these and will score higher. It is \
complete in itself and general: no single task or answer is named in it.""",
    examples=(
        example(
            PRICES, SHOP, SO_FAR, "Score: 20\nCalculate carefully.", "Score: 60\nSubtract the discount from the price.",
            "# Inputs with their right outputs", f"Input: {CUPS}\nOutput: 10",
        ),
        example(SHORT, NOTICES, SO_FAR, "(none yet)", "# Attempts, with what is known of each", CLOSED),
    ),
)  # fmt: skip
