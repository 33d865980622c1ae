"""TextGrad: the instructions are a variable. Each attempt of a batch gets a criticism in words; the instructions are
rewritten with these and with earlier criticisms, and kept if they do no worse (Yuksekgonul et al., 2025, sections 2 and
3.3).

Deviations: one call criticises an answer and says what follows for the instructions, which it does not see; momentum
consists of the newest criticisms of earlier steps alone; the deciding trial is on the step's own tasks, and on held-out
tasks, as in the paper, with gate=true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from practicum.blocks.reflect.per_trace import by_model, per_trace
from practicum.blocks.search.candidates import RECALLED, history, keep_if_no_worse, with_feedback_history
from practicum.core.edits import Entry
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import Method
from practicum.methods.instruction_search import BeamSettings, SearchSettings, search


class Settings(SearchSettings):
    """Settings of TextGrad."""

    momentum: int = Field(default=4, ge=0)
    """The number of criticisms of earlier steps that are read again: the newest ones."""


def method(s: Settings) -> Method:
    """Criticise every attempt, rewrite, keep the new instructions if they do no worse."""
    one = BeamSettings(**s.model_dump(exclude={"momentum"}), candidates=1, beam=1)
    found = search(
        one, "textgrad", OPTIMIZER, criticisms, per_trace(by_model(Instructions(GRADIENT), rules_shown=False))
    )
    return replace(
        found,
        update=with_feedback_history(found.update, s.momentum),
        accept=keep_if_no_worse,
        costs="a criticism for each task, one rewrite, and trying it on the batch",
    )


def criticisms(candidates: Sequence[Entry], lessons: Sequence[Lesson]) -> str:
    fresh = "\n".join(f"- {x.data['diagnosis']}; {x.text}" for x in lessons if x.text and RECALLED not in x.data)
    before = "\n".join(f"- {x.text}" for x in lessons if RECALLED in x.data)
    return f"{history(candidates)}\n\n# Said before\n{before or '(nothing)'}\n\n# Said now\n{fresh or '(nothing)'}"


GRADIENT = """\
You criticise how an agent did a task, so that its instructions can be changed. Do not solve the task for it.

kind: what kind of task this is. correction: what the answer should have been like. insight: how the instructions \
should change because of this attempt, in one sentence: "If ..., ..."; empty where they served it well. \
diagnosis: what in the attempt was good or bad, and why. tags: leave empty."""

OPTIMIZER = """\
You improve one text, the instructions of an agent, by criticism of what the agent did under them. Write {most} new \
version. What is said now counts; what was said before, and is still true, must not be undone. Keep what nobody \
complains of, be general, and name no single task or answer."""
