"""What an agent is, and the part of a run that it may use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

from pydantic import BaseModel

from practicum.core.counts import Count
from practicum.core.types import Profile, Prompt, Task, Trace
from practicum.core.views import View

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class AgentRun(Protocol):
    """The part of `engine.run.Run` that agents use. `place` names the attempt: the same attempt, repeated after a
    crash, has the same place, so it serves as an idempotency key."""

    @property
    def place(self) -> str: ...

    @property
    def profile(self) -> Profile:
        """What the models of the run can do."""

    def room(self, role: str) -> int:
        """The tokens that a prompt of this role may have, by estimate."""

    def at(self, name: str) -> Self:
        """The place `name` below this one."""

    async def ask(self, role: str, prompt: Prompt, schema: type[M], *, form: dict[str, Any] | None = None) -> M:
        """A model's answer as an object of this schema; `form` is the JSON schema that it is given, if another."""

    async def ask_text(self, role: str, prompt: Prompt, choices: Sequence[str] = ()) -> str:
        """A model's answer as plain text: one of the `choices`, if its server can hold it to them."""

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """What an action on the outside world returned, as a JSON value; journaled."""

    async def once(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """What a decision returned, as a JSON value; journaled, so that a resume does not ask for it again."""

    def restored(self, value: T) -> T:
        """The value with what its redacted parts stand for, if the user keeps that: for code of the user alone."""

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """Held while something is in flight at this endpoint."""


class TeamRun(AgentRun, Protocol):
    """The run of agents that work at once. A single agent makes one call after another."""

    def count(self, what: Count, number: int = 1) -> None:
        """Raise a counter of the report."""

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Self], Awaitable[T]]]]) -> list[T]:
        """Run named jobs at once, each at its own place; results in the order given."""


class Agent(Protocol):
    """An agent under training. `journaled`: the run must journal its results, because the agent does not act through
    `run.ask` alone. `moves`: it does work on its machine that the workers of a cluster can take over. `max_turns`: the
    most model calls of one attempt. `identity`: its name in the journal."""

    @property
    def journaled(self) -> bool: ...

    @property
    def moves(self) -> bool: ...

    @property
    def max_turns(self) -> int: ...

    @property
    def identity(self) -> str: ...

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace: ...
