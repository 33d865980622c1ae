"""The HTTP face of the service, as a bare ASGI application: bytes come in, bytes go out.

What was learned is put into requests of the three protocols (`protocols`); everything else below /v1 is passed on as it
is. A response is passed on while it arrives, and read once it is complete.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from practicum.core.errors import (
    ErrorBody,
    NotARun,
    PracticumError,
    RunBusy,
    StoreAway,
    StoreError,
    UsageError,
    error_body,
)
from practicum.models.keys import is_loopback
from practicum.serve.access import EVERYBODY, Forbidden, Grant, Keys, Role, TooMany, Wrong, require_key_of
from practicum.serve.admission import RequestRefused, require_clear
from practicum.serve.answers import Health
from practicum.serve.call import JSON_TYPE, RETRY, Asgi, HeldBytes, Left, Receive, Send, ServedCall
from practicum.serve.lines import requests
from practicum.serve.mcp_http import Agents
from practicum.serve.metrics import Metrics
from practicum.serve.openapi import document
from practicum.serve.operations import OPERATIONS, At, ServiceOperation, perform
from practicum.serve.passing import Passing
from practicum.serve.protocols import (
    PROTOCOLS,
    Kind,
    Oversized,
    Request,
    StreamReader,
    Unreadable,
    UpstreamAnswer,
    is_dense,
    read_answer,
    read_request,
    read_stream,
    with_metadata,
)
from practicum.serve.purpose import is_housekeeping
from practicum.serve.service import Service
from practicum.serve.sessions import Caller
from practicum.serve.space import RequestView
from practicum.serve.spans import Span, Spans
from practicum.serve.upstream import RETURNED, Upstream, decoded
from practicum.session.outcomes import Conflict, Unknown, new_id
from practicum.store.spaces import UnknownSpace

logger = logging.getLogger("practicum.serve")

COUNTING: Mapping[str, Kind] = {"/v1/messages/count_tokens": "messages", "/v1/responses/input_tokens": "responses"}
"""Where a client asks how many tokens a request would have: with what it would be shown."""

MOST_BODY = 32 * 2**20
"""Bytes of the largest request: images are sent in it."""

AGENT = b"x-practicum-agent"
"""The header of a request in which an agent speaks for itself: what the filter flags in its words waits."""

LEFT = 499
"""The status of a request whose client left, as proxies write it."""

OFF_LOOP = 2**18
"""Bytes of a body beyond which it is read in a thread, so that other requests need not wait for it."""

SLICE = 2**12
"""Bytes of a stream that are read at a time; then other requests have their turn."""

QUIET = 10.0
"""Seconds between two failures of the upstream that are logged, at least."""

PIECES = 10_000
"""Pieces of JSON, such as a text or a comma, that are written at a time."""


_STATUSES_OF_CODES: Mapping[str, int] = {
    "request.malformed": 400, "key.missing": 401, "key.wrong": 401, "key.expired": 401, "key.forbidden": 403,
    "key.not_configured": 403, "request.not_passed": 403, "request.unknown_path": 404, "response.unknown": 404,
    "request.wrong_verb": 405, "request.too_large": 413, "request.encoded": 415, "request.too_many": 429,
    "service.timeout": 503,
}  # fmt: skip
"""The statuses of errors whose code decides it."""

_STATUSES: tuple[tuple[type[PracticumError], int], ...] = (
    (Unknown, 404), (UnknownSpace, 404), (NotARun, 404), (Forbidden, 403), (Conflict, 409), (RunBusy, 409),
    (StoreAway, 503), (UsageError, 400), (StoreError, 507),
)  # fmt: skip
"""The statuses of all other errors; special kinds stand before those that they are of."""


def status_of(error: PracticumError) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    """The status of the answer that an error is, and its headers."""
    by_kind = (status for kind, status in _STATUSES if isinstance(error, kind))
    status = _STATUSES_OF_CODES.get(error.code) or next(by_kind, 500)
    headers = error.headers if isinstance(error, RequestRefused) else ()
    if status == 401:
        return status, (*headers, (b"www-authenticate", b"Bearer"))
    if status in (429, 503):
        after = error.after if isinstance(error, TooMany) else RETRY
        return status, (*headers, (b"retry-after", b"%d" % ceil(after)))
    return status, headers


class App:
    """The application. `pass_key` sends the client's own key upstream; the service's is then in `x-practicum-key`.
    `passing` has paths of the upstream that pass beside those of models (`passing.read_prefixes`).
    `pages` answers what is not of the API: the dashboard. `agents` answers agents at /mcp. `spans` are sent of requests
    to models."""

    def __init__(
        self, service: Service, upstream: Upstream, keys: Keys, *, pass_key: bool = False, passing: Sequence[str] = (),
        pages: Asgi | None = None, agents: Agents | None = None, spans: Spans | None = None,
    ) -> None:  # fmt: skip
        self.passing = Passing(tuple(passing), all=pass_key)
        self._failure_logged = float("-inf")
        self.service, self.upstream, self.keys, self.pass_key = service, upstream, keys, pass_key
        self.pages, self.agents, self.spans = pages, agents, spans
        self.most_read = service.settings.max_read * 2**20
        """Bytes of the largest request, answer or event that is read."""
        self.metrics, self.held = Metrics(service), HeldBytes()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = ServedCall(scope, receive, send, self.service.spaces.endings, self.held)
        try:
            require_clear(scope)
            await self._route(call)
        except Left:
            self.service.counts["clients that left"] += 1
            call.status = LEFT
        except PracticumError as error:
            status, headers = status_of(error)
            what = "refused requests" if status < 500 else "writes that failed" if status in (503, 507) else "faults"
            self.service.counts[what] += 1
            await call.answer(status, error_answer(call.path, status, error.body()), *headers)
        except Exception as error:
            if call.status:
                raise
            # A bug. What it says may quote what was read.
            self.service.counts["faults"] += 1
            logger.error("%s %s failed", call.method, _route_of(call), exc_info=error)
            message = f"this failed by a bug in practicum ({type(error).__name__}): the log of the service says where"
            await call.answer(500, error_answer(call.path, 500, error_body("practicum.bug", message)))
        finally:
            self.held.bytes -= call.size
            self._ended(call)

    def _ended(self, call: ServedCall) -> None:
        """Count a request, and write its line."""
        route, status, seconds = _route_of(call), call.status or 500, time.monotonic() - call.started
        self.metrics.count(route, status, seconds, call.added)
        if requests.isEnabledFor(logging.INFO):
            answer = call.told or UpstreamAnswer()
            line = {
                "method": call.method, "route": route, "status": status, "seconds": round(seconds, 4),
                "space": call.space, "key": call.grant and call.grant.name, "interaction": call.interaction,
                "version": call.version, "input_tokens": answer.input_tokens, "cached_tokens": answer.cached_tokens,
                "output_tokens": answer.output_tokens,
            }  # fmt: skip
            requests.info("%s %s", call.method, route, extra={"request": line})

    async def _route(self, call: ServedCall) -> None:
        path, method = call.path, call.method
        if (operation := OPERATIONS.get((method, path))) is not None:
            await self._operate(call, operation)
        elif path == "/health" and method in _LOOKING:
            await call.answer(200, await self._health(call))
        elif path == "/openapi.json" and method in _LOOKING:
            # It says nothing that this file does not, so it takes no key.
            await call.answer(200, document())
        elif path == "/ready" and method in _LOOKING:
            service = self.service
            why = await service.readiness.problem(service.stopping, {*service.spaces, *service.spaces.unfinished})
            await call.answer(503 if why else 200, {"status": why or "ready"})
        elif path == "/metrics" and method in _LOOKING:
            await self._tell_metrics(call)
        elif path in _OWN_PATHS:
            allowed = ", ".join(known for known, own in OPERATIONS if own == path) or "GET"
            raise RequestRefused(
                "request.wrong_verb", f"{method} is not for {path}: {allowed} is", (b"allow", allowed.encode())
            )
        elif (right := _right_address(call)) is not None:
            raise RequestRefused("request.unknown_path", f"there is nothing at {path:.200}: {right}")
        elif method == "POST" and path in PROTOCOLS:
            _, space = await self.enter(call, "ask")
            await self._complete(call, PROTOCOLS[path], space)
        elif path.startswith("/v1/"):
            _, space = await self.enter(call, "ask")
            await self._require_made(call, space, self.passing.response(method, path))
            body = await self._body(call, space)
            if method == "POST" and path in COUNTING:
                _, _, body = await self._prepare(call, COUNTING[path], space, _caller(call), body)
            await self._pass_on(call, body)
        elif path == "/mcp" and self.agents is not None:
            grant, space = await self.enter(call, None)
            session = call.header(b"x-practicum-session") or call.header(b"mcp-session-id")
            user = call.header(b"x-practicum-user")
            at = At(self.service, self.keys, grant, space, call.endings, session, user, screened=True)
            await self.agents.answer(call, at)
        elif self.pages is not None:
            await self.keys.refresh()
            if not self.keys.required:
                self._require_host(call)
                if method != "POST":
                    # A form of another origin is refused by the pages, which show what was written in it.
                    self._require_origin(call)
            await self.pages(call.scope, call.receive, call.send)
        else:
            raise RequestRefused("request.unknown_path", f"there is nothing at {path:.200}: the API begins with /v1")

    async def _health(self, call: ServedCall) -> Health:
        """How the service is; to who has no key for all spaces, that it is there."""
        try:
            grant, _ = await self.enter(call, "ask")
        except (RequestRefused, Wrong, TooMany):
            return {"status": "ok"}
        return {"status": "ok"} if grant.space else self.service.health()

    async def _tell_metrics(self, call: ServedCall) -> None:
        grant, _ = await self.enter(call, "ask")
        if grant.space:
            raise RequestRefused("key.forbidden", f"this is about all spaces, and the key is for {grant.space}")
        body = await asyncio.to_thread(self.metrics.text)
        await call.answer_bytes(200, body, (b"content-type", CONTENT_TYPE_PLAIN_0_0_4.encode()))

    # Who asks

    def _require_host(self, call: ServedCall) -> None:
        """Refuse what could come from another machine, of a service without keys."""
        host = call.headers.get(b"host", "")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            raise RequestRefused("request.malformed", "the header host is not an address") from None
        if not _FORWARDED.isdisjoint(call.headers):
            # A proxy may name this machine as the host, whoever asks.
            raise RequestRefused(
                "key.not_configured", "a service without keys answers to no proxy: configure a key (practicum key add)"
            )
        if not is_loopback(name):
            raise RequestRefused(
                "key.not_configured", "a service without keys answers to this machine alone: configure a key (--key)"
            )

    def _require_origin(self, call: ServedCall) -> None:
        """Refuse what a page of another site, or of another port, could make a browser send to a service without
        keys."""
        host, origin = call.headers.get(b"host", ""), call.headers.get(b"origin")
        own = f"{call.scope['scheme']}://{host}".lower()
        # "null" is the origin of any page that wants to hide its own, unless the browser says that it is this one.
        site = call.headers.get(b"sec-fetch-site")
        if origin is not None and origin.lower() != own and not (origin == "null" and site == "same-origin"):
            raise RequestRefused(
                "key.not_configured",
                f"a service without keys answers to pages of {own:.200} alone: configure a key (--key)",
            )

    async def enter(self, call: ServedCall, role: Role | None) -> tuple[Grant, str]:
        """What a request may do, and its space. Raises RequestRefused without a right key of this role (None: of
        any), or TooMany."""
        await self.keys.refresh()
        wanted = call.header(b"x-practicum-space")
        if not self.keys.required:
            self._require_host(call)
            self._require_origin(call)
            call.grant, call.space = EVERYBODY, wanted or self.service.settings.spaces[0]
            return call.grant, call.space
        grant = call.grant = await self.keys.grant(self._key(call), call.address)
        self.keys.count(grant)
        if role is not None and not grant.may(role):
            text = f"this takes a key with the role {role}; {grant.name} has {', '.join(grant.named)}"
            raise RequestRefused("key.forbidden", text, role=role)
        if grant.space and wanted not in (None, grant.space):
            raise RequestRefused("key.forbidden", f"this key is for space {grant.space}: leave out x-practicum-space")
        call.space = grant.space or wanted or self.service.settings.spaces[0]
        return grant, call.space

    def _key(self, call: ServedCall) -> str:
        key = call.headers.get(b"x-practicum-key", "")
        if not key and not self.pass_key:
            scheme, _, bearer = call.headers.get(b"authorization", "").partition(" ")
            key = bearer.strip() if scheme.lower() == "bearer" else call.headers.get(b"x-api-key", "")
        if not key:
            where = "x-practicum-key: KEY" if self.pass_key else "Authorization: Bearer KEY"
            raise RequestRefused("key.missing", f"there is no key: send {where}")
        return key

    # The service's own operations

    async def _operate(self, call: ServedCall, operation: ServiceOperation) -> None:
        grant, space = await self.enter(call, operation.role)
        if operation.whole and grant.space:
            raise RequestRefused("key.forbidden", f"this is about all spaces, and the key is for {grant.space}")
        session, user = call.header(b"x-practicum-session"), call.header(b"x-practicum-user")
        screened = call.header(AGENT) is not None
        at = At(self.service, self.keys, grant, space, call.endings, session, user, screened)
        told = await perform(operation, at, await call.given())
        call.interaction = told.get("interaction")
        if operation.patience is None:
            # There may be very much of it: it is written in pieces, which do not hold up the event loop.
            pieces = await asyncio.to_thread(lambda: [*_PIECES.iterencode(told)])
            await call.begin(operation.status, [JSON_TYPE])
            for start in range(0, len(pieces), PIECES):
                await call.write("".join(pieces[start : start + PIECES]).encode(), more=True)
            await call.write(b"")
        else:
            await call.answer(operation.status, told)

    # The proxy

    async def _complete(self, call: ServedCall, kind: Kind, space: str) -> None:
        body = await self._body(call, space)
        arrived = time.monotonic()
        caller = _caller(call)
        request, shown, body = await self._prepare(call, kind, space, caller, body)
        relay = _Relay(self, call, kind, space, request, shown, caller.interaction, caller.user)
        headers = self.upstream.headers(call.scope["headers"], self.pass_key, body)
        path, span = _upstream_path(call), self._begin_span(call, request, headers)
        call.added = time.monotonic() - arrived
        try:
            async with _while_connected(call), self.upstream.send("POST", path, headers, body) as response:
                await relay.pass_on(response)
        except Left:
            await relay.read_rest()
            relay.keep(LEFT)
            if not relay.is_whole:
                call.status, call.error = LEFT, "cancelled"
                raise
        except asyncio.CancelledError:
            # The service stops, and the answer takes too long.
            call.error = "cancelled"
            await relay.read_rest()
            relay.keep(503)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await relay.failed(error)
        finally:
            self._end_span(span, call)

    async def _body(self, call: ServedCall, space: str) -> bytes:
        """The body for the upstream. Raises RequestRefused for one that goes on from a response of another space,
        unless the operator sends it."""
        body, encoding = await call.body(MOST_BODY), call.headers.get(b"content-encoding", "")
        if call.grant is not None and call.grant.is_operator:
            return body
        checked = self.passing.previous_response
        if len(body) > OFF_LOOP:
            previous, body = await asyncio.to_thread(checked, call.path, encoding, body)
        else:
            previous, body = checked(call.path, encoding, body)
        await self._require_made(call, space, previous)
        return body

    async def _require_made(self, call: ServedCall, space: str, response: str | None) -> None:
        """Raise RequestRefused for a response of the upstream that was not made in this space, which may be another's.
        The operator may ask for any: not all responses are kept."""
        if response is None or (call.grant is not None and call.grant.is_operator):
            return
        opened = await self.service.spaces.opened(space)
        if not await self.service.recorder.made_response(opened, response):
            raise RequestRefused(
                "response.unknown",
                f"no response {response!r:.80} was made in this space: to let all pass, the operator starts the "
                "service with --pass /v1/responses"
            )  # fmt: skip

    async def _prepare(
        self, call: ServedCall, kind: Kind, space: str, caller: Caller, body: bytes
    ) -> tuple[Request | None, RequestView | None, bytes]:  # fmt: skip
        """Put what was learned into the body of a request. A body that cannot be read, or with which anything fails,
        goes on as it came. Raises UnknownSpace, and Forbidden for a key of an earlier space with this name."""
        self.service.spaces.require_since(space, call.endings)
        request = None
        try:
            if len(body) > OFF_LOOP:
                request = await asyncio.to_thread(read_request, kind, body, self.most_read)
            else:
                request = read_request(kind, body, self.most_read)
            shown = await self.service.show(space, request, caller)
            if shown is not None and call.grant is not None:
                require_key_of(shown.space, call.grant)
            model = "" if request.model else self.upstream.model
            if shown is not None and (shown.fixed or shown.learned or model):
                body = request.write(shown.fixed, shown.learned, model)
            return request, shown, body
        except Unreadable as error:
            self.service.counts["unread requests"] += 1
            self.service.counts["oversized requests"] += isinstance(error, Oversized)
        except (UnknownSpace, Forbidden):
            raise
        except Exception as error:
            self.service.counts["unchanged requests"] += 1
            self.service.faults.note("preparing a request", error)
        return request, None, body

    def _begin_span(self, call: ServedCall, request: Request | None, headers: CIMultiDict[str]) -> Span | None:
        """Begin a span, and put its trace into the headers of the request to the upstream."""
        if self.spans is None:
            return None
        traced = ((name, call.headers.get(name.encode())) for name in ("traceparent", "tracestate"))
        given = {name: value for name, value in traced if value is not None}
        upstream = self.upstream.name or f"{self.upstream.address}#"
        model = self.upstream.counted(request.model if request else "")
        try:
            span = Span(self.spans, given, call.path, call.started, upstream, model)
            span.pass_trace(headers)
        except Exception as error:
            self.service.faults.note("beginning a span", error)
            return None
        return span

    def _end_span(self, span: Span | None, call: ServedCall) -> None:
        if span is None:
            return
        about = {"space": call.space, "version": call.version, "interaction": call.interaction}
        try:
            answer = call.told and replace(call.told, model=call.told.model and self.upstream.counted(call.told.model))
            span.end(call.status or 500, answer, call.error, about)
        except Exception as error:
            self.service.faults.note("ending a span", error)

    def require_status(self, response: aiohttp.ClientResponse) -> None:
        """Raise ClientPayloadError for a number that is no status of HTTP."""
        if not 200 <= response.status < 600:
            self.service.counts["wrong numbers"] += 1
            raise aiohttp.ClientPayloadError(f"the status {response.status}")

    def upstream_failed(self, error: BaseException) -> None:
        """Count a failure of the upstream, and log it."""
        self.service.counts["upstream failures"] += 1
        if time.monotonic() - self._failure_logged >= QUIET:
            self._failure_logged = time.monotonic()
            logger.warning(
                "the upstream at %s failed (%s): %s; further failures are counted in /health, and logged after %g s",
                urlsplit(self.upstream.address).netloc.rpartition("@")[2], type(error).__name__, error, QUIET,
            )  # fmt: skip

    async def _pass_on(self, call: ServedCall, body: bytes) -> None:
        """Pass on a request of which nothing is kept."""
        headers = self.upstream.headers(call.scope["headers"], self.pass_key, body)
        path, began, ended = _upstream_path(call), False, False
        try:
            send = self.upstream.send(call.method, path, headers, body or None)
            async with _while_connected(call), send as response:
                self.require_status(response)
                await call.begin(response.status, _returned(response))
                began = True
                async for chunk in response.content.iter_any():
                    ended = chunk.rstrip().endswith(b"[DONE]")
                    await call.write(chunk, more=True)
                await call.write(b"")
                ended = True
        except Left:
            if not ended:
                raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.upstream_failed(error)
            if began:
                # The connection is cut, so that the client does not take a part for the whole.
                raise
            status, failure = _upstream_error(error)
            await call.answer(status, error_answer(call.path, status, failure))


def _caller(call: ServedCall) -> Caller:
    session, user = call.header(b"x-practicum-session"), call.header(b"x-practicum-user")
    return Caller(new_id(), session, user, call.headers)


@asynccontextmanager
async def _while_connected(call: ServedCall) -> AsyncIterator[None]:
    """Cancel what is in the block when the client leaves. Raises Left then."""
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
class _Relay:
    """A response on its way to the client, and the interaction that it ends. `status` is the upstream's, and `is_whole`
    whether all of the answer was received.

    A stream passes while it arrives, and is read meanwhile; what else is not too large to be read passes when it is
    complete. What is too large, or compressed and too large, passes while it arrives and is not read.
    """

    app: App
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
    """What was received and is read when it is complete."""
    _size: int = 0
    _unread: deque[bytes] = field(default_factory=deque)
    """What was received of a stream and was not read yet."""
    _reader: StreamReader | None = None
    _reading: asyncio.Future[UpstreamAnswer | None] | None = None
    _is_read: bool = False
    _said: UpstreamAnswer | None = None
    """What was complete and was read; None if it could not be read."""
    _events: _Events | None = None
    _encoding: str = ""
    _is_page: bool = False
    _streaming: bool = False
    _began: bool = False
    _kept: bool | None = None

    async def pass_on(self, response: aiohttp.ClientResponse) -> None:
        """Pass on a response: a stream while it arrives, another one when it is complete."""
        self.app.require_status(response)
        call, good = self.call, response.status < 300
        self.status, self._encoding = response.status, response.headers.get("content-encoding", "")
        kind = response.content_type
        self._is_page = kind == "text/html"
        wanted = self.request is not None and self.request.stream and kind not in ("application/json", "text/html")
        if good and (wanted or kind == "text/event-stream"):
            await self._pass_stream(response)
            return
        if not good:
            self.app.service.counts[f"upstream answers with {response.status}"] += 1
            call.error = str(response.status)
        if not await self._collected(response):
            await self._pass_oversized(response, good)
            return
        body, headers = b"".join(self._chunks), list[tuple[bytes, bytes]]()
        if good:
            await self._read_all()
            headers = self._headers() if self.keep(response.status) else []
        if self.kind == "responses" and headers:
            body = with_metadata(body, self._metadata)
        await call.begin(response.status, [*_returned(response), *headers, (b"content-length", b"%d" % len(body))])
        await call.write(body)
        self.is_whole = True

    async def _pass_stream(self, response: aiohttp.ClientResponse) -> None:
        call = self.call
        await call.begin(response.status, [*_returned(response), *self._headers()])
        self._streaming = True
        if not self._encoding:
            self._reader = StreamReader(self.app.most_read)
            if self.kind == "responses":
                # Compressed events cannot be changed.
                self._events = _Events(self._metadata, self.app.most_read)
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
        """Take a part of a stream, which is read when it was passed on."""
        self._size += len(part)
        if self._reader is not None:
            self._unread.append(part)
        elif self.call.hold(len(part)) and self._size <= self.app.most_read:
            self._chunks.append(part)
        elif self._chunks:
            self._chunks = []
            self.app.service.counts["oversized answers"] += 1

    def _read_received(self) -> None:
        while self._reader is not None and self._unread:
            self._reader.take(self._unread.popleft())

    async def _collected(self, response: aiohttp.ClientResponse) -> bool:
        """Receive a response; False, and not all of it was received, if it is too large to be read."""
        size, fits = 0, (response.content_length or 0) <= self.app.most_read
        while fits and (chunk := await response.content.readany()):
            size += len(chunk)
            self._chunks.append(chunk)
            fits = self.call.hold(len(chunk)) and size <= self.app.most_read
        # Of an answer that breaks off before it is passed on, nothing counts as received.
        self._size = size
        return fits

    async def _pass_oversized(self, response: aiohttp.ClientResponse, good: bool) -> None:
        """Pass on what was received of a response, and the rest while it arrives. It is kept without its text."""
        call, length = self.call, response.content_length
        self.app.service.counts["oversized answers"] += 1
        sized = [] if length is None else [(b"content-length", b"%d" % length)]
        await call.begin(response.status, [*_returned(response), *(self._headers() if good else []), *sized])
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
        """Read what was received, in a thread if that may take long."""
        large = bool(self._encoding) or self._size > OFF_LOOP
        if large if self._reader is None else self._reader.is_long:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._received_answer, self.app.most_read))
            await self.read_rest()
        else:
            self._take(lambda: self._received_answer(self.app.most_read))

    async def read_rest(self) -> None:
        """Read what was received of a stream that was broken off, or wait for the thread that reads the answer."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._take(self._reading.result)
            self._reading = None
        elif self._reader is not None and not self._is_read:
            await self._read_all()

    def _take(self, read: Callable[[], UpstreamAnswer | None]) -> None:
        self._is_read = True
        try:
            self._said = read()
        except Exception as error:
            self.app.service.faults.note("reading an answer", error)

    async def failed(self, error: BaseException) -> None:
        """Tell the client that the upstream failed: by a status, or in a stream that began by an event."""
        status, failure = _upstream_error(error)
        if self._streaming:
            await self.read_rest()
            self.keep(status)
        if self.is_whole:
            await self.call.write(self._rest)
            return
        if self._began:
            # The connection is cut, so that the client does not take a part for the whole.
            self.app.upstream_failed(error)
            self.call.error = type(error).__name__
            self.keep(status)
            raise error
        self.app.upstream_failed(error)
        self.call.error = type(error).__name__
        body = error_answer(self.call.path, status, failure)
        if not self._streaming:
            await self.call.answer(status, body)
            return
        name = "" if self.kind == "chat" else "event: error\n"
        await self.call.write(f"{name}data: {json.dumps(body)}\n\n".encode())

    def keep(self, status: int) -> bool:
        """Keep the interaction, if it was shown anything and was answered. Returns whether it is kept. An answer that
        is whole has the status of the upstream, whatever followed it."""
        if self._kept is None:
            self._kept = False
            try:
                self._kept = self._keep(status)
            except Exception as error:
                self.app.service.faults.note("keeping an interaction", error)
        return self._kept

    def _keep(self, status: int) -> bool:
        service, received = self.app.service, self._size > 0
        if not received and status >= 400 and not (self._streaming and status == LEFT):
            return False
        # What a client left, or the upstream broke off, is read here and now, if that does not take long.
        answer = self._said if self._is_read else self._received_answer(OFF_LOOP)
        if received or status < 400:
            service.counts["unread answers"] += answer is None or answer.unread
        if answer is None and self._is_page:
            return False
        answer = self.call.told = answer or UpstreamAnswer()
        self.is_whole = answer.whole
        service.counts["wrong numbers"] += len(answer.wrong)
        if answer.failed:
            service.counts["upstream failures"] += 1
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
        """The answer, as far as it was received; None if it cannot be read, or has more than `most` bytes."""
        if self._reader is None:
            return self._answer(b"".join(self._chunks), most)
        self._read_received()
        answer = self._reader.end()
        # Some servers answer with JSON that they call a stream, or the other way round.
        return read_answer(bytes(self._reader.other)) if answer is None else answer

    def _answer(self, body: bytes, most: int) -> UpstreamAnswer | None:
        """What a response answers; None if it cannot be read, or has more than `most` bytes."""
        plain = decoded(body, self._encoding, most)
        if plain is None or len(plain) > most:
            return None
        first, second = (read_stream, read_answer) if self._streaming else (read_answer, read_stream)
        return first(plain) or second(plain)

    @property
    def _rest(self) -> bytes:
        """What was received of an event that is not complete."""
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
"""The end of an event: an empty line, with any of the three ends of a line. CR at the end of what was received may be a
half of CR LF."""

