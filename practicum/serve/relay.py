"""Relay of the upstream's response to the client: the response is passed on, parsed and recorded."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp
import msgspec

from practicum.core.errors import ErrorBody, error_body
from practicum.serve.call import Left, ServedCall
from practicum.serve.protocols import (
    Kind,
    Request,
    StreamReader,
    UpstreamAnswer,
    is_dense,
    read_answer,
    read_stream,
    with_metadata,
)
from practicum.serve.purpose import is_housekeeping
from practicum.serve.replies import error_answer
from practicum.serve.service import Service
from practicum.serve.space import RequestView
from practicum.serve.upstream import RETURNED, decoded

LEFT = 499
"""Status of a request whose client disconnected. Other proxies log the same status for such a request."""

OFF_LOOP = 2**18
"""Size (bytes) above which a body is parsed in a thread, so that other requests need not wait."""

SLICE = 2**12
"""Size (bytes) of the parts in which a stream is parsed. Other requests can run between two parts."""


class RelayHost(Protocol):
    """Parts of the proxy that a relay uses."""

    service: Service
    most_read: int

    def require_status(self, response: aiohttp.ClientResponse) -> None: ...

    def upstream_failed(self, error: BaseException) -> None: ...


@asynccontextmanager
async def while_connected(call: ServedCall) -> AsyncIterator[None]:
    """If the client disconnects, cancel the block and raise Left."""
    task = asyncio.current_task()
    assert task is not None
    left = asyncio.ensure_future(call.receive())
    left.add_done_callback(cancel := lambda _: task.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if not left.done():
            raise
        task.uncancel()
        raise Left from None
    finally:
        left.remove_done_callback(cancel)
        left.cancel()


@dataclass
class Relay:
    """Relay of the upstream's response to the client. The relay also records the interaction. `status` is the
    upstream's status; `is_whole`: the answer was received completely.

    A stream is passed on while it arrives, and is parsed at the same time; a compressed stream is parsed at the end of
    the stream. Any other response is passed on when it is complete. A response that is too large is passed on while it
    arrives, and is not parsed.
    """

    proxy: RelayHost
    call: ServedCall
    kind: Kind
    space: str
    request: Request | None
    shown: RequestView | None
    id: str
    user: str | None
    status: int = 200
    is_whole: bool = False
    _chunks: list[bytes] = field(default_factory=list)
    """Received parts that are parsed when the response is complete."""
    _size: int = 0
    _unread: deque[bytes] = field(default_factory=deque)
    """Received parts of a stream that are not parsed yet."""
    _reader: StreamReader | None = None
    _reading: asyncio.Future[UpstreamAnswer | None] | None = None
    _is_read: bool = False
    _answer_read: UpstreamAnswer | None = None
    """Answer in the complete response. None if the response is not parsed yet, or could not be parsed."""
    _events: _Events | None = None
    _encoding: str = ""
    _is_page: bool = False
    _streaming: bool = False
    _began: bool = False
    _is_recorded: bool | None = None

    async def pass_on(self, response: aiohttp.ClientResponse) -> None:
        """Pass on a response: a stream while it arrives, any other response when it is complete."""
        self.proxy.require_status(response)
        call, good = self.call, response.status < 300
        self.status, self._encoding = response.status, response.headers.get("content-encoding", "")
        kind = response.content_type
        self._is_page = kind == "text/html"
        requested = self.request is not None and self.request.stream and kind not in ("application/json", "text/html")
        if good and (requested or kind == "text/event-stream"):
            await self._pass_stream(response)
            return
        if not good:
            self.proxy.service.counts["upstream_errors"] += 1
            call.error = str(response.status)
        if not await self._collect(response):
            await self._pass_oversized(response, good)
            return
        body, headers = b"".join(self._chunks), list[tuple[bytes, bytes]]()
        if good:
            await self._read_all()
            headers = self._headers() if self.keep(response.status) else []
        if self.kind == "responses" and headers:
            body = with_metadata(body, self._metadata)
        await call.begin(response.status, [*returned(response), *headers, (b"content-length", b"%d" % len(body))])
        await call.write(body)
        self.is_whole = True

    async def _pass_stream(self, response: aiohttp.ClientResponse) -> None:
        call = self.call
        await call.begin(response.status, [*returned(response), *self._headers()])
        self._streaming = True
        if not self._encoding:
            self._reader = StreamReader(self.proxy.most_read)
            if self.kind == "responses":
                # Compressed events cannot be changed, so they get no metadata.
                self._events = _Events(self._metadata, self.proxy.most_read)
        async for chunk in response.content.iter_any():
            for start in range(0, len(chunk), SLICE):
                part = chunk[start : start + SLICE]
                self._receive(part)
                await call.write(self._events.take(part) if self._events else part, more=True)
                self._read_received()
                if len(chunk) > SLICE:
                    await asyncio.sleep(0)
        await self._read_all()
        self.keep(response.status)
        await call.write(self._rest)
        self.is_whole = True

    def _receive(self, part: bytes) -> None:
        """Store a part of a stream. The part is parsed after it was passed on."""
        self._size += len(part)
        if self._reader is not None:
            self._unread.append(part)
        elif self.call.hold(len(part)) and self._size <= self.proxy.most_read:
            self._chunks.append(part)
        elif self._chunks:
            self._chunks = []
            self.proxy.service.counts["oversized_answers"] += 1

    def _read_received(self) -> None:
        while self._reader is not None and self._unread:
            self._reader.take(self._unread.popleft())

    async def _collect(self, response: aiohttp.ClientResponse) -> bool:
        """Receive a response completely, and return True. If the response is too large to be parsed, stop early and
        return False."""
        size, fits = 0, (response.content_length or 0) <= self.proxy.most_read
        while fits and (chunk := await response.content.readany()):
            size += len(chunk)
            self._chunks.append(chunk)
            fits = self.call.hold(len(chunk)) and size <= self.proxy.most_read
        # Set `_size` only now: a response that breaks off in the loop is not passed on, so no part of the response
        # counts as received.
        self._size = size
        return fits

    async def _pass_oversized(self, response: aiohttp.ClientResponse, good: bool) -> None:
        """Pass on the received part of a response, and the rest while the rest arrives. Record the interaction without
        the text of the response."""
        call, length = self.call, response.content_length
        self.proxy.service.counts["oversized_answers"] += 1
        sized = [] if length is None else [(b"content-length", b"%d" % length)]
        await call.begin(response.status, [*returned(response), *(self._headers() if good else []), *sized])
        self._began, received, self._chunks = True, self._chunks, []
        self._is_read = True
        while received:
            await call.write(received.pop(0), more=True)
        async for chunk in response.content.iter_any():
            await call.write(chunk, more=True)
        if good:
            self.keep(response.status)
        await call.write(b"")
        self.is_whole = True

    async def _read_all(self) -> None:
        """Parse everything that was received, in a thread if the parsing may take long."""
        large = bool(self._encoding) or self._size > OFF_LOOP
        if large if self._reader is None else self._reader.is_long:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._received_answer, self.proxy.most_read))
            await self.read_rest()
        else:
            self._take(lambda: self._received_answer(self.proxy.most_read))

    async def read_rest(self) -> None:
        """Parse the received part of an interrupted stream, or wait for the thread that parses the answer."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._take(self._reading.result)
            self._reading = None
        elif self._reader is not None and not self._is_read:
            await self._read_all()

    def _take(self, read: Callable[[], UpstreamAnswer | None]) -> None:
        self._is_read = True
        try:
            self._answer_read = read()
        except Exception as error:
            self.proxy.service.faults.note("reading an answer", error)

    async def failed(self, error: BaseException) -> None:
        """Report a failure of the upstream to the client: by a status, or by an event in a stream that has begun."""
        status, failure = upstream_error(error)
        if self._streaming:
            await self.read_rest()
            self.keep(status)
        if self.is_whole:
            await self.call.write(self._rest)
            return
        if self._began:
            # Close the connection, so that the client does not mistake a part of the answer for the whole answer.
            self.proxy.upstream_failed(error)
            self.call.error = type(error).__name__
            self.keep(status)
            raise error
        self.proxy.upstream_failed(error)
        self.call.error = type(error).__name__
        body = error_answer(self.call.path, status, failure)
        if not self._streaming:
            await self.call.answer(status, body)
            return
        name = "" if self.kind == "chat" else "event: error\n"
        await self.call.write(f"{name}data: {json.dumps(body)}\n\n".encode())

    def keep(self, status: int) -> bool:
        """Record the interaction if its request was shown a view and got an answer. Return whether the interaction is
        recorded. A complete answer is recorded with the upstream's status, even if the connection failed after the
        answer; any other answer with `status`."""
        if self._is_recorded is None:
            self._is_recorded = False
            try:
                self._is_recorded = self._keep(status)
            except Exception as error:
                self.proxy.service.faults.note("keeping an interaction", error)
        return self._is_recorded

    def _keep(self, status: int) -> bool:
        service, received = self.proxy.service, self._size > 0
        if not received and status >= 400 and not (self._streaming and status == LEFT):
            return False
        # An interrupted answer is not parsed yet. Parse the answer here if it is small.
        answer = self._answer_read if self._is_read else self._received_answer(OFF_LOOP)
        if received or status < 400:
            service.counts["unread_answers"] += answer is None or answer.unread
        if answer is None and self._is_page:
            return False
        answer = self.call.upstream_answer = answer or UpstreamAnswer()
        self.is_whole = answer.whole
        service.counts["wrong_numbers"] += len(answer.wrong)
        if answer.failed:
            service.counts["upstream_failures"] += 1
            self.call.error = "error in a response with status 200"
        if self.request is None or self.shown is None:
            if self.kind == "responses":
                service.recorder.remember_response(self.space, answer.id)
            return False
        self.call.interaction, self.call.version = self.id, self.shown.version
        service.recorder.keep(
            self.space, self.id, self.request, self.request.query, self.request.steps, self.shown, answer,
            user=self.user, status=502 if answer.failed else self.status if self.is_whole else status,
            seconds=time.monotonic() - self.call.started,
            purpose="title" if is_housekeeping(self.request) else None,
        )  # fmt: skip
        return True

    def _received_answer(self, most: int) -> UpstreamAnswer | None:
        """Return the answer in the received part of the response. None if this part cannot be parsed, or has more than
        `most` bytes."""
        if self._reader is None:
            return self._answer(b"".join(self._chunks), most)
        self._read_received()
        answer = self._reader.end()
        # Some servers send JSON as a stream, or a stream as JSON.
        return read_answer(bytes(self._reader.other)) if answer is None else answer

    def _answer(self, body: bytes, most: int) -> UpstreamAnswer | None:
        """Return the answer in a body. None if the body cannot be parsed, or has more than `most` bytes."""
        plain = decoded(body, self._encoding, most)
        if plain is None or len(plain) > most:
            return None
        first, second = (read_stream, read_answer) if self._streaming else (read_answer, read_stream)
        return first(plain) or second(plain)

    @property
    def _rest(self) -> bytes:
        """Received part of an incomplete event."""
        return self._events.rest if self._events else b""

    def _headers(self) -> list[tuple[bytes, bytes]]:
        if self.shown is None:
            return []
        return [
            (b"x-practicum-interaction", self.id.encode()), (b"x-practicum-version", b"%d" % self.shown.version)
        ]  # fmt: skip

    @property
    def _metadata(self) -> dict[str, str]:
        if self.shown is None:
            return {}
        return {"practicum_interaction": self.id, "practicum_version": str(self.shown.version)}


