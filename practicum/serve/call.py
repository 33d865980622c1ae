"""Request to the service, and its response."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs

from practicum.serve.access import Grant, TooMany
from practicum.serve.api import MOST_BODY
from practicum.serve.protocols import UpstreamAnswer
from practicum.serve.replies import RETRY
from practicum.serve.request_checks import RequestRefused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]

MOST_HELD = 2**30
"""Limit of the requests and answers in memory (bytes). Above the limit, requests are refused, and answers are
passed on without being parsed."""

JSON_TYPE = (b"content-type", b"application/json")

_INERT = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
)
"""Headers of all responses except pages. With these headers, a browser shows a response as data. Otherwise, a page of
the upstream would run as a page of this service."""


class Left(Exception):
    """The client has disconnected."""


@dataclass
class HeldBytes:
    """Number of bytes of requests and answers that are in memory."""

    bytes: int = 0


@dataclass
class ServedCall:
    """Request to the service, with the data for its log line, metrics and span."""

    scope: Mapping[str, Any]
    receive: Receive
    out: Send
    endings: int
    """Value of `OpenSpaces.endings` when the request arrived."""
    held: HeldBytes = field(default_factory=HeldBytes)
    size: int = 0
    """Number of bytes of this request and its answer that are in memory."""
    started: float = field(default_factory=time.monotonic)
    status: int = 0
    """Status of the response. 0: the response has not begun."""
    added: float | None = None
    """Time (s) that practicum took before it sent the request to the upstream. None: the request was not sent."""
    route: str = "other"
    """Route: the name of an operation or a protocol, or another fixed word."""
    grant: Grant | None = None
    space: str = ""
    interaction: str | None = None
    version: int | None = None
    upstream_answer: UpstreamAnswer | None = None
    """Answer of the upstream."""
    error: str = ""
    """Error of the upstream."""

    @property
    def path(self) -> str:
        """Path as the client wrote it, with escapes. Paths are compared and sent in this form."""
        return str(self.scope["raw_path"], "latin-1")

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def address(self) -> str:
        """Address of the client, or of the proxy in front of the service."""
        return str((self.scope.get("client") or ("",))[0])

    @cached_property
    def headers(self) -> dict[bytes, str]:
        return {name: value.decode("latin-1") for name, value in self.scope["headers"]}

    def header(self, name: bytes, most: int = 200) -> str | None:
        """Return the value of a header of practicum, decoded as UTF-8. Raise RequestRefused if the value is too
        long."""
        value = self.headers.get(name)
        with suppress(UnicodeDecodeError):
            value = value and value.encode("latin-1").decode()
        if value is not None and len(value) > most:
            raise RequestRefused("request.malformed", f"the header {name.decode()} has more than {most} characters")
        return value or None

    def hold(self, size: int) -> bool:
        """Count bytes that stay in memory until the call ends. Return whether all calls together stay below
        MOST_HELD."""
        self.size += size
        self.held.bytes += size
        return self.held.bytes <= MOST_HELD

    async def body(self, most: int) -> bytes:
        """Read the body. Raise RequestRefused if the body has more than `most` bytes, and TooMany if all calls together
        exceed MOST_HELD."""
        too_large = RequestRefused("request.too_large", f"the body has more than {most:,} bytes", limit=most)
        if int(self.headers.get(b"content-length") or 0) > most:
            raise too_large
        parts, size, more = list[bytes](), 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Left
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise too_large
            if not self.hold(len(parts[-1])):
                raise TooMany("request.too_many", "too many large requests are in progress: try again", RETRY)
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def arguments(self) -> bytes | dict[str, Any]:
        """Return the arguments of an operation: the body of the request, or for GET the fields of the query."""
        if self.method != "GET":
            return await self.body(MOST_BODY)
        query = parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if repeated := [name for name, values in query.items() if len(values) > 1]:
            raise RequestRefused("request.malformed", f"the query has {repeated[0]!r:.80} more than once: send it once")
        return {name: values[0] for name, values in query.items()}

    async def send(self, message: Message) -> None:
        """Send an ASGI message. Another ASGI application, such as the pages, calls this to answer the request."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.out(message)

    async def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self.out({"type": "http.response.start", "status": status, "headers": [*headers, *_INERT]})

    async def write(self, body: bytes, more: bool = False) -> None:
        await self.out({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, status: int, value: Any, *headers: tuple[bytes, bytes]) -> None:
        """Send a response with a JSON body."""
        body = json.dumps(value, ensure_ascii=False).encode()
        await self.answer_bytes(status, body, JSON_TYPE, *headers)

    async def answer_bytes(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Send a response with a body."""
        await self.begin(status, [(b"content-length", b"%d" % len(body)), *headers])
        await self.write(body)
