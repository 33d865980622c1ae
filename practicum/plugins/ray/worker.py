"""Attempts on a worker: the agent and its tools run here, and request everything else from the run.

A job is a coroutine that pauses whenever it needs the run. The run starts or resumes the job with a call to the worker;
the call returns the job's next request, and the run's next call brings the answer. So each model call takes one round
trip, and the run does not need to listen on a port.
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
    """The worker's side of the exchange between a job and the run."""

    job: Job
    task: asyncio.Task[RayOutcome] | None = None
    redacted: dict[str, str] = field(default_factory=dict)
    opened: set[tuple[str, ...]] = field(default_factory=set)
    asked: asyncio.Future[RayRequest] = field(default_factory=asyncio.Future)
    answered: asyncio.Future[RayAnswer] = field(default_factory=asyncio.Future)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def open(self, at: tuple[str, ...]) -> None:
        if at in self.opened:
            raise PlaceTaken(
                "journal.place_taken",
                f"the place '{'/'.join(at)}' was opened twice: give each effect a different name",
            )
        self.opened.add(at)

    async def ask(self, request: RayRequest) -> Any:
        """Send a request to the run and return the run's answer. Requests are sent one at a time."""
        async with self.turn:
            self.asked.set_result(request)
            answer = await self.answered
            self.answered = asyncio.Future()
        self.redacted.update(answer.redacted)
        if answer.error is not None:
            raise answer.error
        return answer.value

    async def next_message(self) -> bytes:
        """Return the job's next request, or the job's outcome, as pickled bytes."""
        assert self.task is not None
        pending: list[asyncio.Future[Any]] = [self.task, self.asked]
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            return pickle.dumps(self.task.result())
        request, self.asked = self.asked.result(), asyncio.Future()
        return pickle.dumps(request)


@dataclass(frozen=True)
class WorkerRun:
    """Run for an attempt on a worker (`agents.base.AgentRun`), at the path `at_` below the place of the attempt."""

    exchange: _JobExchange
    at_: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return "/".join([self.exchange.job.place, *self.at_])

    @property
    def profile(self) -> Profile:
        return self.exchange.job.profile

    def room(self, role: str) -> int:
        return self.exchange.job.room

    def at(self, name: str) -> WorkerRun:
        at = (*self.at_, name)
        self.exchange.open(at)
        return WorkerRun(self.exchange, at)

    async def _ask(self, kind: Kind, name: str, *args: Any, opens: bool = True) -> Any:
        if opens:
            self.exchange.open((*self.at_, "", name))
        return await self.exchange.ask(RayRequest(kind, self.at_, name, args))

    async def ask(self, role: str, prompt: Prompt, schema: type[M], *, form: JSON | None = None) -> M:
        return await ask_for(self, role, prompt, schema, form)

    async def reply(
        self, role: str, prompt: Prompt, form: JSON, *, again: int = 0, temperature: float | None = None,
        output_tokens: int = 0,
    ) -> Reply:  # fmt: skip
        options = {"again": again, "temperature": temperature, "output_tokens": output_tokens}
        reply: Reply = await self._ask("reply", f"{role}~{again}", role, prompt, form, options)
        return reply

    async def mended(self, role: str) -> None:
        await self._ask("mended", f"{role} mended", role)

    async def give_up(self, role: str, problem: str, advice: str) -> OutputError:
        error: OutputError = await self._ask("give_up", role, role, problem, advice)
        return error

    async def ask_text(self, role: str, prompt: Prompt, grammar: str = "") -> str:
        return str(await self._ask("text", f"{role}~0", role, prompt, grammar))

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        return await self._ask("observed", name, await do())

    async def once(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        stored = await self._ask("recall", name, opens=False)
        return await self._ask("decided", name, await do()) if stored is None else stored

    def restored(self, value: T) -> T:
        return with_values(value, self.exchange.redacted) if self.exchange.redacted else value

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        # This semaphore never blocks: a worker sends its requests to the run, and each request waits there for a slot.
        return asyncio.Semaphore(1)

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors of unit length, shape (n, d)."""
        vectors: np.ndarray = await self._ask("embed", "vectors", tuple(texts))
        return vectors

    async def approve(self, call: GuardedCall) -> bool:
        """Return whether the user approves a tool call that the guard holds."""
        return bool(await self._ask("approve", "approval", call, opens=False))


_loaded: dict[str, Any] = {}
_exchanges: dict[str, _JobExchange] = {}


async def load(cargo: str, refs: Sequence[Any], threads: int) -> tuple[str, str] | None:
    """Load an agent or a scorer under the key `cargo`. Return None; if a module is missing, return the name of the
    module and the error.

    `threads` is the number of blocking functions that may run concurrently.
    """
    if cargo not in _loaded:
        [ref] = refs
        try:
            _loaded[cargo] = pickle.loads(await ref)
        except ImportError as error:
            return error.name or str(error), str(error)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
    return None


async def begin(key: str, cargo: str, data: bytes) -> bytes:
    """Start a job. Return the job's first request, or the job's outcome."""
    job: Job = pickle.loads(data)
    exchange = _exchanges[key] = _JobExchange(job, redacted=dict(job.redacted))
    exchange.task = asyncio.create_task(_outcome(_work(_loaded[cargo], job, WorkerRun(exchange))))
    return await _next_message(key, exchange)


async def answer(key: str, data: bytes) -> bytes:
    """Resume a job with the answer to the job's request. Return the job's next request, or the job's outcome."""
    exchange = _exchanges[key]
    exchange.answered.set_result(pickle.loads(data))
    return await _next_message(key, exchange)


async def cancel(key: str) -> None:
    """Cancel a job."""
    exchange = _exchanges.pop(key, None)
    if exchange is not None and exchange.task is not None:
        exchange.task.cancel()
        await asyncio.wait([exchange.task])


async def _next_message(key: str, exchange: _JobExchange) -> bytes:
    try:
        return await exchange.next_message()
    finally:
        if exchange.task is not None and exchange.task.done():
            _exchanges.pop(key, None)


async def _work(loaded: Any, job: Job, run: WorkerRun) -> Any:
    if job.trace is not None:
        return await loaded(job.task, job.trace, run)
    if isinstance(loaded, ToolsAgent) and job.approves:
        loaded = replace(loaded, approve=run.approve)
    trace: Trace = await loaded(job.task, job.view, run)
    return trace


async def _outcome(work: Coroutine[Any, Any, Any]) -> RayOutcome:
    try:
        return RayOutcome(await work)
    except PracticumError as error:
        return RayOutcome(error=error)
