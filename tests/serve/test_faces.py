"""An operation that is added to the table is found on every face, and fails alike on each."""

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


async def by_http(at: Served, key: str, given: dict[str, Any]) -> dict[str, Any]:
    reply = await at.send("POST", "/v1/repeat", given, {"authorization": f"Bearer {key}"} if key else {})
    return dict(reply.json)


async def by_tool(at: Served, key: str, given: dict[str, Any]) -> dict[str, Any]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http,
        Client(streamable_http_client(f"{at.url}/mcp", http_client=http)) as agent,
    ):
        result = await agent.call_tool("repeat", given)
        return dict(result.structured_content or {})


async def by_program(at: Served, key: str, given: dict[str, Any]) -> dict[str, Any]:
    async with client.open(at.url, key=key) as space:
        try:
            return dict((await space.repeat(**given)).as_json())  # type: ignore[attr-defined]
        except PracticumError as error:
            return {"error": error.body()}


async def by_command(at: Served, key: str, given: dict[str, Any]) -> dict[str, Any]:
    options = [part for name, value in given.items() if name != "words" for part in (f"--{name}", value)]
    arguments = ["space", "repeat", at.url, given.get("words", ""), *options, "--key", key, "--json"]
    done = await asyncio.to_thread(run_command, arguments, Path.cwd())
    return dict(done.json)


FACES = {"HTTP": by_http, "MCP": by_tool, "Python": by_program, "command": by_command}


@pytest.mark.parametrize("face", FACES)
@asynchronous
async def test_an_operation_that_is_added_is_found_on_each_face(face: str, tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        answer = await FACES[face](at, KEY, {"words": "ab", "times": 2})
        assert answer == {"space": "default", "text": "abab"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"words": "a", "times": 99}, "request.malformed"), ({"words": "x" * 101}, "request.malformed"),
        ({"words": "refuse"}, "query.empty"), ({"words": "a", "times": "often"}, "request.malformed"),
        ({"words": "a", "colour": "red"}, "request.malformed"),
    ],
    ids=["out of range", "too long", "refused", "of a wrong type", "unknown"],
)  # fmt: skip
@pytest.mark.parametrize("face", FACES)
@asynchronous
async def test_a_wrong_form_has_the_same_code_on_each_face(
    face: str, given: dict[str, Any], code: str, tmp_path: Path
) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        error = (await FACES[face](at, KEY, given))["error"]
        assert error["code"] == code
        assert "\n" not in error["message"]


async def key_for(at: Served, **about: Any) -> str:
    """A new key."""
    made = await at.send("POST", "/v1/keys", about, {"authorization": f"Bearer {KEY}"})
    return str(made.json["key"])


@pytest.mark.parametrize("face", FACES)
@asynchronous
async def test_a_wrong_role_has_the_same_code_on_each_face(face: str, tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        error = (await FACES[face](at, await key_for(at, name="agent", roles=["ask"]), {"words": "ab"}))["error"]
        assert (error["code"], error["fields"]["role"]) == ("key.forbidden", "review")


@pytest.mark.parametrize("face", [face for face in FACES if face != "MCP"])
@asynchronous
async def test_a_key_that_is_wrong_or_expired_has_the_same_code_on_each_face(face: str, tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        expired = await key_for(at, name="short", roles=["review"], days=1e-9)
        for key, code in (("w" * 30, "key.wrong"), (expired, "key.expired")):
            assert (await FACES[face](at, key, {"words": "ab"}))["error"]["code"] == code
            # A client of the protocol of agents does not connect.
            reply = await at.send("POST", "/mcp", {}, {"authorization": f"Bearer {key}"})
            assert reply.json["error"]["code"] == code


@pytest.mark.parametrize("face", FACES)
@asynchronous
async def test_a_space_that_does_not_exist_has_the_same_code_on_each_face(face: str, tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        await at.send("POST", "/v1/spaces", {"name": "short"}, {"authorization": f"Bearer {KEY}"})
        key = await key_for(at, name="of short", roles=["review"], space="short")
        assert (await FACES[face](at, key, {"words": "ab"}))["space"] == "short"
        await at.send("DELETE", "/v1/spaces", {"name": "short"}, {"authorization": f"Bearer {KEY}"})
        at.keys.forget()
        if face != "MCP":
            # Its keys are gone with it.
            assert (await FACES[face](at, key, {"words": "ab"}))["error"]["code"] == "key.wrong"


def test_it_is_in_the_document_of_the_api() -> None:
    described = document()["paths"]["/v1/repeat"]["post"]
    assert (described["operationId"], described["summary"]) == ("repeat", "Repeat words")
    assert described["security"] == [{"bearer": ["review"]}, {"x-api-key": ["review"]}, {"x-practicum-key": ["review"]}]


def test_a_command_takes_the_folder_of_a_store_and_makes_no_space(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with client.open(store) as space:
        # The process that has the store answers.
        done = run_command(["space", "remember", store, "Ask for the number.", "--json"], tmp_path)
        assert done.json["note"] == "in effect"
        assert "Ask for the number." in space.recall_sync("a number").text
    assert run_command(["space", "spaces", store, "--json"], tmp_path).json == {"spaces": ["default"]}
    wrong = run_command(["space", "playbook", store, "--space", "other", "--json"], tmp_path)
    assert (wrong.code, wrong.json["error"]["code"]) == (2, "run.not_found")
    assert run_command(["space", "spaces", store, "--json"], tmp_path).json == {"spaces": ["default"]}
    assert (
        run_command(["space", "spaces", tmp_path / "none", "--json"], tmp_path).json["error"]["code"] == "run.not_found"
    )
