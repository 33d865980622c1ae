"""Errors as HTTP answers: their statuses, headers and bodies."""

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
from practicum.serve.admission import RequestRefused
from practicum.session.outcomes import Conflict, Unknown
from practicum.store.spaces import UnknownSpace

RETRY = 2
"""Seconds after which a client may try again what could not be written because the database is away."""

_STATUSES_OF_CODES: Mapping[str, int] = {
    "request.malformed": 400, "key.missing": 401, "key.wrong": 401, "key.expired": 401, "key.forbidden": 403,
    "key.not_configured": 403, "request.not_passed": 403, "request.unknown_path": 404, "response.unknown": 404,
    "request.wrong_verb": 405, "request.too_large": 413, "request.encoded": 415, "request.too_many": 429,
    "service.timeout": 503, "key.duplicate": 409, "version.unknown": 404,
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
