"""Agents over MCP, with the SDK's own client: over HTTP, and at the standard input and output of `practicum mcp`."""

from __future__ import annotations

from needs import needs

needs("fastmcp", "mcp")

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import pytest
from fastmcp.client.transports import StdioTransport
from helpers import run_command
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from refusals import refused
from serving import Served, asynchronous, served, until

from practicum.serve import access, mcp_stdio, transport
from practicum.serve.answers import PlaybookPage
from practicum.serve.mcp import make_server
from practicum.serve.mcp_opening import HANDSHAKE, STATELESS, Opening
from practicum.serve.operations import OPERATIONS
from practicum.serve.transport import StoreTransport

ROOT = Path(__file__).parents[2]
QUESTION, RIGHT, NOTE = "Which team handles lost cards?", "the blue team", "Lost cards are never refunded."


KEY = "the-key-of-practicum"
EVERYTHING = ("ask", "report", "review")
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "playbook", "arguments": {}}}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@asynccontextmanager
async def agent(at: Served, key: str = "", mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    """A client of the SDK at a service."""
    own = {**({"authorization": f"Bearer {key}"} if key else {}), **headers}
    async with (
        httpx2.AsyncClient(headers=own) as http,
        Client(streamable_http_client(f"{at.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def call(client: Client, tool: str, **given: Any) -> CallToolResult:
    result = await client.call_tool(tool, given)
    assert isinstance(result, CallToolResult)
    return result


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


async def told(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    """What a call that went well tells."""
    result = await call(client, tool, **given)
    assert not result.is_error, text(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def key_for(at: Served, *roles: access.Role, space: str = "") -> str:
    """A new key."""
    asked = {"name": f"{space} {'-'.join(roles)}", "space": space, "roles": roles}
    return str((await at.send("POST", "/v1/keys", asked, {"authorization": f"Bearer {KEY}"})).json["key"])


# Over HTTP


@asynchronous
async def test_a_model_that_gives_the_right_answer_as_its_own_corrects_all_the_same(tmp_path: Path) -> None:
    async with served(tmp_path) as at, agent(at) as client:
        shown = await told(client, "recall", input=QUESTION)
        given = {"interaction": shown["interaction"], "target": RIGHT, "answer": f"{RIGHT.upper()}."}
        assert (await told(client, "report", **given))["correction"] == "in effect"
        assert RIGHT in (await told(client, "recall", input=QUESTION))["text"]


@asynchronous
async def test_an_error_of_a_tool_has_its_code_and_an_error_of_the_protocol_too(tmp_path: Path) -> None:
    async with served(tmp_path) as at, agent(at) as client:
        result = await call(client, "remove", id="e5")
        assert result.is_error
        assert result.structured_content is not None
        error = result.structured_content["error"]
        assert (error["code"], error["fields"]) == ("entry.unknown", {"entry": "e5"})
        with pytest.raises(MCPError) as caught:
            await client.read_resource("playbook://nowhere")
        assert caught.value.error.data["code"] == "request.malformed"


@asynchronous
async def test_a_client_that_leaves_in_the_middle_holds_up_nobody(tmp_path: Path) -> None:
    async with served(tmp_path, lambda body: "the answer") as at:
        host, port = at.url.removeprefix("http://").split(":")
        body = json.dumps(CALL).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in JSON.items())
        start = f"POST /mcp HTTP/1.1\r\nhost: {host}\r\n{head}content-length: {len(body)}\r\n\r\n".encode()
        for part in (start, start + body[:20], start + body) * 5:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(part)
            await writer.drain()
            writer.transport.abort()
        await until(lambda: at.service.counts["client_departures"] >= 10)
        assert (await at.ask(QUESTION)).status == 200
        async with agent(at) as client:
            await told(client, "recall", input=QUESTION)


@pytest.mark.parametrize("calls", [200, pytest.param(2_000, marks=pytest.mark.slow)])
@asynchronous
async def test_too_many_calls_are_refused_and_the_proxy_answers_meanwhile(calls: int, tmp_path: Path) -> None:
    async with served(tmp_path, lambda body: "the answer", keys=(KEY,)) as at:
        mine, others = await key_for(at, "ask"), await key_for(at, "ask", "report")
        headers = {**JSON, "authorization": f"Bearer {mine}"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=50), headers=headers) as http:

            async def one() -> int:
                async with http.post(f"{at.url}/mcp", json=CALL) as response:
                    await response.read()
                    assert (response.status == 429) is ("retry-after" in response.headers)
                    return response.status

            flood = asyncio.gather(*(one() for _ in range(calls)))
            answered = [(await at.ask(QUESTION, {"authorization": f"Bearer {KEY}"})).status for _ in range(20)]
            async with agent(at, others) as client:
                await told(client, "recall", input=QUESTION)
            statuses = await flood
        assert answered == [200] * 20
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 100
        assert at.service.counts["mcp_requests"] >= calls


# A store that several share


@asynchronous
async def test_a_store_that_somebody_has_and_who_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PATIENCE", 0.3)
    async with served(tmp_path), StoreTransport(tmp_path) as one:
        with refused("store.busy"):
            await one.perform(OPERATIONS["recall"], {"input": NOTE})


# As a process


def command(*arguments: str | Path) -> StdioServerParameters:
    """`practicum mcp` as an editor starts it."""
    passed = {name: os.environ[name] for name in ("HOME", "PRACTICUM_HOME", "PRACTICUM_CACHE") if name in os.environ}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "practicum.cli.app", "mcp", *map(str, arguments)],
        env={**passed, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def launched(*arguments: str | Path) -> list[str]:
    how = command(*arguments)
    return [how.command, *how.args]


def started(*arguments: str | Path, code: str = "") -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = [sys.executable, "-c", code] if code else launched(*arguments)
    return subprocess.Popen(program, env={**os.environ, **(command().env or {})}, **pipes)


def say(process: subprocess.Popen[bytes], id: int, method: str, **params: Any) -> Any:
    """Send a request, and read its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
    process.stdin.flush()
    reply = json.loads(process.stdout.readline())
    assert reply["id"] == id
    return reply["result"]


def hello(process: subprocess.Popen[bytes]) -> Any:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return say(process, 0, "initialize", **about)


def remember(process: subprocess.Popen[bytes], number: int) -> str:
    note = {"text": f"Fact number {number} is {number * number}.", "about": f"fact {number}"}
    result = say(process, number, "tools/call", name="remember", arguments=note)
    assert not result["isError"], result
    return note["text"]


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_when_the_owner_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    processes = [first := started("--store", store)]
    try:
        hello(first)
        notes = [remember(first, 1)]
        processes.append(second := started("--store", store))
        hello(second)
        with ThreadPoolExecutor(1) as other:
            working = other.submit(lambda: [remember(second, number) for number in range(2, 40)])
            notes += [remember(first, number) for number in range(40, 48)]
            # In the middle of what the other one is asking.
            first.kill()
            notes += working.result(timeout=60)
        processes.append(third := started("--store", store))
        hello(third)
        for number, note in enumerate(notes):
            found = say(third, number, "tools/call", name="recall", arguments={"input": note})
            assert note in found["content"][0]["text"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a process", "a service"])
@asynchronous
async def test_an_agent_of_pydantic_ai_has_it_as_its_memory(kind: str, tmp_path: Path) -> None:
    async with served(tmp_path / "served") as at:

        def agent_with(*says: Callable[[str], ModelResponse]) -> Agent[None, str]:
            """An agent in a session of its own; its model says one thing after the other, given what it saw last."""
            turns = iter(says)

            async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
                last = messages[-1].parts[-1]
                return next(turns)(str(getattr(last, "content", "")))

            how = command("--store", tmp_path / "store")
            process = StdioTransport(how.command, how.args, env=how.env, keep_alive=False)
            where = process if kind == "a process" else f"{at.url}/mcp"
            return Agent(FunctionModel(model), toolsets=[MCPToolset(where, init_timeout=60)])

        def uses(tool: str, **given: Any) -> Callable[[str], ModelResponse]:
            def says(seen: str) -> ModelResponse:
                about = {"interaction": re.findall(r"i[0-9a-f]{13}-\w+", seen)[-1]} if tool == "report" else {}
                return ModelResponse([ToolCallPart(tool, given | about)])

            return says

        first = agent_with(
            uses("recall", input=QUESTION), uses("report", target=RIGHT),
            uses("remember", text=NOTE, about="lost cards"), lambda seen: ModelResponse([TextPart("done")]),
        )  # fmt: skip
        second = agent_with(uses("recall", input=QUESTION), lambda seen: ModelResponse([TextPart(seen)]))
        for one in (first, second):
            async with one:
                answer = (await one.run(QUESTION)).output
        assert RIGHT in answer
        assert NOTE in answer


# The opening, before the SDK and the store are loaded

ABOUT = {"protocolVersion": HANDSHAKE[-1], "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
ENVELOPE = {
    "_meta": {
        f"io.modelcontextprotocol/{name}": value
        for name, value in {**ABOUT, "protocolVersion": STATELESS, "clientCapabilities": {}}.items()
        if name != "capabilities"
    }
}
LISTS = ("tools/list", "resources/list", "resources/templates/list")


def asked(id: int | str, method: str, params: object = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


class Played:
    """Standard input and output for the SDK: it is given messages, and each request is answered before the next."""

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

    async def perform(self, operation: object, given: object) -> PlaybookPage:
        return PlaybookPage(space="default", version=0, total=0, entries=[], sections=[])


@pytest.mark.parametrize("roles", [EVERYTHING, ("ask",), ("report",)], ids=str)
@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS])
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


@pytest.mark.parametrize(
    "message",
    [
        asked(1, "initialize", {**ABOUT, "protocolVersion": "2031-01-01"}), asked(1, "initialize", {}),
        asked(1, "initialize", {**ABOUT, "clientInfo": []}), asked(1, "initialize", 5), asked(1, "tools/list"),
        asked(1, "tools/list", {"_meta": {**ENVELOPE["_meta"], "io.modelcontextprotocol/protocolVersion": "x"}}),
        asked(1, "tools/call", ENVELOPE), {"id": 1, "method": "initialize", "params": ABOUT},
        {"jsonrpc": "2.0", "method": "initialize", "params": ABOUT}, [1], "text", None,
        {"jsonrpc": "2.0", "method": "notifications/initialized"}, {**asked(1, "initialize", ABOUT), "id": True},
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_unusual_goes_to_the_sdk(message: object) -> None:
    assert Opening(EVERYTHING).answer(json.dumps(message).encode()) is None


@pytest.mark.slow
@asynchronous
async def test_the_configuration_that_is_printed_works(tmp_path: Path) -> None:
    printed = run_command(["mcp", "--store", "store", "--grant", "ask", "--json"], tmp_path)
    config = printed.json["mcpServers"]["practicum"]
    assert str(tmp_path / "store") in config["args"]
    how = command()
    async with Client(StdioServerParameters(command=config["command"], args=config["args"], env=how.env)) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"recall", "playbook", "history"}
