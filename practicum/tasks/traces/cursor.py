"""Sessions of Cursor where they are text: the transcripts in `~/.cursor/projects/*/agent-transcripts`, and the events
of `cursor-agent -p --output-format stream-json`.

A transcript has the texts and the tool calls, but no results of tools. A request is the text inside `<user_query>` of a
user's message, or the whole message. A line `turn_ended` may report an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces.fields import object_at, text_at, texts_at, value_at
from practicum.tasks.traces.messages import action_item, as_json, items_of_content
from practicum.tasks.traces.sessions import Session
from practicum.tasks.traces.trace import Item, RecordPlace, nonempty_values

_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_HIDDEN = "[REDACTED]"
_ROLES = {"user": "user", "assistant": "message"}


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a line of a transcript, or an event of a stream."""
    if record.get("type") == "tool_call":
        return isinstance(record.get("call_id"), str) and isinstance(record.get("tool_call"), Mapping)
    if record.get("type") == "system":
        return record.keys() >= {"apiKeySource", "session_id", "permissionMode"} and "tools" not in record
    bare = isinstance(record.get("message"), Mapping) and not record.keys() & {"type", "uuid", "sessionId"}
    return bare and record.get("role") in _ROLES


def continues(record: Mapping[str, Any]) -> bool:
    """Return whether a record that follows a line of a session belongs to the session too."""
    return isinstance(record.get("type"), str)


class CursorReader:
    """Reader of sessions (see `SessionReader`). A file is one session."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._thoughts: list[str] = []
        self._calls: set[str] = set()

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        if self._session is None:
            id = text_at(record, "session_id") or place.source.path.stem
            self._session = Session(place, id, meta={"session": id})
        session, type = self._session, record.get("type") or record.get("role")
        session.meta |= nonempty_values(texts_at(record, folder="cwd", model="model"))
        match type:
            case "user" | "assistant":
                for item in items_of_content(value_at(record, "message/content"), _ROLES[type], place.warn):
                    session.add(_shown(item))
            case "thinking":
                self._thoughts.append(text_at(record, "text"))
                if record.get("subtype") == "completed":
                    session.add([Item("thought", "".join(self._thoughts))])
                    self._thoughts.clear()
            case "tool_call":
                session.add(self._tool_items(record))
            case "turn_ended" if record.get("status") == "error":
                error = text_at(record, "error") or "error"
                session.add([Item("interruption" if "abort" in error.lower() else "error", error)])
            case "result" if record.get("is_error") is True:
                session.add([Item("error", text_at(record, "result") or "error")])

    def tasks(self) -> Iterator[Task]:
        if self._session is not None:
            kinds = {item.kind for item in self._session.items}
            if "action" in kinds and "observation" not in kinds:
                self._session.place.warn("Cursor stores no results of tools in transcripts")
            yield from self._session.tasks()

    def _tool_items(self, record: Mapping[str, Any]) -> Iterator[Item]:
        """Yield the call and the result of an event. A call is stored when it starts and again when it ends."""
        id, tool = text_at(record, "call_id"), object_at(record, "tool_call")
        name, body = next(
            ((k.removesuffix("ToolCall"), v) for k, v in tool.items() if isinstance(v, Mapping)), ("", {})
        )
        arguments = body.get("args", body.get("arguments")) or ""
        if id not in self._calls:
            self._calls.add(id)
            yield action_item(text_at(body, "name") or name, arguments, id)
        for status, result in object_at(body, "result").items():
            texts = [text_at(result, key) for key in ("content", "stdout", "stderr", "errorMessage", "error", "reason")]
            yield Item("observation", "\n".join(filter(None, texts)) or f"{status}: {as_json(result)}", id)


def _shown(item: Item) -> Iterator[Item]:
    """Yield a user's request and, as a system item, the text that Cursor put around it. Remove marks of hidden text."""
    if item.kind == "user" and (query := _QUERY.search(item.text)):
        yield Item("system", item.text[: query.start()] + item.text[query.end() :])
        yield Item("user", query[1])
    else:
        yield item._replace(text=item.text.replace(_HIDDEN, "").strip())
