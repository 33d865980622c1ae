"""The OpenAPI document: it is valid, real answers are as it says, and what schemathesis makes of it breaks nothing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from needs import needs
from profiles import examples
from serving import Place, Reply, Served, asynchronous, served, until

from practicum.serve.openapi import document
from practicum.serve.operations import OPERATIONS

KEY = "k" * 20
ADMIN = {"Authorization": f"Bearer {KEY}", "x-practicum-key": KEY}

LOOKED_AT = ("/health", "/ready", "/metrics")
"""Of these nothing is asked, so nothing can be wrong."""

CHECKS = ("status_code", "content_type", "response_schema", "response_headers")
"""What an answer has to conform to, by the document."""


@asynchronous
async def test_the_document_is_valid_complete_and_needs_no_key(tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        reply = await at.send("GET", "/openapi.json")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.json == json.loads(json.dumps(document()))
        assert (await at.send("POST", "/openapi.json")).status == 405
    for (method, path), operation in OPERATIONS.items():
        described = reply.json["paths"][path][method.lower()]
        assert operation.do.__doc__ is not None
        assert described["description"].startswith(operation.do.__doc__[:40])
        assert {tuple(one) for one in described["security"]} == {("bearer",), ("x-api-key",), ("x-practicum-key",)}
        assert all([*one.values()] == [[operation.role]] for one in described["security"])


# Real answers


def closed(schema: Any) -> Any:
    """A schema that allows no other fields."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(one) for name, one in schema.items()}
    return {"additionalProperties": False, **found} if "properties" in found else found


SCHEMAS = closed(document())


def check(method: str, path: str, reply: Reply) -> None:
    """Whether an answer is as the document says, and says nothing else."""
    answers = document()["paths"][path.partition("?")[0]][method.lower()]["responses"]
    told = answers[str(reply.status)]
    if "$ref" in told:
        told = document()["components"]["responses"][str(reply.status)]
    schema = closed(told["content"]["application/json"]["schema"])
    Draft202012Validator({**schema, "components": SCHEMAS["components"]}).validate(reply.json)


