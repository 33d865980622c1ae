"""The frame of all pages: who asks, what a form may do, how answers are made, and what happens when something fails."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from practicum.core.errors import PracticumError, StoreAway, error_body
from practicum.core.look import asset, environment
from practicum.core.words import one_line, sentence
from practicum.models.keys import is_loopback
from practicum.serve.access import SIGNED_IN, Forbidden, Keys, TooMany, Wrong
from practicum.serve.pages import actions, views
from practicum.serve.pages.reads import ID
from practicum.serve.pages.visit import Visit, is_partial
from practicum.serve.replies import error_answer, status_of
from practicum.serve.service import Service

logger = logging.getLogger("practicum.serve")

T = TypeVar("T")

MOST = 2**18
"""Bytes of a form."""

PATIENCE = 30.0
"""Seconds that a page may take."""

FOLDER = Path(__file__).parent

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
"""What every answer says to a browser."""

STATIC: dict[str, tuple[Callable[[], str], str]] = {
    "style.css": (partial(asset, "style.css"), "text/css"),
    "theme.js": (partial(asset, "script.js"), "text/javascript"),
    "pages.css": (lambda: _own("pages.css"), "text/css"),
    "pages.js": (lambda: _own("pages.js"), "text/javascript"),
    "htmx.js": (lambda: _own("htmx.min.js"), "text/javascript"),
}
"""The files that pages use."""


class SignedOut(PracticumError):
    """Nobody is signed in."""

    def __init__(self) -> None:
        super().__init__("key.missing", "sign in")


Endpoint = Callable[[Visit], Awaitable[Response]]


class ServiceSite:
    """All pages, as an ASGI application."""

    def __init__(self, service: Service, keys: Keys, threads: Executor) -> None:
        self.service, self.keys, self._threads = service, keys, threads
        self.files = {name: (read().encode(), kind) for name, (read, kind) in STATIC.items()}
        self.templates = environment(FOLDER / "templates")
        self.templates.filters.update(
            when=when, ago=ago, url=partial(quote, safe=""), line=one_line, learned_from=learned_from
        )
        digests = {name: sha256(body).hexdigest()[:12] for name, (body, _) in self.files.items()}
        self.templates.globals.update(digests=digests)
        space = "/s/{space}"
        gets: dict[str, Endpoint] = {
            "/": views.spaces, space: views.overview, f"{space}/live": views.live,
            f"{space}/playbook": views.playbook, f"{space}/playbook/{{entry}}": views.entry,
            f"{space}/review": views.review, f"{space}/interactions": views.interactions,
            f"{space}/interactions/{{interaction}}": views.interaction, f"{space}/corrections": views.corrections,
            f"{space}/costs": views.costs, f"{space}/alarms": views.alarms,
        }  # fmt: skip
        posts: dict[str, Endpoint] = {
            "/": actions.add_space, f"{space}/canary": actions.decide_canary, f"{space}/version": actions.go_back,
            f"{space}/learn": actions.learn, f"{space}/playbook": actions.add_entry,
            f"{space}/playbook/{{entry}}": actions.change_entry, f"{space}/review": actions.decide,
            f"{space}/interactions/{{interaction}}": actions.correct, f"{space}/corrections": actions.note,
            f"{space}/corrections/withdraw": actions.withdraw, "/sign-out": self._sign_out,
        }  # fmt: skip
        routes = [Route(path, self._answering(do), methods=["GET"]) for path, do in gets.items()]
        routes += [Route(path, self._answering(do), methods=["POST"]) for path, do in posts.items()]
        routes += [
            Route("/sign-in", self._guarded(self._sign_in_page), methods=["GET"]),
            Route("/sign-in", self._guarded(self._sign_in), methods=["POST"]),
            Route("/static/{name}", self._file, methods=["GET"]),
        ]
        self._app = Starlette(routes=routes, exception_handlers={HTTPException: self._no_page})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                own = ((name.encode(), value.encode()) for name, value in OWN_HEADERS.items())
                message["headers"] = [*message["headers"], *(pair for pair in own if pair[0] not in known)]
            await send(message)

        await self._app(scope, receive, secured)

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """The result of a function, in a thread of the pages."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *given))

    async def page(self, template: str, visit: Visit | None, status: int = 200, **values: Any) -> Response:
        """A page, or a part of one."""
        space = visit.space if visit else ""
        crumbs = [("practicum", "/" if visit else "")] + ([(space, visit.url)] if visit and space else [])
        frame = {
            "grant": visit.grant if visit else None, "token": visit.token if visit else "",
            "keyed": self.keys.required, "space": space, "root": visit.url if visit else "", "crumbs": crumbs,
            "now": datetime.now(UTC).timestamp(), "here": "", "waits": 0, "said": "", "failed": "",
        }  # fmt: skip
        text = await self.run(lambda: self.templates.get_template(template).render({**frame, **values}))
        # A part that says why there is nothing to see takes the place of what asked for it.
        ends = {"hx-reswap": "outerHTML"} if template == "part.html" else None
        return HTMLResponse(text.encode(errors="replace"), status, ends)

    # Entering

    def _guarded(self, do: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint whose failures are pages."""

        async def answer(request: Request) -> Response:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await do(request)
            except SignedOut:
                return await self._signed_out(request)
            except HTTPException:
                raise
            except TimeoutError:
                return await self._failure(
                    request, StoreAway("service.timeout", f"this page was not made in {PATIENCE:g} seconds")
                )
            except PracticumError as error:
                return await self._failure(request, error)
            except Exception as error:
                logger.exception("the page %s failed", request.url.path)
                return await self._failure(request, error)

        return answer

    def _answering(self, do: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = await self._enter(request)
            return await do(visit)

        return self._guarded(answer)

    async def _enter(self, request: Request) -> Visit:
        """Who asks. Raises SignedOut, or Forbidden, also for a form that no present page of this service has sent."""
        endings = self.service.spaces.endings
        form = await read_form(request) if request.method == "POST" else {}
        request.state.form = form
        cookie = request.cookies.get(self._cookie(request), "")
        grant = await self.keys.signed_in(cookie) if cookie or not self.keys.required else None
        if grant is None or not grant.may("review"):
            raise SignedOut
        if request.method == "POST":
            self._require_own(request, form, cookie)
        visit = request.state.visit = Visit(self, request, grant, self.keys.form_token(cookie), endings, form)
        if visit.space:
            if grant.space not in ("", visit.space):
                raise Forbidden("key.forbidden", f"your key is for the space {grant.space}")
            visit.known = await self.service.spaces.current(visit.space, endings, grant)
        return visit

    def _require_own(self, request: Request, form: Mapping[str, str], cookie: str) -> None:
        """Refuse a form that was not sent by a page of this service: a page of another site neither knows the token nor
        can say that it is this site."""
        token = request.headers.get("x-practicum-form") or form.get("token", "")
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
        foreign = site not in (None, "same-origin", "none") or origin not in (
            "null", f"http://{request.headers.get('host')}", f"https://{request.headers.get('host')}"
        )  # fmt: skip
        if foreign or (self.keys.required and not cookie) or not self.keys.is_form_token(cookie, token):
            raise Forbidden(
                "form.expired", "this form was not sent from a page as it is now: reload the page, and send it again"
            )

    def _cookie(self, request: Request, kind: str = "") -> str:
        """The name of the cookie. Ports share cookies, so on one machine the port is in the name."""
        return f"practicum{kind}-{request.url.port or 80}" if is_here(request) else f"__Host-practicum{kind}"

    def _keep_cookie(self, request: Request, response: Response, kind: str, value: str) -> None:
        age, secure = int(SIGNED_IN) if value else 0, not is_here(request)
        response.set_cookie(
            self._cookie(request, kind), value, max_age=age, path="/", secure=secure, httponly=True, samesite="strict"
        )  # fmt: skip

    # Signing in and out

    async def _sign_in_page(self, request: Request) -> Response:
        return await self._sign_in_form(request, way(request.query_params.get("next", "")))

    async def _sign_in_form(self, request: Request, onward: str, status: int = 200, failed: str = "") -> Response:
        if not self.keys.required:
            return RedirectResponse("/", 303)
        # A form of who is not signed in has a token, too: else another site could sign people in as somebody.
        cookie = request.cookies.get(self._cookie(request, "-form"), "") or secrets.token_urlsafe(32)
        plain = request.url.scheme == "http" and not is_here(request)
        token = self.keys.form_token(cookie)
        response = await self.page(
            "sign_in.html", None, status, token=token, next=onward, failed=failed, plain=plain
        )  # fmt: skip
        self._keep_cookie(request, response, "-form", cookie)
        return response

    async def _sign_in(self, request: Request) -> Response:
        form = request.state.form = await read_form(request)
        self._require_own(request, form, request.cookies.get(self._cookie(request, "-form"), ""))
        onward, key, address = way(form.get("next", "")), form.get("key", "").strip(), request.client
        try:
            grant = await self.keys.grant(key, address.host if address else "")
            if not grant.may("review"):
                raise Forbidden(
                    "key.forbidden",
                    f"the key {grant.name} is for programs ({', '.join(grant.named)}): signing in takes a key with the "
                    "role review or admin",
                )
            cookie = await self.keys.sign_in(key, address.host if address else "")
        except (Wrong, TooMany, Forbidden) as error:
            status = 401 if isinstance(error, Wrong) else status_of(error)[0]
            return await self._sign_in_form(request, onward, status, sentence(error))
        response = RedirectResponse(onward, 303)
        self._keep_cookie(request, response, "", cookie)
        self._keep_cookie(request, response, "-form", "")
        return response

    async def _sign_out(self, visit: Visit) -> Response:
        """Sign out."""
        await self.keys.sign_out(visit.request.cookies.get(self._cookie(visit.request), ""))
        response = RedirectResponse("/sign-in", 303)
        self._keep_cookie(visit.request, response, "", "")
        return response

    # Failures

    async def _signed_out(self, request: Request) -> Response:
        path = request.url.path
        onward = path + (f"?{request.url.query}" if request.url.query and request.method == "GET" else "")
        link = f"/sign-in?{urlencode({'next': onward})}"
        if request.method == "GET" and not is_partial(request):
            if request.headers.get("sec-fetch-site") == "cross-site":
                # The browser keeps the cookie from links of other sites, and sends it when the page asks for itself.
                return await self.page("again.html", None, url=onward)
            return RedirectResponse(link if onward != "/" else "/sign-in", 303)
        return await self.page(
            "message.html" if not is_partial(request) else "part.html", None, 401, heading="You are signed out",
            text="Nothing was changed. Sign in again, and go on.", link=link, link_text="Sign in", kept=kept(request),
        )  # fmt: skip

    async def _failure(self, request: Request, error: Exception) -> Response:
        status, headers, heading, text = 500, tuple[tuple[bytes, bytes], ...](), "This page failed", ""
        if isinstance(error, PracticumError):
            (status, headers), text = status_of(error), sentence(error)
            heading = HEADINGS.get(status, heading)
        else:
            text = "This is a fault of practicum; the log of the service says more."
        self.service.counts["pages that failed" if status >= 500 else "refused pages"] += 1
        response = await self.page(
            "message.html" if not is_partial(request) else "part.html", getattr(request.state, "visit", None), status,
            heading=heading, text=text, link="/", link_text="All spaces", kept=kept(request), space="",
            crumbs=[("practicum", "/")],
        )  # fmt: skip
        response.headers.update({name.decode(): value.decode() for name, value in headers})
        return response

    async def _no_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = NO_PAGE.get(status, "")
        if "endpoint" not in request.scope and "text/html" not in request.headers.get("accept", ""):
            # A program asks, which wants the API and has another address.
            said = f"there is nothing at {request.url.path:.200}: the API is at {request.base_url}v1"
            failure = error_body("request.unknown_path", said)
            return JSONResponse(error_answer(request.url.path, status, failure), status)
        response = await self.page(
            "message.html", getattr(request.state, "visit", None), status,
            heading=HEADINGS.get(status, "This page failed"), text=text, link="/", link_text="All spaces", kept=(),
        )  # fmt: skip
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        return response

    async def _file(self, request: Request) -> Response:
        found = self.files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        kept = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(found[0], media_type=found[1], headers=kept)


HEADINGS = {
    400: "That does not work", 403: "That is not allowed", 404: "There is no such page", 405: "That does not work",
    409: "Somebody was faster", 413: "That is too long", 429: "Too many requests",
    503: "The store does not answer", 507: "The store cannot be written",
}  # fmt: skip


NO_PAGE = {
    404: "There is nothing at this address.", 405: "This address is for something else.",
    413: f"A form may have {MOST:,} bytes. Go back in the browser: what you wrote is still there.",
}  # fmt: skip


def is_here(request: Request) -> bool:
    """Whether the browser asks this machine by its loopback address."""
    return is_loopback(request.url.hostname or "")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, with plain line breaks. Raises Forbidden for one that is too long or is none."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST:
            raise HTTPException(413)
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="replace")
    except ValueError:
        raise Forbidden("form.expired", "this is no form of these pages") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def way(text: str) -> str:
    """Where to go on after signing in: a page of this service."""
    return text if re.fullmatch(r"/(s/[^\s\\]*)?(\?[^\s\\]*)?", text) else "/"


def kept(request: Request) -> list[tuple[str, str]]:
    """What somebody wrote into a form that was refused, so that it is not lost."""
    form: Mapping[str, str] = getattr(request.state, "form", {})
    return [(name, form[name]) for name in ("text", "about", "target", "comment", "reason") if form.get(name)]


def when(at: float | None) -> str:
    """A time, in UTC."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def ago(at: float, now: float) -> str:
    """How long ago something was."""
    passed = max(now - at, 0.0)
    for least, size, unit in ((172_800, 86_400, "d"), (5_400, 3_600, "h"), (90, 60, "min")):
        if passed >= least:
            return f"{passed / size:.0f} {unit} ago"
    return f"{passed:.0f} s ago"


def learned_from(sources: Any) -> list[tuple[str, str]]:
    """The interactions among sources: their ids, and what was reported then (its revision)."""
    found = (ID.search(source) for source in sources)
    return [*dict.fromkeys((each[1], each[2] or "") for each in found if each)]


def _own(name: str) -> str:
    return (FOLDER / "static" / name).read_text(encoding="utf-8")
