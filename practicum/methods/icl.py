"""In-context learning: all solved training examples that fit the window, the same for every task (the ICL baseline of
ACE, section 4).

Deviation: examples are earlier turns of the chat, not one text, so that a small model keeps the format.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from practicum.engine.loop import Method
from practicum.methods.blocks.attempt import once, shown_answers
from practicum.methods.blocks.curate import append
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import as_experience
from practicum.methods.blocks.sample import everything, stream
from practicum.methods.blocks.show import answer, fitting_turns
from practicum.methods.settings import MethodSettings


class Settings(MethodSettings):
    """Settings of in-context learning."""

    TRACES: ClassVar = None
    NEEDS_LABELS: ClassVar[bool] = True

    window: int = Field(default=6000, ge=1)
    """The maximum number of tokens of the examples."""


def method(s: Settings) -> Method:
    """Build the method: one step that keeps all examples. Online, each task becomes an example after the attempt at
    it."""
    show = fitting_turns("examples", s.window)
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
