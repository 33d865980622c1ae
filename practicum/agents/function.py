"""Any callable as an agent: `fn(input, context)` gives a text, a mapping with "answer", or a Trace; async or not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from practicum.agents.base import AgentRun
from practicum.agents.external import context_text, read_answer
from practicum.core.errors import AgentError, PracticumError
from practicum.core.types import Task, Trace
from practicum.core.views import View


def _wanted(fn: Callable[..., Any], told: dict[str, Any]) -> dict[str, Any]:
    """Those of the things told that it has a parameter for."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return {}  # written in C, without a signature
    return {name: value for name, value in told.items() if name in parameters}


@dataclass(frozen=True)
class FunctionAgent:
    """A function that blocks runs in a thread. One that has a parameter `place` gets it as an idempotency key; one with
    `annotated` or `noting` learns whether it is asked for "doubts" and "missing", or for a "note"; one with
    `instructions` gets those of the run, where it has any."""

    fn: Callable[..., Any]
    instructions: str = ""
    journaled: bool = field(default=True, init=False)
    turns: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{getattr(self.fn, '__module__', '?')}:{getattr(self.fn, '__qualname__', type(self.fn).__name__)}"

    @property
    def identity(self) -> str:
        """What the journal knows this agent by."""
        return " ".join([self.name, *_wanted(self.fn, self._instructed).values()])

    @property
    def _instructed(self) -> dict[str, str]:
        """Where the run has no instructions, the function's own default stands."""
        return {"instructions": self.instructions} if self.instructions else {}

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        told = {"place": run.place, "annotated": view.annotated, "noting": view.noting}
        extra = _wanted(self.fn, told | self._instructed)
        context = context_text(view)
        try:
            if inspect.iscoroutinefunction(self.fn):
                value = await self.fn(task.input, context, **extra)
            else:
                value = await asyncio.to_thread(self.fn, task.input, context, **extra)
                # An object whose call is async looks plain from outside, and gives something to wait for.
                value = await value if inspect.isawaitable(value) else value
        except PracticumError:
            raise
        except Exception as error:
            # The user's code may raise anything; on one task that is a failed attempt, not a crash of the batch.
            raise AgentError(f"{self.name} raised {type(error).__name__}: {error}") from error
        return read_answer(value, self.name, view)
