"""Paths of the model server that clients may use with the service's key: model calls, and stored responses of the
space.

Files, fine-tunes, batches, stored conversations and the like belong to the key, not to the client, so their paths only
pass if the operator names them (`--pass PATH`). A client that sends its own key (`--pass-key`) has that key's rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from json import detect_encoding

import msgspec

from practicum.core.errors import UsageError
from practicum.serve.protocols import is_dense
from practicum.serve.request_checks import RequestRefused, is_normal

_MODEL_CALLS = frozenset(
    f"/v1/{path}"
    for path in (
        "chat/completions", "completions", "responses", "responses/input_tokens", "responses/compact", "messages",
        "messages/count_tokens", "embeddings", "moderations", "rerank", "audio/speech", "audio/transcriptions",
        "audio/translations", "images/generations", "images/edits", "images/variations",
    )
)  # fmt: skip
"""Paths of model calls (POST)."""

_CONTINUING = frozenset({"/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"})
"""Paths of model calls that may continue data stored by the model server."""

_RESPONSE = re.compile(r"/v1/responses/([A-Za-z0-9_-]+)(?:/(cancel|input_items))?")

_FAMILIES = frozenset(path.split("/")[2] for path in _MODEL_CALLS if path.count("/") > 2)

_MOST_UNREADABLE = 2**20
"""Largest size (bytes) of an unreadable body that may still pass."""

_MARKS = ("previous_response_id", "conversation", r"\u00")
"""Texts that an unparsed body contains if it continues stored data: names of fields, and the escape that a server may
read as a character of such a name."""


@dataclass(frozen=True)
class Passing:
    """Rules for passing requests to the model server. `prefixes`: paths that the operator allows, including all paths
    below them. `all`: all requests pass."""

    prefixes: tuple[str, ...] = ()
    all: bool = False

    def has(self, path: str) -> bool:
        """Return whether the operator has allowed all requests to a path."""
        return self.all or any(f"{path}/".startswith(f"{prefix}/") for prefix in self.prefixes)

    def response(self, method: str, path: str) -> str | None:
        """Return the id of the response that a request is about, or None if the request is not about a response. The
        caller checks that the response belongs to the space. Raise RequestRefused (403) if the request does not
        pass."""
        if self.has(path) or (method == "POST" and path in _MODEL_CALLS):
            return None
        if method in ("GET", "HEAD") and f"{path}/".startswith("/v1/models/"):
            return None
        if (match := _RESPONSE.fullmatch(path)) is not None:
            allowed = {None: ("GET", "HEAD", "DELETE"), "cancel": ("POST",), "input_items": ("GET", "HEAD")}
            if method in allowed[match[2]]:
                return match[1]
        parts = path.split("/")
        prefix = "/".join(parts[: 4 if parts[2] in _FAMILIES else 3])
        raise RequestRefused(
            "request.not_passed",
            f"{method} {path:.200} does not pass to the model server, because the request would use the service's key: "
            f"to allow such requests, start the service with --pass {prefix:.200}"
        )  # fmt: skip

    def previous_response(self, path: str, encoding: str, body: bytes) -> tuple[str | None, bytes]:
        """Return the id of the response that a request continues (None: the request continues no response), and the
        body to send. A body that continues stored data is sent without repeated fields. The caller checks that the
        response belongs to the space. Raise RequestRefused if the body continues a stored conversation (403), cannot be
        read (400), or is compressed (415)."""
        if path not in _CONTINUING or self.has(path):
            return None, body
        if encoding not in ("", "identity"):
            raise RequestRefused("request.encoded", f"send the body of {path} without content-encoding")
        if is_dense(body):
            # In UTF-16 and UTF-32, which some servers accept too, each character of a mark has NUL bytes next to it.
            plain = body.translate(None, b"\0") if b"\0" in body else body
            if any(mark.encode() in plain for mark in _MARKS):
                raise RequestRefused(
                    "request.too_large",
                    "the body has too many values to check whether it continues stored data: send a smaller body",
                )
            return None, body
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            previous, conversation = (
                msgspec.json.decode(fields[name]) if name in fields else None
                for name in ("previous_response_id", "conversation")
            )
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if _may_continue(body):
                raise RequestRefused("request.malformed", "the body is not a JSON object in UTF-8") from None
            # Pass the body on: the model server reports the error.
            return None, body
        if conversation is not None and not self.has("/v1/conversations"):
            raise RequestRefused(
                "request.not_passed",
                "the body continues a stored `conversation` of the model server, which may belong to another space: to "
                "allow such requests, start the service with --pass /v1/conversations"
            )  # fmt: skip
        if not isinstance(previous, str | None):
            raise RequestRefused("request.malformed", "`previous_response_id` must be the id of a response")
        if not fields.keys().isdisjoint(("previous_response_id", "conversation")):
            # Servers read repeated names differently, so send each name once, with the value that was checked.
            body = b"{%s}" % b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items())
        return previous, body


def _may_continue(body: bytes) -> bool:
    """Return whether an unreadable body could continue stored data, for a model server that also accepts other
    encodings, such as UTF-16."""
    if len(body) > _MOST_UNREADABLE:
        return True
    text = body.decode(detect_encoding(body), errors="replace")
    return any(mark in text for mark in _MARKS)


def read_prefixes(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes of paths that pass. Raise UsageError if a path is not below /v1."""
    for path in paths:
        if not (f"{path}/".startswith("/v1/") and path.isascii() and is_normal(path.encode())):
            raise UsageError(
                "settings.invalid", f"--pass needs a path of the model server such as /v1/files, not {path!r:.80}"
            )
    return tuple(dict.fromkeys(paths))
