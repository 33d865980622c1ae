"""What clients may ask the model server with the service's key: to answer, and for the answers that it gave them.

Files, fine-tunes, batches, stored conversations and the like are the key's, not the client's, so their paths pass only
if the operator names them (`--pass PATH`). A client that sends a key of its own (`--pass-key`) has that key's rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from json import detect_encoding

import msgspec

from practicum.core.errors import UsageError
from practicum.serve.admission import RequestRefused, is_normal
from practicum.serve.protocols import is_dense

_ASKING = frozenset(
    f"/v1/{path}"
    for path in (
        "chat/completions", "completions", "responses", "responses/input_tokens", "responses/compact", "messages",
        "messages/count_tokens", "embeddings", "moderations", "rerank", "audio/speech", "audio/transcriptions",
        "audio/translations", "images/generations", "images/edits", "images/variations",
    )
)  # fmt: skip
"""Where models are asked (POST)."""

_CONTINUING = frozenset({"/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"})
"""Of these, where a request can go on from what the model server keeps."""

_RESPONSE = re.compile(r"/v1/responses/([A-Za-z0-9_-]+)(?:/(cancel|input_items))?")

_FAMILIES = frozenset(path.split("/")[2] for path in _ASKING if path.count("/") > 2)

_MOST_ODD = 2**20
"""Bytes of a body that cannot be read and passes all the same, at most."""

_SIGNS = ("previous_response_id", "conversation", r"\u00")
"""One of these is in every body that goes on from something: the names, perhaps with escapes."""


@dataclass(frozen=True)
class Passing:
    """What passes to the model server: `prefixes` are paths of the operator, each with all below it; `all` lets all
    pass."""

    prefixes: tuple[str, ...] = ()
    all: bool = False

    def has(self, path: str) -> bool:
        """Whether the operator lets everything at a path pass."""
        return self.all or any(f"{path}/".startswith(f"{prefix}/") for prefix in self.prefixes)

    def response(self, method: str, path: str) -> str | None:
        """The id of the response that a request is about, which must have been made in the space; None if it is about
        none. Raises RequestRefused (403) if the request does not pass."""
        if self.has(path) or (method == "POST" and path in _ASKING):
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
            f"{method} {path:.200} does not pass to the model server, where it would use the service's key: to "
            f"let it pass, the operator starts the service with --pass {prefix:.200}"
        )  # fmt: skip

    def previous_response(self, path: str, encoding: str, body: bytes) -> tuple[str | None, bytes]:
        """The id of the response that a request goes on from, which must have been made in the space (None: it goes on
        from none), and the body, in which it stands once. Raises RequestRefused for a body that goes on from a stored
        conversation (403), cannot be read (400), or is compressed (415)."""
        if path not in _CONTINUING or self.has(path):
            return None, body
        if encoding not in ("", "identity"):
            raise RequestRefused("request.encoded", f"send the body of {path} without content-encoding")
        if is_dense(body):
            # In UTF-16 and UTF-32, which some servers read too, there is a NUL beside each of these characters.
            plain = body.translate(None, b"\0") if b"\0" in body else body
            if any(sign.encode() in plain for sign in _SIGNS):
                raise RequestRefused(
                    "request.too_large", "the body has too many values to be checked for what it goes on from"
                )
            return None, body
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            previous, conversation = (
                msgspec.json.decode(fields[name]) if name in fields else None
                for name in ("previous_response_id", "conversation")
            )
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if _may_go_on(body):
                raise RequestRefused("request.malformed", "the body is not a JSON object in UTF-8") from None
            # The model server says what is wrong with it.
            return None, body
        if conversation is not None and not self.has("/v1/conversations"):
            raise RequestRefused(
                "request.not_passed",
                "`conversation` names one that the model server keeps, which may be that of another space: to let "
                "it pass, the operator starts the service with --pass /v1/conversations"
            )  # fmt: skip
        if not isinstance(previous, str | None):
            raise RequestRefused("request.malformed", "`previous_response_id` must be the id of a response")
        if not fields.keys().isdisjoint(("previous_response_id", "conversation")):
            # A name that stands twice is read differently by different servers: the one that was checked is sent.
            body = b"{%s}" % b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items())
        return previous, body


def _may_go_on(body: bytes) -> bool:
    """Whether a model server that reads more than JSON in UTF-8, such as UTF-16, could go on from something by a
    body."""
    if len(body) > _MOST_ODD:
        return True
    text = body.decode(detect_encoding(body), errors="replace")
    return any(sign in text for sign in _SIGNS)


def read_prefixes(paths: Iterable[str]) -> tuple[str, ...]:
    """The prefixes of paths that pass. Raises UsageError for one that is not a path below /v1."""
    for path in paths:
        if not (f"{path}/".startswith("/v1/") and path.isascii() and is_normal(path.encode())):
            raise UsageError(
                "settings.invalid", f"--pass takes a path of the model server such as /v1/files, and not {path!r:.80}"
            )
    return tuple(dict.fromkeys(paths))
