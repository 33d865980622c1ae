"""Sessions: which conversation a request belongs to.

Clients name their conversation in many ways. In order, the first that is there counts:

1. the header `x-practicum-session`;
2. a client's own header, such as `session_id` or `session-id` (Codex), `x-claude-code-session-id` (Claude Code) or
   `x-session-id` (opencode); then one of a conversation, a thread or a chat, such as `conversation_id`;
3. a field of the body: `metadata.user_id` of Claude Code, which holds a session; another field of `metadata` with such
   a name; `conversation`; another field with such a name; `previous_response_id`, which continues the session of that
   response; `prompt_cache_key`, if it looks like a generated id, since others use one key for a whole application.

A request that names none continues the session whose answer it repeats. Otherwise it opens a session of its own, also
where it begins as another one did. `user` and `safety_identifier` name a user and never a session: they only keep apart
what two users were answered alike.
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
from practicum.serve.protocols import Request, UpstreamAnswer, last_answers, said_in
from practicum.store.sums import LONGEST_NAME

OWN, OPENING, HISTORY = "x-practicum-session", "opening", "history"
"""Sources of a session: practicum's header, a first request, and a request that repeats an earlier answer. Any other
source is the name of the client's header or field."""

KEPT = 50_000
"""Digests of answers of a space by which later requests are recognised: the newest ones."""

LOOKED_AT = 4
"""Answers of a request, from the last one, that are looked up: a client may have added some that no model gave."""

ALONE = 60
"""Characters (without spaces) of an answer that is recognised after any question. A shorter one might be the answer of
several conversations."""

PARAGRAPHS = 4
"""Paragraphs of the longest question that is recognised where it was followed by a reminder, which aider leaves out of
later requests."""

LONGEST_USER = 2_000
"""Characters of the longest `metadata.user_id` with a session."""

LONGEST_FIELD = 16_384
"""Bytes of a field of a request in which a session or a user is looked for."""

_NAMES = tuple(
    re.compile(rf"(?:[a-z0-9]+[-_])*{name}")
    for name in (r"session(?:[-_]?id|[-_]affinity)?", r"conversation[-_]?id", r"thread[-_]?id", r"chat[-_]?id")
)
"""Names of headers and fields with a session, in order."""

_LEGACY_USER = re.compile(r"user_.*_session_(.+)")
"""`metadata.user_id` of Claude Code before 2.1.78."""

_GENERATED = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|(?=[A-Za-z]*[0-9])[0-9A-Za-z]{20}")
"""Part of a generated id: the beginning of a UUID, or 20 letters and digits in a row."""


@dataclass(frozen=True)
class SessionName:
    """The name of a session, and what named it."""

    name: str
    source: str


@dataclass(frozen=True)
class Caller:
    """Who sends a request. `interaction` names the session if nothing else does; `session` and `user` are those of
    practicum's headers; `headers` are all, their names in lower case."""

    interaction: str
    session: str | None = None
    user: str | None = None
    headers: Mapping[bytes, str] = field(default_factory=dict)


def named_session(headers: Mapping[bytes, str], fields: Mapping[str, msgspec.Raw]) -> SessionName | None:
    """The session that a client names in its own headers or in the body; None if it names none."""
    texts = {name.decode("latin-1"): value for name, value in headers.items()}
    if (found := _by_name(texts)) is not None:
        return found
    for group in ("metadata", "client_metadata"):
        values = _decoded(fields, group)
        if not isinstance(values, dict):
            continue
        if (name := _session_of_user(values.get("user_id"))) is not None:
            return SessionName(name, f"{group}.user_id")
        if (found := _by_name(values)) is not None:
            return SessionName(found.name, f"{group}.{found.source}")
    known = {name: _decoded(fields, name) for name in fields if name == "conversation" or _rank(name) is not None}
    conversation = known.pop("conversation", None)
    name = _checked(conversation.get("id") if isinstance(conversation, dict) else conversation)
    return SessionName(name, "conversation") if name is not None else _by_name(known)


def _by_name(values: Mapping[str, Any]) -> SessionName | None:
    ranked = ((rank, name) for name in values if (rank := _rank(name)) is not None)
    for _, name in sorted(ranked):
        if (value := _checked(values[name])) is not None:
            return SessionName(value, name)
    return None


