"""Sessions of Codex: the rollouts in `~/.codex/sessions`.

A rollout is a file of lines. In all versions, the lines of type `response_item` hold the whole conversation, as items
of the Responses API; in early versions these items are bare. The other lines are bookkeeping: of them, `session_meta`
(only the first), `turn_context` and the events of `event_msg` about tokens, errors and interruptions are read. A
request is a user's message that Codex did not insert. A resumed session continues in its file. A forked session or a
subagent is a separate file that may begin with a copy of its parent's lines; the copy is skipped.

The events that `codex exec --json` prints do not include the request, so a file of these events holds no trace. If the
request is known, `CodexEventReader` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces.fields import object_at, text_at, texts_at, value_at
from practicum.tasks.traces.messages import action_item, as_json, items_of_content, items_of_message, result_text
from practicum.tasks.traces.sessions import Session
from practicum.tasks.traces.trace import Item, RecordPlace, nonempty_values

_TYPES = """
session_meta response_item event_msg turn_context compacted world_state token_usage_record inter_agent_communication
inter_agent_communication_metadata retained_context security_risk_score realtime_item
"""
_INSERTED = (
    *("<environment_context", "<user_instructions", "# AGENTS.md instructions", "<INSTRUCTIONS", "<skill", "Warning: "),
    *("<user_shell_command", "<turn_aborted", "<subagent_notification", "<user_action", "<recommended_plugins"),
    *("<codex_internal_context", "<goal_context", "<hook_prompt", "<image name=", "</image>", "<model_switch"),
)
_IDE_REQUEST = "## My request for Codex:"


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a line of a rollout, or a whole session of the earliest version."""
    if isinstance(record.get("payload"), Mapping):
        return record.get("type") in _TYPES.split()
    is_header = {"id", "timestamp", "instructions"} <= record.keys() and "type" not in record
    return is_header or "record_type" in record or is_document(record)


