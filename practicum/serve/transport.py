"""Transports from a program to the operations of a space: over HTTP to a service, or to the store in a folder.

One process at a time opens a store, and listens at a socket in the store's folder. Other processes send requests to
this process. When this process ends, even by a kill, the next process with a request opens the store. A call to a
process that has ended is sent again, to the process that opens the store next. A repeated call is harmless: a repeated
report changes nothing, and a repeated note replaces the first note.
"""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from practicum.core.errors import RunBusy, StoreError, UsageError, received
from practicum.models.keys import require_private

if TYPE_CHECKING:
    import aiohttp

    from practicum.serve.answers import Answer
    from practicum.serve.api import Operation
    from practicum.serve.local import Local
    from practicum.serve.service import Service

PATIENCE = 30.0
"""Timeout (s) of an answer."""

RETRY = 0.05
"""Pause (s) between attempts to reach a store that another process is opening."""

MOST_ANSWER = 64 * 2**20
"""Largest size (bytes) of an answer of a service."""

ALL_ROLES = frozenset({"admin"})


class Unreachable(StoreError):
    """No process responds at the address or the socket."""


class Transport(ABC):
    """Transport to a space, open inside `async with`. `roles` are the roles of all requests to a store; requests to a
    service have the roles of the key. `agent` is the name of an agent's session if an agent, not a person, decides to
    make the requests; else None."""

    def __init__(self, base: str, roles: Collection[str], space: str | None, agent: str | None) -> None:
        self.roles, self.base, self.agent = frozenset(roles), base, agent
        self._headers = {"x-practicum-agent": "yes", "x-practicum-session": agent} if agent else {}
        if space:
            self._headers["x-practicum-space"] = space
        self._socket: str | None = None
        self._http: aiohttp.ClientSession | None = None

    @abstractmethod
    async def perform(
        self, operation: Operation, arguments: Mapping[str, Any], *, session: str | None = None, user: str | None = None
    ) -> Answer:
        """Run an operation, and return its answer. Arguments that are None are left out. Raise PracticumError if the
        operation fails."""

    @abstractmethod
    async def reach(self) -> None:
        """Prepare for the first operation. Raise PracticumError if the preparation fails; the next operation then tries
        the preparation again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def _client(self) -> aiohttp.ClientSession:
        """Return the HTTP client, and create the client at the first call."""
        await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        if self._http is None:
            connector = None if self._socket is None else aiohttp.UnixConnector(self._socket)
            self._http = aiohttp.ClientSession(
                connector=connector, headers=self._headers, timeout=aiohttp.ClientTimeout(total=PATIENCE),
                cookie_jar=aiohttp.DummyCookieJar(),
            )  # fmt: skip
        return self._http

    async def _request(
        self, operation: Operation, arguments: Mapping[str, Any], session: str | None, user: str | None
    ) -> Answer:  # fmt: skip
        """Run an operation over HTTP, and return its answer. Raise UsageError if the arguments do not fit the form, or
        if the service refuses the request; Unreachable if no process responds; and StoreError if the operation
        fails."""
        from practicum.core.forms import read_form

        form = read_form(operation.form, {name: value for name, value in arguments.items() if value is not None})
        http = await self._client()
        import aiohttp

        named = {"x-practicum-session": session, "x-practicum-user": user}
        values = form.model_dump(mode="json", exclude_unset=True)
        sent: dict[str, Any] = {"params": _query(values)} if operation.verb == "GET" else {"json": values}
        headers = {name: value for name, value in named.items() if value is not None}
        try:
            async with http.request(
                operation.verb, self.base + operation.path, headers=headers, allow_redirects=False, **sent
            ) as response:
                status, raw = response.status, await _body(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else str(error)
            raise Unreachable("service.unreachable", why or "no answer in time") from error
        try:
            reply = json.loads(raw)
            if status < 300:
                return operation.answer.model_validate(reply)
            code, message, fields = received(reply["error"])
        except (ValueError, KeyError, TypeError, AttributeError):
            text = f"the answer is not from practicum serve (status {status}): check the address"
            code, message, fields = "service.invalid_answer", text, {}
        raise (StoreError if status < 300 or status >= 500 else UsageError)(code, message, **fields)


def _query(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer. Raise StoreError if the body has more than MOST_ANSWER bytes."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_ANSWER:
            raise StoreError("service.invalid_answer", f"the answer of the service has more than {MOST_ANSWER:,} bytes")
    return bytes(body)


class ServiceTransport(Transport):
    """Transport to the service at an address. `pass_key`: send the service's key in `x-practicum-key`, because the
    service passes the usual headers of keys on to the model server."""

    def __init__(
        self, address: str, space: str | None = None, key: str | None = None, *, pass_key: bool = False,
        roles: Collection[str] = ALL_ROLES, agent: str | None = None,
    ) -> None:  # fmt: skip
        base = address.rstrip("/").removesuffix("/v1").removesuffix("/mcp")
        if not urlsplit(base).hostname:
            raise UsageError(
                "service.invalid_address", f"{address!r} is not the address of a service: pass http://host:port"
            )
        if key or pass_key:
            require_private(base, "the service")
        super().__init__(base, roles, space, agent)
        if key:
            self._headers |= {"x-practicum-key": key} if pass_key else {"authorization": f"Bearer {key}"}

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers with the key and the space, for requests to models."""
        return self._headers

    async def perform(
        self, operation: Operation, arguments: Mapping[str, Any], *, session: str | None = None, user: str | None = None
    ) -> Answer:
        try:
            return await self._request(operation, arguments, session, user)
        except Unreachable as error:
            text = f"the service at {self.base} cannot be reached: {error}"
            raise Unreachable("service.unreachable", text) from error

    async def reach(self) -> None:
        # Nothing to check, because the service may start later.
        await self._client()


