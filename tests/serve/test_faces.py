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
from serving import Served, asynchronous, served

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


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


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

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"words": "a", "times": 99}, "request.malformed"), ({"words": "a", "times": "often"}, "request.malformed"),
    ({"words": "a", "colour": "red"}, "request.malformed"), ({"words": "refuse"}, "query.empty"),
]  # fmt: skip


@pytest.mark.parametrize("face", FACES)
@asynchronous
async def test_an_added_operation_answers_and_fails_alike_at_each_face(face: str, tmp_path: Path) -> None:
    call = FACES[face]
    async with served(tmp_path, keys=(KEY,)) as at:

        async def key_for(**grant: Any) -> str:
            return str((await at.send("POST", "/v1/keys", {"name": "k", **grant}, bearer(KEY))).json["key"])

        assert await call(at, KEY, {"words": "ab", "times": 2}) == {"space": "default", "text": "abab"}
        for values, code in WRONG:
            error = (await call(at, KEY, values))["error"]
            assert (values, error["code"], "\n" in error["message"]) == (values, code, False)
        error = (await call(at, await key_for(roles=["ask"]), {"words": "ab"}))["error"]
        assert (error["code"], error["fields"]["role"]) == ("key.forbidden", "review")
        # A key of one space selects that space, and is deleted with it.
        await at.send("POST", "/v1/spaces", {"name": "short"}, bearer(KEY))
        key = await key_for(roles=["review"], space="short")
        assert (await call(at, key, {"words": "ab"}))["space"] == "short"
        await at.send("DELETE", "/v1/spaces", {"name": "short"}, bearer(KEY))
        at.keys.forget()
        expired = await key_for(name="expired", roles=["review"], days=1e-9)
        for refused, code in ((key, "key.wrong"), ("w" * 30, "key.wrong"), (expired, "key.expired")):
            if face == "MCP":
                # The client of the SDK does not connect.
                error = (await at.send("POST", "/mcp", {}, bearer(refused))).json["error"]
            else:
                error = (await call(at, refused, {"words": "ab"}))["error"]
            assert error["code"] == code


def test_an_added_operation_is_in_the_openapi_document() -> None:
    described = document()["paths"]["/v1/repeat"]["post"]
    assert (described["operationId"], described["summary"]) == ("repeat", "Repeat words")
    assert described["security"] == [{"bearer": ["review"]}, {"x-api-key": ["review"]}, {"x-practicum-key": ["review"]}]


@asynchronous
async def test_an_error_over_http_names_the_field_that_is_wrong(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        for reply, code, field in (
            (await at.send("GET", "/v1/playbook?limit=many"), "request.malformed", "limit"),
            (await at.report(interaction="i", score=7), "outcome.invalid", "score"),
            (await at.report(interaction="i", score=1), "interaction.unknown", None),
        ):
            assert (reply.json["error"]["code"], reply.json["error"]["param"]) == (code, field)


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
