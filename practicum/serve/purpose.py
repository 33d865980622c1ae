"""Which requests a client makes for itself: for the title, the tags or the summary of a conversation.

Clients do not mark these requests, and each words them in its own way. What they have in common: they offer no tools,
and a sentence at the beginning of their instructions, or of the user's message, asks to write a title of a conversation
or to summarize one. This is recognised in English. A request for a summary must also contain the conversation as
messages, since an agent whose work is to summarize conversations gets them as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Raw

from practicum.serve.protocols import LEADING, NULL, Request

Purpose = Literal["title", "context"]
"""Why an interaction is no request of a user: a client asked for a title or a summary, or an agent asked what a request
would be shown (`/v1/context`). It does not count in figures unless it has an outcome."""

BEGINNING = 400
"""Characters of a text that are looked at."""

_TITLE = r"(?:titles?|tags|headline|naming|follow-up questions)\b"
_VERB = r"\b(?:generat|creat|writ|output|provid|giv|return|respond|suggest|produc|extract|choos|nam(?:e|ing)\b)"
_WRITES, _TITLED = re.compile(_VERB, re.I), re.compile(rf"\b{_TITLE}", re.I)
_CONVERSATION = re.compile(r"\b(?:conversation|chat|session|thread|dialog(?:ue)?|discussion)s?\b", re.I)
_SUMMARIZES = re.compile(r"\bsummari[sz](?:e|es|ing)\b", re.I)
# A person may ask to write a function that returns the title of a thread.
_ORDERS = re.compile(
    rf"\W*(?:please\s+)?{_VERB}\w*\s+(?:(?!that\b|which\b|of\b|for\b|in\b)\S+\s+){{0,8}}{_TITLE}", re.I
)


class _Item(msgspec.Struct):
    role: str = ""
    content: Raw = NULL


def is_housekeeping(request: Request) -> bool:
    """Whether a client asks for the title, the tags or the summary of a conversation."""
    if bytes(request.fields.get("tools", NULL)) not in (b"null", b"[]"):
        return False
    items = [msgspec.json.decode(item, type=_Item) for item in request.items]
    told = [*_beginnings(items, request)]
    if any(_WRITES.search(one) and _TITLED.search(one) and _CONVERSATION.search(one) for one in told):
        return True
    if any(_ORDERS.match(one) and _CONVERSATION.search(one) for one in _sentences(request.query)):
        return True
    summarizes = any(_SUMMARIZES.search(one) and _CONVERSATION.search(one) for one in told)
    return summarizes and any(item.role == "assistant" for item in items)


def _beginnings(items: list[_Item], request: Request) -> Iterator[str]:
    """The sentences at the beginning of each text of the instructions."""
    texts = [request.fields.get("system", NULL), request.fields.get("instructions", NULL)]
    for item in items:
        if item.role not in LEADING:
            break
        texts.append(item.content)
    for raw in texts:
        try:
            content = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, dict) else part
            yield from _sentences(text) if isinstance(text, str) else ()


def _sentences(text: str) -> list[str]:
    return re.split(r"[.!?\n]+", text[:BEGINNING])