class StoreTransport(Transport):
    """Transport to the store in a folder. This process opens the store unless another process has it open. With
    `learner`, the name of a model, the store learns in the background while this process has it open. With
    `trust_users` and `trust_tools`, questions of end users and results of tools need no review."""

    def __init__(
        self, store: Path, space: str = "default", learner: str | None = None, *, trust_users: bool = False,
        trust_tools: bool = False, roles: Collection[str] = ALL_ROLES, agent: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__("http://localhost", roles, space, agent)
        self._headers["x-practicum-roles"] = ",".join(sorted(self.roles))
        self.store, self.space, self._learner = store, space, learner
        self._trust_users, self._trust_tools = trust_users, trust_tools
        self._socket: str = str(store / "socket")
        self._stack = AsyncExitStack()
        self._local: Local | None = None
        self.service: Service | None = None
        """The service, if this process has the store open."""
        self._opening: asyncio.Task[None] | None = None

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._opening is not None:
                await self._opening
        finally:
            await self._stack.aclose()
            await super().__aexit__(*error)

    async def perform(
        self, operation: Operation, arguments: Mapping[str, Any], *, session: str | None = None, user: str | None = None
    ) -> Answer:
        async with self._time_limit():
            while True:
                try:
                    if self._local is not None:
                        return await self._perform_here(self._local, operation, arguments, session, user)
                    return await self._request(operation, arguments, session, user)
                except Unreachable:
                    await self._connect()

    async def _perform_here(
        self, local: Local, operation: Operation, arguments: Mapping[str, Any], session: str | None, user: str | None
    ) -> Answer:
        from practicum.serve.api import perform

        session, screened = session or self.agent, self.agent is not None
        asked = await local.operation_call(self.roles, self.space, session, user, screened=screened)
        return await perform(operation, asked, {name: value for name, value in arguments.items() if value is not None})

    async def reach(self) -> None:
        async with self._time_limit():
            await self._connect()
        await self._client()

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(PATIENCE):
                yield
        except TimeoutError:
            raise StoreError(
                "store.busy",
                f"another process has the store {self.store} open and does not respond: end that process, or pass the "
                "address of practicum serve",
            ) from None

    async def _connect(self) -> None:
        """Wait until a process has the store open and responds. Open the store in this process if no other process has
        the store open."""
        while self._local is None:
            try:
                _, writer = await asyncio.open_unix_connection(self._socket)
            except OSError:
                self._opening = self._opening or asyncio.create_task(self._open_if_free())
                await asyncio.shield(self._opening)
            else:
                writer.close()
                return
            await asyncio.sleep(RETRY if self._local is None else 0)

    async def _open_if_free(self) -> None:
        """Open the store, unless another process has it open."""
        try:
            await self.open()
        except RunBusy:
            pass
        finally:
            self._opening = None

    async def open(self) -> Service:
        """Open the store in this process, and listen for requests of other processes. Raise RunBusy if another process
        has the store open."""
        await asyncio.to_thread(import_module, "practicum.serve.local")
        from practicum.serve.local import listening
        from practicum.serve.service import Service
        from practicum.serve.settings import ServiceSettings

        settings = ServiceSettings(
            store=self.store, folder=self.store, spaces=(self.space,), learn=self._learner is not None,
            learner=self._learner, trust_users=self._trust_users, trust_tools=self._trust_tools,
        )  # fmt: skip
        async with AsyncExitStack() as stack:
            service = Service(settings)
            stack.push_async_callback(service.close)
            await service.start()
            self._local = await stack.enter_async_context(listening(service, self.store))
            self._stack, self.service = stack.pop_all(), service
        return service
