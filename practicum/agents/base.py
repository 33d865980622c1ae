"""Protocols of an agent, and of the part of a run that an agent may use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from practicum.core.counts import Count
from practicum.core.errors import AgentError
from practicum.core.types import Profile, Prompt, Task, Trace, Usage
from practicum.core.views import View
from practicum.core.words import fault

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class AgentRun(Protocol):
    """Part of `engine.run.Run` that agents use. `place` identifies the attempt and is an idempotency key: if an attempt
    is repeated after a crash, the repeated attempt has the place of the first attempt."""

    @property
    def place(self) -> str: ...

    @property
    def profile(self) -> Profile:
        """Profile of the run's models: `small` or `full`."""

    def room(self, role: str) -> int:
        """Return the estimated maximum number of tokens in a prompt to the model of this role."""

    def at(self, name: str) -> Self:
        """Return a run whose place is `name` below the place of this run."""

    async def ask(self, role: str, prompt: Prompt, schema: type[M], *, form: dict[str, Any] | None = None) -> M:
        """Call a model and return its answer as an object of `schema`. `form`: JSON schema that is sent to the model in
        place of the schema of `schema`."""

    async def ask_text(self, role: str, prompt: Prompt, grammar: str = "") -> str:
        """Call a model and return its answer as text. The grammar, in llama.cpp's notation, holds if the server can
        enforce it."""

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """Perform an action on the outside world, journal its result, and return the result as a JSON value. A resume
        performs the action again, because the state of the outside world may exist only in memory, but returns the
        journaled result."""

    async def once(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """Make a decision, journal it, and return it as a JSON value. A resume returns the journaled decision."""

    def restored(self, value: T) -> T:
        """Return the value with the original text in place of redacted parts, if the run stores the original text. The
        returned value may only be passed to the user's code."""

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """Return the semaphore that limits the number of concurrent uses of an endpoint to `most` (None: the
        concurrency of the run)."""


class TeamRun(AgentRun, Protocol):
    """Part of `engine.run.Run` that teams use. The agents of a team work concurrently; a single agent makes its calls
    one after another."""

    def count(self, counter: Count, number: int = 1) -> None:
        """Add a number to a counter of the report."""

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Self], Awaitable[T]]]]) -> list[T]:
        """Run named jobs concurrently, each at its own place. Return the results in the order of the jobs."""


class Agent(Protocol):
    """Protocol of an agent under training. `journaled`: whether the run must journal the agent's results, because the
    agent has effects other than `run.ask`. `moves`: whether the workers of a cluster can run the agent's attempts.
    `max_turns`: maximum number of model calls in an attempt. `identity`: the agent's name in the journal."""

    @property
    def journaled(self) -> bool: ...

    @property
    def moves(self) -> bool: ...

    @property
    def max_turns(self) -> int: ...

    @property
    def identity(self) -> str: ...

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace: ...


_USAGE = TypeAdapter(Usage)


def reported_usage(trace: Trace) -> Usage:
    """Return the usage of the model calls that an agent made without the run, which the agent reports as
    `trace.data["usage"]`. Raise AgentError if the report is not a usage."""
    try:
        return _USAGE.validate_python(trace.data.get("usage", {}))
    except ValidationError as error:
        raise AgentError("agent.invalid_answer", f"`usage` of the agent's trace: {fault(error)}") from error
