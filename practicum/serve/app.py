"""HTTP interface of the service, as one ASGI application. The proxy answers requests to models; a Starlette router
passes other requests on to operations, to the server for agents (/mcp), or to the pages. The same checks apply to all
requests, and all errors have the same format.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from practicum.core.errors import PracticumError, error_body
from practicum.serve.access import Forbidden, Keys, TooMany, Wrong
from practicum.serve.answers import Health, Ready
from practicum.serve.api import OperationCall
from practicum.serve.call import Asgi, HeldBytes, Left, ServedCall
from practicum.serve.entrance import Entrance
from practicum.serve.http import AGENT, CALL, operation_routes, wrong_verb
from practicum.serve.lines import requests
from practicum.serve.mcp_http import Agents
from practicum.serve.metrics import Metrics
from practicum.serve.openapi import document
from practicum.serve.protocols import UpstreamAnswer
from practicum.serve.proxy import Proxy
from practicum.serve.relay import LEFT
from practicum.serve.replies import error_answer, status_of
from practicum.serve.request_checks import RequestRefused, require_clear
from practicum.serve.service import Service
from practicum.serve.spans import Spans
from practicum.serve.upstream import Upstream

logger = logging.getLogger("practicum.serve")


class App:
    """ASGI application of the service. `pass_key`: send the client's own key to the upstream; clients then send the key
    of the service in `x-practicum-key`. `passing`: prefixes of further paths that are passed on to the upstream
    (`passing.read_prefixes`). `pages` answers all requests outside the API, and `agents` answers requests to /mcp.
    `spans`: tracing of requests to models, or None."""

    def __init__(
        self, service: Service, upstream: Upstream, keys: Keys, *, pass_key: bool = False, passing: Sequence[str] = (),
        pages: Asgi | None = None, agents: Agents | None = None, spans: Spans | None = None,
    ) -> None:  # fmt: skip
        self.service, self.keys, self.pages, self.agents = service, keys, pages, agents
        self.entrance = Entrance(keys, service.settings.spaces[0], pass_key=pass_key)
        self.proxy = Proxy(service, upstream, self.entrance, pass_key=pass_key, passing=passing, spans=spans)
        self.metrics, self.held = Metrics(service), HeldBytes()
        own = [("/health", self._health), ("/ready", self._ready), ("/metrics", self._metrics)]
        routes = [*operation_routes(self._operation_call), *(Route(path, _ReadEndpoint(do)) for path, do in own)]
        routes.append(Route("/openapi.json", _ReadEndpoint(self._openapi)))
        if agents is not None:
            routes.append(Route("/mcp", _Endpoint(self._agents)))
        self._own = {route.path for route in routes}
        self._router = Router(routes, redirect_slashes=False, default=_Endpoint(self._other))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = ServedCall(scope, receive, send, self.service.spaces.endings, self.held)
        try:
            require_clear(scope)
            if call.path not in self._own and (hint := _address_hint(call)) is not None:
                raise RequestRefused("request.unknown_path", f"unknown path {call.path:.200}: {hint}")
            if call.path.startswith("/v1/") and call.path not in self._own:
                await self.proxy.answer(call)
            else:
                await self._router({**scope, CALL: call}, receive, send)
        except Left:
            self.service.counts["client_departures"] += 1
            call.status = LEFT
        except PracticumError as error:
            status, headers = status_of(error)
            counter = "refused_requests" if status < 500 else "failed_writes" if status in (503, 507) else "faults"
            self.service.counts[counter] += 1
            await call.answer(status, error_answer(call.path, status, error.body()), *headers)
        except Exception as error:
            if call.status:
                raise
            # A bug. The message of the error may quote requests, so it is not sent, and `lines` does not log it.
            self.service.counts["faults"] += 1
            logger.error("%s %s failed", call.method, call.route, exc_info=error)
            message = f"a bug in practicum made this request fail ({type(error).__name__}): see the log of the service"
            await call.answer(500, error_answer(call.path, 500, error_body("practicum.bug", message)))
        finally:
            self.held.bytes -= call.size
            self._ended(call)

    def _ended(self, call: ServedCall) -> None:
        """Count a request, and write its log line."""
        status, seconds = call.status or 500, time.monotonic() - call.started
        self.metrics.count(call.route, status, seconds, call.added)
        if requests.isEnabledFor(logging.INFO):
            answer = call.upstream_answer or UpstreamAnswer()
            line = {
                "method": call.method, "route": call.route, "status": status, "seconds": round(seconds, 4),
                "space": call.space, "key": call.grant and call.grant.name, "interaction": call.interaction,
                "version": call.version, "input_tokens": answer.input_tokens, "cached_tokens": answer.cached_tokens,
                "output_tokens": answer.output_tokens,
            }  # fmt: skip
            requests.info("%s %s", call.method, call.route, extra={"request": line})

    async def _operation_call(self, call: ServedCall, *, screened: bool = False) -> OperationCall:
        """Authenticate a call, and return the context of its operation."""
        grant, space = await self.entrance.enter(call)
        session, user = call.header(b"x-practicum-session"), call.header(b"x-practicum-user")
        screened = screened or call.header(AGENT) is not None
        return OperationCall(self.service, self.keys, grant, space, call.endings, session, user, screened)

    # Routes of the service itself

    async def _health(self, call: ServedCall) -> None:
        """Answer with the state of the service. To a request without a key for all spaces, answer only that the service
        runs."""
        call.route = "health"
        health = Health(status="ok")
        try:
            await self._enter_all_spaces(call)
            health = self.service.health()
        except (RequestRefused, Wrong, Forbidden, TooMany):
            pass
        await call.answer(200, health.as_json())

    async def _ready(self, call: ServedCall) -> None:
        call.route, service = "ready", self.service
        why = await service.readiness.problem(service.stopping, {*service.spaces, *service.spaces.unfinished})
        await call.answer(503 if why else 200, Ready(status=why or "ready").as_json())

    async def _metrics(self, call: ServedCall) -> None:
        call.route = "metrics"
        await self._enter_all_spaces(call)
        body = await asyncio.to_thread(self.metrics.text)
        await call.answer_bytes(200, body, (b"content-type", CONTENT_TYPE_PLAIN_0_0_4.encode()))

    async def _enter_all_spaces(self, call: ServedCall) -> None:
        """Raise PracticumError if the request has no key for all spaces."""
        grant, _ = await self.entrance.enter(call)
        grant.require("ask", "this endpoint")
        grant.require_all_spaces("this endpoint")

    @cached_property
    def _document(self) -> Any:
        """OpenAPI document. The document is cached, because making it takes 30 ms."""
        return document()

    async def _openapi(self, call: ServedCall) -> None:
        # No key is needed, because the document is the same for all services.
        call.route = "openapi.json"
        await call.answer(200, self._document)

    async def _agents(self, call: ServedCall) -> None:
        call.route = "mcp"
        assert self.agents is not None
        asked = await self._operation_call(call, screened=True)
        session = asked.session or call.header(b"mcp-session-id")
        await self.agents.answer(call, replace(asked, session=session))

    async def _other(self, call: ServedCall) -> None:
        """Answer a request outside the API with a page. Raise RequestRefused if the service has no pages."""
        if self.pages is None:
            raise RequestRefused(
                "request.unknown_path", f"unknown path {call.path:.200}: paths of the API begin with /v1"
            )  # fmt: skip
        await self.keys.refresh()
        if not self.keys.required:
            self.entrance.require_local(call, pages=True)
        await self.pages(call.scope, call.receive, call.send)


class _Endpoint:
    """ASGI application that answers a call with the function `do`."""

    def __init__(self, do: Callable[[ServedCall], Awaitable[None]]) -> None:
        self._do = do

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        await self._do(scope[CALL])


class _ReadEndpoint(_Endpoint):
    """ASGI application that answers GET and HEAD with the function `do`, and refuses other verbs."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise wrong_verb(scope[CALL], ["GET"])
        await self._do(scope[CALL])


