"""The link from a program to a space: a thread with an event loop of its own, for programs with and without one.

Operations go over a transport. `ServiceLink` and `StoreLink` differ in how they carry the requests of a wrapped client.
A coroutine that is written once serves both kinds of programs: it waits by a function that it is given, and where that
function blocks, the coroutine ends without a pause.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from practicum.core.errors import StoreError
from practicum.serve.transport import Transport

if TYPE_CHECKING:
    from practicum.serve.answers import Answer
    from practicum.serve.api import Operation

T = TypeVar("T")

Wait = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]
"""Runs a coroutine in the thread of the link, and returns its result."""

Send = Callable[[Any], Awaitable[Any]]
"""Sends a request of httpx or httpx2, and returns the response before its body is read."""

logger = logging.getLogger("practicum.client")


class Link(ABC):
    """An open link. `counts` counts what failed and was no reason to stop the user's agent."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.counts: Counter[str] = Counter()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="practicum-client", daemon=True)
        self._thread.start()
        try:
            self.run(self._open())
        except BaseException:
            self._end()
            raise

    async def _open(self) -> None:
        await self.transport.__aenter__()

    async def _close(self) -> None:
        await self.transport.__aexit__()

    async def perform(
        self, name: str, given: Mapping[str, Any], *, session: str | None = None, user: str | None = None
    ) -> Answer:
        """The answer of an operation. Raises PracticumError."""
        return await self.transport.perform(operations()[name], given, session=session, user=user)

    @abstractmethod
    async def carry(self, request: Any, send: Send, wait: Wait) -> Any:
        """Send a request of the user's client with what was learned; returns the response."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of the link, and block until it ends."""
        return self._submit(work).result()

    async def run_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """`run` as a `Wait`, for coroutines that `drive` drives."""
        return self.run(work)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of the link, while the caller's event loop goes on. If the caller is cancelled,
        it goes on: feedback is not left half stored."""
        return await asyncio.shield(asyncio.wrap_future(self._submit(work)))

    def post(self, work: Callable[[], None]) -> None:
        """Run a function in the thread of the link, and do not wait for it."""
        with suppress(RuntimeError):  # the link is closed
            self._loop.call_soon_threadsafe(work)

    def warn(self, what: str, why: object) -> None:
        """Count a failure that the user's agent does not stop for. The log is told of the first, second, fourth, ..."""
        self.counts[what] += 1
        count = self.counts[what]
        if not count & (count - 1):
            logger.warning("%s (%d so far): %s", what, count, str(why) or type(why).__name__)

    def close(self) -> None:
        """Write what is left, and end the thread. A second call does nothing."""
        if not self._closed:
            try:
                self.run(self._close())
            finally:
                self._end()

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._closed:
            work.close()
            raise StoreError("space.closed", "this space is closed: open it again with practicum.client.open")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def operations() -> Mapping[str, Operation]:
    """The table of operations, which is loaded when it is first needed."""
    from practicum.serve.operations import OPERATIONS

    return OPERATIONS


def drive(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but functions that block."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a coroutine that was to block did wait")