@asynchronous
async def test_each_operation_answers_as_the_document_says(tmp_path: Path) -> None:
    done = Counter[tuple[str, str]]()
    learning: dict[str, Any] = {"method": "episodes", "learn_every": 4, "canary": 0.5, "canary_length": 20}
    async with served(tmp_path, keys=(KEY,), learn=True, **learning) as at:

        async def send(method: str, path: str, body: Any = None, user: bool = False) -> Any:
            reply = await at.send(method, path, body, {**ADMIN, **({"x-practicum-user": "u"} if user else {})})
            assert reply.status in (200, 202), reply.body
            check(method, path, reply)
            done[method, path.partition("?")[0]] += 1
            return reply.json

        space = at.service.spaces["default"]
        await send("POST", "/v1/playbook", {"text": "Cards go to the blue team.", "section": "rules"})
        await send("POST", "/v1/playbook", {"id": "e0", "text": "Lost cards go to the blue team.", "seen": 1})
        assert (await send("GET", "/v1/playbook?q=cards"))["entries"][0]["id"] == "e0"
        assert (await send("POST", "/v1/context", {"input": "Who handles lost cards?"}))["entries"] is not None
        await send("POST", "/v1/notes", {"text": "Ask for the number.", "about": "cards"})
        await send("POST", "/v1/notes", {"text": "Cards are free.", "about": "cards"}, user=True)
        (waits,) = (await send("GET", "/v1/corrections"))["corrections"]
        assert waits["note"]
        await send("POST", "/v1/review", {"id": waits["id"], "decision": "approve"})
        await send("POST", "/v1/remove", {"id": waits["id"]})
        for n in range(6):
            asked = await at.ask(f"Which team handles case {n}?", {**ADMIN, "x-practicum-user": "u"})
            await send("POST", "/v1/feedback", {"interaction": asked.interaction, "target": f"team {n}"}, user=True)
        assert len((await send("GET", "/v1/interactions?user=u&limit=5"))["interactions"]) == 5
        await send("POST", "/v1/learn")
        await until(lambda: at.service.counts["rounds"])
        waiting = (await send("GET", "/v1/review"))["edits"]
        assert waiting[0]["flags"] == []
        told = await send("POST", "/v1/review", {"id": waiting[0]["id"], "decision": "approve"})
        assert told["version"]
        await until(lambda: space.rollout)
        assert (await send("GET", "/health"))["spaces"]["default"]["candidate"] == told["version"]
        await send("POST", "/v1/rollback", {})
        assert (await send("GET", "/v1/history"))["rollouts"][0]["state"] == "taken back"
        await send("POST", "/v1/remove", {"id": "e0"})
        assert (await send("GET", "/v1/user?user=u"))["items"]
        assert (await send("DELETE", "/v1/user", {"user": "u"}))["left"] == 0
        await send("POST", "/v1/keys", {"name": "ci", "roles": ["ask"], "days": 90})
        assert (await send("GET", "/v1/keys"))["keys"][0]["roles"] == ["ask"]
        await send("DELETE", "/v1/keys", {"name": "ci"})
        await send("POST", "/v1/spaces", {"name": "more"})
        assert (await send("GET", "/v1/spaces"))["spaces"] == ["default", "more"]
        await send("DELETE", "/v1/spaces", {"name": "more"})
    assert not OPERATIONS.keys() - done.keys()


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/v1/notes", b'{"text": "\\u0000"}', {}, 400),
        ("POST", "/v1/notes", b'{"text": "\\ud800"}', {}, 400),
        ("POST", "/v1/notes", b'{"text": "\xff"}', {}, 400),
        ("POST", "/v1/notes", b'{"text": "a", "text": "b"}', {"content-type": "image/png"}, 200),
        ("POST", "/v1/notes", b'{"text": ["a"]}', {}, 400),
        ("POST", "/v1/notes", b"[" * 100_000, {}, 400),
        ("POST", "/v1/rollback", b'{"version": 1' + b"0" * 5_000 + b"}", {}, 400),
        ("POST", "/v1/rollback", b'{"version": 1e400}', {}, 400),
        ("POST", "/v1/rollback", b'{"version": true}', {}, 400),
        ("POST", "/v1/remove", b'{"id": "e999999999"}', {}, 404),
        ("POST", "/v1/remove", b'{"id": "c999999999"}', {}, 404),
        ("POST", "/v1/playbook", b'{"id": "e0", "text": "x", "seen": -1}', {}, 400),
        ("GET", "/v1/playbook?q=%ff%ED%A0%80&limit=5", None, {}, 200),
        ("GET", "/v1/playbook?limit=" + "9" * 5_000, None, {}, 400),
        ("GET", "/v1/playbook?&&=&%", None, {}, 400),
        ("GET", "/v1/playbook?" + "&".join(f"a{n}" for n in range(2_000)), None, {}, 400),
        ("GET", "/v1/playbook?skip=1;limit=2", None, {}, 400),
        ("POST", "/v1/keys", '{"name": "a\u202eb", "roles": ["ask"]}'.encode(), {}, 400),
        ("POST", "/v1/keys", b'{"name": "a", "roles": ["ask"], "days": 1e-320}', {}, 200),
        ("POST", "/v1/spaces", b'{"name": "a\\n"}', {}, 400),
        ("POST", "/v1/spaces", b'{"name": ".."}', {}, 400),
        ("GET", "/v1/history", None, {"x-practicum-space": "\udcff"}, 404),
        ("GET", "/v1/history", None, {"x-practicum-space": "x" * 201}, 400),
        ("GET", "/v1/history", None, {"x-practicum-space": "../default"}, 404),
        ("POST", "/v1/context", b'{"input": "a"}', {"x-practicum-session": "\udcff", "x-practicum-user": "ü"}, 200),
    ],
    ids=range(25),
)  # fmt: skip
@asynchronous
async def test_what_is_odd_is_answered_in_one_line(
    method: str, path: str, body: bytes | None, headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        raw = {"authorization": f"Bearer {KEY}", "host": "x", "content-length": str(len(body or b"")), **headers}
        reply = await sent_raw(at, method, path, body or b"", raw)
        assert reply.status == status, reply.body
        check(method, path, reply)
        if status >= 400:
            assert len(reply.said) < 500
            assert "\n" not in reply.said


@pytest.mark.parametrize(
    "headers",
    [{"host": "["}, {"host": "[::1"}, {"host": "localhost", "origin": "http://["}, {"host": "\udcff"}],
    ids=range(4),
)
@asynchronous
async def test_a_host_that_is_none_is_refused_where_no_key_is_needed(headers: dict[str, str], tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        assert (await sent_raw(at, "GET", "/v1/keys", b"", headers)).status in (400, 403)


async def sent_raw(at: Served, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    """Send a request as it is, byte for byte: no client would."""
    host, port = at.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "connection: close"]
    writer.write("\r\n".join([*lines, "\r\n"]).encode("utf-8", "surrogateescape") + body)
    head, _, said = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return Reply(int(head.split()[1]), {}, said)


# schemathesis


def tried(url: str, most: int, wrong: Sequence[bool], *paths: str) -> Counter[str]:
    """Send requests that schemathesis makes from the document, right or wrong ones, for these paths or all, and check
    the answers. Returns how many were answered well, by operation."""
    good, schema = Counter[str](), needs("schemathesis", "all-tests").openapi.from_dict(document())
    for found in (schema.include(path=[*paths]) if paths else schema).get_all_operations():
        operation = found.ok()
        for is_wrong in wrong:
            if not is_wrong or operation.path not in LOOKED_AT:
                good[operation.label] += tried_one(url, most, operation, is_wrong)
    return good


def tried_one(url: str, most: int, operation: Any, wrong: bool) -> int:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as openapi

    good, mode = 0, GenerationMode.NEGATIVE if wrong else GenerationMode.POSITIVE
    headers = ADMIN if wrong else {**ADMIN, "x-practicum-space": "default"}
    checks: Any = [not_a_server_error, *(getattr(openapi, f"{name}_conformance") for name in CHECKS)]
    checks += [openapi.negative_data_rejection] if wrong else []

    @settings(max_examples=most, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
    @given(operation.as_strategy(generation_mode=mode))
    def go(case: Any) -> None:
        nonlocal good
        response = case.call(base_url=url, headers=headers)
        good += response.status_code < 300
        case.validate_response(response, checks=checks)

    go()
    return good


@asynchronous
async def test_what_schemathesis_sends_is_answered_as_the_document_says(tmp_path: Path) -> None:
    needs("schemathesis", "all-tests").openapi.from_dict(document()).validate()
    async with served(tmp_path, keys=(KEY,)) as at:
        good = await asyncio.to_thread(tried, at.url, 2, (False,), "/v1/notes", "/v1/keys")
        assert {*good} == {"POST /v1/notes", "GET /v1/keys", "POST /v1/keys", "DELETE /v1/keys"}


@pytest.mark.slow
@asynchronous
async def test_schemathesis_finds_nothing_in_many_requests(place: Place) -> None:
    needs("schemathesis", "all-tests")
    async with served(**place, keys=(KEY,)) as at:
        good = await asyncio.to_thread(tried, at.url, examples(60), (False, True))
        needed = {"POST /v1/notes", "POST /v1/context", "GET /v1/playbook", "POST /v1/keys", "POST /v1/spaces"}
        assert all(good[label] for label in needed)
        assert (await at.ask("Still there?", ADMIN)).status == 200
