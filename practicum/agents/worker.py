"""A thread for calls that may block. A user's function may hang: nothing waits for it then, not even the exit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any

_Queue = SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]


class WorkerThread:
    """Makes calls one after another in the same thread, so that objects bound to a thread (a SQLite connection, say)
    work. A cancelled call is left running in its thread, and the next call gets a new one."""

    def __init__(self) -> None:
        self._calls: _Queue | None = None

    async def run(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises; an async one runs in the event loop. An exception that would end the
        process (SystemExit) becomes a RuntimeError."""
        try:
            value = function() if inspect.iscoroutinefunction(function) else await self._call(function)
            return await value if inspect.isawaitable(value) else value
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    async def _call(self, function: Callable[[], Any]) -> Any:
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
