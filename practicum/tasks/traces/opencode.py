"""Sessions of opencode, as `opencode export` writes them: `{"info": {...}, "messages": [{"info", "parts"}]}`.

A request is a text of the user that opencode did not insert (`synthetic`). A tool's part holds the call and its result.
A subagent is a separate session. The events that `opencode run --format json` prints do not include the request, and
early versions stored a session in many files: neither is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces.fields import object_at, objects_in, text_at, texts_at, value_at
from practicum.tasks.traces.messages import action_item
from practicum.tasks.traces.sessions import Session
from practicum.tasks.traces.trace import Item, RecordPlace, nonempty_values

_SKIPPED = ("step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction")


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an exported session."""
    return text_at(record, "info/id").startswith("ses_") and isinstance(record.get("messages"), list)


def matches_part(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a part of a session: an event that `opencode run --format json` printed, or a file of
    opencode's earlier storage."""
    return any(text_at(record, key).startswith("ses_") for key in ("sessionID", "id"))


def read(record: Mapping[str, Any], place: RecordPlace) -> Iterator[Task]:
    """Yield the tasks of a session."""
    info = object_at(record, "info")
    session = Session(place, text_at(info, "id"), meta={"session": text_at(info, "id")})
    created, tokens = value_at(info, "time/created"), object_at(info, "tokens")
    session.meta |= texts_at(info, folder="directory", agent_version="version", parent="parentID", agent="agent")
    session.meta["tokens"] = sum(value for value in tokens.values() if isinstance(value, int))
    if isinstance(created, int):
        session.meta["time"] = datetime.fromtimestamp(created / 1000, UTC).isoformat()
    undone = text_at(info, "revert/messageID")
    for message in objects_in(record, "messages", place.warn):
        about = object_at(message, "info")
        session.add(_items(message, about, place))
        session.meta |= nonempty_values({"model": text_at(about, "modelID")})
        if name := text_at(about, "error/name"):
            text = f"{name}: {text_at(about, 'error/data/message')}".strip(": ")
            session.add([Item("interruption" if name == "MessageAbortedError" else "error", text)])
        if undone and text_at(about, "id") == undone:
            session.add([Item("interruption", "The user took this request back.")])
    session.meta = nonempty_values(session.meta)
    yield from session.tasks()


def _items(message: Mapping[str, Any], about: Mapping[str, Any], place: RecordPlace) -> Iterator[Item]:
    is_user = about.get("role") == "user"
    # An assistant's message with `summary` is the summary of a compacted session.
    kind = "user" if is_user else "system" if about.get("summary") is True else "message"
    for part in objects_in(message, "parts", place.warn):
        type, text = part.get("type"), text_at(part, "text", "prompt")
        if type in ("text", "subtask"):
            if part.get("ignored") is not True:
                yield Item("system" if is_user and part.get("synthetic") is True else kind, _unquoted(text))
        elif type == "reasoning":
            yield Item("thought", text)
        elif type == "file":
            if part.get("synthetic") is not True:
                place.warn("a part that is not text is shown as [file]")
                yield Item(kind, f"[{'image' if text_at(part, 'mime').startswith('image/') else 'file'}]")
        elif type == "tool":
            yield from _tool_items(part, about)
        elif type not in _SKIPPED:
            place.warn(f"a part of unknown type {type!r:.40}")


def _tool_items(part: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[Item]:
    call, state = text_at(part, "callID"), object_at(part, "state")
    # A command that the user ran is stored as a tool call of a message that no model wrote.
    by_user = "finish" not in about and not sum(v for v in object_at(about, "tokens").values() if isinstance(v, int))
    action = action_item(text_at(part, "tool"), state.get("input") or text_at(state, "raw"), call)
    yield action._replace(kind="system") if by_user and state.get("status") == "completed" else action
    if result := text_at(state, "output", "error"):
        yield Item("system" if by_user and state.get("status") == "completed" else "observation", result, call)
    if value_at(state, "metadata/interrupted") is True:
        yield Item("interruption", "The user stopped the tool.")


def _unquoted(text: str) -> str:
    """Remove the quotes that `opencode run` adds around a prompt of several words."""
    bare = text.strip()
    return bare[1:-1] if len(bare) > 2 and bare[0] == bare[-1] == '"' and '"' not in bare[1:-1] else text
