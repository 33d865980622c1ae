"""The memory of one agent, over standard input and output: what `practicum mcp` runs.

Clients start without a server that answers late, so `mcp_opening` answers their first requests, and everything heavy is
loaded after that.
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
"""Bytes of the largest message of an agent, as over HTTP."""

_TOO_LONG = f"a message has more than {MOST_LINE:,} bytes"
TOO_LONG = {"code": -32600, "message": _TOO_LONG, "data": error_body("request.too_large", _TOO_LONG)}
NO_JSON = {"code": -32700, "message": "a message is not JSON", "data": error_body("request.malformed", "no JSON")}
"""The errors of JSON-RPC for a message that is not read."""


def run(transport: Transport, failed: Callable[[PracticumError], object]) -> None:
    """Answer the agent at standard input and output until it closes them, or a signal comes. `failed` is called when
    the store cannot be opened; calls of tools try again, and answer with the error."""
    lines.set_up(as_json=False)
    asyncio.run(_run(transport, failed))


async def _run(transport: Transport, failed: Callable[[PracticumError], object]) -> None:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stop, stopped, number)
    code = 0
    try:
        # Its end waits for a store that is being opened, and raises why it cannot be.
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
        """The next line; empty at the end. One that is too long, or no JSON, is answered with an error, and left
        out."""
        if self._again:
            return self._again.pop(0)
        while True:
            line, whole = await asyncio.to_thread(self._line)
            if whole and (not line.strip() or _is_json(line)):
                return line
            error = {"jsonrpc": "2.0", "id": None, "error": NO_JSON if whole else TOO_LONG}
            await asyncio.to_thread(self._send, json.dumps(error).encode() + b"\n")

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
                # After the first answer, and after the tools are known: it takes the processor from both.
                opening.lists()
                loading = asyncio.create_task(asyncio.to_thread(import_module, "practicum.serve.mcp"))
                reaching = asyncio.create_task(_reach(loading, transport, opening, wire, failed))
            if answer is None:
                wire.replay([*opening.handshake, line], opening.answered)
                await _serve((await loading).make_server(lambda ctx: transport), wire)
                return
        if reaching is None:
            # Nothing was asked, as by a person who tries the command: say whether it would work.
            await transport.reach()
    except* (BrokenPipeError, ConnectionResetError):
        # The agent is gone, and nobody reads this answer.
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
    """Open the store after the SDK is loaded, and notify the client if there are resources that were not listed. The
    next call of a tool tries again what failed."""
    await loading
    try:
        await transport.reach()
        # From now on the SDK lists them, with the sections of the playbook.
        del opening.lists()["resources/list"]
        if opening.handshake and await _has_sections(transport):
            await wire.write('{"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}\n')
    except PracticumError as error:
        failed(error)


async def _has_sections(transport: Transport) -> bool:
    """Whether there are resources that were not listed yet: the sections of a playbook."""
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
