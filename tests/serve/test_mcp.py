"""Agents over MCP: over HTTP, and at the standard input and output of `practicum mcp`."""

from __future__ import annotations

from needs import needs

needs("mcp", "mcp")

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from refusals import refused
from serving import asynchronous, served

from practicum.serve import mcp_http, mcp_stdio, transport
from practicum.serve.answers import PlaybookPage
from practicum.serve.mcp import make_server
from practicum.serve.mcp_opening import HANDSHAKE, STATELESS, Opening
from practicum.serve.operations import OPERATIONS
from practicum.serve.transport import StoreTransport

ROOT = Path(__file__).parents[2]
QUESTION = "Which team handles lost cards?"
KEY = "the-key-of-practicum"
EVERYTHING = ("ask", "report", "review")
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "playbook", "arguments": {}}}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


# Over HTTP


@asynchronous
async def test_too_many_calls_of_a_key_are_refused_and_other_keys_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_http, "MOST_SENT", 4)
    monkeypatch.setattr(mcp_http, "SECONDS", 60)
    async with served(tmp_path, keys=(KEY,)) as at:
        admin = {"authorization": f"Bearer {KEY}"}
        flood, other = [
            (await at.send("POST", "/v1/keys", {"name": name, "roles": ["ask"]}, admin)).json["key"] for name in "ab"
        ]
        headers = {**JSON, "authorization": f"Bearer {flood}"}
        replies = await asyncio.gather(*(at.send("POST", "/mcp", CALL, headers) for _ in range(12)))
        assert {reply.status for reply in replies} == {200, 429}
        assert all((reply.status == 429) is ("retry-after" in reply.headers) for reply in replies)
        assert [reply.status for reply in replies].count(200) >= 4
        assert (await at.ask(QUESTION, admin)).status == 200
        assert (await at.send("POST", "/mcp", CALL, {**JSON, "authorization": f"Bearer {other}"})).status == 200
        assert at.service.counts["mcp_requests"] >= 12


@asynchronous
async def test_a_store_is_busy_if_its_owner_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PATIENCE", 0.1)
    async with served(tmp_path), StoreTransport(tmp_path) as one:
        with refused("store.busy"):
            await one.perform(OPERATIONS["recall"], {"input": QUESTION})


# As a process


class Window:
    """A `practicum mcp`, as an editor starts it."""

    def __init__(self, *command: object) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen([str(part) for part in command], env=env, **pipes)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.ask(0, "initialize", **about)

    def ask(self, id: int, method: str, **params: Any) -> Any:
        """The result of a request."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
        stdin.flush()
        reply = json.loads(stdout.readline())
        assert reply["id"] == id
        return reply["result"]

    def remember(self, number: int) -> str:
        note = {"text": f"Fact number {number} is {number * number}.", "about": f"fact {number}"}
        answer = self.ask(number, "tools/call", name="remember", arguments=note)
        assert not answer["isError"], answer
        return note["text"]


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_when_the_owner_is_killed(tmp_path: Path) -> None:
    windows, mcp = list[Window](), (sys.executable, "-m", "practicum.cli.app", "mcp", "--store", tmp_path / "store")
    try:
        for _ in range(2):
            windows.append(Window(*mcp))
        first, second = windows
        notes = [first.remember(1)]
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(lambda: [second.remember(number) for number in range(2, 20)])
            notes += [first.remember(number) for number in range(40, 45)]
            # While the owner answers the requests of the other window.
            first.process.kill()
            notes += rest.result(timeout=60)
        windows.append(third := Window(*mcp))
        for number, note in enumerate(notes):
            recalled = third.ask(number, "tools/call", name="recall", arguments={"input": note})
            assert note in recalled["content"][0]["text"]
    finally:
        for window in windows:
            window.process.kill()
            window.process.communicate()


@pytest.mark.slow
def test_the_printed_configuration_works(tmp_path: Path) -> None:
    printed = run_command(["mcp", "--store", "store", "--grant", "ask", "--json"], tmp_path)
    config = printed.json["mcpServers"]["practicum"]
    assert str(tmp_path / "store") in config["args"]
    window = Window(config["command"], *config["args"])
    assert {tool["name"] for tool in window.ask(1, "tools/list")["tools"]} == {"recall", "playbook", "history"}
    window.process.communicate()


# The opening, before the SDK and the store are loaded

ABOUT = {"protocolVersion": HANDSHAKE[-1], "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
OF_REQUESTS = {"protocolVersion": STATELESS, "clientCapabilities": {}, "clientInfo": ABOUT["clientInfo"]}
ENVELOPE = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in OF_REQUESTS.items()}}
VERSIONS = [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]
LISTS = ("tools/list", "resources/list", "resources/templates/list")


def asked(id: int | str, method: str, params: object = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


class Played:
    """Standard input and output for the SDK: it is values messages, and each request is answered before the next."""

    def __init__(self, messages: Sequence[dict[str, Any]]) -> None:
        self._messages, self._answered = [*messages], asyncio.Event()
        self._answered.set()
        self.answers: list[dict[str, Any]] = []

    def __aiter__(self) -> Played:
        return self

    async def __anext__(self) -> str:
        await self._answered.wait()
        if not self._messages:
            raise StopAsyncIteration
        message = self._messages.pop(0)
        if "id" in message:
            self._answered.clear()
        return json.dumps(message)

    async def write(self, text: str) -> None:
        self.answers.append(json.loads(text))
        self._answered.set()

    async def flush(self) -> None:
        return


class Empty:
    """A caller whose playbook has no sections."""

    def __init__(self, roles: Sequence[str]) -> None:
        self.roles = roles

    async def perform(self, operation: object, values: object) -> PlaybookPage:
        return PlaybookPage(space="default", version=0, total=0, entries=[], sections=[])


OPENINGS = [*((version, EVERYTHING) for version in VERSIONS), (VERSIONS[-1], ("ask",)), (VERSIONS[-1], ("report",))]


@pytest.mark.parametrize(("version", "roles"), OPENINGS)
@asynchronous
async def test_the_opening_answers_as_the_sdk_does(version: str, roles: tuple[str, ...]) -> None:
    if version == STATELESS:
        messages = [asked(1, "server/discover", ENVELOPE), *(asked(name, name, ENVELOPE) for name in LISTS)]
    else:
        messages = [asked(1, "initialize", {**ABOUT, "protocolVersion": version})]
        messages += [{"jsonrpc": "2.0", "method": "notifications/initialized"}, asked("p", "ping")]
        messages += [asked(name, name, params) for name in LISTS for params in (None, {})]
    played, opening = Played(messages), Opening(roles)
    await mcp_stdio._serve(make_server(lambda ctx: Empty(roles)), played)
    answers = [opening.answer(json.dumps(message).encode()) for message in messages]
    assert [answer for answer in answers if answer != {}] == played.answers
