"""Runs a library whose own loop blocks beside an event loop that must not block.

The library runs in a thread and asks for coroutines, which run in the event loop one at a time, in the order in which
they are asked for. So places, journal and budget stay in one thread, and if the library repeats itself given the same
answers, the journal resumes it. What the library prints is dropped: standard output belongs to the command.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TextIO, cast

Ask = Callable[[Callable[[], Awaitable[Any]]], Any]
"""Called in the thread: runs a coroutine function in the event loop and returns its result."""

_Question = tuple[Callable[[], Awaitable[Any]], Future[Any]]


class Abandoned(BaseException):
    """Nobody answers any more. Not an Exception, which a library may catch to go on."""


@asynccontextmanager
async def bridged(work: Callable[[Ask], object]) -> AsyncIterator[AsyncIterator[Any]]:
    """Run `work(ask)` in a thread.

    Gives an iterator over the results of what it asks for. The thread gets a result when the iteration goes on. The
    iteration ends by raising what `work` raised, if anything; leaving the context ends the thread when it asks again.
    """
    loop = asyncio.get_running_loop()
    asked: asyncio.Queue[_Question | None] = asyncio.Queue()
    question: _Question | None = None
    errors: list[Exception] = []
    over = False

    def ask(do: Callable[[], Awaitable[Any]]) -> Any:
        answer: Future[Any] = Future()
        loop.call_soon_threadsafe(asked.put_nowait, (do, answer))
        return answer.result()

    def run() -> None:
        try:
            with muted():
                work(ask)
        except Abandoned:
            return
        except Exception as error:
            errors.append(error)
        finally:
            loop.call_soon_threadsafe(asked.put_nowait, None)

    async def results() -> AsyncIterator[Any]:
        nonlocal question, over
        while (question := await asked.get()) is not None:
            do, answer = question
            result = await do()
            yield result
            answer.set_result(result)
        over = True
        if errors:
            raise errors[0]

    threading.Thread(target=run, daemon=True).start()
    try:
        yield results()
    finally:
        while not over:
            if question is not None and not question[1].done():
                question[1].set_exception(Abandoned())
            question = await asked.get()
            over = question is None


@contextmanager
def muted() -> Iterator[None]:
    """Drop what this thread writes to standard output and error; other threads write as before."""
    mutes = _Mute(sys.stdout), _Mute(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, mutes[0]), cast(TextIO, mutes[1])
    try:
        yield
    finally:
        for mute in mutes:
            mute.thread = None
        # A mute below that of another bridge is removed together with that one.
        sys.stdout, sys.stderr = _unmuted(sys.stdout), _unmuted(sys.stderr)


def _unmuted(stream: TextIO) -> TextIO:
    while isinstance(stream, _Mute) and stream.thread is None:
        stream = stream.stream
    return stream


class _Mute:
    """A stream that drops what the thread that made it writes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.thread: int | None = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
