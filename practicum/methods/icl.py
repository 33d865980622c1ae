"""In-context learning: the whole history in the prompt, as far as the window goes (the ICL baseline of ACE, section 4).

Deviation: examples are earlier turns of the chat, not one text, so that a small model keeps the format.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from practicum.engine.loop import Method
from practicum.methods.blocks.attempt import once, shown_answers
from practicum.methods.blocks.curate import append
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import as_experience
from practicum.methods.blocks.sample import everything, stream
from practicum.methods.blocks.show import answer, fitting_turns
from practicum.methods.settings import MethodSettings, RetrievalSettings


class Settings(MethodSettings, RetrievalSettings):
    """Settings of in-context learning."""

    TRACES: ClassVar = None
    NEEDS_LABELS: ClassVar[bool] = True

    window: int | None = Field(default=None, ge=1)
    """The maximum number of tokens of the examples; none: the limit is the window of the agent's model."""
    first: Literal["newest", "nearest"] = "newest"
    """The examples to show if not all fit. newest: the last examples, the same for every task; nearest: the examples
    most similar to the task, the most similar last (the prompts of tasks then have no common prefix)."""


def method(s: Settings) -> Method:
    """Build the method: one step that keeps all examples. Online, each task becomes an example after the attempt at
    it."""
    show = fitting_turns("examples", s.window, s.first == "nearest")
    act = answer(show)
    return Method(
        name="icl",
        show=show,
        sample=stream(1) if s.online else everything,
        act=act,
        attempt=once(act) if s.online else shown_answers(act),
        reflect=as_experience,
        update=append("examples"),
        accept=always,
        costs="nothing",
    )