def _rank(name: str) -> int | None:
    """How early a name of a header or a field counts; None for one that names no session. opencode names the session
    that a session belongs to in `x-parent-session-id`."""
    name = name.lower()
    if len(name) > LONGEST_NAME or "parent" in name or name.startswith("x-practicum-"):
        return None
    return next((rank for rank, pattern in enumerate(_NAMES) if pattern.fullmatch(name)), None)


def _checked(value: Any) -> str | None:
    """A value that can name a session."""
    good = isinstance(value, str) and value.isprintable() and 0 < len(value.strip()) <= LONGEST_NAME
    return value.strip() if good else None


def _session_of_user(user: Any) -> str | None:
    """The session in `metadata.user_id` of Claude Code: a JSON text, or behind the ids of the user and the account."""
    if not isinstance(user, str) or len(user) > LONGEST_USER:
        return None
    if (match := _LEGACY_USER.fullmatch(user)) is not None:
        return _checked(match[1])
    with suppress(ValueError, RecursionError):
        parts = json.loads(user)
        return _checked(parts.get("session_id")) if isinstance(parts, dict) else None
    return None


def _decoded(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    """The value of a field; None if it is missing, cannot be read, or is too long to name anything."""
    if name not in fields or memoryview(fields[name]).nbytes > LONGEST_FIELD:
        return None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(fields[name])
    return None


class Conversations:
    """The newest answers of a space with their sessions, as digests. Not shared by nodes, and empty after a start."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, request: Request, caller: Caller) -> SessionName:
        """The session of a request."""
        if caller.session is not None:
            return SessionName(caller.session, OWN)
        if (named := named_session(caller.headers, request.fields)) is not None:
            return named
        if (previous := _checked(_decoded(request.fields, "previous_response_id"))) is not None:
            known = self._sessions.get(_digest("response", previous))
            return SessionName(known or previous, "previous_response_id")
        key = _checked(_decoded(request.fields, "prompt_cache_key"))
        if key is not None and _GENERATED.search(key):
            return SessionName(key, "prompt_cache_key")
        user, (answered, _) = _user(request, caller.user), last_answers(request, LOOKED_AT)
        for question, said in answered:
            for digest in _digests(user, question, said):
                if (known := self._sessions.get(digest)) is not None:
                    return SessionName(known, HISTORY)
        return SessionName(caller.interaction, OPENING)

    def add(self, request: Request, user: str | None, answer: UpstreamAnswer, session: str) -> None:
        """Keep an answer, so that a request which repeats it, or names its response, continues the session."""
        _, question = last_answers(request, 0)
        said = said_in(answer.text, answer.calls)
        paragraphs = question.split("\n\n", PARAGRAPHS)
        asked = ["\n\n".join(paragraphs[:number]) for number in range(1, len(paragraphs))]
        who = _user(request, user)
        digests = [digest for one in (question, *asked) for digest in _digests(who, one, said)]
        digests += [_digest("response", answer.id)] if answer.id else []
        for digest in digests:
            self._sessions[digest] = session
            self._sessions.move_to_end(digest)
        while len(self._sessions) > KEPT:
            self._sessions.popitem(last=False)

    def clear(self) -> None:
        """Know no conversation any more: each begins anew."""
        self._sessions.clear()

    def forget(self, sessions: Collection[str]) -> None:
        """Remove the answers of these sessions."""
        for digest in [digest for digest, session in self._sessions.items() if session in sessions]:
            del self._sessions[digest]


def _user(request: Request, user: str | None) -> str:
    """Who asks, as far as a request says so."""
    metadata = _decoded(request.fields, "metadata")
    named = [_decoded(request.fields, name) for name in ("safety_identifier", "user")]
    named += [metadata.get("user_id")] if isinstance(metadata, dict) else []
    return user or next((name for name in named if isinstance(name, str)), "")


def _digests(user: str, question: str, said: str) -> Iterator[bytes]:
    """What an answer is recognised by. Clients trim answers and leave thoughts out."""
    said = "".join(split_thoughts(said).text.split())
    if said:
        yield _digest(user, question, said)
    if len(said) >= ALONE:
        yield _digest(user, said)


def _digest(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=12).digest()
