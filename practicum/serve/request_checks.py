"""Checks of a request's method, path, query and headers before the request is routed.

The service, a proxy in front of the service and the model server must understand a request alike. So ambiguous requests
are refused: paths that are not in normal form, repeated headers, and blank values of practicum's headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from unicodedata import is_normalized
from urllib.parse import unquote_to_bytes

from practicum.core.errors import Json, PracticumError
from practicum.core.visible import is_blank

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Accepted methods. TRACE would return headers, and CONNECT would open a tunnel."""

_PATH = re.compile(
    rb"/|(?:/(?!\.{1,2}(?:/|\Z))(?:"
    rb"[A-Za-z0-9._~!$&'()*+,=:@-]"
    # Escapes. Excluded are escapes of control characters, of unreserved characters, and of / \ % ; because servers
    # split paths at these four characters or decode the escapes twice.
    rb"|%(?![01]|2[5DEF]|3[0-9B]|4[1-9A-F]|5[0-9ACF]|6[1-9A-F]|7[0-9AEF])[2-9A-F][0-9A-F]"
    rb")+)+"
)

_NOT_IN_QUERY = re.compile(rb"[^\x21-\x7e]|#|%(?:0[0-8BCEFbcef]|1[0-9A-Fa-f]|7[Ff])")
"""Bytes that must be escaped, and escapes of control characters other than tabs and line breaks."""

_ONCE = frozenset({b"host", b"origin", b"authorization", b"x-api-key", b"content-type", b"sec-fetch-site"})
_NAMED = frozenset({b"mcp-session-id"})
_OWN = b"x-practicum-"


class RequestRefused(PracticumError):
    """Request that is refused. The error code determines the HTTP status. `headers` are added to the response."""

    def __init__(self, code: str, message: str, *headers: tuple[bytes, bytes], **fields: Json) -> None:
        super().__init__(code, message, **fields)
        self.headers = headers


def require_clear(scope: Mapping[str, Any]) -> None:
    """Check the request of an ASGI scope. Raise RequestRefused (400 or 405) if two servers may understand
    the request differently."""
    if (method := scope["method"]) not in METHODS:
        headers = (b"allow", ", ".join(METHODS).encode()), (b"connection", b"close")
        raise RequestRefused("request.wrong_verb", f"the method {method:.20} is not supported", *headers)
    if not is_normal(scope["raw_path"]):
        raise RequestRefused(
            "request.malformed",
            "the path is not in normal form: it must start with /, and must not have empty, . or .. segments, control "
            r"characters, lower-case escapes, or escapes of letters, of digits or of any of -._~/\%;"
        )  # fmt: skip
    if _NOT_IN_QUERY.search(scope["query_string"]):
        raise RequestRefused(
            "request.malformed", "the query has control characters or unescaped bytes: percent-encode them"
        )
    _require_clear_headers(scope["headers"])


def is_normal(path: bytes) -> bool:
    """Return whether a path is in normal form. Paths are compared and sent in this form."""
    if _PATH.fullmatch(path) is None:
        return False
    if b"%" not in path:
        return True
    try:
        return is_normalized("NFKC", unquote_to_bytes(path).decode())
    except UnicodeDecodeError:
        return False


def header_text(value: bytes) -> str:
    """Return the text of a header, decoded as UTF-8 if valid, else as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _require_clear_headers(headers: Iterable[tuple[bytes, bytes]]) -> None:
    seen = set[bytes]()
    for name, value in headers:
        if name == b"connection" and _OWN in value.lower():
            raise RequestRefused(
                "request.malformed",
                "the header `Connection` lists a header of practicum, so a proxy would drop that header: "
                "remove that header from the list",
            )
        named = name.startswith(_OWN) or name in _NAMED
        if named and is_blank(header_text(value)):
            raise RequestRefused(
                "request.malformed",
                f"the header {name.decode('latin-1')} is blank: remove the header, or give it a value",
            )
        if named or name in _ONCE:
            if name in seen:
                raise RequestRefused(
                    "request.malformed", f"the header {name.decode('latin-1')} was sent more than once: send it once"
                )
            seen.add(name)
