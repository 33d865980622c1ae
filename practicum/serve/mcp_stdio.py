"""Server of the memory of one agent over standard input and output, for `practicum mcp`.

Clients ignore a server that answers late, so `mcp_opening` answers the first requests of a client, and heavy packages
are loaded after these answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, BinaryIO, Self

from practicum.core.errors import PracticumError, error_body
from practicum.serve import lines
from practicum.serve.mcp_opening import Opening
from practicum.serve.transport import Transport

MOST_LINE = 2**20
"""Largest size (bytes) of a message of an agent. Over HTTP, the same limit applies."""

_TOO_LONG = f"a message has more than {MOST_LINE:,} bytes"
TOO_LONG = {"code": -32600, "message": _TOO_LONG, "data": error_body("request.too_large", _TOO_LONG)}
NO_JSON = {"code": -32700, "message": "a message is not JSON", "data": error_body("request.malformed", "no JSON")}
"""JSON-RPC errors for messages that cannot be read."""


def run(transport: Transport, failed: Callable[[PracticumError], object]) -> None:
    """Answer the agent at standard input and output, until the agent closes them or a signal arrives. `failed` is
    called if the store cannot be opened. Each later call of a tool tries again to open the store, and answers with the
    error if the store still cannot be opened."""
    lines.set_up(as_json=False)
    asyncio.run(_run(transport, failed))


async def _run(transport: Transport, failed: Callable[[PracticumError], object]) -> None:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stop, stopped, number)
    code = 0
    try:
        # The end of the block waits for a store that is being opened, and raises the error if opening the store fails.
        async with transport:
            speaking = asyncio.create_task(_speak(transport, Wire.claimed(), failed))
            ends: set[asyncio.Future[Any]] = {speaking, stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if speaking.done():
                await speaking
                return
    except PracticumError as error:
        failed(error)
        code = error.exit_code
    # Exit at once, because a thread waits for standard input until the agent closes standard input.
    sys.stderr.flush()
    os._exit(128 + stopped.result() if stopped.done() else code)


def _stop(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


class Wire:
    """Standard input and output as lines, with the interface that the SDK's `stdio_server` expects."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._replayed: list[bytes] = []
        self._answered: list[Any] = []

    @classmethod
    def claimed(cls) -> Self:
        """Take over standard input and output. After that, other code in this process reads an empty standard input,
        and writes to standard error in place of standard output."""
        source, sink = os.dup(0), os.dup(1)
        with open(os.devnull, "rb") as empty:
            os.dup2(empty.fileno(), 0)
        os.dup2(2, 1)
        return cls(os.fdopen(source, "rb", closefd=False), os.fdopen(sink, "wb", closefd=False))

    def replay(self, lines: Sequence[bytes], answered: Sequence[Any]) -> None:
        """Make `read` return `lines` first. Drop the first answer to each request whose id is in `answered`."""
        self._replayed, self._answered = [*lines], [*answered]

    async def read(self) -> bytes:
        """Return the next line, or an empty line at the end of input. A line that is too long or not JSON is answered
        with an error and skipped."""
        if self._replayed:
            return self._replayed.pop(0)
        while True:
            line, whole = await asyncio.to_thread(self._line)
            if whole and (not line.strip() or _is_json(line)):
                return line
            error = {"jsonrpc": "2.0", "id": None, "error": NO_JSON if whole else TOO_LONG}
            await asyncio.to_thread(self._send, json.dumps(error).encode() + b"\n")

    def _line(self) -> tuple[bytes, bool]:
        """Return the next line, and whether it has at most MOST_LINE bytes. Only the end of a longer line is
        returned."""
        line, whole = self._source.readline(MOST_LINE), True
        while len(line) == MOST_LINE and not line.endswith(b"\n"):
            line, whole = self._source.readline(MOST_LINE), False
        return line, whole

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if not (line := await self.read()):
            raise StopAsyncIteration
        return line.decode(errors="replace")

    async def write(self, text: str) -> None:
        """Send a line, unless the line is the SDK's answer to a replayed message."""
        if self._answered and (id := json.loads(text).get("id")) in self._answered:
            self._answered.remove(id)
            return
        await asyncio.to_thread(self._send, text.encode())

    def _send(self, line: bytes) -> None:
        self._sink.write(line)
        self._sink.flush()

    async def flush(self) -> None:
        """Do nothing, because each line is sent at once."""


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


async def _speak(transport: Transport, wire: Wire, failed: Callable[[PracticumError], object]) -> None:
    opening = Opening(transport.roles)
    loading: asyncio.Future[Any] | None = None
    reaching: asyncio.Task[None] | None = None
    try:
        while line := await wire.read():
            answer = opening.answer(line)
            if answer:
                await wire.write(json.dumps(answer, ensure_ascii=False) + "\n")
            if loading is None:
                # Load the SDK only after the first answer and the lists of tools, because loading would delay both.
                opening.lists()
                loading = asyncio.create_task(asyncio.to_thread(import_module, "practicum.serve.mcp"))
                reaching = asyncio.create_task(_reach(loading, transport, opening, wire, failed))
            if answer is None:
                wire.replay([*opening.handshake, line], opening.answered)
                await _serve((await loading).make_server(lambda ctx: transport), wire)
                return
        if reaching is None:
            # The input was empty, for example when a person tries the command: report whether the store can be opened.
            await transport.reach()
    except* (BrokenPipeError, ConnectionResetError):
        # The agent has disconnected, and no client reads this answer.
        pass
    finally:
        if reaching is not None:
            reaching.cancel()


async def _reach(
    loading: asyncio.Future[Any],
    transport: Transport,
    opening: Opening,
    wire: Wire,
    failed: Callable[[PracticumError], object],
) -> None:
    """Open the store after the SDK is loaded. Notify the client if the store has resources that were not listed before.
    If the store cannot be opened, the next call of a tool tries again to open the store."""
    await loading
    try:
        await transport.reach()
        # Drop this list, which has no sections of the playbook: from now on, the SDK lists the resources.
        del opening.lists()["resources/list"]
        if opening.handshake and await _has_sections(transport):
            await wire.write('{"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}\n')
    except PracticumError as error:
        failed(error)


async def _has_sections(transport: Transport) -> bool:
    """Return whether there are resources that were not listed yet: sections of the playbook."""
    from practicum.serve.answers import PlaybookPage
    from practicum.serve.operations import OPERATIONS

    if "ask" not in transport.roles:
        return False
    page = await transport.perform(OPERATIONS["playbook"], {"limit": 1})
    return isinstance(page, PlaybookPage) and bool(page.sections)


async def _serve(server: Any, wire: Any) -> None:
    from mcp.server.lowlevel import NotificationOptions
    from mcp.server.stdio import stdio_server

    async with stdio_server(wire, wire) as (read, write):
        options = server.create_initialization_options(NotificationOptions(resources_changed=True))
        await server.run(read, write, options)
