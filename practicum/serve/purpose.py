"""Detection of housekeeping requests of clients: for the title, the tags or the summary of a conversation.

Clients do not mark these requests, and each client uses its own wording. Such a request offers no tools, and a
sentence at the beginning of the instructions or of the user's message asks for a title or a summary of a conversation.
Only English is detected. A request for a summary must also contain the conversation as messages, since an agent that
summarizes conversations for users gets the conversations as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Literal

import msgspec
from msgspec import Raw

from practicum.serve.protocols import LEADING, NULL, Request

Purpose = Literal["title", "context"]
"""Reason why an interaction is not a request of a user: a client asked for a title or a summary, or an agent asked for
a view (`/v1/context`). Such an interaction does not count in statistics unless it has an outcome."""

BEGINNING = 400
"""Length (characters) of the beginning of a text that is searched. The rest of the text is not searched."""

_TITLE = r"(?:titles?|tags|headline|naming|follow-up questions)\b"
_VERB = r"\b(?:generat|creat|writ|output|provid|giv|return|respond|suggest|produc|extract|choos|nam(?:e|ing)\b)"
_NOUN = r"\b(?:conversation|chat|session|thread|dialog(?:ue)?|discussion)s?\b"
_WRITES, _CONVERSATION, _TITLED = (
    re.compile(one, re.I) for one in (_VERB, _NOUN, rf"\b{_TITLE}.*{_NOUN}|{_NOUN}\s+{_TITLE}")
)
_SUMMARIZES = re.compile(r"\bsummari[sz](?:e|es|ing)\b", re.I)
# `_ORDERS` must not match the message of a person who asks for a function that returns the title of a thread.
_ORDERS = re.compile(
    rf"\W*(?:please\s+)?{_VERB}\w*\s+(?:(?!(?:that|which|of|for|in|with|and|about)\b)\S+\s+){{0,8}}{_TITLE}", re.I
)


_HINT = re.compile(rf"\b{_TITLE}|{_SUMMARIZES.pattern}", re.I)


class _RequestMessage(msgspec.Struct):
    role: str = ""
    content: Raw = NULL


def is_housekeeping(request: Request) -> bool:
    """Return whether a client asks for the title, the tags or the summary of a conversation."""
    if bytes(request.fields.get("tools", NULL)) not in (b"null", b"[]"):
        return False
    if any(_ORDERS.match(one) and _TITLED.search(one) for one in _sentences(request.query)):
        return True
    sentences = [*_beginnings(request)]
    if any(_WRITES.search(one) and _TITLED.search(one) for one in sentences):
        return True
    summarizes = any(_SUMMARIZES.search(one) and _CONVERSATION.search(one) for one in sentences)
    return summarizes and any(_item(item).role == "assistant" for item in request.items)


def _beginnings(request: Request) -> Iterator[str]:
    """Yield the sentences at the beginning of each text of the instructions."""
    texts = [request.fields.get("system", NULL), request.fields.get("instructions", NULL)]
    texts += (item.content for item in takewhile(lambda item: item.role in LEADING, map(_item, request.items)))
    for raw in texts:
        try:
            content = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, dict) else part
            yield from _sentences(text) if isinstance(text, str) else ()


def _item(raw: Raw) -> _RequestMessage:
    return msgspec.json.decode(raw, type=_RequestMessage)


def _sentences(text: str) -> list[str]:
    """Return the sentences at the beginning of a text, or an empty list if this beginning has no word for a title or a
    summary."""
    return re.split(r"[.!?\n]+", text[:BEGINNING]) if _HINT.search(text, 0, BEGINNING) else []
