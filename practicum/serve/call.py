"""A request to the service as it came in, and its answer on the way out."""

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
from practicum.serve.admission import RequestRefused
from practicum.serve.api import MOST_BODY
from practicum.serve.protocols import UpstreamAnswer
from practicum.serve.replies import RETRY

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]

MOST_HELD = 2**30
"""Bytes of the requests and answers that are in memory at a time. Further ones have to wait, or pass unread."""

JSON_TYPE = (b"content-type", b"application/json")

_INERT = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
)
"""Headers of all answers but pages: a browser shows them as data. An upstream's page would otherwise run as a page of
this service."""


class Left(Exception):
    """The client is gone."""


@dataclass
class HeldBytes:
    """The bytes of requests and answers that are in memory."""

    bytes: int = 0


@dataclass
class ServedCall:
    """A request, as it came in, and what is known of it when it ends."""

    scope: Mapping[str, Any]
    receive: Receive
    out: Send
    endings: int
    """`Service.endings` when it came in."""
    held: HeldBytes = field(default_factory=HeldBytes)
    size: int = 0
    """Bytes of it and of its answer that are in memory."""
    started: float = field(default_factory=time.monotonic)
    status: int = 0
    """That was answered; 0: nothing yet."""
    added: float | None = None
    """Seconds that practicum took before a request went to the upstream."""
    route: str = "other"
    """What is asked for: the name of an operation or of a protocol, or one of a few words."""
    grant: Grant | None = None
    space: str = ""
    interaction: str | None = None
    version: int | None = None
    told: UpstreamAnswer | None = None
    """What the upstream answered."""
    error: str = ""
    """How the upstream failed."""

    @property
    def path(self) -> str:
        """The path as the client wrote it, escapes included: it is compared and sent in this one form."""
        return str(self.scope["raw_path"], "latin-1")

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def address(self) -> str:
        """The address of the client, or of the proxy before the service."""
        return str((self.scope.get("client") or ("",))[0])

    @cached_property
    def headers(self) -> dict[bytes, str]:
        return {name: value.decode("latin-1") for name, value in self.scope["headers"]}

    def header(self, name: bytes, most: int = 200) -> str | None:
        """A header of practicum's own, in UTF-8. Raises RequestRefused if it is too long."""
        value = self.headers.get(name)
        with suppress(UnicodeDecodeError):
            value = value and value.encode("latin-1").decode()
        if value is not None and len(value) > most:
            raise RequestRefused("request.malformed", f"the header {name.decode()} is longer than {most} characters")
        return value or None

    def hold(self, size: int) -> bool:
        """Count bytes that are in memory until the call ends. Returns whether there is room for them."""
        self.size += size
        self.held.bytes += size
        return self.held.bytes <= MOST_HELD

    async def body(self, most: int) -> bytes:
        """The body. Raises RequestRefused if it has more bytes than `most`, and TooMany if there is no room for it."""
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
                raise TooMany("request.too_many", "too many large requests are under way: send it again", RETRY)
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def given(self) -> bytes | dict[str, Any]:
        """What an operation is given."""
        if self.method != "GET":
            return await self.body(MOST_BODY)
        query = parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if twice := [name for name, values in query.items() if len(values) > 1]:
            raise RequestRefused("request.malformed", f"the query has {twice[0]!r:.80} more than once")
        return {name: values[0] for name, values in query.items()}

    async def send(self, message: Message) -> None:
        """Send a message of an ASGI application that answers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.out(message)

    async def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self.out({"type": "http.response.start", "status": status, "headers": [*headers, *_INERT]})

    async def write(self, body: bytes, more: bool = False) -> None:
        await self.out({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, status: int, value: Any, *headers: tuple[bytes, bytes]) -> None:
        """Answer with a JSON value."""
        body = json.dumps(value, ensure_ascii=False).encode()
        await self.answer_bytes(status, body, JSON_TYPE, *headers)

    async def answer_bytes(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Answer with a body."""
        await self.begin(status, [(b"content-length", b"%d" % len(body)), *headers])
        await self.write(body)
