"""The service of a folder, for other processes of the same user: its operations, at a socket in the folder.

One process has a store open. Others, such as the memory of an agent in each window of an editor, ask that one. Whoever
can reach the socket can read the folder, so there are no keys: each request says in which roles it is made.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn

from practicum.core.errors import PracticumError, StoreError
from practicum.serve.access import Forbidden, Grant, Keys
from practicum.serve.admission import RequestRefused, require_clear
from practicum.serve.app import AGENT, status_of
from practicum.serve.call import Receive, Send, ServedCall
from practicum.serve.operations import OPERATIONS, At, perform
from practicum.serve.service import Service
from practicum.store.spaces import UnknownSpace

SOCKET = "socket"
"""The socket in the folder of a store."""

ROLES = b"x-practicum-roles"
"""The header of a request that says in which roles it is made, with commas between them."""

DRAIN = 5
"""Seconds that requests in flight get at the end."""


class Local:
    """The operations of a service as an ASGI application. A space that a request names is made if there is none."""

    def __init__(self, service: Service) -> None:
        self._service, self._keys = service, Keys({}, service.database)
        self._making = asyncio.Lock()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        call = ServedCall(scope, receive, send, self._service.spaces.endings)
        try:
            require_clear(scope)
            await self._answer(call)
        except PracticumError as error:
            status, headers = status_of(error)
            await call.answer(status, {"error": error.body()}, *headers)

    async def _answer(self, call: ServedCall) -> None:
        if (operation := OPERATIONS.get((call.method, call.path))) is None:
            raise RequestRefused("request.unknown_path", f"there is nothing at {call.path:.200}")
        roles = (call.header(ROLES) or "").split(",")
        grant = Grant("this agent", "", frozenset(roles), "")
        if not grant.may(operation.role):
            raise Forbidden("key.forbidden", f"this takes the role {operation.role}", role=operation.role)
        space = call.header(b"x-practicum-space") or self._service.settings.spaces[0]
        async with self._making:
            try:
                await self._service.spaces.opened(space)
            except UnknownSpace:
                await self._service.add_space(space)
        session, screened = call.header(b"x-practicum-session"), call.header(AGENT) is not None
        at = At(self._service, self._keys, grant, space, call.endings, session, screened=screened)
        await call.answer(operation.status, await perform(operation, at, await call.given()))


class _EmbeddedServer(uvicorn.Server):
    """A server that leaves signals to the process that it is in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(service: Service, folder: Path) -> AsyncIterator[None]:
    """A block in which other processes of this user can ask the service, which has the store in `folder` open. Raises
    StoreError if there can be no socket."""
    path = folder / SOCKET
    sock = _bound(path)
    config = uvicorn.Config(
        Local(service), lifespan="off", access_log=False, log_config=None, server_header=False, date_header=False,
        timeout_graceful_shutdown=DRAIN,
    )  # fmt: skip
    server = _EmbeddedServer(config)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        # While the store is locked: the next one makes a socket of its own.
        path.unlink(missing_ok=True)
        server.should_exit = True
        await serving


def _bound(path: Path) -> socket.socket:
    """A socket at a path that this user alone can reach; one that somebody left there is replaced."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # First in a folder that nobody else can enter, since a socket has no mode before it is bound.
        with TemporaryDirectory(prefix=".", dir=path.parent) as private:
            made = os.path.join(private, "s")
            sock.bind(made)
            os.chmod(made, 0o600)
            sock.listen(128)
            os.replace(made, path)
    except OSError as error:
        sock.close()
        why = "its path is too long; choose a shorter one" if "too long" in str(error) else error.strerror or error
        raise StoreError("store.unwritable", f"no socket can be made in the store {path.parent}: {why}") from error
    return sock