_EVENT_ENDS = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
"""End of an event: an empty line, with any of the three line endings. CR as the last received byte may be the first
half of CR LF."""

_DATA = re.compile(rb"(?:\A|[\r\n])data: ?")


class _Events:
    """Filter of a stream of the protocol `responses` that adds metadata to events that contain the response."""

    def __init__(self, metadata: Mapping[str, str], most: int) -> None:
        self._metadata, self._most = metadata, most
        self._rest = bytearray()

    @property
    def rest(self) -> bytes:
        """Received part of an incomplete event."""
        return bytes(self._rest)

    def take(self, chunk: bytes) -> bytes:
        """Return the events that this chunk completes, with metadata. An event that is too large is returned unchanged,
        in parts."""
        # An empty line may have begun in the previous chunk.
        searched = max(len(self._rest) - 3, 0)
        self._rest += chunk
        passed, done = list[bytes](), 0
        for end in [*_EVENT_ENDS.finditer(self._rest, searched)]:
            passed += (
                self._with_metadata(bytes(self._rest[done : end.start()])),
                bytes(self._rest[end.start() : end.end()]),
            )
            done = end.end()
        if len(self._rest) - done > self._most:
            passed.append(bytes(self._rest[done:]))
            done = len(self._rest)
        del self._rest[:done]
        return b"".join(passed)

    def _with_metadata(self, event: bytes) -> bytes:
        data = _DATA.search(event)
        if not self._metadata or data is None or b'"response":' not in event[data.end() : data.end() + 200]:
            return event
        if is_dense(event):
            return event
        try:
            fields = msgspec.json.decode(event[data.end() :], type=dict[str, msgspec.Raw])
            fields["response"] = msgspec.Raw(with_metadata(bytes(fields["response"]), self._metadata))
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError):
            return event
        return event[: data.end()] + msgspec.json.encode(fields)


def returned(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers of the upstream's response that the service sends on to the client."""
    return [(name, value) for name, value in response.raw_headers if name.lower().startswith(RETURNED)]


def upstream_error(error: BaseException) -> tuple[int, ErrorBody]:
    """Return the status and the error that the client gets for a failure of the upstream. The error does not contain
    the address of the upstream."""
    if isinstance(error, TimeoutError):
        return 504, error_body("upstream.timeout", "the upstream did not answer in time: try again")
    if isinstance(error, aiohttp.ClientConnectorError):
        text = "the upstream cannot be reached: see the log of the service"
        return 502, error_body("upstream.unreachable", text)
    return 502, error_body("upstream.broken", "the upstream interrupted its answer: try again")
