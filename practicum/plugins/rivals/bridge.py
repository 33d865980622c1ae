"""Searches whose loop is a package's (`gepa`, `dspy`), which blocks, beside an event loop that must not block.

The package runs in a thread and asks for coroutines, which run in the event loop one at a time, in the order in which
they are asked for. So places, journal and budget stay in one thread, and if the package repeats itself given the same
answers, the journal resumes it. What the package prints is dropped: standard output belongs to the command.
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
"""Called in the thread: runs a coroutine function in the event loop and returns its result."""

_Question = tuple[Callable[[], Awaitable[Any]], Future[Any]]


class Abandoned(BaseException):
    """The search has ended. Not an Exception, which a package may catch to go on."""


@asynccontextmanager
async def bridged(work: Callable[[AskModel], object]) -> AsyncIterator[AsyncIterator[Any]]:
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
    """A stream that drops what some threads write."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.threads: set[int] = set()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in self.threads else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@dataclass(eq=False)
class PackageSearch(ABC):
    """A schedule whose steps are the iterations of a package. The package calls `optimize` in its own thread, which
    asks for coroutines; these run in the event loop. A step ends when one of them returns its report."""

    method: Method
    tasks: Sequence[Task]
    context: Context
    run: Run
    validation: Validation | None

    @abstractmethod
    def optimize(self, ask: AskModel) -> None:
        """The package's search, in its own thread."""

    async def steps(self) -> AsyncIterator[StepReport]:
        """Run to the end."""
        self.losses, self.step = Losses(self.run), 0
        self.begin()
        async with bridged(self.optimize) as results:
            async for result in results:
                if isinstance(result, StepReport):
                    yield result
                    self.begin()
        self.losses.close()

    def begin(self) -> None:
        """Begin the next step."""
        self.step += 1
        self.at = self.run.at(f"step {self.step}")
        self.clock = Clock(self.at)
        self.attempts: list[Attempt] = []
        self.lessons: list[Lesson] = []

    async def compared(self, tasks: Sequence[Task], context: Context, name: str = "compared") -> list[Attempt]:
        """Attempts by which candidates are compared, each made once in a run. An evaluation asks no judge: if a judge
        gives the feedback, they are ordinary attempts at the place `name`."""
        if self.run.judged:
            return await once(self.method.act)(Batch(tuple(tasks)), context, self.at.at(name))
        split = "compared" if self.validation is None else "val"
        return await self.at.evaluate(self.method.act, split, tasks, context)

    def report(self, delta: Delta, arm: str | None, data: dict[str, Any], val: float | None) -> StepReport:
        """The step that ends with this delta."""
        outcome = self.context.apply(delta)
        self.context = outcome.context
        return StepReport(
            self.step, Batch(tuple(r.task for r in self.attempts), arm=arm, data=data), tuple(self.attempts),
            tuple(self.lessons), outcome.context, outcome.applied, outcome.refused, (), self.clock.stop(), val,
        )  # fmt: skip
