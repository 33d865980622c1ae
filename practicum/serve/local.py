"""Operations of a service for other processes of the same user, over a socket in the folder of the store.

Only one process opens a store. Other processes, such as `practicum mcp` in each window of an editor, send requests to
that process. A process that can reach the socket can read the folder too, so no keys are needed: each request names the
roles of the process that sends the request.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from practicum.core.errors import PracticumError, StoreError
from practicum.serve.access import Grant, Keys
from practicum.serve.api import OperationCall
from practicum.serve.call import ServedCall
from practicum.serve.http import AGENT, CALL, operation_routes
from practicum.serve.replies import status_of
from practicum.serve.request_checks import RequestRefused, require_clear
from practicum.serve.service import Service
from practicum.store.spaces import UnknownSpace

SOCKET = "socket"
"""Name of the socket in the folder of a store."""

ROLES = b"x-practicum-roles"
"""Header with the roles of a request, separated by commas."""

DRAIN = 5
"""Time (s) that a shutdown waits for requests in flight."""


class Local:
    """ASGI application with the operations of a service, for processes of the same user. A space that a request names
    is created if it does not exist."""

    def __init__(self, service: Service) -> None:
        self._service, self._keys = service, Keys({}, service.database)
        self._making = asyncio.Lock()
        self._router = Router(operation_routes(self._operation_call), redirect_slashes=False, default=_unknown)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = ServedCall(scope, receive, send, self._service.spaces.endings)
        try:
            require_clear(scope)
            await self._router({**scope, CALL: call}, receive, send)
        except PracticumError as error:
            status, headers = status_of(error)
            await call.answer(status, {"error": error.body()}, *headers)

    async def _operation_call(self, call: ServedCall) -> OperationCall:
        space = call.header(b"x-practicum-space") or self._service.settings.spaces[0]
        session, user = call.header(b"x-practicum-session"), call.header(b"x-practicum-user")
        roles = (call.header(ROLES) or "").split(",")
        return await self.operation_call(roles, space, session, user, screened=call.header(AGENT) is not None)

    async def operation_call(
        self, roles: Iterable[str], space: str, session: str | None, user: str | None, *, screened: bool
    ) -> OperationCall:  # fmt: skip
        """Return the context of an operation that a caller with `roles` requests. Create the space if it does not
        exist."""
        async with self._making:
            try:
                await self._service.spaces.opened(space)
            except UnknownSpace:
                await self._service.add_space(space)
        grant, endings = Grant("this program", "", frozenset(roles), ""), self._service.spaces.endings
        return OperationCall(self._service, self._keys, grant, space, endings, session, user, screened)


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    raise RequestRefused("request.unknown_path", f"unknown path {scope['path']:.200}")


class _EmbeddedServer(uvicorn.Server):
    """Server that does not handle signals, because the surrounding program handles them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(service: Service, folder: Path) -> AsyncIterator[Local]:
    """Accept requests of other processes of this user while the block runs. The service must have the store in `folder`
    open. Raise StoreError if the socket cannot be created."""
    path, local = folder / SOCKET, Local(service)
    sock = _bound(path)
    config = uvicorn.Config(
        local, lifespan="off", access_log=False, log_config=None, server_header=False, date_header=False,
        timeout_graceful_shutdown=DRAIN,
    )  # fmt: skip
    server = _EmbeddedServer(config)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield local
    finally:
        # Remove the socket while this process still has the store locked: later, another process may have put its own
        # socket at this path.
        path.unlink(missing_ok=True)
        server.should_exit = True
        await serving


def _bound(path: Path) -> socket.socket:
    """Return a socket that is bound to `path`. Only this user can access the socket. A socket that an ended process
    left at `path` is replaced."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Bind in a folder that other users cannot enter, because the mode of the socket can only be set after binding.
        with TemporaryDirectory(prefix=".", dir=path.parent) as private:
            bound = os.path.join(private, "s")
            sock.bind(bound)
            os.chmod(bound, 0o600)
            sock.listen(128)
            os.replace(bound, path)
    except OSError as error:
        sock.close()
        why = "the path is too long; choose a shorter path" if "too long" in str(error) else error.strerror or error
        raise StoreError("store.unwritable", f"cannot create a socket in the store {path.parent}: {why}") from error
    return sock
