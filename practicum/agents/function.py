"""Any callable as an agent: `fn(input, context)` returns a text, a mapping with "answer", or a Trace; async or not."""

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


@dataclass(frozen=True)
class FunctionAgent:
    """Calls a function once for each attempt; one that is not async runs in a thread, so it may block.

    `fn` gets the task's input and the context as text, and these further arguments if it has a parameter of the name:

    - `place`: an idempotency key. An attempt that is repeated after a crash has the same place.
    - `annotated`: True if the answer should hold "doubts" and "missing"; `noting`: True if it should hold a "note".
    - `instructions`: the run's instructions, if it has any; else the parameter's own default holds.

    See `external.read_answer` for what it may return.
    """

    fn: Callable[..., Any]
    instructions: str = ""
    journaled: bool = field(default=True, init=False)
    max_turns: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        """The agent's name in messages."""
        return f"{getattr(self.fn, '__module__', '?')}:{getattr(self.fn, '__qualname__', type(self.fn).__name__)}"

    @property
    def identity(self) -> str:
        """The agent's name in the journal. It includes the instructions if the function is given them."""
        return " ".join([self.name, *self._accepted(self._instructions).values()])

    @property
    def _instructions(self) -> dict[str, str]:
        return {"instructions": self.instructions} if self.instructions else {}

    def _accepted(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values that the function has a parameter for."""
        try:
            parameters = inspect.signature(self.fn).parameters
        except (TypeError, ValueError):
            return {}  # written in C, without a signature
        return {name: value for name, value in values.items() if name in parameters}

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        offered = {"place": run.place, "annotated": view.annotated, "noting": view.noting, **self._instructions}
        extra = self._accepted(offered)
        context = context_text(view)
        try:
            if inspect.iscoroutinefunction(self.fn):
                value = await self.fn(task.input, context, **extra)
            else:
                value = await asyncio.to_thread(self.fn, task.input, context, **extra)
                # An object with an async __call__ is not a coroutine function, but its result must be awaited.
                value = await value if inspect.isawaitable(value) else value
        except PracticumError:
            raise
        except Exception as error:
            # The user's code may raise anything; on one task that is a failed attempt, not a crash of the batch.
            raise AgentError(f"{self.name} raised {type(error).__name__}: {error}") from error
        return read_answer(value, self.name, view)
