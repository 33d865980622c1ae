"""Bounds of what clients can do: too many requests, too large ones, such that never end, and what is no HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, served, until

from practicum.serve import connections

QUESTION = "Which team handles lost cards?"


BODIES = {
    CHAT: {"messages": [{"role": "user", "content": QUESTION}]},
    RESPONSES: {"input": QUESTION},
    MESSAGES: {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 9},
}
ASK = json.dumps(BODIES[CHAT]).encode()


@asynccontextmanager
async def connected(at: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection whose client may send whatever it likes."""
    address = urlsplit(at.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def head(*headers: str, method: str = "POST", path: str = CHAT) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *headers, "", ""]).encode()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes the connection. It may break it while the client still sends."""
    read = b""
    async with asyncio.timeout(30):
        try:
            while chunk := await reader.read(2**16):
                read += chunk
        except ConnectionError:
            pass
    return read


@asynchronous
async def test_a_header_that_is_too_large_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as at, connected(at) as (reader, writer):
        writer.write(b"POST /v1/feedback HTTP/1.1\r\nx: " + b"a" * connections.MOST_BESIDE)
        await until(lambda: not writer.transport.get_write_buffer_size())
        # Once this is answered, what was sent before it was read.
        assert (await at.ask(QUESTION)).status == 200
        writer.write(b"a")
        assert (await rest(reader)).startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


@asynchronous
async def test_trailers_are_bounded_and_a_body_in_small_chunks_is_not(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        async with connected(at) as (reader, writer):
            writer.write(head("transfer-encoding: chunked", "connection: close"))
            # Each byte is a chunk, which takes six.
            padded = ASK + b" " * connections.MOST_BESIDE
            writer.write(b"".join(b"%x\r\n%s\r\n" % (2, padded[n : n + 2]) for n in range(0, len(padded) - 1, 2)))
            writer.write(b"0\r\n\r\n")
            assert (await rest(reader)).startswith(b"HTTP/1.1 200 ")
        async with connected(at) as (reader, writer):
            writer.write(head("transfer-encoding: chunked") + b"2\r\n{}\r\n0\r\n")
            writer.write(b"x: a\r\n" * 2**18)
            await rest(reader)
        await until(lambda: at.service.counts["clients that left"])
        assert len(at.upstream.requests) == 1


@pytest.mark.parametrize("sent", [b"", b"POST /v1/feedback HTTP/1.1\r\nx: ", head("content-length: 100") + b"{"])
@asynchronous
async def test_a_request_that_does_not_end_is_not_waited_for(
    sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WHOLE", 0.2)
    async with served(tmp_path) as at, connected(at) as (reader, writer):
        writer.write(sent)
        assert await rest(reader) == b""
        # Nor one that comes byte by byte.
        async with connected(at) as (slow, to):
            async with asyncio.timeout(30):
                while not slow.at_eof():
                    if not to.is_closing():
                        to.write(sent[:1] or b"P")
                    try:
                        await asyncio.wait_for(slow.read(1), 0.02)
                    except TimeoutError:
                        continue
                    except ConnectionError:
                        break


@asynchronous
async def test_an_answer_may_take_longer_than_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WHOLE", 0.2)
    async with served(tmp_path) as at:
        # Two on one connection: the time of the first one is over.
        for _ in range(2):
            assert (await at.ask(QUESTION, {"x-sim-fault": "slow"})).status == 200


@asynchronous
async def test_no_more_connections_are_open_than_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_OPEN", 2)
    async with served(tmp_path) as at, connected(at) as (_, first), connected(at) as (_, _):
        async with connected(at) as (reader, _):
            assert await rest(reader) == b""
        first.close()
        async with asyncio.timeout(30):
            answered = b""
            while not answered.startswith(b"HTTP/1.1 200 "):
                async with connected(at) as (reader, writer):
                    writer.write(head("connection: close", method="GET", path="/health"))
                    answered = await rest(reader)
