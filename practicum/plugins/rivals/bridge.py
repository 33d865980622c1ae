"""Adapter for methods whose search is a blocking loop in another package (`gepa`, `dspy`).

The package runs in a separate thread and requests coroutines. The coroutines run in the event loop one at a time, in
the order of the requests. So places, journal and budget are used in one thread only, and a resume works from the
journal if the package is deterministic. Output of the package is dropped, because standard output belongs to the
command.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.core.types import Attempt, Lesson, Task
from practicum.engine.loop import Batch, Clock, Losses, Method, StepReport, Validation
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once

AskModel = Callable[[Callable[[], Awaitable[Any]]], Any]
"""Function that the package's thread calls to run a coroutine function in the event loop. Returns the coroutine's
result."""

_Request = tuple[Callable[[], Awaitable[Any]], Future[Any]]


class Abandoned(BaseException):
    """Raised in the package's thread if the run stops the search early. Does not derive from Exception, because a
    package might catch an Exception and continue."""


@asynccontextmanager
async def bridged(work: Callable[[AskModel], object]) -> AsyncIterator[AsyncIterator[Any]]:
    """Run `work(ask)` in a thread, and yield an iterator over the results of the requested coroutines.

    The thread receives a result when the caller requests the next result from the iterator. If `work` raised an error,
    the iterator raises this error after the last result. At the end of the `async with` block, a thread that still runs
    is stopped at the thread's next request.
    """
    loop = asyncio.get_running_loop()
    requests: asyncio.Queue[_Request | None] = asyncio.Queue()
    request: _Request | None = None
    errors: list[Exception] = []
    over = False

    def ask(do: Callable[[], Awaitable[Any]]) -> Any:
        answer: Future[Any] = Future()
        loop.call_soon_threadsafe(requests.put_nowait, (do, answer))
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
            loop.call_soon_threadsafe(requests.put_nowait, None)

    async def results() -> AsyncIterator[Any]:
        nonlocal request, over
        while (request := await requests.get()) is not None:
            do, answer = request
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
            if request is not None and not request[1].done():
                request[1].set_exception(Abandoned())
            request = await requests.get()
            over = request is None


@contextmanager
def muted() -> Iterator[None]:
    """Drop the output of this thread to standard output and error; other threads are not affected."""
    mutes: dict[str, _Mute] = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        mutes[name] = stream if isinstance(stream, _Mute) else _Mute(stream)
        mutes[name].threads.add(threading.get_ident())
        setattr(sys, name, mutes[name])
    try:
        yield
    finally:
        for name, mute in mutes.items():
            mute.threads.remove(threading.get_ident())
            if not mute.threads and getattr(sys, name) is mute:
                setattr(sys, name, mute.stream)


class _Mute:
    """Stream that drops the output of some threads."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.threads: set[int] = set()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in self.threads else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@dataclass(eq=False)
class PackageSearch(ABC):
    """Schedule in which each step is an iteration of a package. `optimize` runs the package in a thread and requests
    coroutines, which run in the event loop. A step ends when a requested coroutine returns a StepReport."""

    method: Method
    tasks: Sequence[Task]
    context: Context
    run: Run
    validation: Validation | None

    @abstractmethod
    def optimize(self, ask: AskModel) -> None:
        """Run the search of the package. Called in the package's thread."""

    async def steps(self) -> AsyncIterator[StepReport]:
        """Run the search to the end, and yield the report of each step."""
        self.losses, self.step = Losses(self.run), 0
        self.begin()
        async with bridged(self.optimize) as results:
            async for result in results:
                if isinstance(result, StepReport):
                    yield result
                    self.begin()
        self.losses.close()

    def begin(self) -> None:
        """Start the next step."""
        self.step += 1
        self.at = self.run.at(f"step {self.step}")
        self.clock = Clock(self.at)
        self.attempts: list[Attempt] = []
        self.lessons: list[Lesson] = []

    async def compared(self, tasks: Sequence[Task], context: Context, name: str = "compared") -> list[Attempt]:
        """Return attempts for the comparison of candidates. If a judge gives the feedback, make ordinary attempts at
        the place `name`. Otherwise make evaluations: an evaluation calls no judge, and a run evaluates each context on
        a task only once."""
        if self.run.judged:
            return await once(self.method.act)(Batch(tuple(tasks)), context, self.at.at(name))
        split = "compared" if self.validation is None else "val"
        return await self.at.evaluate(self.method.act, split, tasks, context)

    def report(self, delta: Delta, arm: str | None, data: dict[str, Any], val: float | None) -> StepReport:
        """Apply the delta to the context and return the report of the step."""
        outcome = self.context.apply(delta)
        self.context = outcome.context
        return StepReport(
            self.step, Batch(tuple(r.task for r in self.attempts), arm=arm, data=data), tuple(self.attempts),
            tuple(self.lessons), outcome.context, outcome.applied, outcome.refused, (), self.clock.stop(), val,
        )  # fmt: skip
