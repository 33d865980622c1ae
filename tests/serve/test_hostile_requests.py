"""Requests that two servers could read in two ways: upgrades, blank and repeated headers, odd addresses and methods,
and paths of other users' data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from helpers import run_command
from raw_server import ok, raw_server
from serving import CHAT, RESPONSES, Served, asynchronous, served, until

from practicum.serve import connections

QUESTION = "Which team handles lost cards?"
KEY = "first-" + "k" * 16
ASK = json.dumps({"messages": [{"role": "user", "content": QUESTION}]}).encode()
BLANK = [
    b"", b" ", b"\t", "\u200b\u2060\ufeff".encode(), "\u200d\u200c".encode(), "\u3164\u115f".encode(), b"\xa0",
    "\u202e".encode(),
]  # fmt: skip


@asynccontextmanager
async def connected(at: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the service, which must end within 30 s."""
    host, port = at.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(30):
            yield reader, writer
    finally:
        writer.close()


async def sent(at: Served, *parts: bytes) -> bytes:
    """All bytes that the service sends on one connection."""
    async with connected(at) as (reader, writer):
        writer.write(b"".join(parts))
        return await reader.read()


def request(line: str, *headers: bytes, body: bytes = b"", host: bytes = b"127.0.0.1") -> bytes:
    """A request after which the connection ends."""
    first = (line.encode("latin-1") + b" HTTP/1.1", b"host: " + host, b"connection: close")
    return b"\r\n".join([*first, *headers, b"content-length: %d" % len(body), b"", b""]) + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# The end of a request


@asynchronous
async def test_upgrades_and_connect_do_not_change_the_end_of_a_request(tmp_path: Path) -> None:
    inner = request("GET /v1/embeddings")
    async with served(tmp_path) as at:
        for target in (b"/v1/models", b"127.0.0.1:80"):
            async with connected(at) as (reader, writer):
                head = b"CONNECT %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"
                writer.write(head % (target, len(inner)))
                first = await reader.readuntil(b"\r\n\r\n")
                writer.write(inner)
                read = first + await reader.read()
            assert [status(read), read.count(b"HTTP/1.1 ")] == [405, 1]
        assert not at.upstream.requests
        for protocol, framing in ((b"h2c", b"content-length: %d" % len(inner)),
                                  (b"websocket", b"transfer-encoding: chunked")):  # fmt: skip
            upgrade = b"connection: upgrade, http2-settings", b"upgrade: " + protocol, b"http2-settings: AAMAAABk"
            head = b"\r\n".join([b"POST /v1/completions HTTP/1.1", b"host: 127.0.0.1", *upgrade, framing, b"", b""])
            body = inner if b"length" in framing else b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
            async with connected(at) as (reader, writer):
                # Once another request is answered, the service has read the head.
                writer.write(head)
                assert (await at.send("GET", "/health")).status == 200
                writer.write(body + request("GET /v1/models"))
                assert (await reader.read()).count(b"HTTP/1.1 ") == 2
        assert [(one.path, one.body) for one in at.upstream.requests] == 2 * [
            ("/v1/completions", inner), ("/v1/models", b"")
        ]  # fmt: skip


# Headers


@asynchronous
async def test_a_header_that_is_too_large_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as at, connected(at) as (reader, writer):
        writer.write(b"POST /v1/feedback HTTP/1.1\r\nx: " + b"a" * connections.MOST_BESIDE)
        await until(lambda: not writer.transport.get_write_buffer_size())
        # Once this is answered, the service has read the header.
        assert (await at.ask(QUESTION)).status == 200
        writer.write(b"a")
        assert (await reader.readline()) == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


ROUTES = {
    f"POST {CHAT}": ASK, "GET /v1/models": b"", "POST /v1/feedback": b'{"session": "s", "score": 1}',
    "DELETE /v1/user": b'{"user": "anna"}', "POST /mcp": b"{}",
}  # fmt: skip
"""A route of each kind: a model's, another path of the upstream, operations, and agents'."""


