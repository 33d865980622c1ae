"""Records that hold a conversation: chat messages in the formats of many APIs, ShareGPT, and records whose fields the
user names.

The task is the first user message; the answer is the assistant's last message. Reasoning, tool calls and tool results
between these two messages are steps. The string and number fields of a record and of the record's `metadata` are stored
in the task's meta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

from practicum.core.errors import UsageError
from practicum.core.types import Task
from practicum.tasks.traces.fields import decoded, object_at, own_id, recorded_score, stored_score, value_at
from practicum.tasks.traces.messages import items_of_content, items_of_messages, result_text
from practicum.tasks.traces.trace import Item, RecordPlace

_IDS = ("id", "trace_id", "task_id", "instance_id", "session_id", "conversation_id")


@dataclass(frozen=True)
class Fields:
    """Where the parts of a trace are in a record. Each value is a path: names of fields joined by slashes. Alternatives
    are separated by `|`; the first that the record has counts.

    `messages` is a list of messages. `task` and `answer` are texts: without `messages`, the whole trace; with
    `messages`, they replace the first user message and the assistant's last message. `score` is a value as in
    `stored_score`; if empty, the record is searched for a score. `target` is the right answer.
    """

    messages: str = ""
    task: str = ""
    answer: str = ""
    score: str = ""
    target: str = ""
    id: str = ""

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the messages or, without a path of messages, the task and the answer."""
        if self.messages:
            return isinstance(self._value(record, self.messages), list)
        return self._value(record, self.task) is not None and self._value(record, self.answer) is not None

    def read(self, record: Any, place: RecordPlace) -> Iterator[Task]:
        """Yield the task of a record, or of a bare list of messages."""
        record = {"messages": record} if isinstance(record, list) else record
        messages, task, answer, score, target, id = (self._value(record, getattr(self, f.name)) for f in fields(self))
        items = list(items_of_messages(messages if isinstance(messages, list) else [], place.warn))
        if task is not None:
            first = next((n for n, item in enumerate(items) if item.kind == "user"), 0)
            items = [*items[:first], *items_of_content(task, "user", place.warn), *items[first:]]
        if answer is not None:
            items.append(Item("message", result_text(answer, place.warn)))
        stored = (
            recorded_score({self.score: score}, place.warn) if score is not None else stored_score(record, place.warn)
        )
        for one in place.task(
            items,
            id=own_id({"id": id}, "id") or own_id(record, *_IDS),
            score=None if self.score and score is None else stored,
            meta=_plain_fields(object_at(record, "metadata")) | _plain_fields(record),
        ):
            yield one if target is None else replace(one, target=result_text(target, place.warn))

    def _value(self, record: Mapping[str, Any], paths: str) -> Any:
        values = (value_at(record, path) for path in paths.split("|") if path)
        return decoded(next((value for value in values if value is not None), None))


CHAT = Fields(messages="messages")
SHAREGPT = Fields(messages="conversations|conversation|dialog")


def own_fields(paths: Mapping[str, str]) -> Fields:
    """Return fields that the user names, such as `{"messages": "log.turns", "score": "grade"}`. Dots join the names in
    a path. Raises UsageError for an unknown name, and without the messages or the task and the answer."""
    names = [field.name for field in fields(Fields)]
    if unknown := next((name for name in paths if name not in names), None):
        raise UsageError(
            "settings.invalid",
            f"`trace_fields`: unknown name {unknown!r}; a trace has {', '.join(names)}",
            setting="trace_fields",
        )
    if "messages" not in paths and not {"task", "answer"} <= paths.keys():
        raise UsageError(
            "settings.invalid",
            "`trace_fields`: name the field of the messages, or the fields of the task and the answer",
            setting="trace_fields",
        )
    return Fields(**{name: path.replace(".", "/") for name, path in paths.items()})


def is_message_list(value: Any) -> bool:
    """Return whether a value is a bare list of messages."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return False
    return any(isinstance(item.get("role"), str) and not {"messages", "message"} & item.keys() for item in value)


def _plain_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields whose values are strings or finite numbers, and `tags` (a string or a list of strings), because
    `forget` can name a tag."""
    return {
        key: value
        for key, value in record.items()
        if isinstance(value, str)
        or (key != "tags" and isinstance(value, int | float) and abs(value) < inf)
        or (key == "tags" and isinstance(value, list) and all(isinstance(tag, str) for tag in value))
    }
