"""Calls of a user's functions, which may block, raise or hang: nothing waits for one that hangs, not even the exit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from practicum.core.errors import AgentError, PracticumError, UsageError

_Queue = SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]


class UserCode:
    """Calls functions that are not async one after another in the same thread, so that objects bound to a thread (a
    SQLite connection, say) work. A cancelled call is left running in its thread, and the next call gets a new one.
    `name` stands for the user's code in messages, and `seconds` bounds each `call`."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        self._calls: _Queue | None = None

    async def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns. Raises AgentError if it raises or takes too long."""
        from pydantic_ai.exceptions import UserError

        clock = asyncio.timeout(self.seconds)
        try:
            async with clock:
                return await self.run(function)
        except PracticumError:
            raise
        except UserError as error:
            raise UsageError(f"the tools of {self.name} cannot be used: {error}") from error
        except Exception as error:
            if clock.expired():
                raise AgentError(
                    f"{self.name} was not ready within the {self.seconds:g} s of `tool_timeout`"
                ) from error
            raise AgentError(f"{self.name} raised {type(error).__name__}: {error}") from error

    async def enter(self, value: Any, stack: AsyncExitStack) -> Any:
        """Enter a context manager, to be left with the stack; any other value is returned as it is."""
        for enter, leave in (("__aenter__", "__aexit__"), ("__enter__", "__exit__")):
            if hasattr(value, enter):
                entered = await self.call(getattr(value, enter))
                stack.push_async_callback(self.call, partial(getattr(value, leave), None, None, None))
                return entered
        return value

    async def run(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises; an async one runs in the event loop. An exception that would end the
        process (SystemExit) becomes a RuntimeError."""
        try:
            value = function() if inspect.iscoroutinefunction(function) else await self._run_in_thread(function)
            return await value if inspect.isawaitable(value) else value
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    async def _run_in_thread(self, function: Callable[[], Any]) -> Any:
        if self._calls is None:
            self._calls = SimpleQueue()
            # A daemon, unlike the threads of an executor: Python waits for all other threads before it ends.
            Thread(target=_work, args=(self._calls,), name="practicum tool", daemon=True).start()
        outcome: Future[Any] = Future()
        self._calls.put((function, outcome))
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        """Let the thread end after its current call."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _work(calls: _Queue) -> None:
    while (call := calls.get()) is not None:
        function, outcome = call
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(function())
            except BaseException as error:
                # A future cannot hold a StopIteration.
                usual = isinstance(error, Exception) and not isinstance(error, StopIteration)
                outcome.set_exception(error if usual else RuntimeError(f"{type(error).__name__}: {error}"))
        del call, function, outcome