IDENTITY = (
    "x-practicum-user", "x-practicum-agent", "x-practicum-session", "x-practicum-space", "x-practicum-key",
    "mcp-session-id", "Authorization", "x-api-key", "Host", "Origin",
)  # fmt: skip


@asynchronous
async def test_a_blank_or_repeated_header_or_name_that_identifies_the_client_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        lines = [*ROUTES]
        tried = [(IDENTITY[n % 5], BLANK[n % len(BLANK)], lines[n // 2 % len(lines)]) for n in range(10)]
        for name, value, line in tried:
            answer = await sent(at, request(line, f"{name}: ".encode() + value, body=ROUTES[line]))
            assert (name, value, line, status(answer)) == (name, value, line, 400)
        assert at.service.counts["refused_requests"] == len(tried)
        for number, name in enumerate(IDENTITY):
            line, twice = lines[number // 2], (f"{name}: x".encode(), f"{name.upper()}: y".encode())
            assert (name, line, status(await sent(at, request(line, *twice, body=ROUTES[line])))) == (name, line, 400)
        for line, body in (
            ("DELETE /v1/user", b'{"user": "\\u0000"}'), ("DELETE /v1/user", b'{"user": " \\u200b"}'),
            ("GET /v1/user?user=%20", b""), ("GET /v1/user?user=anna&user=bob", b""),
            ("GET /v1/interactions?session=%E2%80%8B", b""),
        ):  # fmt: skip
            assert (line, status(await sent(at, request(line, body=body)))) == (line, 400)
        assert not at.upstream.requests


# Addresses and methods


NORMAL = (
    "/v1/models?a=1&b=%2e%2E%2f&c=/../", "/v1/files/a%3Fb", "/v1/files/a%3A1@b:c+d=~x,(y)!*'$&",
    "/v1/files/%E6%A8%A1", "/v1/files/...",
)  # fmt: skip
ODD = [
    "/%761/models", "/v1/%6Dodels", "/v1/files/a%2fb", "/v1/files/%3f", "/v1/..", "/v1/%2E%2E/keys", "/v1/files/.",
    "//v1/models", "//evil/v1/models", "/v1/models/", "/v1/files\\x", "/v1/files/%5Cx", "/v1/files/%", "/v1/files/%zz",
    "/v1/files/%00", "/v1/files/%7F", "/v1/files/%C0%AF", "/v1/files/%EF%BC%8F", "/v1/files/%252E%252E",
    "/v1/files;x", "/v1/..;/keys", "/v1/files/\xe9", "/v1/files/\x01", "/v1/models#x", "http://evil.example/v1/models",
    "*", "/v1/models?a=\x01", "/v1/models?a=\xe9", "/v1/models?a=%00", "/v1/files/[", "/.//metrics", "/%6Detrics",
    "/s/..%2f..", "/s//x", "/static/..%2fpages.py", "/s/default/playbook?q=%00",
]  # fmt: skip


@asynchronous
async def test_a_path_is_sent_as_it_was_compared_or_refused_before_it_is_looked_up(tmp_path: Path) -> None:
    passing = ("/v1/files",)
    async with raw_server(ok({})) as (address, sent_on), served(tmp_path, address=address, passing=passing) as at:
        for target in NORMAL:
            assert (target, status(await sent(at, request(f"GET {target}")))) == (target, 200)
        assert [one.split(" ", 2)[1] for one in sent_on] == [*NORMAL]
        for target in ODD:
            answer = await sent(at, request(f"GET {target}"))
            assert (target, status(answer), answer.count(b"HTTP/1.1")) == (target, 400, 1)
        assert len(sent_on) == len(NORMAL)


# Least privilege at the upstream


def test_a_prefix_that_is_not_a_path_of_the_upstream_is_refused(tmp_path: Path) -> None:
    for path in ("files", "/files", "/v1/files/", "/v1/../x", "/v1/%66iles"):
        done = run_command(["serve", "--upstream", "http://127.0.0.1:9/v1#m", "--pass", path], tmp_path)
        assert (path, done.code, "--pass" in done.err) == (path, 2, True)


CONTINUING = {
    "a response of another space": (b'{"input": "x", "previous_response_id": "ID"}', 404),
    "escaped": (rb'{"input": "x", "previous\u005fresponse_id": "ID"}', 404),
    "an escaped value": (rb'{"input": "x", "previous_response_id": "\u0072esp"}', 404),
    "twice": (b'{"previous_response_id": null, "input": "x", "previous_response_id": "ID"}', 404),
    "without an input": (b'{"previous_response_id": "ID", "prompt": {"id": "p"}}', 404),
    "UTF-16": (json.dumps({"input": "x", "previous_response_id": "ID"}).encode("utf-16"), 400),
    "UTF-32": (json.dumps({"input": "x", "previous_response_id": "ID"}).encode("utf-32-le"), 400),
    "not quite JSON": (b'{"input": "x", "previous_response_id": "ID",}', 400),
    "a list": (b'{"input": "x", "previous_response_id": ["ID"]}', 400),
    "a conversation": (b'{"input": "x", "conversation": "conv_1"}', 403),
    "a conversation with an id": (b'{"input": "x", "conversation": {"id": "conv_1"}}', 403),
}


@asynchronous
async def test_a_request_continues_a_response_of_its_space_only(tmp_path: Path) -> None:
    bearer = {"authorization": f"Bearer {KEY}"}
    key, keys = f"authorization: Bearer {KEY}".encode(), (f"default={KEY}",)
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": []}
    async with raw_server(ok(response)) as (address, sent_on):
        async with served(tmp_path / "a", address=address, keys=keys) as at:
            for name, (body, expected) in CONTINUING.items():
                assert (name, status(await sent(at, request(f"POST {RESPONSES}", key, body=body)))) == (name, expected)
            compressed = request(f"POST {RESPONSES}", key, b"content-encoding: gzip", body=b"\x1f\x8b")
            assert status(await sent(at, compressed)) == 415
            assert not sent_on
            # Without an `input`, as with a stored prompt, no interaction is stored, and the response is known.
            assert (await at.send("POST", RESPONSES, {"prompt": {"id": "p"}}, bearer)).status == 200
            assert not (await at.send("GET", "/v1/interactions", None, bearer)).json["interactions"]
            for id, expected in (("resp_1", 200), ("resp_2", 404)):
                continued = {"input": "x", "previous_response_id": id}
                assert (await at.send("POST", RESPONSES, continued, bearer)).status == expected
                assert (await at.send("GET", f"{RESPONSES}/{id}", None, bearer)).status == expected
            # The words themselves pass: in a text, and with null. Of a repeated name the checked value is sent.
            for fields in (
                '"input": "previous_response_id, conversation"', '"input": "x", "conversation": null',
                '"previous_response_id": "theirs", "input": "x", "previous_response_id": "resp_1"',
                '"previous_response_id": "theirs", "input": "x", "previous_response_id": null',
                '"conversation": "theirs", "input": "x", "conversation": null',
            ):  # fmt: skip
                # With a model and without a view, the service has no other reason to write the body again.
                body = f'{{"model": "m", {fields}}}'.encode()
                assert (await at.send("POST", RESPONSES, body, bearer)).status == 200
                assert "theirs" not in sent_on[-1]
        # A service that passes these paths continues anything.
        passing = ("/v1/responses", "/v1/conversations")
        async with served(tmp_path / "b", address=address, keys=keys, passing=passing) as at:
            for name in ("escaped", "UTF-16", "a conversation"):
                answer = await sent(at, request(f"POST {RESPONSES}", key, body=CONTINUING[name][0]))
                assert (name, status(answer)) == (name, 200)
