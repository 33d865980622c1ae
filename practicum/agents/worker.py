"""A thread for calls that may block. A user's function may hang: nothing waits for it then, not even the exit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _Call:
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[tuple[Any, BaseException | None]]

    def settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class WorkerThread:
    """Makes calls one after another in the same thread, so that objects bound to a thread (a SQLite connection, say)
    work. A cancelled call is left running in its thread, and the next call gets a new one."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """What the function returns or raises. An exception that would end the process (SystemExit) becomes a
        RuntimeError."""
        loop = asyncio.get_running_loop()
        call = _Call(function, loop, loop.create_future())
        if self._calls is None:
            self._calls = SimpleQueue()
            # A daemon, since Python waits for all other threads before it ends.
            Thread(target=_work, args=(self._calls,), name="practicum tool", daemon=True).start()
        self._calls.put(call)
        try:
            value, error = await call.outcome
        except asyncio.CancelledError:
            self.close()
            raise
        if error is not None:
            raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the thread end after its current call."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = call.function(), None
        except BaseException as error:
            outcome = None, error
        # The loop may be closed when a call that hung returns.
        with suppress(RuntimeError):
            call.loop.call_soon_threadsafe(call.settle, outcome)
        del call, outcome
