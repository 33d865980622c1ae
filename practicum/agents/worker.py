"""A thread for calls that block. A user's function may hang: then nobody should wait for it, not even at the exit."""

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
class _Job:
    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[tuple[Any, BaseException | None]]


class OneThread:
    """Makes calls one after the other, all in the same thread, so that what is bound to its thread (a SQLite
    connection, say) works. A call that was cancelled goes on where it is, and the next one gets a new thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] | None = None

    async def do(self, call: Callable[[], T]) -> T:
        """What the call gives or raises. What would end the process (SystemExit) becomes a RuntimeError."""
        loop = asyncio.get_running_loop()
        job = _Job(call, loop, loop.create_future())
        if self._jobs is None:
            self._jobs = SimpleQueue()
            # A daemon, since Python waits for all other threads before it ends.
            Thread(target=_work, args=(self._jobs,), name="practicum tool", daemon=True).start()
        self._jobs.put(job)
        try:
            value, error = await job.outcome
        except asyncio.CancelledError:
            self.close()
            raise
        if error is not None:
            raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the thread end after what it is at."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = job.call(), None
        except BaseException as error:
            outcome = None, error
        # The loop may be gone when a call that hung comes back.
        with suppress(RuntimeError):
            job.loop.call_soon_threadsafe(_settle, job, outcome)
        del job, outcome


def _settle(job: _Job, outcome: tuple[Any, BaseException | None]) -> None:
    if not job.outcome.done():
        job.outcome.set_result(outcome)
