"""Agent for AppWorld (Trivedi et al., 2024) through AppWorld's environment server: the agent writes code, the server
runs it.

AppWorld needs pydantic 1, so it is installed in a separate environment and called over HTTP. A server holds one world
at a time, so each attempt uses a server exclusively. The final state holds the result of AppWorld's tests, which the
scorer `appworld` reads. Written against appworld 0.1.3.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from practicum.agents.base import AgentRun
from practicum.agents.guard import Approve
from practicum.agents.kinds import AgentKind, AgentOptions
from practicum.agents.limits import MAX_TURNS, TOOL_TIMEOUT, GuardTools
from practicum.agents.tools import ToolsAgent, guarded
from practicum.core.types import Task, Trace
from practicum.core.views import View
from practicum.plugins.environments.appworld.tasks import AppWorldServer, connect, parse_addresses

OPENING = 120.0
"""Extra time (s) that a call to the server may take, in addition to the timeout of the code that the call runs. The
first world of a server loads all apps, which took 27 s on a busy core."""

MAX_OUTPUT = 10_000
"""Maximum number of characters of one output of the code, in the prompt of a small model. The limit is high because API
descriptions are long."""

MAX_CODE = 8000
"""Maximum number of characters of code in one turn."""


@dataclass(frozen=True)
class AppWorldAgent:
    """Agent: a model that acts in AppWorld, in turns. The server stops code that runs longer than `tool_timeout` (s),
    and reports the stop in the output of the code."""

    addresses: tuple[str, ...]
    instructions: str = ""
    max_turns: int = MAX_TURNS
    tool_timeout: float = TOOL_TIMEOUT
    guard_tools: GuardTools = "off"
    approve: Approve | None = None
    journaled: bool = field(default=True, init=False)
    # The environment is a server, so the agent has no work that could move to a worker of a cluster.
    moves: bool = field(default=False, init=False)

    @property
    def identity(self) -> str:
        """Name of the agent in the journal. It does not depend on the address of the server."""
        return f"appworld {self.max_turns} {guarded(self.guard_tools)}{self.instructions}"

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        async with _borrowed_server(self.addresses, run) as address:
            agent = ToolsAgent(
                partial(_open_world, address, self.tool_timeout),
                f"the AppWorld server at {address}",
                self.instructions,
                max_turns=self.max_turns,
                tool_timeout=self.tool_timeout + OPENING,
                max_observation=MAX_OUTPUT,
                guard_tools=self.guard_tools,
                approve=self.approve,
            )
            return await agent(task, view, run)


@asynccontextmanager
async def _borrowed_server(addresses: Sequence[str], run: AgentRun) -> AsyncIterator[str]:
    """Reserve a server for one attempt and yield its address. All runs of this process share the servers."""
    slot = run.slot
    # At most len(addresses) attempts pass here at a time, so each attempt finds a free server.
    async with slot(f"appworld {' '.join(addresses)}", len(addresses)):
        address = next((each for each in addresses if not slot(each, 1).locked()), addresses[0])
        async with slot(address, 1):
            yield address


@asynccontextmanager
async def _open_world(address: str, seconds: float, task: Task) -> AsyncIterator[_AppWorld]:
    # Servers with the same root folder share an output folder, in which worlds with the same name would overwrite each
    # other. So the name contains the port of the server.
    name = f"practicum_{urlsplit(address).port or urlsplit(address).hostname}"
    async with connect(address) as server:
        await server.call("initialize", task.id, experiment_name=name, timeout_seconds=max(1, round(seconds)))
        try:
            yield _AppWorld(server, task.id)
        finally:
            await server.call("close", task.id)


@dataclass(frozen=True)
class _AppWorld:
    """World of one attempt, for `agents.environment`."""

    server: AppWorldServer
    id: str

    @property
    def tools(self) -> list[Callable[..., Any]]:
        return [self.execute]

    async def execute(self, code: Annotated[str, Field(max_length=MAX_CODE)]) -> str:
        """Run Python code in the world and see what it prints. Variables stay for the next call.

        Args:
            code: the code; `apis.<app>.<api>(...)` calls an app, and only what is printed is seen
        """
        return str(await self.server.call("execute", self.id, code=code))

    async def state(self) -> dict[str, Any]:
        # Evaluate once per attempt: the server caches the result, so a second call would miss later changes.
        return {"evaluation": await self.server.call("evaluate", self.id, suppress_errors=True)}


def _make(addresses: str, options: AgentOptions) -> AppWorldAgent:
    return AppWorldAgent(
        parse_addresses(addresses), options.instructions, options.max_turns, options.tool_timeout, options.guard_tools,
        options.approve,
    )  # fmt: skip


AGENT = AgentKind(_make, scorer="appworld")
