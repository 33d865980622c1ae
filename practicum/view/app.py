"""The site as a Starlette application: routes, sign-in, responses and error pages.

Without a service the site is read-only. With a service the site also accepts forms: only from signed-in visitors, and
only if a page of this site sent the form.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from practicum.core.errors import NotARun, PracticumError, StoreAway, UsageError, error_body
from practicum.core.words import sentence
from practicum.view import forms, guard
from practicum.view.kit import STATIC, asset, environment
from practicum.view.library import Folders, Library
from practicum.view.pages import GETS
from practicum.view.site import Actions, ShownSpace
from practicum.view.stored import StoredSpace, open_stored
from practicum.view.visit import Visit, is_partial

logger = logging.getLogger("practicum.view")

T = TypeVar("T")

PATIENCE = 30.0
"""Maximum time to answer a request for a page (s)."""

OWN_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every response: rules for the browser. A header that a response sets itself has precedence."""

HEADINGS = {
    400: "Invalid request", 403: "Not allowed", 404: "Page not found", 405: "Invalid request",
    409: "Changed since the page was loaded", 413: "Form too long", 421: "Wrong host name",
    429: "Too many requests", 503: "The store does not respond", 507: "The store cannot be read or written",
}  # fmt: skip

NO_PAGE = {
    404: "This page does not exist, or does not exist yet.", 405: "This URL does not accept such a request.",
    413: f"A form may have at most {guard.MOST:,} bytes. Go back in the browser: the form still has your text.",
    421: "Open the URL that `practicum view` printed.",
}  # fmt: skip

LISTS = frozenset({"entries", "versions", "episodes", "steps", "calls", "operations"})
"""Names of the list pages of a space."""

Endpoint = Callable[[Visit], Awaitable[Response]]


