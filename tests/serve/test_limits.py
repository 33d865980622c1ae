"""A request with a header that is too large is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from serving import Served, asynchronous, served, until

from practicum.serve import connections

QUESTION = "Which team handles lost cards?"


@asynccontextmanager
async def connected(at: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection whose client may send whatever it likes."""
    address = urlsplit(at.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()


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
