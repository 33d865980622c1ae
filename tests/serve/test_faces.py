"""An operation that is added to the table is available at every face, and fails alike at each."""

from __future__ import annotations

from needs import needs

needs("mcp", "serve")

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from helpers import run_command
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import Field
from serving import Served, asynchronous, bearer, served

from practicum import PracticumError, client
from practicum.core.errors import UsageError
from practicum.core.forms import Form
from practicum.serve.answers import Answer
from practicum.serve.api import OPERATIONS, OperationCall, operation
from practicum.serve.openapi import document

KEY = "a-key-of-the-operator"


class Words(Form):
    """Words."""

    words: Annotated[str, Field(max_length=100)] = Field(description="The words.")
    times: Annotated[int, Field(ge=1, le=9)] = Field(1, description="How often.")


class Repeated(Answer):
    """Repeated words."""

    space: str
    text: str


@pytest.fixture(autouse=True)
def _repeat() -> Iterator[None]:
    @operation("POST", "/v1/repeat", "review")
    async def repeat(asked: OperationCall, form: Words) -> Repeated:
        """Repeat words. It is for tests."""
        if form.words == "refuse":
            raise UsageError("query.empty", "these words are refused")
        return Repeated(space=asked.space, text=form.words * form.times)

    yield
    del OPERATIONS["repeat"]


async def by_http(at: Served, key: str, values: dict[str, Any]) -> dict[str, Any]:
    return dict((await at.send("POST", "/v1/repeat", values, bearer(key))).json)


async def by_tool(at: Served, key: str, values: dict[str, Any]) -> dict[str, Any]:
    async with (
        httpx2.AsyncClient(headers=bearer(key)) as http,
        Client(streamable_http_client(f"{at.url}/mcp", http_client=http)) as agent,
    ):
        result = await agent.call_tool("repeat", values)
        return dict(result.structured_content or {})


async def by_program(at: Served, key: str, values: dict[str, Any]) -> dict[str, Any]:
    async with client.open(at.url, key=key) as space:
        try:
            return dict((await space.repeat(**values)).as_json())  # type: ignore[attr-defined]
        except PracticumError as error:
            return {"error": error.body()}


async def by_command(at: Served, key: str, values: dict[str, Any]) -> dict[str, Any]:
    options = [part for name, value in values.items() if name != "words" for part in (f"--{name}", value)]
    arguments = ["space", "repeat", at.url, values["words"], *options, "--key", key, "--json"]
    return dict((await asyncio.to_thread(run_command, arguments, Path.cwd())).json)


FACES = {"HTTP": by_http, "MCP": by_tool, "Python": by_program, "command": by_command}

WRONG: list[tuple[dict[str, Any], str, str | None]] = [
    ({"words": "a", "times": 99}, "request.malformed", "times"),
    ({"words": "a", "colour": "red"}, "request.malformed", "colour"), ({"words": "refuse"}, "query.empty", None),
]  # fmt: skip
"""Wrong values, the code of the error, and the field that it names over HTTP."""


@asynchronous
async def test_an_added_operation_answers_and_fails_alike_at_each_face(tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:

        async def key_for(name: str, **grant: Any) -> str:
            return str((await at.send("POST", "/v1/keys", {"name": name, **grant}, bearer(KEY))).json["key"])

        await at.send("POST", "/v1/spaces", {"name": "short"}, bearer(KEY))
        asking, expired = await key_for("asking", roles=["ask"]), await key_for("expired", roles=["review"], days=1e-9)
        short = await key_for("short", roles=["review"], space="short")
        for face, call in FACES.items():
            assert await call(at, KEY, {"words": "ab", "times": 2}) == {"space": "default", "text": "abab"}
            for values, code, field in WRONG:
                error = (await call(at, KEY, values))["error"]
                assert (face, error["code"], "\n" in error["message"]) == (face, code, False)
                assert face != "HTTP" or error["param"] == field
            error = (await call(at, asking, {"words": "ab"}))["error"]
            assert (face, error["code"], error["fields"]["role"]) == (face, "key.forbidden", "review")
            # A key of one space selects that space.
            assert (await call(at, short, {"words": "ab"}))["space"] == "short"
        error = (await at.report(bearer(KEY), interaction="i", score=7)).json["error"]
        assert (error["code"], error["param"]) == ("outcome.invalid", "score")
        # It is deleted with its space.
        await at.send("DELETE", "/v1/spaces", {"name": "short"}, bearer(KEY))
        at.keys.forget()
        for refused, code in ((short, "key.wrong"), ("w" * 30, "key.wrong"), (expired, "key.expired")):
            # The client of the MCP SDK does not connect.
            failed = {face: await call(at, refused, {"words": "ab"}) for face, call in FACES.items() if face != "MCP"}
            failed["MCP"] = (await at.send("POST", "/mcp", {}, bearer(refused))).json
            assert {face: answer["error"]["code"] for face, answer in failed.items()} == dict.fromkeys(FACES, code)
    described = document()["paths"]["/v1/repeat"]["post"]
    assert (described["operationId"], described["summary"]) == ("repeat", "Repeat words")
    assert described["security"] == [{"bearer": ["review"]}, {"x-api-key": ["review"]}, {"x-practicum-key": ["review"]}]


def test_a_command_takes_the_folder_of_a_store_and_creates_no_space(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with client.open(store) as space:
        # The process that has the store open answers.
        done = run_command(["space", "remember", store, "Ask for the number.", "--json"], tmp_path)
        assert done.json["note"] == "in effect"
        assert "Ask for the number." in space.recall_sync("a number").text
    wrong = run_command(["space", "playbook", store, "--space", "other", "--json"], tmp_path)
    assert (wrong.code, wrong.json["error"]["code"]) == (2, "run.not_found")
    assert run_command(["space", "spaces", store, "--json"], tmp_path).json == {"spaces": ["default"]}
    missing = run_command(["space", "spaces", tmp_path / "none", "--json"], tmp_path)
    assert missing.json["error"]["code"] == "run.not_found"