class Site:
    """ASGI application with all pages of a library of spaces.

    `actions`: the actions of a service; None: the site is read-only. `standalone`: whether the pages are written as
    files. `hosts`: the allowed values of the Host header; None: all values are allowed."""

    def __init__(
        self, library: Library, threads: Executor, actions: Actions | None = None, *, standalone: bool = False,
        hosts: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        self.library, self.actions, self.standalone = library, actions, standalone
        self._threads, self._hosts = threads, hosts
        self.incomplete = 0
        """Number of pages so far that failed or have parts that cannot be read."""
        self._last_space: ShownSpace | None = None
        """Space of the last page written as a file, kept open for the next page."""
        routes = [Route(path, self._answering(do), methods=["GET"]) for path, do in GETS.items()]
        if actions is not None:
            routes += [Route(path, self._answering(do), methods=["POST"]) for path, do in forms.POSTS.items()]
            routes += [
                Route("/sign-in", self._guarded(self._sign_in_page), methods=["GET"]),
                Route("/sign-in", self._guarded(self._sign_in), methods=["POST"]),
                Route("/sign-out", self._answering(self._sign_out), methods=["POST"]),
            ]
        routes.append(Route("/static/{name}", self._file, methods=["GET"]))
        self._app = Starlette(routes=routes, exception_handlers={HTTPException: self._no_page})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                own = ((name.encode(), value.encode()) for name, value in OWN_HEADERS.items())
                message["headers"] = [*message["headers"], *(pair for pair in own if pair[0] not in names)]
            await send(message)

        if scope["type"] == "http":
            await self._app(scope, receive, secured)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function in a worker thread of the site. Returns its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args))

    async def page(self, template: str, visit: Visit | None, status: int = 200, **values: Any) -> Response:
        """Render a page, or a part of a page."""
        space = visit.name if visit else ""
        crumbs = [("practicum", "/" if visit else "")]
        if visit and space:
            crumbs += [(space.replace("~", " / "), visit.url)]
        frame = {
            "grant": visit.visitor if visit else None, "token": visit.token if visit else "",
            "keyed": self.actions is not None and self.actions.required, "space": space, "standalone": self.standalone,
            "root": visit.url if visit else "", "crumbs": crumbs, "acts": self.actions is not None,
            "now": datetime.now(UTC).timestamp(), "unread": visit.gaps.sentences if visit else [],
        }  # fmt: skip
        self.incomplete += bool(frame["unread"] or status >= 500)
        text = await self.run(lambda: environment().get_template(template).render({**frame, **values}))
        # If a request for a part of a page fails, the error replaces the element that sent the request.
        ends = {"hx-reswap": "outerHTML"} if template == "part.html" else None
        return HTMLResponse(text.encode(errors="replace"), status, ends)

    # Entering

    def _guarded(self, do: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Wrap an endpoint: check the host, limit the time, and show errors as pages."""

        async def answer(request: Request) -> Response:
            try:
                if self._hosts is not None and request.headers.getlist("host") not in [[one] for one in self._hosts]:
                    raise HTTPException(421)
                async with asyncio.timeout(PATIENCE):
                    return await do(request)
            except guard.SignedOut:
                return await self._signed_out(request)
            except HTTPException:
                raise
            except TimeoutError:
                return await self._failure(
                    request,
                    StoreAway("service.timeout", f"this page took over {PATIENCE:g} seconds: load the page again"),
                )
            except Exception as error:
                if not isinstance(error, PracticumError):
                    logger.exception("the page %s failed", request.url.path)
                return await self._failure(request, error)

        return answer

    def _answering(self, do: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = await self._enter(request)
            try:
                return await do(visit)
            finally:
                if isinstance(visit.opened, StoredSpace) and visit.opened is not self._last_space:
                    await self.run(visit.opened.store.close)

        return self._guarded(answer)

    async def _enter(self, request: Request) -> Visit:
        """Check the session and the form of a request, and open the space in the URL. Raises SignedOut without a
        valid session, and FormRefused for a form that does not come from a current page of this site."""
        if self.actions is None:
            visit = request.state.visit = Visit(self, request)
            if visit.name:
                visit.opened = await self.run(self._open, visit.name)
            return visit
        began = self.actions.begin()
        form = await guard.read_form(request) if request.method == "POST" else {}
        request.state.form = form
        cookie = request.cookies.get(guard.cookie_name(request), "")
        visitor = await self.actions.visitor(cookie) if cookie or not self.actions.required else None
        if visitor is None:
            raise guard.SignedOut
        if request.method == "POST":
            guard.require_own(self.actions, request, form, cookie)
        visit = Visit(self, request, visitor, self.actions.form_token(cookie), began, form)
        request.state.visit = visit
        if visit.name:
            visit.opened = await self.actions.space(visit.name, visitor, began)
        return visit

    def _open(self, name: str) -> ShownSpace:
        place = self.library.find(name) if isinstance(self.library, Folders) else None
        if place is None or place.kind != "space":
            raise HTTPException(404)
        if not self.standalone:
            return open_stored(place.path, name)
        if self._last_space is None or self._last_space.name != name:
            self.close()
            self._last_space = open_stored(place.path, name)
        return self._last_space

    def close(self) -> None:
        """Close the space that is kept open for pages written as files."""
        if self._last_space is not None:
            self._last_space.store.close()
            self._last_space = None

    # Signing in and out

    async def _sign_in_page(self, request: Request) -> Response:
        return await self._sign_in_form(request, guard.safe_next(request.query_params.get("next", "")))

    async def _sign_in_form(self, request: Request, onward: str, status: int = 200, failed: str = "") -> Response:
        assert self.actions is not None
        if not self.actions.required:
            return RedirectResponse("/", 303)
        # The sign-in form has a token too, so that another site cannot sign a visitor in.
        cookie = request.cookies.get(guard.cookie_name(request, "-form"), "") or secrets.token_urlsafe(32)
        plain = request.url.scheme == "http" and not guard.is_here(request)
        response = await self.page(
            "sign_in.html", None, status, token=self.actions.form_token(cookie), next=onward, failed=failed, plain=plain
        )
        guard.keep_cookie(request, response, "-form", cookie)
        return response

    async def _sign_in(self, request: Request) -> Response:
        assert self.actions is not None
        form = request.state.form = await guard.read_form(request)
        guard.require_own(self.actions, request, form, request.cookies.get(guard.cookie_name(request, "-form"), ""))
        onward, key, address = guard.safe_next(form.get("next", "")), form.get("key", "").strip(), request.client
        try:
            cookie = await self.actions.sign_in(key, address.host if address else "")
        except PracticumError as error:
            if (status := self.actions.status(error)[0]) >= 500:
                raise
            return await self._sign_in_form(request, onward, status, sentence(error))
        response = RedirectResponse(onward, 303)
        guard.keep_cookie(request, response, "", cookie)
        guard.keep_cookie(request, response, "-form", "")
        return response

    async def _sign_out(self, visit: Visit) -> Response:
        await visit.actions.sign_out(visit.request.cookies.get(guard.cookie_name(visit.request), ""))
        response = RedirectResponse("/sign-in", 303)
        guard.keep_cookie(visit.request, response, "", "")
        return response

    # Failures

    async def _signed_out(self, request: Request) -> Response:
        onward = guard.page_of(request.url.path) if request.method == "POST" else request.url.path
        onward += f"?{request.url.query}" if request.url.query and request.method == "GET" else ""
        link = f"/sign-in?{urlencode({'next': onward})}"
        if request.method == "GET" and not is_partial(request):
            if request.headers.get("sec-fetch-site") == "cross-site":
                # After a click on another site, a browser does not send this site's cookies (SameSite=strict). The page
                # again.html reloads the URL, and then the browser sends the cookies.
                return await self.page("again.html", None, url=onward)
            return RedirectResponse(link if onward != "/" else "/sign-in", 303)
        return await self.page(
            "message.html" if not is_partial(request) else "part.html", None, 401, heading="You are signed out",
            text="Nothing was changed. Sign in again to continue.", link=link, link_text="Sign in",
            texts=guard.form_texts(request),
        )  # fmt: skip

    def _status(self, error: Exception) -> tuple[int, Mapping[str, str]]:
        if not isinstance(error, PracticumError):
            return 500, {}
        if isinstance(error, guard.FormRefused):
            return 403, {}
        if isinstance(error, NotARun) or (error.code.endswith(".unknown") and isinstance(error, UsageError)):
            return 404, {}
        if self.actions is not None:
            return self.actions.status(error)
        return (400 if isinstance(error, UsageError) else 500), {}

    async def _failure(self, request: Request, error: Exception) -> Response:
        status, headers = self._status(error)
        text = "This is a bug in practicum. The log of the service has the details."
        if isinstance(error, PracticumError):
            text = sentence(error)
        elif self.actions is None:
            text = f"{type(error).__name__}: {error}. This is a bug in practicum: report it with the URL of this page."
        if self.actions is not None:
            self.actions.count("failed_pages" if status >= 500 else "refused_pages")
        visit = getattr(request.state, "visit", None)
        # If the space is open, keep the tabs: other pages of the space may be readable.
        no_space = visit is None or visit.opened is None
        link = (guard.page_of(request.url.path), "Open the page") if request.method == "POST" else ("/", "All spaces")
        response = await self.page(
            "message.html" if not is_partial(request) else "part.html", visit, status,
            heading=HEADINGS.get(status, "This page cannot be shown"), text=text, link=link[0], link_text=link[1],
            texts=guard.form_texts(request), **({"space": "", "crumbs": [("practicum", "/")]} if no_space else {}),
        )  # fmt: skip
        response.headers.update(headers)
        return response

    async def _no_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        asks_api = "endpoint" not in request.scope and "text/html" not in request.headers.get("accept", "")
        if self.actions is not None and asks_api:
            # The request comes from a program, not from a browser: name the URL of the API.
            message = f"no endpoint at {request.url.path:.200}: the API is at {request.base_url}v1"
            failure = error_body("request.unknown_path", message)
            return JSONResponse(self.actions.answer(request.url.path, status, failure), status)
        visit = getattr(request.state, "visit", None)
        frame, link = {"space": "", "crumbs": [("practicum", "/")]}, ("/", "All spaces")
        if visit is not None and visit.opened is not None:
            # The space exists, but this page does not: link to the list that the URL names, or else to the overview.
            listed = request.url.path.removeprefix(f"{visit.url}/").partition("/")[0]
            frame, link = {}, (f"{visit.url}/{listed}", f"All {listed}") if listed in LISTS else (visit.url, "Overview")
        response = await self.page(
            "message.html", visit, status, heading=HEADINGS.get(status, "This page cannot be shown"),
            text=NO_PAGE.get(status, ""), link=link[0], link_text=link[1], texts=(), **frame,
        )  # fmt: skip
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        return response

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            raise HTTPException(404)
        caching = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(asset(name), media_type=STATIC[name], headers=caching)
