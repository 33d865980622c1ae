"""Proxy to the model server: puts the view of a space into requests of the three protocols (`protocols`), and passes
other requests below /v1 on unchanged. The proxy handles bytes and does not use the operations.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict

from practicum.serve.access import Forbidden, require_key_of
from practicum.serve.call import Left, ServedCall
from practicum.serve.entrance import Entrance
from practicum.serve.passing import Passing
from practicum.serve.protocols import PROTOCOLS, Kind, Oversized, Request, Unreadable, read_request
from practicum.serve.relay import LEFT, OFF_LOOP, Relay, returned, upstream_error, while_connected
from practicum.serve.replies import error_answer
from practicum.serve.request_checks import RequestRefused
from practicum.serve.service import Service
from practicum.serve.sessions import Caller
from practicum.serve.space import RequestView
from practicum.serve.spans import Span, Spans
from practicum.serve.upstream import Upstream
from practicum.session.outcomes import new_id
from practicum.store.spaces import UnknownSpace

logger = logging.getLogger("practicum.serve")

COUNTING: Mapping[str, Kind] = {"/v1/messages/count_tokens": "messages", "/v1/responses/input_tokens": "responses"}
"""Paths at which a client counts the tokens of a request. The count includes the view."""

MOST_BODY = 32 * 2**20
"""Largest size (bytes) of a request, which may contain images."""

QUIET = 10.0
"""Shortest interval (s) between two log lines about failures of the upstream."""


class Proxy:
    """Proxy for requests to models, and for other requests below /v1. `pass_key`: send the client's own key upstream.
    `passing`: prefixes of further paths that are passed on to the upstream (`passing.read_prefixes`). `spans`: tracing
    of requests to models, or None."""

    def __init__(
        self, service: Service, upstream: Upstream, entrance: Entrance, *, pass_key: bool, passing: Sequence[str],
        spans: Spans | None,
    ) -> None:  # fmt: skip
        self.service, self.upstream, self.pass_key, self.spans = service, upstream, pass_key, spans
        self.passing = Passing(tuple(passing), all=pass_key)
        self.most_read = service.settings.max_read * 2**20
        """Largest size (bytes) of a request, answer or event that is parsed."""
        self._entrance = entrance
        self._failure_logged = float("-inf")

    async def answer(self, call: ServedCall) -> None:
        """Answer a request. Raise PracticumError if the request is refused."""
        path, method = call.path, call.method
        if method == "POST" and path in PROTOCOLS:
            call.route = PROTOCOLS[path]
            space = await self._entrance.enter_as(call, "ask")
            await self._complete(call, PROTOCOLS[path], space)
            return
        call.route = "upstream"
        space = await self._entrance.enter_as(call, "ask")
        if b"sec-websocket-key" in call.headers:
            # Codex tries this first. After a 426, it sends its requests by POST without a second try.
            raise RequestRefused(
                "request.no_websocket", f"{path:.200} does not take WebSocket connections: send requests by POST",
                (b"upgrade", b"HTTP/1.1"),
            )  # fmt: skip
        await self._require_response(call, space, self.passing.response(method, path))
        body = await self._body(call, space)
        if method == "POST" and path in COUNTING:
            _, _, body = await self._prepare(call, COUNTING[path], space, _caller(call), body)
        await self._pass_on(call, body)

    async def _complete(self, call: ServedCall, kind: Kind, space: str) -> None:
        body = await self._body(call, space)
        arrived = time.monotonic()
        caller = _caller(call)
        request, shown, body = await self._prepare(call, kind, space, caller, body)
        relay = Relay(self, call, kind, space, request, shown, caller.interaction, caller.user)
        headers = self.upstream.headers(call.scope["headers"], self.pass_key, body)
        path, span = _upstream_path(call), self._begin_span(call, request, headers)
        call.added = time.monotonic() - arrived
        try:
            async with while_connected(call), self.upstream.send("POST", path, headers, body) as response:
                await relay.pass_on(response)
        except Left:
            await relay.read_rest()
            relay.keep(LEFT)
            if not relay.is_whole:
                call.status, call.error = LEFT, "cancelled"
                raise
        except asyncio.CancelledError:
            # The service is stopping, and the answer takes too long.
            call.error = "cancelled"
            await relay.read_rest()
            relay.keep(503)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await relay.failed(error)
        finally:
            self._end_span(span, call)

    async def _body(self, call: ServedCall, space: str) -> bytes:
        """Return the body to send to the upstream. Raise RequestRefused if the body continues a response of another
        space. A key with the role admin for all spaces may continue any response."""
        body, encoding = await call.body(MOST_BODY), call.headers.get(b"content-encoding", "")
        if call.grant is not None and call.grant.is_operator:
            return body
        check = self.passing.previous_response
        if len(body) > OFF_LOOP:
            previous, body = await asyncio.to_thread(check, call.path, encoding, body)
        else:
            previous, body = check(call.path, encoding, body)
        await self._require_response(call, space, previous)
        return body

    async def _require_response(self, call: ServedCall, space: str, response: str | None) -> None:
        """Raise RequestRefused if the response with the id `response` is not recorded for this space, because the
        response may belong to another space. A key with the role admin for all spaces may access any response, because
        not all responses are recorded."""
        if response is None or (call.grant is not None and call.grant.is_operator):
            return
        opened = await self.service.spaces.opened(space)
        if not await self.service.recorder.has_response(opened, response):
            raise RequestRefused(
                "response.unknown",
                f"this space has no response {response!r:.80}: to allow all responses, start the service with "
                "--pass /v1/responses"
            )  # fmt: skip

    async def _prepare(
        self, call: ServedCall, kind: Kind, space: str, caller: Caller, body: bytes
    ) -> tuple[Request | None, RequestView | None, bytes]:  # fmt: skip
        """Put the view into the body of a request. If the body cannot be parsed, or no view can be made, return the
        body unchanged. Raise UnknownSpace if the space does not exist, and Forbidden if the key is for an earlier space
        of the same name."""
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
            if shown is not None and (shown.fixed or shown.learned or shown.tools or model):
                body = request.write(shown.fixed, shown.learned, model, shown.tools)
            return request, shown, body
        except Unreadable as error:
            self.service.counts["unread_requests"] += 1
            self.service.counts["oversized_requests"] += isinstance(error, Oversized)
        except (UnknownSpace, Forbidden):
            raise
        except Exception as error:
            self.service.counts["unchanged_requests"] += 1
            self.service.faults.note("preparing a request", error)
        return request, None, body

    def _begin_span(self, call: ServedCall, request: Request | None, headers: CIMultiDict[str]) -> Span | None:
        """Begin a span, and write its trace context into the headers of the upstream request."""
        if self.spans is None:
            return None
        traced = ((name, call.headers.get(name.encode())) for name in ("traceparent", "tracestate"))
        incoming = {name: value for name, value in traced if value is not None}
        upstream = self.upstream.name or f"{self.upstream.address}#"
        model = self.upstream.counted(request.model if request else "")
        try:
            span = Span(self.spans, incoming, call.path, call.started, upstream, model)
            span.pass_trace(headers)
        except Exception as error:
            self.service.faults.note("beginning a span", error)
            return None
        return span

    def _end_span(self, span: Span | None, call: ServedCall) -> None:
        if span is None:
            return
        attributes = {"space": call.space, "version": call.version, "interaction": call.interaction}
        try:
            answer = call.upstream_answer and replace(
                call.upstream_answer,
                model=call.upstream_answer.model and self.upstream.counted(call.upstream_answer.model),
            )
            span.end(call.status or 500, answer, call.error, attributes)
        except Exception as error:
            self.service.faults.note("ending a span", error)

    def require_status(self, response: aiohttp.ClientResponse) -> None:
        """Raise ClientPayloadError if the status is not a valid HTTP status."""
        if not 200 <= response.status < 600:
            self.service.counts["wrong_numbers"] += 1
            raise aiohttp.ClientPayloadError(f"invalid status {response.status}")

    def upstream_failed(self, error: BaseException) -> None:
        """Count a failure of the upstream, and log it at most every QUIET seconds."""
        self.service.counts["upstream_failures"] += 1
        if time.monotonic() - self._failure_logged >= QUIET:
            self._failure_logged = time.monotonic()
            logger.warning(
                "the upstream at %s failed (%s): %s; for %g s, further failures are only counted (/health)",
                urlsplit(self.upstream.address).netloc.rpartition("@")[2], type(error).__name__, error, QUIET,
            )  # fmt: skip

    async def _pass_on(self, call: ServedCall, body: bytes) -> None:
        """Pass on a request, and the upstream's answer to the request, without recording an interaction."""
        headers = self.upstream.headers(call.scope["headers"], self.pass_key, body)
        path, began, ended = _upstream_path(call), False, False
        try:
            send = self.upstream.send(call.method, path, headers, body or None)
            async with while_connected(call), send as response:
                self.require_status(response)
                await call.begin(response.status, returned(response))
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
                # Close the connection, so that the client does not mistake a part of the answer for the whole answer.
                raise
            status, failure = upstream_error(error)
            await call.answer(status, error_answer(call.path, status, failure))


def _caller(call: ServedCall) -> Caller:
    session, user = call.header(b"x-practicum-session"), call.header(b"x-practicum-user")
    return Caller(new_id(), session, user, call.headers)


def _upstream_path(call: ServedCall) -> str:
    """Return the path and the query for the upstream, as the client wrote them."""
    query = str(call.scope["query_string"], "latin-1")
    return call.path.removeprefix("/v1") + (f"?{query}" if query else "")
