"""An agent's reflection on its own failed attempt, from its success or failure alone and not from the right answer
(Reflexion, Shinn et al. 2023, section 3; ExpeL, Zhao et al. 2024, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from practicum.blocks.reflect.evidence import evidence
from practicum.blocks.reflect.examples import CALENDAR, CLOSED, COAT, MEETING, NOTICES, SHOP
from practicum.blocks.reflect.per_trace import Reflector, judged_by_outcome
from practicum.core.bounded import MaxChars, Output, clean, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Feedback, Instructions, Lesson, Rollout, Round, Turn
from practicum.engine.run import Run


class SelfReflection(Output):
    """What an agent says to itself after a failed attempt, before it tries again."""

    reflection: Annotated[str, MaxChars(2_000)] = Field(
        description="what went wrong, why, and what to do the next time"
    )


class ShortSelfReflection(Output):
    """What an agent says to itself after a failed attempt, before it tries again."""

    kind: Annotated[str, MaxChars(80)] = Field(description="what kind of task this is, by its subject")
    diagnosis: Annotated[str, MaxChars(100)] = Field(description="what probably went wrong, and why")
    insight: Annotated[str, rule_schema(160, empty=False)] = Field(description="what to do the next time")

    @property
    def reflection(self) -> str:
        """What is kept of it."""
        return self.insight


def without_target(rollout: Rollout) -> Rollout:
    """The same attempts, with feedback that says whether they succeeded and not what would have been right. What an
    environment or a judge says stays."""
    rounds = (replace(one, feedback=one.feedback and _outcome(one.feedback)) for one in rollout.rounds)
    return replace(rollout, feedback=_outcome(rollout.feedback), rounds=tuple(rounds))


def _outcome(known: Feedback) -> Feedback:
    # The note of a scorer that knows the right answer may tell it.
    if known.target is None:
        return known
    return Feedback(known.success, f"The answer is {'right' if known.success else 'wrong'}.")


def by_self(told: Instructions) -> Reflector:
    """Ask the reflector about one attempt, without its right answer. It reads what it said about the task before. A
    reflection that fails or cannot be parsed is None, and counted."""

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        tried = evidence(without_target(rollout))
        before = "\n\n".join(one.lesson.text for one in earlier if one.lesson.text)
        said_before = [f"# Your earlier reflections on this task\n{before}"] if before else []
        prompt = told.prompt(run.profile, [*run.agent_instructions, *said_before, f"# The attempt\n{tried}"])
        form: type[SelfReflection | ShortSelfReflection]
        form = SelfReflection if run.profile == "full" else ShortSelfReflection
        said = await run.try_ask("reflector", prompt, form, Count.LOST_REFLECTIONS)
        if said is None:
            return None
        return Lesson(run.place, clean(said.reflection), tried, judged_by_outcome(rollout), rollout.sources)

    return reflect


def _example(told: str, attempt: str, kind: str, diagnosis: str, insight: str) -> Turn:
    said = ShortSelfReflection(kind=kind, diagnosis=diagnosis, insight=insight)
    return Turn(f"{told}\n\n# The attempt\n{attempt}", said.model_dump_json())


REFLECTED = (
    _example(
        SHOP, f"{COAT}\nAnswer: 20\nFeedback: The answer is wrong.",
        "a price after a discount", "20 is the discount, and what is left to pay was asked for",
        "If what is left to pay is asked for, subtract the discount from the price.",
    ),
    _example(
        CALENDAR, MEETING, "an event for the calendar", "the call failed because of the form of its start",
        "If a call returns an error about its start, write it as the error says and call again.",
    ),
    _example(
        NOTICES, CLOSED, "a notice with a limit of words", "greeting and reason took most of the words",
        "If a notice may have 12 words, leave out greeting and reason, and count the words.",
    ),
)  # fmt: skip
"""Reflections on three failures whose right answers are not known."""

SELF = Instructions(
    full="""\
You attempted a task and failed, and you will try it again. You see the task, what you did step by step, and what \
came of it. You are not told what would have been right, so find it out from the attempt itself.

Go through what you did. Find the step at which it went wrong, say why, and check it against the task and the \
observations, not against what you believed then. Then make a plan for the next try: what to do differently, in which \
order, and how to notice in time that it goes wrong again. Be concrete: name the calculation, the call with its \
arguments, the source or the condition that was overlooked. Where you have reflected on this task before, say why \
that did not help, and do not repeat it.

The next try begins anew and knows nothing of this one but your reflection, so it has to be understood by itself. It \
may have several lines, and up to 2,000 characters.""",
    small="""\
You failed at a task and will try it again. Reflect on what you did, so that you do better then. You are not told \
what would have been right.

kind: what kind of task it is. diagnosis: where you probably went wrong, and why. insight: what to do the next time, \
in one sentence: "If ..., ...".""",
    examples=REFLECTED,
)
