"""The memory of one agent, over standard input and output: what `practicum mcp` runs.

What the agent asks is asked of a service: one at an address, or that of a store. Editors start a process for each
window, and one process at a time has a store open. So the first one has it, and listens at a socket in its folder; the
others ask there. When the first one ends, even by a kill, the next that is asked opens the store. What was asked of the
one that ended is asked again, which does no harm: a report that is repeated changes nothing, and a note replaces
itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
from mcp.server.stdio import stdio_server

from practicum.core.errors import PracticumError, RunBusy, StoreError, UsageError
from practicum.models.keys import require_private
from practicum.serve.mcp import Route, make_server

PATIENCE = 30.0
"""Seconds that an answer may take."""

AGAIN = 0.05
"""Seconds until it is tried again to reach a store that somebody is about to open."""


class Away(StoreError):
    """Nobody answers."""


class Outside(ABC):
    """A caller whose service is asked over HTTP, within a block (`async with`)."""

    def __init__(self, base: str, roles: Collection[str], space: str | None, headers: Mapping[str, str]) -> None:
        self.roles = roles
        self._base = base
        own = {"x-practicum-session": f"mcp-{uuid4().hex}", "x-practicum-agent": "yes"}
        self._headers = {**headers, **own, **({"x-practicum-space": space} if space else {})}

    @abstractmethod
    async def ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        """What an operation tells. Raises PracticumError."""

    @abstractmethod
    async def reach(self) -> None:
        """Get ready for the first question. Raises PracticumError if there can be no answer to any."""

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=self._connector(), headers=self._headers, timeout=aiohttp.ClientTimeout(total=PATIENCE),
            cookie_jar=aiohttp.DummyCookieJar(),
        )  # fmt: skip
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.close()

    def _connector(self) -> aiohttp.BaseConnector | None:
        return None

    async def _ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        """The service's answer. Raises Away if it cannot be reached, UsageError for what it refuses, and StoreError if
        it cannot do it."""
        method, path = route
        sent: dict[str, Any] = {"params": given} if method == "GET" else {"json": given}
        try:
            async with self._http.request(method, self._base + path, allow_redirects=False, **sent) as response:
                status, raw = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Away(str(error) or "no answer in time") from error
        try:
            told = json.loads(raw)
            if status < 300:
                return dict(told)
            said = str(told["error"]["message"]).removeprefix("practicum: ")
        except (ValueError, KeyError, TypeError):
            said = f"this is no answer of practicum serve (status {status})"
        raise (StoreError if status >= 500 else UsageError)(said)


class Remote(Outside):
    """The service at an address."""

    def __init__(self, address: str, roles: Collection[str], space: str | None, key: str | None) -> None:
        address = address.rstrip("/").removesuffix("/v1").removesuffix("/mcp")
        if not urlsplit(address).hostname:
            raise UsageError(f"{address!r} is no address of a service: it has the form http://host:port")
        if key:
            require_private(address, "the service")
        super().__init__(address, roles, space, {"authorization": f"Bearer {key}"} if key else {})

    async def ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._ask(route, given)
        except Away as error:
            raise Away(f"the service at {self._base} cannot be reached: {error}") from error

    async def reach(self) -> None:
        # A service that starts later is asked then.
        return


class Shared(Outside):
    """The service of a store in a folder, in this process or in another one. With a `learner`, a model's name, it
    learns in the background while this process has it."""

    def __init__(self, store: Path, roles: Collection[str], space: str, learner: str | None) -> None:
        super().__init__("http://localhost", roles, space, {"x-practicum-roles": ",".join(sorted(roles))})
        self._store, self._space, self._learner = store, space, learner
        self._socket = str(store / "socket")
        self._stack = AsyncExitStack()
        self._has_it = False
        self._opening: asyncio.Task[None] | None = None

    def _connector(self) -> aiohttp.BaseConnector:
        return aiohttp.UnixConnector(self._socket)

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._opening is not None:
                await self._opening
        finally:
            await self._stack.aclose()
            await super().__aexit__(*error)

    async def ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        async with self._patience():
            while True:
                try:
                    return await self._ask(route, given)
                except Away:
                    await self._find()

    async def reach(self) -> None:
        async with self._patience():
            await self._find()

    @asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(PATIENCE):
                yield
        except TimeoutError:
            raise StoreError(
                f"another process has the store {self._store} open and does not answer: end it, or give --service with "
                "the address of practicum serve"
            ) from None

    async def _find(self) -> None:
        """Wait until somebody listens at the socket: this process, if nobody else has the store."""
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(self._socket)
            except OSError:
                if not self._has_it:
                    self._opening = self._opening or asyncio.create_task(self._open())
                    await asyncio.shield(self._opening)
            else:
                writer.close()
                return
            await asyncio.sleep(AGAIN)

    async def _open(self) -> None:
        """Open the store and listen, unless somebody else has it."""
        try:
            await asyncio.to_thread(import_module, "practicum.serve.local")
            from practicum.serve.local import listening
            from practicum.serve.service import Service, Settings

            learns = self._learner is not None
            settings = Settings(
                store=self._store, folder=self._store, spaces=(self._space,), learn=learns, learner=self._learner
            )
            async with AsyncExitStack() as stack:
                service = Service(settings)
                stack.push_async_callback(service.close)
                await service.start()
                await stack.enter_async_context(listening(service, self._store))
                self._stack, self._has_it = stack.pop_all(), True
        except RunBusy:
            pass
        finally:
            self._opening = None


def run(caller: Outside, failed: Callable[[PracticumError], object]) -> None:
    """Answer the agent at standard input and output until it closes them, or a signal comes. `failed` is told why that
    cannot be done; the process ends after it."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    asyncio.run(_run(caller, failed))


async def _run(caller: Outside, failed: Callable[[PracticumError], object]) -> None:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stop, stopped, number)
    code = 0
    try:
        # Its end waits for a store that is being opened, and raises why it cannot be.
        async with caller:
            speaking = asyncio.create_task(_speak(caller))
            reaching = asyncio.create_task(caller.reach())
            ends: set[asyncio.Future[Any]] = {speaking, stopped}
            await asyncio.wait({*ends, reaching}, return_when=asyncio.FIRST_COMPLETED)
            if reaching.done():
                await reaching
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            reaching.cancel()
    except PracticumError as error:
        failed(error)
        code = error.exit_code
    if speaking.done() and not code:
        await speaking
        return
    # A thread waits for standard input, which nothing ends but the agent or this.
    sys.stderr.flush()
    os._exit(128 + stopped.result() if stopped.done() else code)


def _stop(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


async def _speak(caller: Outside) -> None:
    server = make_server(lambda ctx: caller)
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except* (BrokenPipeError, ConnectionResetError):
        # The agent is gone, and nobody reads this answer.
        pass
