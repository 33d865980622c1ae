"""The agent without learning: the baseline of every comparison."""

from __future__ import annotations

from typing import ClassVar

from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.engine.loop import Method
from practicum.engine.run import ActSeam, Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import as_experience
from practicum.methods.blocks.sample import nothing, stream
from practicum.methods.blocks.show import answer, full_view
from practicum.methods.settings import MethodSettings


class Settings(MethodSettings):
    """Settings of the agent without learning."""

    TRACES: ClassVar = None
    NO_GATE: ClassVar[str] = "changes nothing that a gate could hold back"


def method(s: Settings) -> Method:
    """Build the method that answers each task with one call."""
    return unlearned("none", answer(full_view), s.online)


def unlearned(name: str, act: ActSeam, online: bool, calls: int = 1) -> Method:
    """Build a method that learns nothing. It shows the whole context, and attempts a task with `act`, in up to `calls`
    model calls. Offline, the method makes no step. Online, a step attempts one task after the other, and stores no
    lesson."""
    return Method(
        name=name,
        show=full_view,
        sample=stream(1) if online else nothing,
        act=act,
        attempt=once(act),
        reflect=as_experience,
        update=keep_nothing,
        accept=always,
        act_calls=calls,
        costs="nothing" if calls == 1 else f"nothing; an attempt makes up to {calls} calls",
    )


async def keep_nothing(lessons: object, context: Context, run: Run) -> Delta:
    """Return an empty delta."""
    return Delta()