def is_document(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a whole session, as the earliest version stored it."""
    return isinstance(record.get("items"), list) and "instructions" in object_at(record, "session")


def continues(record: Mapping[str, Any]) -> bool:
    """Return whether a record that follows a line of a rollout belongs to the rollout too."""
    return isinstance(record.get("type"), str)


def matches_events(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an event that `codex exec --json` printed."""
    type = record.get("type")
    return isinstance(type, str) and type.startswith(("thread.started", "session.created", "turn.", "item."))


class CodexReader:
    """Reader of rollouts (see `SessionReader`). A file is one session."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._own_turns = self._first_own = None
        self._copied = False
        """Whether the lines read so far may be a copy of the parent's lines."""

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        if self._session is None:
            self._session = Session(place)
        session, payload = self._session, object_at(record, "payload")
        if is_document(record):
            self._begin(object_at(record, "session"))
            for item in record["items"]:
                session.add(_items(item, place) if isinstance(item, Mapping) else ())
        elif payload:
            if self._copied and (record.get("ordinal") or 0) >= (self._first_own or float("inf")):
                self._end_of_copy()
            self._read_line(record, payload, place)
        elif "instructions" in record and "type" not in record:
            self._begin(record)
        elif "record_type" not in record:
            session.add(_items(record, place))

    def tasks(self) -> Iterator[Task]:
        if self._session is not None:
            yield from self._session.tasks()

    def _read_line(self, record: Mapping[str, Any], payload: Mapping[str, Any], place: RecordPlace) -> None:
        session = self._session
        assert session is not None
        type = record.get("type")
        if type == "session_meta" and not session.id:
            self._begin(payload)
        elif type == "turn_context":
            session.meta |= nonempty_values(texts_at(payload, model="model"))
        elif type == "response_item":
            if value_at(record, "metadata/compaction_output") is not True:
                session.add(_items(payload, place))
        elif type == "compacted":
            # The agent's last message may be the summary of the session.
            if session.items and text_at(payload, "message").endswith(session.items[-1].text):
                session.items.append(session.items.pop()._replace(kind="system"))
        elif type == "event_msg":
            self._read_event(payload)

    def _begin(self, header: Mapping[str, Any]) -> None:
        session, agent = self._session, object_at(header, "source/subagent/thread_spawn")
        assert session is not None
        session.id = text_at(header, "id")
        parent = text_at(header, "parent_thread_id", "forked_from_id") or text_at(agent, "parent_thread_id")
        session.meta |= nonempty_values(
            {
                **texts_at(header, folder="cwd", branch="git/branch", agent_version="cli_version", time="timestamp"),
                "session": session.id,
                "parent": parent,
                "agent": text_at(agent, "agent_nickname", "agent_path"),
            }
        )
        self._copied, self._first_own = bool(parent), header.get("subagent_history_start_ordinal")

    def _end_of_copy(self) -> None:
        assert self._session is not None
        self._session.items.clear()
        self._copied = False

    def _read_event(self, event: Mapping[str, Any]) -> None:
        session = self._session
        assert session is not None
        match event.get("type"):
            # Ids of sessions and of turns are ordered by their times.
            case "task_started" if self._copied and text_at(event, "turn_id") > session.id:
                self._end_of_copy()
            case "task_complete" if error := text_at(event, "error/message"):
                session.add([Item("error", error)])
            case "turn_aborted":
                session.add([Item("interruption", "The user stopped the agent.")])
            case "thread_rolled_back":
                session.add([Item("interruption", "The user took the last request back.")])
            case "token_count":
                tokens = value_at(event, "info/total_token_usage/total_tokens")
                session.meta |= {"tokens": tokens} if isinstance(tokens, int) else {}


class CodexEventReader:
    """Reader of the events of `codex exec --json`, after a line of type `user` whose `message` has the request. Of an
    item, only the last event is read; a command that was not completed has no result."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._items: dict[str, Mapping[str, Any]] = {}

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        self._session = self._session or Session(place)
        if record.get("type") == "user":
            self._session.add([Item("user", text_at(record, "message/content"))])
        elif item := object_at(record, "item"):
            self._items[text_at(item, "id")] = item
        elif record.get("type") == "turn.failed":
            self._session.add([Item("error", text_at(record, "error/message"))])

    def tasks(self) -> Iterator[Task]:
        if self._session is not None:
            for item in self._items.values():
                self._session.add(_event_items(item, self._session.place))
            yield from self._session.tasks()


def _event_items(item: Mapping[str, Any], place: RecordPlace) -> Iterator[Item]:
    """Yield the items of an item of `codex exec --json`."""
    id, type, done = text_at(item, "id"), item.get("type"), item.get("status") != "in_progress"
    match type:
        case "agent_message" | "reasoning":
            yield Item("message" if type == "agent_message" else "thought", text_at(item, "text"))
        case "command_execution":
            yield action_item("shell", text_at(item, "command"), id)
            if done:
                failed = f"\nexit code {code}" if (code := item.get("exit_code")) else ""
                yield Item("observation", f"{text_at(item, 'aggregated_output')}{failed}", id)
        case "file_change":
            yield action_item("edit", item.get("changes"), id)
            yield Item("observation", text_at(item, "status"), id)
        case "mcp_tool_call":
            yield action_item(f"{text_at(item, 'server')}.{text_at(item, 'tool')}", item.get("arguments"), id)
            if done:
                result = value_at(item, "result/content")
                yield Item("observation", text_at(item, "error/message") or result_text(result, place.warn), id)
        case "web_search":
            yield action_item("web_search", text_at(item, "query"), id)
        case "error":
            yield Item("system", text_at(item, "message"))  # a warning: the turn continues
        case "todo_list":
            yield action_item("update_plan", item.get("items"), id)
        case _:
            yield Item("system", as_json(item))


def _items(item: Mapping[str, Any], place: RecordPlace) -> Iterator[Item]:
    """Yield the items of an item of the Responses API."""
    content = item.get("content")
    if item.get("type") == "agent_message":  # between agents
        for message in items_of_content(content, "observation", place.warn):
            is_task = "NEW_TASK" in message.text.partition("\n")[0]
            yield Item("user", message.text.partition("Payload:")[2].strip()) if is_task else message
    elif item.get("role") == "user" and isinstance(content, list):
        kinds = value_at(item, "internal_chat_message_metadata_passthrough/content_item_kinds")
        kinds = kinds if isinstance(kinds, list) and len(kinds) == len(content) else [None] * len(content)
        request: list[str] = []
        for kind, part in zip(kinds, content, strict=True):
            for message in items_of_content([part], "user", place.warn):
                text = message.text.strip()
                if text.startswith(_INSERTED) or (isinstance(kind, str) and not kind.startswith(("user.", "unknown"))):
                    yield Item("system", text)
                else:
                    request.append(text.rpartition(_IDE_REQUEST)[2].strip() or text)
        yield Item("user", "\n".join(request))
    else:
        yield from items_of_message(item, place.warn)
