"""The memory of one agent, over standard input and output: what `practicum mcp` runs.

Operations are those of a service: one at an address, or that of a store. Clients start without a server that answers
late, so `mcp_opening` answers their first requests, and everything heavy is loaded after that.

Editors start a process for each window, and one process at a time has a store open. So the first one has it, and
listens at a socket in its folder; the others ask there. When the first one ends, even by a kill, the next that is asked
opens the store. A call to the one that ended is sent again, which does no harm: a report that is repeated changes
nothing, and a note replaces itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from urllib.parse import urlsplit
from uuid import uuid4

from practicum.core.errors import PracticumError, RunBusy, StoreError, UsageError, error_body, received
from practicum.models.keys import require_private
from practicum.serve import lines
from practicum.serve.mcp_opening import Opening

if TYPE_CHECKING:
    import aiohttp

    from practicum.serve.tools import Route

PATIENCE = 30.0
"""Seconds that an answer may take."""

AGAIN = 0.05
"""Seconds until it is tried again to reach a store that somebody is about to open."""


MOST_LINE, MOST_ANSWER = 2**20, 64 * 2**20
"""Bytes of the largest message of an agent, as over HTTP, and of the largest answer of a service."""

_TOO_LONG = f"a message has more than {MOST_LINE:,} bytes"
TOO_LONG = {"code": -32600, "message": _TOO_LONG, "data": error_body("request.too_large", _TOO_LONG)}
"""The error of JSON-RPC for a message that is not read."""


class Away(StoreError):
    """Nobody answers."""


class HttpCaller(ABC):
    """A caller whose service is asked over HTTP, within a block (`async with`)."""

    def __init__(self, base: str, roles: Collection[str], space: str | None, headers: Mapping[str, str]) -> None:
        self.roles = roles
        self._base = base
        own = {"x-practicum-session": f"mcp-{uuid4().hex}", "x-practicum-agent": "yes"}
        self._headers = {**headers, **own, **({"x-practicum-space": space} if space else {})}
        self._socket: str | None = None
        self._http: aiohttp.ClientSession | None = None

    @abstractmethod
    async def ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        """What an operation tells. Raises PracticumError."""

    @abstractmethod
    async def reach(self) -> None:
        """Get ready for the first question. Raises PracticumError if that fails; a later question tries again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def _client(self) -> aiohttp.ClientSession:
        """The HTTP client, made for the first question."""
        await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        if self._http is None:
            connector = None if self._socket is None else aiohttp.UnixConnector(self._socket)
            self._http = aiohttp.ClientSession(
                connector=connector, headers=self._headers, timeout=aiohttp.ClientTimeout(total=PATIENCE),
                cookie_jar=aiohttp.DummyCookieJar(),
            )  # fmt: skip
        return self._http

    async def _ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        """The service's answer. Raises Away if it cannot be reached, UsageError for what it refuses, and StoreError if
        it cannot do it."""
        method, path = route
        http = await self._client()
        import aiohttp

        sent: dict[str, Any] = {"params": given} if method == "GET" else {"json": given}
        try:
            async with http.request(method, self._base + path, allow_redirects=False, **sent) as response:
                status, raw = response.status, await _body(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Away("service.unreachable", str(error) or "no answer in time") from error
        try:
            told = json.loads(raw)
            if status < 300:
                return dict(told)
            code, said, fields = received(told["error"])
        except (ValueError, KeyError, TypeError, AttributeError):
            code, said, fields = "service.invalid_answer", f"this is no answer of practicum serve (status {status})", {}
        raise (StoreError if status >= 500 else UsageError)(code, said, **fields)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer. Raises StoreError if it is too large to be one of a service."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_ANSWER:
            raise StoreError("service.invalid_answer", f"the answer of the service has more than {MOST_ANSWER:,} bytes")
    return bytes(body)


class ServiceCaller(HttpCaller):
    """The service at an address."""

    def __init__(self, address: str, roles: Collection[str], space: str | None, key: str | None) -> None:
        address = address.rstrip("/").removesuffix("/v1").removesuffix("/mcp")
        if not urlsplit(address).hostname:
            raise UsageError(
                "service.invalid_address", f"{address!r} is no address of a service: it has the form http://host:port"
            )
        if key:
            require_private(address, "the service")
        super().__init__(address, roles, space, {"authorization": f"Bearer {key}"} if key else {})

    async def ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._ask(route, given)
        except Away as error:
            raise Away("service.unreachable", f"the service at {self._base} cannot be reached: {error}") from error

    async def reach(self) -> None:
        # The service may start later.
        await self._client()


class StoreCaller(HttpCaller):
    """The service of a store in a folder, in this process or in another one. With a `learner`, a model's name, it
    learns in the background while this process has it."""

    def __init__(self, store: Path, roles: Collection[str], space: str, learner: str | None) -> None:
        super().__init__("http://localhost", roles, space, {"x-practicum-roles": ",".join(sorted(roles))})
        self._store, self._space, self._learner = store, space, learner
        self._socket: str = str(store / "socket")
        self._stack = AsyncExitStack()
        self._has_it = False
        self._opening: asyncio.Task[None] | None = None

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
        await self._client()

    @asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(PATIENCE):
                yield
        except TimeoutError:
            raise StoreError(
                "store.busy",
                f"another process has the store {self._store} open and does not answer: end it, or give --service with "
                "the address of practicum serve",
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
            from practicum.serve.service import Service
            from practicum.serve.settings import ServiceSettings

            learns = self._learner is not None
            settings = ServiceSettings(
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


def run(caller: HttpCaller, failed: Callable[[PracticumError], object]) -> None:
    """Answer the agent at standard input and output until it closes them, or a signal comes. `failed` is called when
    the store cannot be opened; calls of tools try again, and answer with the error."""
    lines.set_up(as_json=False)
    asyncio.run(_run(caller, failed))


async def _run(caller: HttpCaller, failed: Callable[[PracticumError], object]) -> None:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stop, stopped, number)
    code = 0
    try:
        # Its end waits for a store that is being opened, and raises why it cannot be.
        async with caller:
            speaking = asyncio.create_task(_speak(caller, Wire.claimed(), failed))
            ends: set[asyncio.Future[Any]] = {speaking, stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if speaking.done():
                await speaking
                return
    except PracticumError as error:
        failed(error)
        code = error.exit_code
    # A thread waits for standard input, which nothing ends but the agent or this.
    sys.stderr.flush()
    os._exit(128 + stopped.result() if stopped.done() else code)


def _stop(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


class Wire:
    """Standard input and output as lines, in the form that the SDK's `stdio_server` takes."""

    def __init__(self, given: BinaryIO, taken: BinaryIO) -> None:
        self._given, self._taken = given, taken
        self._again: list[bytes] = []
        self._answered: list[Any] = []

    @classmethod
    def claimed(cls) -> Self:
        """The wire of this process. What anything else reads from standard input is empty, and what it prints on
        standard output goes to standard error."""
        given, taken = os.dup(0), os.dup(1)
        with open(os.devnull, "rb") as empty:
            os.dup2(empty.fileno(), 0)
        os.dup2(2, 1)
        return cls(os.fdopen(given, "rb", closefd=False), os.fdopen(taken, "wb", closefd=False))

    def replay(self, lines: Sequence[bytes], answered: Sequence[Any]) -> None:
        """Give these lines before those that come, and drop the first answer to each of these ids."""
        self._again, self._answered = [*lines], [*answered]

    async def read(self) -> bytes:
        """The next line; empty at the end. One that is too long is answered with an error, and left out."""
        if self._again:
            return self._again.pop(0)
        line, whole = await asyncio.to_thread(self._line)
        while not whole:
            error = {"jsonrpc": "2.0", "id": None, "error": TOO_LONG}
            await asyncio.to_thread(self._send, json.dumps(error).encode() + b"\n")
            line, whole = await asyncio.to_thread(self._line)
        return line

    def _line(self) -> tuple[bytes, bool]:
        """The next line, and whether it is no longer than MOST_LINE; of a longer one only its end is kept."""
        line, whole = self._given.readline(MOST_LINE), True
        while len(line) == MOST_LINE and not line.endswith(b"\n"):
            line, whole = self._given.readline(MOST_LINE), False
        return line, whole

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if not (line := await self.read()):
            raise StopAsyncIteration
        return line.decode(errors="replace")

    async def write(self, text: str) -> None:
        """Send a line."""
        if self._answered and (id := json.loads(text).get("id")) in self._answered:
            self._answered.remove(id)
            return
        await asyncio.to_thread(self._send, text.encode())

    def _send(self, line: bytes) -> None:
        self._taken.write(line)
        self._taken.flush()

    async def flush(self) -> None:
        """Each line is sent at once."""


async def _speak(caller: HttpCaller, wire: Wire, failed: Callable[[PracticumError], object]) -> None:
    opening = Opening(caller.roles)
    loading: asyncio.Future[Any] | None = None
    reaching: asyncio.Task[None] | None = None
    try:
        while line := await wire.read():
            answer = opening.answer(line)
            if answer:
                await wire.write(json.dumps(answer, ensure_ascii=False) + "\n")
            if loading is None:
                # After the first answer, and after the tools are known: it takes the processor from both.
                opening.lists()
                loading = asyncio.create_task(asyncio.to_thread(import_module, "practicum.serve.mcp"))
                reaching = asyncio.create_task(_reach(loading, caller, opening, wire, failed))
            if answer is None:
                wire.replay([*opening.handshake, line], opening.answered)
                await _serve((await loading).make_server(lambda ctx: caller), wire)
                return
        if reaching is None:
            # Nothing was asked, as by a person who tries the command: say whether it would work.
            await caller.reach()
    except* (BrokenPipeError, ConnectionResetError):
        # The agent is gone, and nobody reads this answer.
        pass
    finally:
        if reaching is not None:
            reaching.cancel()


async def _reach(
    loading: asyncio.Future[Any],
    caller: HttpCaller,
    opening: Opening,
    wire: Wire,
    failed: Callable[[PracticumError], object],
) -> None:
    """Open the store after the SDK is loaded, and notify the client if there are resources that were not listed. The
    next call of a tool tries again what failed."""
    await loading
    try:
        await caller.reach()
        # From now on the SDK lists them, with the sections of the playbook.
        del opening.lists()["resources/list"]
        if (
            opening.handshake
            and "ask" in caller.roles
            and (await caller.ask(("GET", "/v1/playbook"), {"limit": 1}))["sections"]
        ):
            await wire.write('{"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}\n')
    except PracticumError as error:
        failed(error)


async def _serve(server: Any, wire: Any) -> None:
    from mcp.server.lowlevel import NotificationOptions
    from mcp.server.stdio import stdio_server

    async with stdio_server(wire, wire) as (read, write):
        options = server.create_initialization_options(NotificationOptions(resources_changed=True))
        await server.run(read, write, options)
