"""Calls of the user's tools and environment, with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from practicum.core.calls import OwnThread
from practicum.core.errors import AgentError, PracticumError, UsageError


class UserCode:
    """Caller of the user's functions. Functions that are not async run one after another in the same thread
    (`core.calls.OwnThread`). `name`: name of the user's code in messages. `seconds`: timeout (s) of each `call`."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        self._thread = OwnThread("practicum tool")

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function with the timeout and return its result. Raise AgentError if the function raises or times
        out."""
        from pydantic_ai.exceptions import UserError

        clock = asyncio.timeout(self.seconds)
        try:
            async with clock:
                return await self.run(function)
        except PracticumError:
            raise
        except UserError as error:
            raise UsageError("tools.invalid", f"the tools of {self.name} cannot be used: {error}") from error
        except Exception as error:
            if clock.expired():
                raise AgentError(
                    "agent.timeout", f"{self.name} did not return within {self.seconds:g} s (`tool_timeout`)"
                ) from error
            raise AgentError("agent.failed", f"{self.name} raised {type(error).__name__}: {error}") from error

    async def enter(self, value: Any, stack: AsyncExitStack) -> Any:
        """Enter a value that is a context manager, and return the result of entering. The stack exits the context
        manager when the stack is closed. Return any other value unchanged."""
        for enter, leave in (("__aenter__", "__aexit__"), ("__enter__", "__exit__")):
            if hasattr(value, enter):
                entered = await self.call(getattr(value, enter))
                stack.push_async_callback(self.call, partial(getattr(value, leave), None, None, None))
                return entered
        return value

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function without a timeout. Async functions run in the event loop."""
        return await self._thread.call(function)

    def close(self) -> None:
        """End the thread after its current call."""
        self._thread.close()
