"""Sessions: assignment of requests to conversations.

Clients name the conversation of a request in many ways. The first of these names that is present counts:

1. the header `x-practicum-session`;
2. a client's own header, such as `session_id` or `session-id` (Codex), `x-claude-code-session-id` (Claude Code) or
   `x-session-id` (opencode); then a header that names a conversation, a thread or a chat, such as `conversation_id`;
3. a field of the body: `metadata.user_id` of Claude Code, which holds a session; another field of `metadata` with a
   name as in 2; `conversation`; another field with a name as in 2; `previous_response_id`, which continues the session
   of the response with this id; `prompt_cache_key`, if its value looks like a generated id, since some clients use one
   key for a whole program.

A request that names no session continues the session whose answer it repeats. Otherwise the request opens a new
session, even if it begins like the requests of another session. `user` and `safety_identifier` name a user and never a
session: they only separate equal answers to different users.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from practicum.core.thoughts import split_thoughts
from practicum.serve.protocols import Request, UpstreamAnswer, answer_text, last_answers
from practicum.store.sums import LONGEST_NAME

OWN, OPENING, HISTORY = "x-practicum-session", "opening", "history"
"""Sources of a session name: practicum's header, the first request of a session, and a request that repeats an earlier
answer. Any other source is the name of the client's header or field."""

MOST_DIGESTS = 50_000
"""Largest number of digests of answers that a space keeps, to recognise later requests that repeat the answers. The
oldest digests are dropped."""

LOOKED_AT = 4
"""Number of last answers in a request that are looked up: more than one, because clients may insert answers that no
model gave."""

MIN_UNIQUE = 60
"""Smallest length (characters without spaces) of an answer that is recognised after any question. A shorter answer may
occur in several conversations, so it is recognised only after the question that it answered."""

PARAGRAPHS = 4
"""Largest number of first paragraphs of a question that are remembered. A later request is recognised even if it
repeats only the first paragraphs. For example, the client aider appends reminders to a question, and leaves the
reminders out of later requests."""

LONGEST_USER = 2_000
"""Largest length (characters) of a `metadata.user_id` that is searched for a session."""

LONGEST_FIELD = 16_384
"""Largest size (bytes) of a field of a request that is searched for a session or a user."""

_NAMES = tuple(
    re.compile(rf"(?:[a-z0-9]+[-_])*{name}")
    for name in (r"session(?:[-_]?id|[-_]affinity)?", r"conversation[-_]?id", r"thread[-_]?id", r"chat[-_]?id")
)
"""Patterns of names of headers and fields that hold a session, by precedence."""

_LEGACY_USER = re.compile(r"user_.*_session_(.+)")
"""Format of `metadata.user_id` of Claude Code before 2.1.78."""

_GENERATED = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|(?=[A-Za-z]*[0-9])[0-9A-Za-z]{20}")
"""Part of a generated id: the beginning of a UUID, or 20 consecutive letters and digits."""


@dataclass(frozen=True)
class SessionName:
    """Name of a session, and the source of the name."""

    name: str
    source: str


@dataclass(frozen=True)
class Caller:
    """Sender of a request. `interaction` names the session if no other source does; `session` and `user` are the values
    of practicum's headers; `headers` has all headers, with names in lower case."""

    interaction: str
    session: str | None = None
    user: str | None = None
    headers: Mapping[bytes, str] = field(default_factory=dict)


def named_session(headers: Mapping[bytes, str], fields: Mapping[str, msgspec.Raw]) -> SessionName | None:
    """Return the session that a client names in its headers or in the body. None if the client names no session."""
    texts = {name.decode("latin-1"): value for name, value in headers.items()}
    if (match := _by_name(texts)) is not None:
        return match
    for group in ("metadata", "client_metadata"):
        values = _decoded(fields, group)
        if not isinstance(values, dict):
            continue
        if (name := _session_of_user(values.get("user_id"))) is not None:
            return SessionName(name, f"{group}.user_id")
        if (match := _by_name(values)) is not None:
            return SessionName(match.name, f"{group}.{match.source}")
    named = {name: _decoded(fields, name) for name in fields if name == "conversation" or _rank(name) is not None}
    conversation = named.pop("conversation", None)
    name = _checked(conversation.get("id") if isinstance(conversation, dict) else conversation)
    return SessionName(name, "conversation") if name is not None else _by_name(named)


def _by_name(values: Mapping[str, Any]) -> SessionName | None:
    ranked = ((rank, name) for name in values if (rank := _rank(name)) is not None)
    for _, name in sorted(ranked):
        if (value := _checked(values[name])) is not None:
            return SessionName(value, name)
    return None


