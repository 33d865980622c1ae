"""The learning service in the event loop of a test, in front of a simulated upstream."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
from helpers import asynchronous as asynchronous
from helpers import prompt_of
from sqlalchemy import URL
from uvicorn.config import Config
from uvicorn.server import ServerState

from practicum.core.edits import Delta, Edit
from practicum.serve.access import Keys, read_keys
from practicum.serve.app import App
from practicum.serve.connections import Connection
from practicum.serve.mcp_http import Agents
from practicum.serve.service import Service
from practicum.serve.settings import ServiceSettings
from practicum.serve.site import Pages
from practicum.serve.spans import Spans
from practicum.serve.upstream import open_upstream
from practicum.session.amend import add_version
from practicum.store.database import Store
from practicum.store.snapshot import read_context
from practicum.testing import Answer, ServerOptions, SimulatedServer, serve

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"

TEXT = " ".join(f"Sentence {n} of the answer says what was asked." for n in range(1, 13))

Headers = Mapping[str, str]

Place = Mapping[str, Any]
"""The store and the folder of a service, as arguments of `served`."""


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def say_text(body: Any) -> str:
    """The answer of an upstream to everything, unless a test gives another."""
    return TEXT


@dataclass(frozen=True)
class Reply:
    """A response that was read."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def interaction(self) -> str:
        return self.headers["x-practicum-interaction"]

    @property
    def message(self) -> str:
        """The message of an error."""
        return str(self.json["error"]["message"])


@dataclass
class Served:
    """A service at an address, and its upstream with the received requests."""

    url: str
    service: Service
    upstream: SimulatedServer
    http: aiohttp.ClientSession
    keys: Keys

    async def send(self, method: str, path: str, body: Any = None, headers: Headers | None = None) -> Reply:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        # aiohttp warns of large bytes.
        data = BytesIO(data) if data and len(data) > 2**20 else data
        async with self.http.request(method, self.url + path, data=data, headers=headers) as response:
            return Reply(response.status, response.headers, await response.read())

    async def ask(self, text: Any, headers: Headers | None = None, **more: Any) -> Reply:
        """Ask in a chat of one message."""
        return await self.send("POST", CHAT, {"messages": [{"role": "user", "content": text}], **more}, headers)

    async def report(self, headers: Headers | None = None, **report: Any) -> Reply:
        return await self.send("POST", "/v1/feedback", report, headers)

    async def shown(self, text: Any, headers: Headers | None = None) -> str:
        """The prompt that the upstream receives for a question."""
        await self.ask(text, headers)
        return prompt(self.upstream.requests[-1].body)


def prompt(body: bytes) -> str:
    """All texts of a request."""
    return prompt_of(json.loads(body))


async def until(reached: Callable[[], object]) -> None:
    """Wait for a condition that other threads or tasks fulfil."""
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """An application at a free port, without signal handlers."""
    config = Config(app, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False)  # type: ignore[arg-type]
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(config, state, {}),  # type: ignore[call-arg,return-value]
        "127.0.0.1", 0, family=socket.AF_INET,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


@asynccontextmanager
async def served(
    store: Path | URL, responder: Callable[[Any], Answer] = say_text, *, keys: tuple[str, ...] = (),
    per_minute: int | None = None, pass_key: bool = False, address: str | None = None, silence: float = 60.0,
    spans: Spans | None = None, passing: tuple[str, ...] = (),
    **settings: Any,
) -> AsyncIterator[Served]:  # fmt: skip
    """A service on a store. Without `learn=True` it learns only when a test makes it."""
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(serve(ServerOptions(responder=responder, chunks=8, output_tokens=8)))
        how = ServiceSettings(**{"store": store, "folder": store, "learn": False, **settings})
        to = open_upstream(f"{address or behind.url}#sim", how.folder, silence)
        await to.start()
        stack.push_async_callback(to.close)
        service = Service(how, to)
        # A machine that runs other tests may be slow.
        service.late = service.opens = 10.0
        stack.push_async_callback(service.close)
        await service.start()
        checked = Keys(read_keys(keys), service.database, per_minute)
        checked.late = service.late
        agents, pages = Agents(), Pages(service, checked)
        await stack.enter_async_context(agents.running())
        stack.callback(pages.close)
        app = App(
            service, to, checked, pass_key=pass_key, passing=passing, pages=pages, agents=agents, spans=spans
        )  # fmt: skip
        url = await stack.enter_async_context(serving(app))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Served(url, service, behind, http, checked)


def add_learned(store: Store, *edits: Edit) -> None:
    """Add a version as learning does, which is not live before it was tried."""
    before = read_context(store)
    outcome = before.apply(Delta(edits))
    store.change(lambda at: add_version(at, before, outcome.context, outcome.applied, "learned on"))
