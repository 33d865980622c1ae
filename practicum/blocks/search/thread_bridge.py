"""A library whose own loop blocks, driven from a loop that must not.

The library runs in a thread. What it wants done it wishes for, and waits; wishes are fulfilled by whoever iterates over
the bridge, one at a time and in the order they are made. So places, journal and budget stay in one thread, and where a
library repeats itself for the same answers, the journal resumes it like anything else. What it prints is dropped: the
steps tell the same, and standard output belongs to the command.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TextIO, cast


class Abandoned(BaseException):
    """Nobody fulfils wishes any more. Not an Exception, which a library may catch and go on from."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the library waits for."""

    what: Any
    answer: Future[Any] = field(default_factory=Future)


class Bridge:
    """`work(ask)` runs in a thread, where `ask(what)` gives what the wish is fulfilled with. Iterate inside
    `async with`: leaving it ends the thread at its next wish. Raises at the end what `work` raised."""

    def __init__(self, work: Callable[[Callable[[Any], Any]], object]) -> None:
        self._work = work
        self._wishes: asyncio.Queue[Wish | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._pending: Wish | None = None
        self._over = False
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wish = self._pending
        while not self._over:
            if wish is not None and not wish.answer.done():
                wish.answer.set_exception(Abandoned())
            wish = await self._wishes.get()
            self._over = wish is None

    async def __aiter__(self) -> AsyncIterator[Wish]:
        while (wish := await self._wishes.get()) is not None:
            self._pending = wish
            yield wish
        self._over = True
        if self._error is not None:
            raise self._error

    def _ask(self, what: Any) -> Any:
        wish = Wish(what)
        self._loop.call_soon_threadsafe(self._wishes.put_nowait, wish)
        return wish.answer.result()

    def _run(self) -> None:
        try:
            with muted():
                self._work(self._ask)
        except Abandoned:
            return
        except Exception as error:
            self._error = error
        finally:
            self._loop.call_soon_threadsafe(self._wishes.put_nowait, None)


@contextmanager
def muted() -> Iterator[None]:
    """What this thread writes to standard output and error is dropped; other threads write as before."""
    deaf = _Deaf(sys.stdout), _Deaf(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, deaf[0]), cast(TextIO, deaf[1])
    try:
        yield
    finally:
        for one in deaf:
            one.thread = None
        # One that lies under another bridge's is taken off with that.
        sys.stdout, sys.stderr = _uncovered(sys.stdout), _uncovered(sys.stderr)


def _uncovered(stream: TextIO) -> TextIO:
    while isinstance(stream, _Deaf) and stream.thread is None:
        stream = stream.stream
    return stream


class _Deaf:
    """A stream that takes nothing from the thread that made it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.thread: int | None = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