_DATA = re.compile(rb"(?:\A|[\r\n])data: ?")


class _Events:
    """The events of a stream of the protocol `responses`: those that hold the response get metadata."""

    def __init__(self, metadata: Mapping[str, str], most: int) -> None:
        self._metadata, self._most = metadata, most
        self._rest = bytearray()

    @property
    def rest(self) -> bytes:
        """What was received of an event that is not complete."""
        return bytes(self._rest)

    def take(self, chunk: bytes) -> bytes:
        """The events that are complete after this chunk, and all of one that is too large to be changed."""
        # An empty line may have begun in the chunk before.
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
        import msgspec

        try:
            fields = msgspec.json.decode(event[data.end() :], type=dict[str, msgspec.Raw])
            fields["response"] = msgspec.Raw(with_metadata(bytes(fields["response"]), self._metadata))
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError):
            return event
        return event[: data.end()] + msgspec.json.encode(fields)


def _returned(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """The headers of a response that the client gets."""
    return [(name, value) for name, value in response.raw_headers if name.lower().startswith(RETURNED)]


def _upstream_path(call: ServedCall) -> str:
    """The path and the query for the upstream, as the client wrote them."""
    query = str(call.scope["query_string"], "latin-1")
    return call.path.removeprefix("/v1") + (f"?{query}" if query else "")


_ELSEWHERE = re.compile(
    r"/(?!s/|static/)(?:[^/]+/)*?(?P<api>chat/completions|completions|responses|messages|embeddings|models)(?P<more>/.*)?"
)
"""Addresses of APIs as clients write them, such as /chat/completions and /openai/v1/chat/completions."""

_GEMINI = re.compile(r"/v1(?:alpha|beta)\d*/.*|/v1/models/[^/]+:(?:generateContent|streamGenerateContent|countTokens)")


def _right_address(call: ServedCall) -> str | None:
    """What a client should use in place of an address that belongs to another API, or lacks its /v1."""
    path = call.path
    twice = path.startswith("/v1/v1/")
    if path.startswith("/v1/") and not twice and not _GEMINI.fullmatch(path):
        return None
    base = f"{call.scope.get('scheme', 'http')}://{call.headers.get(b'host', 'HOST'):.200}"
    found = _ELSEWHERE.fullmatch(path)
    if found is not None and ":" not in (found["more"] or ""):
        more = found["api"] + (found["more"] or "")
        client = base if more.startswith("messages") else f"{base}/v1"
        return f"use {base}/v1/{more}, so the base URL of your client is {client}"
    if twice or path in ("/api/chat", "/api/generate") or _GEMINI.fullmatch(path):
        return (
            f"only OpenAI's protocols are served, at {base}/v1 (chat/completions, responses), and Anthropic's, at "
            f"{base}/v1/messages"
        )
    return None


def _upstream_error(error: BaseException) -> tuple[int, ErrorBody]:
    """The status and the error for the client, who does not learn the upstream's address."""
    if isinstance(error, TimeoutError):
        return 504, error_body("upstream.timeout", "the upstream did not answer in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        text = "the upstream cannot be reached: the service's log says why"
        return 502, error_body("upstream.unreachable", text)
    return 502, error_body("upstream.broken", "the upstream broke off its answer")


def error_answer(path: str, status: int, error: ErrorBody) -> dict[str, Any]:
    """An error in the form of the protocol, so that its clients read it."""
    said = {
        "message": f"practicum: {error['message']}", "type": _TYPES.get(status, "api_error"),
        "param": error["fields"].get("param"), "code": error["code"], "fields": error["fields"],
    }  # fmt: skip
    return {"type": "error", "error": said} if path.startswith("/v1/messages") else {"error": said}


_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error",
}  # fmt: skip

_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""Headers with which proxies pass a request on."""

_OWN_PATHS = {path for _, path in OPERATIONS} | {"/health", "/ready", "/metrics", "/openapi.json"}

_LOOKING = ("GET", "HEAD")

_PIECES = json.JSONEncoder(ensure_ascii=False)

_NAMES = {**PROTOCOLS, **{path: path[1:] for path in ("/health", "/ready", "/metrics", "/openapi.json", "/mcp")}}


def _route_of(call: ServedCall) -> str:
    """What was asked, as one of a few words."""
    if (operation := OPERATIONS.get((call.method, call.path))) is not None:
        return operation.name
    other = "upstream" if call.path.startswith("/v1/") and call.path not in _OWN_PATHS else "other"
    return _NAMES.get(call.path, other)
