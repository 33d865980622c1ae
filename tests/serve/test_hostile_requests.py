"""Requests and answers that are made to be read in two ways: trailers, blank and repeated headers, odd addresses and
methods, paths of others' data, and what a browser or a terminal would obey."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers import run_command
from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, served, until

from practicum.serve.lines import JsonLines, Lines
from practicum.serve.upstream import Upstream
from practicum.serve.watch import Alarm

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


async def users(at: Served, headers: dict[str, str] | None = None) -> list[str | None]:
    """Whose the interactions of a space are, the newest first."""
    await until(lambda: not at.service.log.unwritten)
    return [one["user"] for one in (await at.send("GET", "/v1/interactions", None, headers)).json["interactions"]]


# Trailers


TRAILERS = (
    b"x-practicum-user: eve", b"x-practicum-space: other", b"authorization: Bearer " + OTHER.encode(),
    b"x-practicum-key: " + OTHER.encode(), b"host: 127.0.0.1", b"origin: http://127.0.0.1",
    b"content-type: image/png", b"x-sim-fault: 500",
)  # fmt: skip


@asynchronous
async def test_trailers_have_no_effect_on_this_request_or_the_next(tmp_path: Path) -> None:
    keys, spaces = (f"mine={KEY}", f"other={OTHER}"), ("mine", "other")
    mine, next_one = b"authorization: Bearer " + KEY.encode(), b"x-practicum-user: anna"
    async with served(tmp_path, keys=keys, spaces=spaces) as at:
        asked = chunked(ASK, mine, next_one, trailers=TRAILERS)
        answers = await sent(at, asked, request(f"POST {CHAT}", mine, body=ASK))
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert [one.json()["messages"] for one in at.upstream.requests] == 2 * [json.loads(ASK)["messages"]]
        assert await users(at, {"authorization": f"Bearer {KEY}"}) == [None, "anna"]
        assert await users(at, {"authorization": f"Bearer {OTHER}"}) == []
        # No key in the head is no key, and a connection is not given one by a trailer.
        refused = await sent(at, chunked(ASK, trailers=TRAILERS), request(f"POST {CHAT}", body=ASK))
        assert refused.count(b"HTTP/1.1 401 ") == 2


@pytest.mark.parametrize("trailer", [b"content-length: 1", b"transfer-encoding: gzip", b"x: \x00", b"a b: c"])
@asynchronous
async def test_a_trailer_that_would_change_where_the_request_ends_is_refused(trailer: bytes, tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        answer = await sent(at, chunked(ASK, trailers=(trailer,)), request("GET /v1/models"))
        assert [status(answer), answer.count(b"HTTP/1.1 ")] == [400, 1]
        assert not at.upstream.requests


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
        assert at.service.counts["refused requests"] == len(ROUTES) * len(BLANK)
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


@asynchronous
async def test_a_header_that_a_proxy_would_drop_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        dropped = b"x-practicum-user: anna", b"connection: X-Practicum-User, close"
        assert status(await sent(at, request(f"POST {CHAT}", *dropped, body=ASK))) == 400


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


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "PURGE", "LINK"])
@asynchronous
async def test_methods_that_are_not_supported_are_answered_with_405(method: str, tmp_path: Path) -> None:
    async with served(tmp_path, pass_key=True) as at:
        for target in ("/v1/models", "/v1/keys", CHAT, "/mcp", "/", "/health", "127.0.0.1:80"):
            if not target.startswith("/") and method != "CONNECT":
                continue
            answer = await sent(at, request(f"{method} {target}"))
            assert (target, status(answer)) == (target, 405)
            assert b"allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n" in answer
        assert not at.upstream.requests


# Least privilege at the upstream


PASSED = [
    *(f"POST /v1/{path}" for path in ("chat/completions", "completions", "responses", "messages", "embeddings")),
    *(f"POST /v1/{path}" for path in ("messages/count_tokens", "responses/input_tokens", "responses/compact")),
    *(f"POST /v1/{path}" for path in ("moderations", "rerank", "audio/speech", "audio/transcriptions")),
    *(f"POST /v1/{path}" for path in ("audio/translations", "images/generations", "images/edits", "images/variations")),
    "GET /v1/models", "HEAD /v1/models", "GET /v1/models/org/name",
]  # fmt: skip
NOT_PASSED = {
    "GET /v1/files": "/v1/files", "GET /v1/files/x/content": "/v1/files", "DELETE /v1/files/x": "/v1/files",
    "POST /v1/fine_tuning/jobs": "/v1/fine_tuning", "GET /v1/batches": "/v1/batches", "POST /v1/uploads": "/v1/uploads",
    "GET /v1/chat/completions": "/v1/chat/completions", "GET /v1/chat/completions/x": "/v1/chat/completions",
    "DELETE /v1/chat/completions/x": "/v1/chat/completions", "POST /v1/assistants": "/v1/assistants",
    "GET /v1/vector_stores/x/files": "/v1/vector_stores", "GET /v1/organization/users": "/v1/organization",
    "POST /v1/messages/batches": "/v1/messages/batches", "GET /v1/messages/batches/x": "/v1/messages/batches",
    "GET /v1/responses": "/v1/responses", "PUT /v1/responses/x": "/v1/responses", "DELETE /v1/models/x": "/v1/models",
    "POST /v1/realtime/client_secrets": "/v1/realtime", "POST /v1/conversations": "/v1/conversations",
    "OPTIONS /v1/embeddings": "/v1/embeddings", "POST /v1/responses/x/y/cancel": "/v1/responses",
}  # fmt: skip


@asynchronous
async def test_what_asks_models_passes_and_all_else_names_the_option(tmp_path: Path) -> None:
    async with raw_upstream() as raw, served(tmp_path, address=raw.url) as at:
        for line in PASSED:
            assert (line, status(await sent(at, request(line, body=b"{}")))) == (line, 200)
        assert len(raw.requests) == len(PASSED)
        for line, prefix in NOT_PASSED.items():
            answer = await sent(at, request(line, body=b"{}"))
            assert (line, status(answer)) == (line, 403)
            assert f"--pass {prefix}".encode() in answer
        assert len(raw.requests) == len(PASSED)
        assert at.service.counts["refused requests"] == len(NOT_PASSED)


@pytest.mark.parametrize("everything", [False, True])
@asynchronous
async def test_the_operators_paths_pass_and_a_clients_own_key_decides_for_itself(
    everything: bool, tmp_path: Path
) -> None:
    prefixes = () if everything else tuple({*NOT_PASSED.values()})
    async with raw_upstream() as raw, served(tmp_path, address=raw.url, passing=prefixes, pass_key=everything) as at:
        for line in [*PASSED, *NOT_PASSED]:
            assert (line, status(await sent(at, request(line, body=b"{}")))) == (line, 200)
        assert len(raw.requests) == len(PASSED) + len(NOT_PASSED)
        if not everything:
            # A prefix ends at the end of a segment.
            assert status(await sent(at, request("GET /v1/files2"))) == 403


@pytest.mark.parametrize("path", ["files", "/files", "/v1x", "/v1/", "/v1/files/", "/v1/../x", "/v1/%66iles", ""])
def test_a_prefix_that_is_not_a_path_of_the_upstream_is_refused(path: str, tmp_path: Path) -> None:
    done = run_command(["serve", "--upstream", "http://127.0.0.1:9/v1#m", "--pass", path], tmp_path)
    assert done.code == 2
    assert "--pass" in done.err


@asynchronous
async def test_responses_are_those_of_the_space(tmp_path: Path) -> None:
    keys, spaces = (f"mine={KEY}", f"other={OTHER}"), ("mine", "other")
    mine, other = {"authorization": f"Bearer {KEY}"}, {"authorization": f"Bearer {OTHER}"}
    async with served(tmp_path, keys=keys, spaces=spaces) as at:
        made = [await at.send("POST", RESPONSES, {"input": "x", "stream": stream}, mine) for stream in (False, True)]
        ids = [made[0].json["id"], json.loads(made[1].body.split(b"data: ")[-1])["response"]["id"]]
        before = len(at.upstream.requests)
        lines = [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]
        asked = [(method, f"{RESPONSES}/{id}{more}") for id in ids for method, more in lines]
        for in_memory in (True, False):
            if not in_memory:
                at.service.recent.clear()
            for method, path in asked:
                # The simulated upstream keeps no responses: what it is asked counts.
                assert "made in this space" not in (await at.send(method, path, None, mine)).said
                assert (await at.send(method, path, None, other)).status == 404
            assert [one.path for one in at.upstream.requests[before:]] == [path for _, path in asked]
            before += len(asked)
        for path in (RESPONSES, "/v1/responses/input_tokens"):
            for id in ids:
                body = {"input": "x", "previous_response_id": id}
                assert (await at.send("POST", path, body, mine)).status == 200
                assert (await at.send("POST", path, body, other)).status == 404
        assert (await at.send("POST", RESPONSES, {"input": "x", "previous_response_id": None}, other)).status == 200


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


# What a browser or a terminal would obey


@asynchronous
async def test_a_page_of_the_upstream_is_inert_in_the_origin_of_the_dashboard(tmp_path: Path) -> None:
    page = b"HTTP/1.1 %s\r\ncontent-type: text/html\r\ncontent-length: 25\r\n\r\n<script>alert(1)</script>"
    for code in (b"200 OK", b"404 Not Found", b"302 Found", b"500 Oops"):
        async with raw_upstream(page % code) as raw, served(tmp_path / code[:3].decode(), address=raw.url) as at:
            for method, path, body in (
                ("GET", "/v1/models", None),
                ("POST", CHAT, ASK),
                ("POST", "/v1/embeddings", b""),
            ):
                reply = await at.send(method, path, body)
                assert reply.status == int(code[:3])
                assert reply.headers["x-content-type-options"] == "nosniff"
                assert {"sandbox", "default-src 'none'"} <= {*reply.headers["content-security-policy"].split("; ")}
            for path in ("/health", "/v1/interactions", "/nothing"):
                assert (await at.send("GET", path)).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("origin", "site", "wanted"),
    [
        ("{own}", None, 200), (None, None, 200), ("null", "same-origin", 200), ("null", None, 403),
        ("null", "cross-site", 403), ("http://localhost:3000", None, 403), ("http://127.0.0.1", None, 403),
        ("http://127.0.0.1:3000", "same-site", 403), ("https://{host}", None, 403),
        ("http://localhost:{port}", None, 403),
        ("{own}.evil.example", None, 403), ("https://evil.example", None, 403), ("file://", None, 403), ("", None, 403),
    ],
)  # fmt: skip
@asynchronous
async def test_only_pages_of_the_very_same_origin_use_a_service_without_keys(
    origin: str | None, site: str | None, wanted: int, tmp_path: Path
) -> None:
    async with served(tmp_path) as at:
        host = at.url.removeprefix("http://")
        origin = origin and origin.format(own=at.url, host=host, port=host.split(":")[1])
        headers = {"Origin": origin, "Sec-Fetch-Site": site}
        given = {name: value for name, value in headers.items() if value is not None}
        for path, body in ((CHAT, ASK), ("/v1/notes", b'{"text": "x"}'), ("/v1/embeddings", b'{"input": "x"}')):
            assert (await at.send("POST", path, body, given)).status == wanted


@asynchronous
async def test_no_redirect_gets_the_key_or_an_alarm(tmp_path: Path) -> None:
    async with raw_upstream() as thief:
        away = (
            b"HTTP/1.1 307 Temporary Redirect\r\nlocation: %s/models\r\ncontent-length: 0\r\n\r\n" % thief.url.encode()
        )
        async with raw_upstream(away) as raw:
            asking = Upstream(raw.url, "a-secret-key")
            await asking.start()
            assert await asking.list_models() == []
            await asking.close()
            assert b"a-secret-key" in raw.requests[0]
            async with served(tmp_path, address=raw.url, webhook=raw.url) as at:
                assert (await at.send("GET", "/v1/models")).status == 307
                at.service.alarm(at.service.spaces["default"].id, Alarm("default", "learning", "something is wrong"))
                await until(lambda: at.service.counts["webhooks that failed"])
        assert not thief.requests


@pytest.mark.parametrize("formatter", [Lines("%(asctime)s %(message)s"), JsonLines()], ids=["text", "json"])
@asynchronous
async def test_a_failure_of_the_upstream_names_it_in_the_log_alone_and_in_one_line(
    formatter: logging.Formatter, tmp_path: Path
) -> None:
    written, logger = io.StringIO(), logging.getLogger("practicum.serve")
    handler = logging.StreamHandler(written)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    try:
        for port, reply in (("9", b""), ("", b"HTTP/1.1 \x1b[2J\x9b31m\xe2\x80\xaeOOPS\r\n\r\n")):
            async with raw_upstream(reply) as raw:
                address = f"http://127.0.0.1:{port}/v1" if port else raw.url
                async with served(tmp_path / (port or "odd"), address=address) as at:
                    for method, path, body in (("POST", CHAT, ASK), ("GET", "/v1/models", None)):
                        failed = await at.send(method, path, body)
                        assert failed.status == 502
                        assert "127.0.0.1" not in failed.body.decode()
                    assert at.service.counts["upstream failures"] == 2
                assert address.split("/")[2] in written.getvalue()
                # Both failures are of one moment.
                assert written.getvalue().count("\n") == 1
                written.truncate(written.seek(0))
        error = "\x1b]0;title\x07 \x9b31m \u202e \u2028 \x7f\nforged line"
        logger.warning("the learner failed: %s", error)
        logger.warning("a text without arguments: " + error)
    finally:
        logger.removeHandler(handler)
    lines = written.getvalue().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.isprintable()
        assert "title" in line
        assert "forged line" in line
