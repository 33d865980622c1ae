"""A model server that sends any bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Sent = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Bytes, after which the server closes the connection, or a coroutine function that writes."""


def ok(body: object, *headers: str) -> bytes:
    """A response with status 200, and a body of bytes or of a JSON value."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ("HTTP/1.1 200 OK", "Content-Type: application/json", *headers, f"Content-Length: {len(raw)}")
    return "\r\n".join((*lines, "Connection: close", "", "")).encode() + raw


def completion(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return {**body, **fields}


@asynccontextmanager
async def raw_server(sent: Sent) -> AsyncIterator[tuple[str, list[str]]]:
    """A server's address, and its requests."""
    requests: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            sizes = [int(line[15:]) for line in head.splitlines() if line.lower().startswith(b"content-length:")]
            requests.append((head + await reader.readexactly(sum(sizes))).decode("latin-1"))
            if isinstance(sent, bytes):
                writer.write(sent)
                await writer.drain()
            else:
                await sent(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", requests
    finally:
        server.close()
