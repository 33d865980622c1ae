"""Requests and answers that are made to be read in two ways: trailers, blank and repeated headers, odd addresses and
methods, paths of others' data, and what a browser or a terminal would obey."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers import run_command
from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, served

QUESTION = "Which team handles lost cards?"
KEY, OTHER = "first-" + "k" * 16, "other-" + "k" * 16
ASK = json.dumps({"messages": [{"role": "user", "content": QUESTION}]}).encode()
BLANK = {
    "empty": b"", "a space": b" ", "a tab": b"\t", "zero width": "\u200b\u2060\ufeff".encode(),
    "joiners": "\u200d\u200c".encode(), "a filler": "\u3164\u115f".encode(), "no-break space": b"\xa0",
    "direction": "\u202e".encode(),
}  # fmt: skip


@dataclass
class Raw:
    """A model server that keeps each request as the bytes that arrived, and answers each with `reply`."""

    reply: bytes = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    requests: list[bytes] = field(default_factory=list)
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        self.requests.append(head + await reader.readexactly(int(length[0]) if length else 0))
        writer.write(self.reply.removesuffix(b"{}") if head.startswith(b"HEAD ") else self.reply)
        writer.close()

    @property
    def targets(self) -> list[bytes]:
        return [request.split(b" ", 2)[1] for request in self.requests]


@asynccontextmanager
async def raw_upstream(reply: bytes = Raw.reply) -> AsyncIterator[Raw]:
    raw = Raw(reply)
    server = await asyncio.start_server(raw.answer, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield raw


async def sent(at: Served, *parts: bytes) -> bytes:
    """What the service sends back on one connection until it closes it."""
    host, port = at.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(parts))
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


def request(line: str, *headers: bytes, body: bytes = b"", host: bytes = b"127.0.0.1") -> bytes:
    """A request after which the connection ends."""
    first = (line.encode("latin-1") + b" HTTP/1.1", b"host: " + host, b"connection: close")
    return b"\r\n".join([*first, *headers, b"content-length: %d" % len(body), b"", b""]) + body


def chunked(body: bytes, *headers: bytes, trailers: tuple[bytes, ...], host: bytes = b"127.0.0.1") -> bytes:
    """A chat request in two chunks, with trailers."""
    first = (b"POST " + CHAT.encode() + b" HTTP/1.1", b"host: " + host, b"transfer-encoding: chunked", *headers)
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:]))
    return b"\r\n".join([*first, b"", b""]) + chunks + b"\r\n".join([b"0", *trailers, b"", b""])


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# Trailers


TRAILERS = (
    b"x-practicum-user: eve", b"x-practicum-space: other", b"authorization: Bearer " + OTHER.encode(),
    b"x-practicum-key: " + OTHER.encode(), b"host: 127.0.0.1", b"origin: http://127.0.0.1",
    b"content-type: image/png", b"x-sim-fault: 500",
)  # fmt: skip


@pytest.mark.parametrize(
    ("host", "headers"), [(b"evil.example", ()), (b"127.0.0.1", (b"origin: https://evil.example",))]
)
@asynchronous
async def test_trailers_do_not_replace_host_and_origin(host: bytes, headers: tuple[bytes, ...], tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        asked = chunked(ASK, *headers, b"connection: close", trailers=TRAILERS, host=host)
        assert status(await sent(at, asked)) == 403
        assert not at.upstream.requests


# Where a request ends


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"x"])
@pytest.mark.parametrize("apart", [False, True])
@asynchronous
async def test_the_body_of_a_request_with_upgrade_is_its_body_and_not_the_next_request(
    apart: bool, protocol: bytes, tmp_path: Path
) -> None:
    inner = request("POST /v1/embeddings", body=b'{"input": "x"}')
    upgrade = b"connection: upgrade, http2-settings", b"upgrade: " + protocol, b"http2-settings: AAMAAABk"
    async with served(tmp_path) as at:
        host, port = at.url.removeprefix("http://").split(":")
        for framing in (b"content-length: %d" % len(inner), b"transfer-encoding: chunked"):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = b"\r\n".join([b"POST /v1/completions HTTP/1.1", b"host: 127.0.0.1", *upgrade, framing, b"", b""])
            body = inner if b"length" in framing else b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
            if apart:
                # Once another request is answered, the service has read the head.
                writer.write(head)
                assert (await at.send("GET", "/health")).status == 200
                head = b""
            writer.write(head + body + request("GET /v1/models"))
            async with asyncio.timeout(30):
                answers = await reader.read()
            writer.close()
            assert answers.count(b"HTTP/1.1 ") == 2
        assert [(one.path, one.body) for one in at.upstream.requests] == 2 * [
            ("/v1/completions", inner), ("/v1/models", b"")
        ]  # fmt: skip


@pytest.mark.parametrize("target", ["/", "/v1/models", "127.0.0.1:80"])
@asynchronous
async def test_what_follows_connect_is_not_read_as_a_request(target: str, tmp_path: Path) -> None:
    inner = request("GET /v1/models")
    async with served(tmp_path) as at:
        host, port = at.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = f"CONNECT {target} HTTP/1.1".encode(), b"host: 127.0.0.1", b"content-length: %d" % len(inner)
        writer.write(b"\r\n".join([*lines, b"", b""]))
        async with asyncio.timeout(30):
            first = await reader.readuntil(b"\r\n\r\n")
            writer.write(inner)
            read = first + await reader.read()
        writer.close()
        assert [status(read), read.count(b"HTTP/1.1 ")] == [405, 1]
        assert not at.upstream.requests


# Headers


ROUTES = {
    f"POST {CHAT}": ASK, f"POST {MESSAGES}": ASK, f"POST {RESPONSES}": b'{"input": "x"}', "GET /v1/models": b"",
    "POST /v1/embeddings": b'{"input": "x"}', "POST /v1/feedback": b'{"session": "s", "score": 1}',
    "POST /v1/notes": b'{"text": "x"}', "POST /v1/context": b'{"input": "x"}', "POST /v1/remove": b'{"id": "c1"}',
    "DELETE /v1/user": b'{"user": "anna"}', "GET /v1/interactions": b"", "POST /mcp": b"{}",
}  # fmt: skip


@pytest.mark.parametrize("name", ["user", "agent", "session", "space", "key"])
@asynchronous
async def test_a_blank_header_is_refused_wherever_it_is_read(name: str, tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        for kind, value in BLANK.items():
            for line, body in ROUTES.items():
                answer = await sent(at, request(line, b"x-practicum-%s: %s" % (name.encode(), value), body=body))
                assert (kind, line, status(answer)) == (kind, line, 400)
        assert at.service.counts["refused_requests"] == len(ROUTES) * len(BLANK)
        assert not at.upstream.requests


@pytest.mark.parametrize(
    "name",
    [
        "x-practicum-user",
        "x-practicum-agent",
        "x-practicum-session",
        "x-practicum-space",
        "x-practicum-key",
        "mcp-session-id",
        "Authorization",
        "x-api-key",
        "Host",
        "Origin",
    ],
)
@asynchronous
async def test_a_header_that_comes_twice_is_refused(name: str, tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)) as at:
        for first, second in ((b"Bearer " + KEY.encode(), b"x"), (b"x", b"Bearer " + KEY.encode()), (b"x", b"x")):
            twice = (f"{name}: ".encode() + first, f"{name.upper()}: ".encode() + second)
            for line, body in ROUTES.items():
                assert (line, status(await sent(at, request(line, *twice, body=body)))) == (line, 400)
        assert not at.upstream.requests


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("DELETE /v1/user", json.dumps({"user": "\x00"}).encode()),
        ("DELETE /v1/user", json.dumps({"user": " \u200b"}).encode()),
        ("GET /v1/user?user=%20", b""),
        ("GET /v1/user?user=anna&user=bob", b""),
        ("GET /v1/interactions?session=%E2%80%8B", b""),
        ("GET /v1/interactions?user=%00", b""),
    ],
)
@asynchronous
async def test_a_blank_or_repeated_name_in_a_form_is_refused(line: str, body: bytes, tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        assert status(await sent(at, request(line, body=body))) == 400


# Addresses and methods


NORMAL = {
    "/v1/models": b"/v1/models",
    "/v1/models?a=1&b=%2e%2E%2f&c=/../": b"/v1/models?a=1&b=%2e%2E%2f&c=/../",
    "/v1/files/a%3Fb": b"/v1/files/a%3Fb",
    "/v1/files/a%3A1@b:c+d=~x,(y)!*'$&": b"/v1/files/a%3A1@b:c+d=~x,(y)!*'$&",
    "/v1/files/%E6%A8%A1": b"/v1/files/%E6%A8%A1",
    "/v1/files/...": b"/v1/files/...",
}
ODD = [
    "/%761/models", "/v1/%6Dodels", "/v1/files/a%2Fb", "/v1/files/a%2fb", "/v1/files/%3f", "/v1/..", "/v1/../keys",
    "/v1/%2E%2E/keys", "/v1/files/.", "/v1//models", "//v1/models", "//evil/v1/models", "/v1/models/", "/v1/files\\x",
    "/v1/files/%5Cx", "/v1/files/%", "/v1/files/%zz", "/v1/files/%0A", "/v1/files/%00", "/v1/files/%7F",
    "/v1/files/%C0%AF", "/v1/files/%FF", "/v1/files/%EF%BC%8F", "/v1/files/%252E%252E", "/v1/files;x", "/v1/..;/keys",
    "/v1/files/\xe9", "/v1/files/\x01", "/v1/models#x", "http://evil.example/v1/models", "*", "/v1/models?a=\x01",
    "/v1/models?a=\xe9", "/v1/models?a=%00", "/v1/files/[", "/v1/files/<x>", "//metrics", "/.//metrics", "/%6Detrics",
    "/s/..%2f..", "/s//x", "/static/..%2fpages.py", "/s/default/playbook?q=%00",
]  # fmt: skip


@asynchronous
async def test_a_path_is_sent_as_it_was_compared_or_refused_before_it_is_looked_up(tmp_path: Path) -> None:
    async with raw_upstream() as raw, served(tmp_path, address=raw.url, passing=("/v1/files",)) as at:
        for target in NORMAL:
            assert (target, status(await sent(at, request(f"GET {target}")))) == (target, 200)
        assert raw.targets == [*NORMAL.values()]
        for target in ODD:
            answer = await sent(at, request(f"GET {target}"))
            assert (target, status(answer)) == (target, 400)
            assert answer.count(b"HTTP/1.1") == 1
        assert len(raw.requests) == len(NORMAL)


# Least privilege at the upstream


@pytest.mark.parametrize("path", ["files", "/files", "/v1x", "/v1/", "/v1/files/", "/v1/../x", "/v1/%66iles", ""])
def test_a_prefix_that_is_not_a_path_of_the_upstream_is_refused(path: str, tmp_path: Path) -> None:
    done = run_command(["serve", "--upstream", "http://127.0.0.1:9/v1#m", "--pass", path], tmp_path)
    assert done.code == 2
    assert "--pass" in done.err


@asynchronous
async def test_a_response_of_which_no_interaction_is_kept_can_be_gone_on_from(tmp_path: Path) -> None:
    reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    answer = json.dumps({"id": "resp_1", "object": "response", "status": "completed", "output": []}).encode()
    keys, key = (f"default={KEY}",), {"authorization": f"Bearer {KEY}"}
    async with raw_upstream(reply % (len(answer), answer)) as raw, served(tmp_path, address=raw.url, keys=keys) as at:
        # No `input`, as with a stored prompt: nothing can be put into it, and it is not kept.
        assert (await at.send("POST", RESPONSES, {"prompt": {"id": "p"}}, key)).status == 200
        assert not (await at.send("GET", "/v1/interactions", None, key)).json["interactions"]
        assert (await at.send("POST", RESPONSES, {"input": "x", "previous_response_id": "resp_1"}, key)).status == 200
        assert (await at.send("GET", f"{RESPONSES}/resp_1", None, key)).status == 200
        assert (await at.send("GET", f"{RESPONSES}/resp_2", None, key)).status == 404


GOING_ON = {
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
async def test_a_request_does_not_go_on_from_what_is_kept_for_others(tmp_path: Path) -> None:
    async with raw_upstream() as raw:
        key = b"authorization: Bearer " + KEY.encode()
        async with served(tmp_path / "a", address=raw.url, keys=(f"default={KEY}",)) as at:
            for name, (body, wanted) in GOING_ON.items():
                assert (name, status(await sent(at, request(f"POST {RESPONSES}", key, body=body)))) == (name, wanted)
            compressed = request(f"POST {RESPONSES}", key, b"content-encoding: gzip", body=b"\x1f\x8b")
            assert status(await sent(at, compressed)) == 415
            assert not raw.requests
            # The words themselves pass: in a text, and where nothing is gone on from.
            for body in (b'{"input": "previous_response_id, conversation"}', b'{"input": "x", "conversation": null}'):
                assert status(await sent(at, request(f"POST {RESPONSES}", key, body=body))) == 200
        # The operator's own key, or a service without keys, goes on from anything.
        async with served(tmp_path / "c", address=raw.url) as at:
            for body, _ in GOING_ON.values():
                assert status(await sent(at, request(f"POST {RESPONSES}", body=body))) == 200
        async with served(tmp_path / "b", address=raw.url, passing=("/v1/responses", "/v1/conversations")) as at:
            for body, _ in GOING_ON.values():
                assert status(await sent(at, request(f"POST {RESPONSES}", body=body))) == 200


@asynchronous
async def test_of_a_name_that_stands_twice_the_one_that_was_checked_is_sent(tmp_path: Path) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    async with served(tmp_path, keys=(f"default={KEY}",)) as at:
        id = (await at.send("POST", RESPONSES, {"input": "x"}, key)).json["id"]
        body = b'{"previous_response_id": "theirs", "input": "x", "previous_response_id": "%s"}' % id.encode()
        assert (await at.send("POST", RESPONSES, body, key)).status == 200
        assert b"theirs" not in at.upstream.requests[-1].body
        for name in ("previous_response_id", "conversation"):
            body = b'{"%s": "theirs", "input": "x", "%s": null}' % (name.encode(), name.encode())
            assert (await at.send("POST", RESPONSES, body, key)).status == 200
            assert b"theirs" not in at.upstream.requests[-1].body