_OTHER_APIS = re.compile(
    r"/(?!s/|static/)(?:[^/]+/)*?(?P<api>chat/completions|completions|responses|messages|embeddings|models)(?P<more>/.*)?"
)
"""Paths of model APIs with any prefix or none, such as /openai/v1/chat/completions and /chat/completions."""

_GEMINI = re.compile(r"/v1(?:alpha|beta)\d*/.*|/v1/models/[^/]+:(?:generateContent|streamGenerateContent|countTokens)")


def _address_hint(call: ServedCall) -> str | None:
    """Return a hint if the path of a call belongs to an API that the service does not support, lacks /v1, or repeats
    /v1; else None."""
    path = call.path
    twice = path.startswith("/v1/v1/")
    if path.startswith("/v1/") and not twice and not _GEMINI.fullmatch(path):
        return None
    base = f"{call.scope.get('scheme', 'http')}://{call.headers.get(b'host', 'HOST'):.200}"
    match = _OTHER_APIS.fullmatch(path)
    if match is not None and ":" not in (match["more"] or ""):
        more = match["api"] + (match["more"] or "")
        client = base if more.startswith("messages") else f"{base}/v1"
        return f"use {base}/v1/{more}: set the base URL of your client to {client}"
    if twice or path in ("/api/chat", "/api/generate") or _GEMINI.fullmatch(path):
        return (
            f"the service only supports OpenAI's protocols at {base}/v1 (chat/completions, responses), and "
            f"Anthropic's at {base}/v1/messages"
        )
    return None
