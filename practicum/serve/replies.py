"""HTTP responses of errors: status, headers and body."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from practicum.core.errors import (
    ErrorBody,
    NotARun,
    PracticumError,
    RunBusy,
    StoreAway,
    StoreError,
    UsageError,
)
from practicum.serve.access import Forbidden, TooMany
from practicum.serve.request_checks import RequestRefused
from practicum.session.outcomes import Conflict, Unknown
from practicum.store.spaces import UnknownSpace

RETRY = 2
"""Time (s) after which a client may repeat a request that was refused because the database was unavailable or the
memory was full."""

_STATUSES_OF_CODES: Mapping[str, int] = {
    "request.malformed": 400, "key.missing": 401, "key.wrong": 401, "key.expired": 401, "key.forbidden": 403,
    "key.not_configured": 403, "request.not_passed": 403, "request.unknown_path": 404, "response.unknown": 404,
    "request.wrong_verb": 405, "request.too_large": 413, "request.encoded": 415, "request.no_websocket": 426,
    "request.too_many": 429, "service.timeout": 503, "key.duplicate": 409, "version.unknown": 404,
}  # fmt: skip
"""HTTP statuses by error code."""

_STATUSES: tuple[tuple[type[PracticumError], int], ...] = (
    (Unknown, 404), (UnknownSpace, 404), (NotARun, 404), (Forbidden, 403), (Conflict, 409), (RunBusy, 409),
    (StoreAway, 503), (UsageError, 400), (StoreError, 507),
)  # fmt: skip
"""HTTP statuses by error class, for error codes that `_STATUSES_OF_CODES` does not have. Subclasses precede their base
classes."""


def status_of(error: PracticumError) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    """Return the HTTP status and the headers for an error."""
    by_kind = (status for kind, status in _STATUSES if isinstance(error, kind))
    status = _STATUSES_OF_CODES.get(error.code) or next(by_kind, 500)
    headers = error.headers if isinstance(error, RequestRefused) else ()
    if status == 401:
        return status, (*headers, (b"www-authenticate", b"Bearer"))
    if status in (429, 503):
        after = error.after if isinstance(error, TooMany) else RETRY
        return status, (*headers, (b"retry-after", b"%d" % ceil(after)))
    return status, headers


def error_answer(path: str, status: int, error: ErrorBody) -> dict[str, Any]:
    """Return an error in the format of the protocol of the path, so that clients of this protocol can read the
    error."""
    body = {
        "message": f"practicum: {error['message']}", "type": _TYPES.get(status, "api_error"),
        "param": error["fields"].get("param"), "code": error["code"], "fields": error["fields"],
    }  # fmt: skip
    return {"type": "error", "error": body} if path.startswith("/v1/messages") else {"error": body}


_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error",
}  # fmt: skip
