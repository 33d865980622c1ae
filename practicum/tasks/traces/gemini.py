"""Sessions of Gemini CLI, in `~/.gemini/tmp/PROJECT/chats`, and the events of its `--output-format stream-json`.

A session is a file of lines that change the list of messages: a line with the `id` of a message replaces this message,
`$rewindTo` removes messages, and `$set` replaces fields of the session, for example all messages after a compression.
Early versions stored a session as one document. A message of type `gemini` holds its thoughts, its text, and its tool
calls with their results. A request is a message of the user that Gemini CLI did not insert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces.fields import object_at, objects_in, text_at, value_at
from practicum.tasks.traces.messages import action_item, items_of_content, result_text
from practicum.tasks.traces.sessions import Session
from practicum.tasks.traces.trace import Item, RecordPlace, nonempty_values

_INSERTED = (
    "<session_context",
    "<hook_context",
    "<state_snapshot",
    "This is the Gemini CLI. We are setting up",
    "/",
    "?",
)
_EVENTS = ("init", "message", "tool_use", "tool_result", "error", "result")


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record is the first line of a session, a line that changes a session, or a whole session."""
    return isinstance(record.get("projectHash"), str) and isinstance(record.get("sessionId"), str)


def continues(record: Mapping[str, Any]) -> bool:
    """Return whether a record that follows a session's first line belongs to the session too."""
    return "$set" in record or "$rewindTo" in record or isinstance(record.get("id"), str)


def matches_events(record: Mapping[str, Any]) -> bool:
    """Return whether a record is the first event of a stream."""
    return record.get("type") == "init" and isinstance(record.get("session_id"), str)


def continues_events(record: Mapping[str, Any]) -> bool:
    """Return whether a record that follows the first event belongs to the stream too."""
    return record.get("type") in _EVENTS


class GeminiReader:
    """Reader of sessions (see `SessionReader`). A file is one session."""

    def __init__(self) -> None:
        self._place: RecordPlace | None = None
        self._fields: dict[str, Any] = {}
        self._messages: dict[str, Mapping[str, Any]] = {}

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        self._place = self._place or place
        if isinstance(back := record.get("$rewindTo"), str):
            ids = [*self._messages]
            for id in ids[ids.index(back) if back in ids else 0 :]:
                del self._messages[id]
        elif isinstance(record.get("id"), str):
            self._messages[record["id"]] = record
        else:
            fields = object_at(record, "$set") or record
            self._fields |= {key: value for key, value in fields.items() if key != "messages"}
            if isinstance(fields.get("messages"), list):
                stored = list(objects_in(fields, "messages", place.warn))
                self._messages = {text_at(message, "id") or str(n): message for n, message in enumerate(stored)}

    def tasks(self) -> Iterator[Task]:
        if self._place is None:
            return
        id = text_at(self._fields, "sessionId")
        session = Session(self._place, id, meta={"session": id, "time": text_at(self._fields, "startTime")})
        stored = (m["toolCalls"] for m in self._messages.values() if isinstance(m.get("toolCalls"), list))
        results = {text_at(call, "id") for calls in stored for call in calls}
        for message in self._messages.values():
            session.add(_items(message, results, self._place))
            session.meta |= nonempty_values({"model": text_at(message, "model")})
            tokens = value_at(message, "tokens/total")
            session.meta["tokens"] = session.meta.get("tokens", 0) + (tokens if isinstance(tokens, int) else 0)
        session.meta = nonempty_values(session.meta)
        yield from session.tasks()


class GeminiEventReader:
    """Reader of a stream of events (see `SessionReader`)."""

    def __init__(self) -> None:
        self._sessions: list[Session] = []

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        if record.get("type") == "init":
            id = text_at(record, "session_id")
            meta = {"session": id, "model": text_at(record, "model"), "time": text_at(record, "timestamp")}
            self._sessions.append(Session(place, id, meta=nonempty_values(meta)))
            return
        items, id = self._sessions[-1].items, text_at(record, "tool_id")
        match record.get("type"):
            case "message":
                kind, text = "user" if record.get("role") == "user" else "message", text_at(record, "content")
                if record.get("delta") is True and items and items[-1].kind == kind:
                    text = items.pop().text + text
                items.append(Item(kind, text))
            case "tool_use":
                items.append(action_item(text_at(record, "tool_name"), record.get("parameters") or "", id))
            case "tool_result":
                items.append(Item("observation", text_at(record, "output", "error/message", "status"), id))
            case "error" if record.get("severity") == "error":
                items.append(Item("error", text_at(record, "message")))
            case "result" if record.get("status") == "error":
                items.append(Item("error", text_at(record, "error/message") or "error"))

    def tasks(self) -> Iterator[Task]:
        for session in self._sessions:
            yield from session.tasks()


def _items(message: Mapping[str, Any], results: set[str], place: RecordPlace) -> Iterator[Item]:
    """Yield the items of a message. `results`: ids of the calls whose results are stored with the call."""
    match message.get("type"):
        case "user":
            for item in items_of_content(message.get("displayContent", message.get("content")), "user", place.warn):
                if item.kind == "user" and item.text.lstrip().startswith(_INSERTED):
                    yield item._replace(kind="system")
                elif item.kind != "observation" or item.call not in results:
                    yield item
        case "gemini":
            for thought in objects_in(message, "thoughts", place.warn):
                yield Item(
                    "thought", ": ".join(filter(None, (text_at(thought, k) for k in ("subject", "description"))))
                )
            calls = list(objects_in(message, "toolCalls", place.warn))
            for item in items_of_content(message.get("content"), "message", place.warn):
                if item.kind != "action" or not calls:
                    yield item
            for call in calls:
                yield action_item(text_at(call, "name"), call.get("args") or "", text_at(call, "id"))
            for call in calls:
                yield from _result(call, place)
        case "error":
            yield Item("error", result_text(message.get("content"), place.warn))


def _result(call: Mapping[str, Any], place: RecordPlace) -> Iterator[Item]:
    id, result = text_at(call, "id"), call.get("result")
    for item in items_of_content(result if isinstance(result, list) else [], "observation", place.warn):
        yield item._replace(call=id)
    if not result and (shown := result_text(call.get("resultDisplay"), place.warn)):
        yield Item("observation", shown, id)
    if call.get("status") == "cancelled":
        yield Item("interruption", "The user stopped the tool.")