def _rank(name: str) -> int | None:
    """Return the precedence of a header or a field with this name, 0 first. None if the header or field does not hold
    the session of the request. For example, `x-parent-session-id` of opencode holds the session of the parent agent."""
    name = name.lower()
    if len(name) > LONGEST_NAME or "parent" in name or name.startswith("x-practicum-"):
        return None
    return next((rank for rank, pattern in enumerate(_NAMES) if pattern.fullmatch(name)), None)


def _checked(value: Any) -> str | None:
    """Return a value if it can name a session, else None."""
    good = isinstance(value, str) and value.isprintable() and 0 < len(value.strip()) <= LONGEST_NAME
    return value.strip() if good else None


def _session_of_user(user: Any) -> str | None:
    """Return the session in `metadata.user_id` of Claude Code. The value is a JSON text, or ends with the session after
    the ids of user and account."""
    if not isinstance(user, str) or len(user) > LONGEST_USER:
        return None
    if (match := _LEGACY_USER.fullmatch(user)) is not None:
        return _checked(match[1])
    with suppress(ValueError, RecursionError):
        parts = json.loads(user)
        return _checked(parts.get("session_id")) if isinstance(parts, dict) else None
    return None


def _decoded(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    """Return the value of a field. None if the field is missing, cannot be read, or is too long to name anything."""
    if name not in fields or memoryview(fields[name]).nbytes > LONGEST_FIELD:
        return None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(fields[name])
    return None


class Conversations:
    """Digests of the recent answers of a space, with the session of each answer. Nodes do not share these digests, and
    the digests are lost when the service ends."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, request: Request, caller: Caller) -> SessionName:
        """Return the session of a request that `caller` sent."""
        if caller.session is not None:
            return SessionName(caller.session, OWN)
        if (named := named_session(caller.headers, request.fields)) is not None:
            return named
        if (previous := _checked(_decoded(request.fields, "previous_response_id"))) is not None:
            session = self._sessions.get(_digest("response", previous))
            return SessionName(session or previous, "previous_response_id")
        key = _checked(_decoded(request.fields, "prompt_cache_key"))
        if key is not None and _GENERATED.search(key):
            return SessionName(key, "prompt_cache_key")
        user, (answered, _) = _user(request, caller.user), last_answers(request, LOOKED_AT)
        for question, answer in answered:
            for digest in _digests(user, question, answer):
                if (session := self._sessions.get(digest)) is not None:
                    return SessionName(session, HISTORY)
        return SessionName(caller.interaction, OPENING)

    def add(self, request: Request, user: str | None, answer: UpstreamAnswer, session: str) -> None:
        """Remember an answer, so that a request that repeats the answer, or names the id of the response, continues the
        session."""
        _, question = last_answers(request, 0)
        text = answer_text(answer.text, answer.calls)
        paragraphs = question.split("\n\n", PARAGRAPHS)
        shortened = ["\n\n".join(paragraphs[:number]) for number in range(1, len(paragraphs))]
        user_name = _user(request, user)
        digests = [digest for one in (question, *shortened) for digest in _digests(user_name, one, text)]
        digests += [_digest("response", answer.id)] if answer.id else []
        for digest in digests:
            self._sessions[digest] = session
            self._sessions.move_to_end(digest)
        while len(self._sessions) > MOST_DIGESTS:
            self._sessions.popitem(last=False)

    def clear(self) -> None:
        """Drop the digests of all answers. A later request that names no session then begins a new session."""
        self._sessions.clear()

    def forget(self, sessions: Collection[str]) -> None:
        """Drop the digests of the answers of these sessions."""
        for digest in [digest for digest, session in self._sessions.items() if session in sessions]:
            del self._sessions[digest]


def _user(request: Request, user: str | None) -> str:
    """Return `user` (practicum's header); without `user`, the user whom the body of a request names, or an empty
    text."""
    metadata = _decoded(request.fields, "metadata")
    named = [_decoded(request.fields, name) for name in ("safety_identifier", "user")]
    named += [metadata.get("user_id")] if isinstance(metadata, dict) else []
    return user or next((name for name in named if isinstance(name, str)), "")


def _digests(user: str, question: str, answer: str) -> Iterator[bytes]:
    """Yield the digests by which an answer to a question is recognised in later requests. Clients trim answers and drop
    thoughts, so spaces and thoughts are ignored."""
    answer = "".join(split_thoughts(answer).text.split())
    if answer:
        yield _digest(user, question, answer)
    if len(answer) >= MIN_UNIQUE:
        yield _digest(user, answer)


def _digest(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=12).digest()
