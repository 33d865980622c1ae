"""Agents at /mcp, over streamable HTTP: each request gets one answer, as JSON.

The session of a client is only a name, which determines the version that the client sees; no state is stored for the
session. Requests above the rate limit are refused before they are read, so that agents take little processor time from
proxied requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from practicum.serve.access import Rates
from practicum.serve.answers import Answer
from practicum.serve.api import MOST_BODY, Operation, OperationCall, perform
from practicum.serve.call import ServedCall
from practicum.serve.request_checks import RequestRefused

MOST_SENT, SECONDS = 100, 2
"""Rate limit of a key at /mcp: number of requests, and interval (s). A request takes 3 to 4 ms of processor time."""

_CALL = "practicum.operation_call"


@dataclass(frozen=True)
class LocalCaller:
    """Caller of the tools of a service that runs in this process."""

    call: OperationCall

    @property
    def roles(self) -> Collection[str]:
        return self.call.grant.roles

    async def perform(self, operation: Operation, arguments: Mapping[str, Any]) -> Answer:
        return await perform(operation, self.call, arguments)


class Agents:
    """Handler of requests of agents. Call `answer` inside the block `running`. The first request loads the SDK, which
    takes half a second."""

    def __init__(self) -> None:
        self._sent = Rates()
        self._loading, self._ends = asyncio.Lock(), asyncio.Event()
        self._manager: Any = None
        self._serving: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Handle requests inside the block."""
        try:
            yield
        finally:
            self._ends.set()
            if self._serving is not None:
                await self._serving

    async def _started(self) -> Any:
        """Return the SDK's session manager, and start the manager at the first call."""
        async with self._loading:
            if self._manager is None:
                manager, began = await asyncio.to_thread(_load), asyncio.Event()

                async def serve() -> None:
                    # The manager runs in a separate task, so that a failure of the manager does not cancel the current
                    # request.
                    async with manager.run():
                        began.set()
                        await self._ends.wait()

                self._serving = asyncio.create_task(serve())
                await began.wait()
                self._manager = manager
        return self._manager

    async def answer(self, call: ServedCall, operation_call: OperationCall) -> None:
        """Answer a request. Raise RequestRefused for a wrong verb or a body that is too large, and TooMany above the
        rate limit."""
        counts = operation_call.service.counts
        counts["mcp_requests"] += 1
        limit = f"too many requests to /mcp with the key {operation_call.grant.name}"
        self._sent.take(operation_call.grant.digest, MOST_SENT, limit, SECONDS)
        if call.method == "DELETE":
            # The client ends its session; no state needs to be deleted.
            await call.begin(204, [])
            await call.write(b"")
            return
        if call.method != "POST":
            raise RequestRefused(
                "request.wrong_verb",
                "/mcp supports only POST and DELETE; the server sends no streams",
                (b"allow", b"POST, DELETE"),
            )
        body: bytes | None = await call.body(MOST_BODY)
        # The first request of a client gets a session id, which later requests repeat. Newer versions of the protocol
        # have no session id.
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
        await manager.handle_request({**call.scope, _CALL: operation_call}, receive, send)


def _load() -> Any:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from practicum.serve.mcp import make_server

    server = make_server(lambda ctx: LocalCaller(ctx.request.scope[_CALL]))
    return StreamableHTTPSessionManager(server, json_response=True, stateless=True)
