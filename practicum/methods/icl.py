"""In-context learning: as many solved training examples as fit the window, the same ones for every task
(the ICL baseline of ACE, section 4).

Deviation: examples are earlier turns of the chat, not one text, so that a small model keeps the format.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, fitting_turns
from practicum.blocks.attempt.attempt import once, shown_answers
from practicum.blocks.reflect.per_trace import as_experience
from practicum.blocks.sample.orders import everything, stream
from practicum.blocks.update.append import append
from practicum.engine.loop import Method
from practicum.methods.settings import MethodSettings


class Settings(MethodSettings):
    """Settings of in-context learning."""

    TRACES: ClassVar = None
    NEEDS_LABELS: ClassVar[bool] = True

    window: int = Field(default=6000, ge=1)
    """The most tokens of the examples."""


def method(s: Settings) -> Method:
    """Make one step that keeps all examples. Online, each task becomes an example after it was predicted."""
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
