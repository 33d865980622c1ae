"""The OpenAPI document: it is valid, real answers are as it says, and what schemathesis makes of it breaks nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from needs import needs
from profiles import examples
from serving import Place, Reply, Served, asynchronous, served

from practicum.serve.openapi import document

KEY = "k" * 20
ADMIN = {"Authorization": f"Bearer {KEY}", "x-practicum-key": KEY}

LOOKED_AT = ("/health", "/ready", "/metrics")
"""Of these nothing is asked, so nothing can be wrong."""

CHECKS = ("status_code", "content_type", "response_schema", "response_headers")
"""What an answer has to conform to, by the document."""


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
