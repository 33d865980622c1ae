"""Tasks as demonstrations, from which an instruction can be guessed (APE, Zhou et al. 2023, section 3.1; OPRO, Yang et
al. 2024, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.blocks.reflect.evidence import evidence
from practicum.core.context import Context
from practicum.core.types import Instructions, Lesson, Rollout
from practicum.engine.run import Run
from practicum.plugins.rivals.examples import INDUCED


async def demonstrations(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """Each task with its right answer, if learning may see that, else the attempt at it with what is known of it. The
    detail of a lesson is the attempt, if it succeeded."""
    lessons = []
    for made in rollouts:
        right = made.task.target if run.labels else None
        if right is not None or not made.trace.lost:
            text = evidence(made) if right is None else f"Input: {made.task.input}\nOutput: {right}"
            data = {"right": right is not None}
            working = evidence(made) if made.feedback.success else ""
            lessons.append(Lesson(made.place, text, working, sources=made.sources, data=data))
    return lessons


def demonstrated(lessons: Sequence[Lesson]) -> str:
    """Demonstrations as a part of a prompt. A heading says whether the outputs are right or are attempts."""
    right = [x.text for x in lessons if x.data["right"]]
    attempts = [x.text for x in lessons if not x.data["right"]]
    parts = [("# Inputs with their right outputs", right), ("# Attempts, with what is known of each", attempts)]
    return "\n\n".join("\n\n".join([heading, *texts]) for heading, texts in parts if texts)


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
    examples=INDUCED,
)
