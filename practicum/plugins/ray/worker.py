"""An attempt on a worker: the agent runs here with the tools and their world, and asks its run for all else.

A job is a coroutine that stops whenever it needs its run. What it asks for is what the call that woke it returns, and
the next call brings the answer: one exchange a model call, and nothing that the run has to listen to.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel

from practicum.agents.guard import GuardedCall
from practicum.agents.tools import ToolsAgent
from practicum.core.errors import OutputError, PlaceTaken, PracticumError
from practicum.core.redact import with_values
from practicum.core.types import Profile, Prompt, Trace
from practicum.engine.asking import ask_for
from practicum.models.client import JSON, Reply
from practicum.plugins.ray.messages import Job, Kind, RayAnswer, RayOutcome, RayRequest

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass
class _JobExchange:
    """A job's side of its exchange with the run."""

    job: Job
    task: asyncio.Task[RayOutcome] | None = None
    kept: dict[str, str] = field(default_factory=dict)
    opened: set[tuple[str, ...]] = field(default_factory=set)
    asked: asyncio.Future[RayRequest] = field(default_factory=asyncio.Future)
    answered: asyncio.Future[RayAnswer] = field(default_factory=asyncio.Future)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def open(self, at: tuple[str, ...]) -> None:
        if at in self.opened:
            raise PlaceTaken(
                "journal.place_taken",
                f"the place '{'/'.join(at)}' was opened twice: give each effect a name of its own",
            )
        self.opened.add(at)

    async def ask(self, request: RayRequest) -> Any:
        """What the run answers. One request is made at a time."""
        async with self.turn:
            self.asked.set_result(request)
            answer = await self.answered
            self.answered = asyncio.Future()
        self.kept.update(answer.kept)
        if answer.error is not None:
            raise answer.error
        return answer.value

    async def said(self) -> bytes:
        """What the job asks for next, or how it ended."""
        assert self.task is not None
        waited: list[asyncio.Future[Any]] = [self.task, self.asked]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            return pickle.dumps(self.task.result())
        request, self.asked = self.asked.result(), asyncio.Future()
        return pickle.dumps(request)


@dataclass(frozen=True)
class WorkerRun:
    """The run as an attempt on a worker sees it (`agents.base.AgentRun`), at the places `at` below the attempt."""

    line: _JobExchange
    at_: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return "/".join([self.line.job.place, *self.at_])

    @property
    def profile(self) -> Profile:
        return self.line.job.profile

    def room(self, role: str) -> int:
        return self.line.job.room

    def at(self, name: str) -> WorkerRun:
        at = (*self.at_, name)
        self.line.open(at)
        return WorkerRun(self.line, at)

    async def _ask(self, kind: Kind, name: str, *given: Any, opens: bool = True) -> Any:
        if opens:
            self.line.open((*self.at_, "", name))
        return await self.line.ask(RayRequest(kind, self.at_, name, given))

    async def ask(self, role: str, prompt: Prompt, schema: type[M], *, form: JSON | None = None) -> M:
        return await ask_for(self, role, prompt, schema, form)

    async def reply(
        self, role: str, prompt: Prompt, form: JSON, *, again: int = 0, temperature: float | None = None,
        output_tokens: int = 0,
    ) -> Reply:  # fmt: skip
        how = {"again": again, "temperature": temperature, "output_tokens": output_tokens}
        reply: Reply = await self._ask("reply", f"{role}~{again}", role, prompt, form, how)
        return reply

    async def mended(self, role: str) -> None:
        await self._ask("mended", f"{role} mended", role)

    async def give_up(self, role: str, problem: str, advice: str) -> OutputError:
        error: OutputError = await self._ask("give_up", role, role, problem, advice)
        return error

    async def ask_text(self, role: str, prompt: Prompt, choices: Sequence[str] = ()) -> str:
        return str(await self._ask("text", f"{role}~0", role, prompt, tuple(choices)))

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        return await self._ask("observed", name, await do())

    async def once(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        known = await self._ask("recall", name, opens=False)
        return await self._ask("decided", name, await do()) if known is None else known

    def restored(self, value: T) -> T:
        return with_values(value, self.line.kept) if self.line.kept else value

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        # What is asked of the run waits there for its turn.
        return asyncio.Semaphore(1)

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, shape (n, d)."""
        vectors: np.ndarray = await self._ask("embed", "vectors", tuple(texts))
        return vectors

    async def approve(self, call: GuardedCall) -> bool:
        """Whether somebody allows a call that is held."""
        return bool(await self._ask("approve", "approval", call, opens=False))


_loaded: dict[str, Any] = {}
_lines: dict[str, _JobExchange] = {}


async def load(cargo: str, refs: Sequence[Any], threads: int) -> tuple[str, str] | None:
    """Load an agent or a scorer under this name. `threads` is how many functions that block may run at once."""
    if cargo not in _loaded:
        [ref] = refs
        try:
            _loaded[cargo] = pickle.loads(await ref)
        except ImportError as error:
            return error.name or str(error), str(error)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
    return None


async def begin(key: str, cargo: str, data: bytes) -> bytes:
    """Begin a job; what it asks for first, or how it ended."""
    job: Job = pickle.loads(data)
    line = _lines[key] = _JobExchange(job, kept=dict(job.kept))
    line.task = asyncio.create_task(_outcome(_work(_loaded[cargo], job, WorkerRun(line))))
    return await _going_on(key, line)


async def answer(key: str, data: bytes) -> bytes:
    """Go on with a job."""
    line = _lines[key]
    line.answered.set_result(pickle.loads(data))
    return await _going_on(key, line)


async def cancel(key: str) -> None:
    """End a job."""
    line = _lines.pop(key, None)
    if line is not None and line.task is not None:
        line.task.cancel()
        await asyncio.wait([line.task])


async def _going_on(key: str, line: _JobExchange) -> bytes:
    try:
        return await line.said()
    finally:
        if line.task is not None and line.task.done():
            _lines.pop(key, None)


async def _work(thing: Any, job: Job, run: WorkerRun) -> Any:
    if job.trace is not None:
        return await thing(job.task, job.trace, run)
    if isinstance(thing, ToolsAgent) and job.approves:
        thing = replace(thing, approve=run.approve)
    trace: Trace = await thing(job.task, job.view, run)
    return trace


async def _outcome(work: Coroutine[Any, Any, Any]) -> RayOutcome:
    try:
        return RayOutcome(await work)
    except PracticumError as error:
        return RayOutcome(error=error)
