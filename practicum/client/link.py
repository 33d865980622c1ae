"""Link from a program to a space: a thread with a separate event loop, for sync and async programs.

Operations are sent over a transport. `ServiceLink` and `StoreLink` send the requests of wrapped clients in different
ways. The same coroutines serve sync and async programs: a coroutine waits by calling a function that the caller passes
(see `Wait`). If this function blocks, the coroutine never suspends (see `drive`).
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
"""Function that runs a coroutine in the thread of the link, and returns the result of the coroutine."""

Send = Callable[[Any], Awaitable[Any]]
"""Function that sends a request of httpx or httpx2, and returns the response before its body is read."""

logger = logging.getLogger("practicum.client")


class Link(ABC):
    """Base class of open links. `counts`: numbers of failures that did not stop the user's agent, by kind."""

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
        self, name: str, values: Mapping[str, Any], *, session: str | None = None, user: str | None = None
    ) -> Answer:
        """Run an operation and return its answer. Raises PracticumError."""
        return await self.transport.perform(operations()[name], values, session=session, user=user)

    @abstractmethod
    async def carry(self, request: Any, send: Send, wait: Wait) -> Any:
        """Send a request of the user's client, with learned text added, and return the response."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of the link, block until it ends, and return its result."""
        return self._submit(work).result()

    async def run_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """Call `run`. Sync programs pass this method as `Wait` to coroutines that `drive` executes."""
        return self.run(work)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of the link, without blocking the caller's event loop. The coroutine continues
        if the caller is cancelled, so that feedback is stored completely."""
        return await asyncio.shield(asyncio.wrap_future(self._submit(work)))

    def post(self, work: Callable[[], None]) -> None:
        """Schedule a function in the thread of the link, without waiting for it."""
        with suppress(RuntimeError):  # the link is closed
            self._loop.call_soon_threadsafe(work)

    def warn(self, kind: str, reason: object) -> None:
        """Count a failure that does not stop the user's agent. Log the first, second, fourth, eighth, ... failure of
        a kind."""
        self.counts[kind] += 1
        count = self.counts[kind]
        if not count & (count - 1):
            logger.warning("%s (%d so far): %s", kind, count, str(reason) or type(reason).__name__)

    def close(self) -> None:
        """Write pending data, and end the thread. A second call does nothing."""
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
            raise StoreError("space.closed", "the space is closed: open the space again with practicum.client.open")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def operations() -> Mapping[str, Operation]:
    """Return the table of operations. The table is imported at the first call, to keep the import of the client
    fast."""
    from practicum.serve.operations import OPERATIONS

    return OPERATIONS


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that only waits for blocking functions, without an event loop, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the coroutine suspended, but must only wait for blocking functions")
