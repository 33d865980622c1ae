"""Forms of this site and of no other: tokens, origins, cookies, and where to go on after signing in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from practicum.core.errors import PracticumError, UsageError
from practicum.models.keys import is_loopback
from practicum.view.site import Actions

MOST = 2**20
"""Bytes of a form."""

SIGNED_IN = 43_200
"""Seconds for which a visitor stays signed in."""


class SignedOut(PracticumError):
    """Nobody is signed in."""

    def __init__(self) -> None:
        super().__init__("key.missing", "sign in")


class FormRefused(UsageError):
    """A form that no current page of this site has sent."""


def require_own(actions: Actions, request: Request, form: Mapping[str, str], cookie: str) -> None:
    """Raise FormRefused for a form that was not sent by a page of this site: a page of another site neither knows the
    token nor can say that it is this site."""
    token = request.headers.get("x-practicum-form") or form.get("token", "")
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
    foreign = site not in (None, "same-origin", "none") or origin not in (
        "null", f"http://{request.headers.get('host')}", f"https://{request.headers.get('host')}"
    )  # fmt: skip
    if foreign:
        raise FormRefused("form.foreign", "the form came from another site")
    if actions.required and not cookie:
        raise FormRefused("form.no_cookie", "signing in needs cookies: allow them for this address")
    if not actions.is_form_token(cookie, token):
        raise FormRefused("form.expired", "this form is out of date. Open the page again and send it once more")


def page_of(path: str) -> str:
    """The address of the page whose form is sent to an address."""
    if path == "/sign-out":
        return "/"
    return re.sub(r"^(/s/[^/]+(?:/corrections)?)/(?:canary|versions|learn|withdraw)$", r"\1", path)


def cookie_name(request: Request, kind: str = "") -> str:
    """The name of the cookie. Ports share cookies, so on one machine the port is in the name."""
    return f"practicum{kind}-{request.url.port or 80}" if is_here(request) else f"__Host-practicum{kind}"


def keep_cookie(request: Request, response: Response, kind: str, value: str) -> None:
    """Let the browser keep a cookie; an empty one is removed."""
    age, secure = SIGNED_IN if value else 0, not is_here(request)
    response.set_cookie(
        cookie_name(request, kind), value, max_age=age, path="/", secure=secure, httponly=True, samesite="strict"
    )


def is_here(request: Request) -> bool:
    """Whether the browser asks this machine by its loopback address."""
    return is_loopback(request.url.hostname or "")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, with plain line breaks. Raises FormRefused for a body that is no form."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST:
            raise HTTPException(413)
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="replace")
    except ValueError:
        raise FormRefused("form.expired", "this is not a form of these pages. Open the page and use its form") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def way(text: str) -> str:
    """Where to go on after signing in: a page of this site."""
    return text if re.fullmatch(r"/(s/[^\s\\]*)?(\?[^\s\\]*)?", text) else "/"


def kept(request: Request) -> list[tuple[str, str]]:
    """The texts of a form that was refused, so that they are not lost."""
    form: Mapping[str, str] = getattr(request.state, "form", {})
    return [(name, form[name]) for name in ("text", "about", "target", "comment", "reason") if form.get(name)]
