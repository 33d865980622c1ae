"""Protection of forms against other sites: tokens, origins, cookies, and the redirect after sign-in."""

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
"""Maximum size of a form (bytes)."""

SIGNED_IN = 43_200
"""Lifetime of a session cookie (s)."""


class SignedOut(PracticumError):
    """The request has no valid session."""

    def __init__(self) -> None:
        super().__init__("key.missing", "sign in")


class FormRefused(UsageError):
    """The form does not come from a current page of this site."""


def require_own(actions: Actions, request: Request, form: Mapping[str, str], cookie: str) -> None:
    """Raise FormRefused for a form that a page of this site did not send. A page of another site does not know the
    form token, and cannot change the headers in which the browser reports the site that sent a form."""
    token = request.headers.get("x-practicum-form") or form.get("token", "")
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
    foreign = site not in (None, "same-origin", "none") or origin not in (
        "null", f"http://{request.headers.get('host')}", f"https://{request.headers.get('host')}"
    )  # fmt: skip
    if foreign:
        raise FormRefused(
            "form.foreign", "the form came from another site: open the page on this site and submit the form from there"
        )
    if actions.required and not cookie:
        raise FormRefused(
            "form.no_cookie", "the browser sent no cookie: allow cookies for this site, then sign in again"
        )
    if not actions.is_form_token(cookie, token):
        raise FormRefused("form.expired", "this form is out of date: open the page again and submit the new form")


def page_of(path: str) -> str:
    """Return the URL path of the page that contains a form. `path`: the URL path that this form is submitted to."""
    if path == "/sign-out":
        return "/"
    return re.sub(r"^(/s/[^/]+(?:/corrections)?)/(?:canary|versions|learn|withdraw)$", r"\1", path)


def cookie_name(request: Request, kind: str = "") -> str:
    """Return the name of the session cookie (`kind` "") or of the cookie of the sign-in form ("-form"). On a loopback
    address, the name includes the port, because all ports of an address share cookies."""
    return f"practicum{kind}-{request.url.port or 80}" if is_here(request) else f"__Host-practicum{kind}"


def keep_cookie(request: Request, response: Response, kind: str, value: str) -> None:
    """Set a cookie in a response; an empty value removes the cookie."""
    age, secure = SIGNED_IN if value else 0, not is_here(request)
    response.set_cookie(
        cookie_name(request, kind), value, max_age=age, path="/", secure=secure, httponly=True, samesite="strict"
    )


def is_here(request: Request) -> bool:
    """Whether the browser uses a loopback address of this machine."""
    return is_loopback(request.url.hostname or "")


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form, with line breaks as "\\n". Raises FormRefused if the request body
    is not a form, and HTTPException (413) if the body is larger than MOST."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST:
            raise HTTPException(413)
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="replace")
    except ValueError:
        raise FormRefused(
            "form.expired", "the request body is not a form of this site: open the page and submit the form on the page"
        ) from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def safe_next(text: str) -> str:
    """Return the text if it is a URL on this site that can be opened after sign-in; otherwise "/"."""
    return text if re.fullmatch(r"/(s/[^\s\\]*)?(\?[^\s\\]*)?", text) else "/"


def form_texts(request: Request) -> list[tuple[str, str]]:
    """Return the texts in a refused form. The error page shows these texts to the visitor who entered them."""
    form: Mapping[str, str] = getattr(request.state, "form", {})
    return [(name, form[name]) for name in ("text", "about", "target", "comment", "reason") if form.get(name)]
