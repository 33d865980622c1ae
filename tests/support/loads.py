"""Clients of a learning service that runs as a process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
from serving import Reply, say_text

from practicum.core.edits import Add
from practicum.session.corrections import Correction
from practicum.store.versions import EDITS
from practicum.testing import ServerOptions, SimulatedServer, serve

CLIENTS, CASES = 6, 4
BACK = 120.0
"""Seconds until a server must answer again: 5, and the time for other tests on the same cores."""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Server:
    """A server process at a port, in front of an upstream of this process."""

    port: int
    behind: SimulatedServer
    http: aiohttp.ClientSession

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Headers are written with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.http.request(method, url, json=body, headers=named) as response:
            return Reply(response.status, response.headers, await response.read())

    async def ask(self, text: str, **headers: str) -> Reply:
        body = {"messages": [{"role": "user", "content": text}]}
        return await self.send("POST", "/v1/chat/completions", body, **headers)

    async def report(self, **report: Any) -> Reply:
        return await self.send("POST", "/v1/feedback", report)

    async def ready(self, ended: Callable[[], object]) -> None:
        """Wait until it answers."""
        async with asyncio.timeout(BACK):
            while True:
                assert not ended(), "the server ended"
                with suppress(aiohttp.ClientError):
                    if (await self.send("GET", "/health")).status == 200:
                        return
                await asyncio.sleep(0.01)


@asynccontextmanager
async def in_front(gap: float = 0.0, chunks: int = 8) -> AsyncIterator[Server]:
    """A port for a server, and its upstream. `gap` is the time between the chunks of a stream (s)."""
    options = ServerOptions(responder=say_text, chunks=chunks, gap=gap)
    async with serve(options) as behind, aiohttp.ClientSession() as http:
        yield Server(free_port(), behind, http)


@dataclass
class Load:
    """Clients at work, and their records: whether each report was acknowledged."""

    server: Server
    rng: Random
    up: asyncio.Event = field(default_factory=asyncio.Event)
    parked: int = 0
    replies: int = 0
    refused: int = 0
    """Reports that were refused while the database was away."""
    answered: set[str] = field(default_factory=set)
    """Interactions whose answer arrived, since the last start."""
    reports: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    """Interaction → acknowledged reports, in order."""
    unsure: set[Any] = field(default_factory=set)
    """Scores and targets that were sent when the server was killed: they may be stored, or not."""
    hold: dict[str, list[str]] = field(default_factory=dict)
    """Question → the last acknowledged correction ("" for none), and later corrections in `unsure`."""
    versions: set[int] = field(default_factory=set)
    sends: int = 0

    async def work(self, client: int) -> None:
        """One client: it asks, and reports outcomes, one request after the other."""
        while True:
            if not self.up.is_set():
                self.parked += 1
                await self.up.wait()
                self.parked -= 1
            question = f"Which team handles case {self.rng.randrange(CASES)} of office {client}?"
            # A canary counts sessions, so there have to be new ones.
            session = f"{client} {self.sends // 20}"
            try:
                reply = await self.server.ask(question, x_practicum_session=session)
            except aiohttp.ClientError:
                await self.disconnected()
                continue
            assert reply.status == 200
            self.replies += 1
            if "x-practicum-version" not in reply.headers:
                # On busy cores the context was late, so the request passed unchanged and was not stored.
                continue
            self.versions.add(int(reply.headers["x-practicum-version"]))
            self.answered.add(reply.interaction)
            self.sends += 1
            match self.rng.randrange(4):
                case 0:
                    await self.report("score", self.rng.random(), session=session)
                case 1:
                    await self.report("score", self.rng.random(), interaction=reply.interaction)
                case _:
                    target = f"team {client}x{self.sends}x"
                    if await self.report("target", target, interaction=reply.interaction):
                        self.hold[question] = [target]
                    else:
                        self.hold.setdefault(question, [""]).append(target)

    async def report(self, name: str, value: Any, **about: str) -> bool:
        """Send a report; returns whether it was acknowledged."""
        self.unsure.add(value)
        try:
            reply = await self.server.report(**about, **{name: value})
        except aiohttp.ClientError:
            await self.disconnected()
            return False
        self.replies += 1
        self.refused += reply.status == 503
        # An interaction that its killed server had not written is unknown.
        assert reply.status in (200, 503) or (reply.status == 404 and "session" in about), reply.body
        if reply.status == 200:
            self.unsure.remove(value)
            self.reports.setdefault(reply.json["interaction"], []).append((name, value))
        return reply.status == 200

    async def disconnected(self) -> None:
        """A connection broke. Only a kill may break one."""
        assert not self.up.is_set(), "the server broke a connection, but was not killed"


def live_corrections(applied: Iterable[str]) -> list[Correction]:
    """The corrections that hold after these versions, each the edits of a row of the store."""
    held = dict[str, Correction]()
    for done in (done for row in applied for done in EDITS.validate_json(row)):
        if isinstance(done.edit, Add):
            held[done.id] = Correction.of(int(done.id[1:]), done.edit)
        else:
            del held[done.id]
    return [*held.values()]
