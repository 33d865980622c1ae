"""Agents at /mcp, over streamable HTTP: each request is answered by itself, with JSON.

The session of a client is a name alone, which pins the version that it sees; nothing is kept of it. What is too much is
refused before it is read, so that agents cannot take the processor from the requests that pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from practicum.serve.access import Rates
from practicum.serve.admission import RequestRefused
from practicum.serve.answers import Answer
from practicum.serve.api import MOST_BODY, Asked, Operation, perform
from practicum.serve.call import ServedCall

MOST_SENT, SECONDS = 100, 2
"""Requests that each key may send to /mcp in so many seconds. One takes 3 to 4 ms of the processor."""

_ASKED = "practicum.asked"


@dataclass(frozen=True)
class Inside:
    """A caller whose service is in this process."""

    asked: Asked

    @property
    def roles(self) -> Collection[str]:
        return self.asked.grant.roles

    async def perform(self, operation: Operation, given: Mapping[str, Any]) -> Answer:
        return await perform(operation, self.asked, given)


class Agents:
    """What answers agents. Use `running` around it. It is loaded when the first one asks, which takes half a second."""

    def __init__(self) -> None:
        self._sent = Rates()
        self._loading, self._ends = asyncio.Lock(), asyncio.Event()
        self._manager: Any = None
        self._serving: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A block in which requests are answered."""
        try:
            yield
        finally:
            self._ends.set()
            if self._serving is not None:
                await self._serving

    async def _started(self) -> Any:
        """What reads and answers requests, by the protocol."""
        async with self._loading:
            if self._manager is None:
                manager, began = await asyncio.to_thread(_load), asyncio.Event()

                async def serve() -> None:
                    # In a task of its own: whatever fails in there ends no other request.
                    async with manager.run():
                        began.set()
                        await self._ends.wait()

                self._serving = asyncio.create_task(serve())
                await began.wait()
                self._manager = manager
        return self._manager

    async def answer(self, call: ServedCall, asked: Asked) -> None:
        """Answer a request. Raises RequestRefused, or TooMany."""
        counts = asked.service.counts
        counts["mcp_requests"] += 1
        limit = f"too many requests to /mcp of {asked.grant.name}"
        self._sent.take(asked.grant.digest, MOST_SENT, limit, SECONDS)
        if call.method == "DELETE":
            # The end of a session, of which nothing is kept.
            await call.begin(204, [])
            await call.write(b"")
            return
        if call.method != "POST":
            raise RequestRefused(
                "request.wrong_verb", "agents POST to /mcp, and nothing is sent unasked", (b"allow", b"POST, DELETE")
            )
        body: bytes | None = await call.body(MOST_BODY)
        # The first request of a client, which then repeats the name; newer protocols know no sessions.
        first = call.headers.keys().isdisjoint((b"mcp-session-id", b"mcp-protocol-version"))

        async def receive() -> MutableMapping[str, Any]:
            nonlocal body
            if body is None:
                return await call.receive()
            whole, body = body, None
            return {"type": "http.request", "body": whole, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                counts["refused_mcp_requests"] += message["status"] >= 400
                if first and message["status"] == 200:
                    session = f"mcp-{uuid4().hex}".encode()
                    message["headers"] = [*message["headers"], (b"mcp-session-id", session)]
            await call.send(message)

        manager = self._manager or await self._started()
        await manager.handle_request({**call.scope, _ASKED: asked}, receive, send)


def _load() -> Any:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from practicum.serve.mcp import make_server

    server = make_server(lambda ctx: Inside(ctx.request.scope[_ASKED]))
    return StreamableHTTPSessionManager(server, json_response=True, stateless=True)
