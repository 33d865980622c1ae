"""Chat messages in OpenAI's format: `{"messages": [...]}`, or the bare list. Files for fine-tuning have this format.

The task is the first user message; the answer is the assistant's last message. Reasoning (`reasoning_content`,
`reasoning`), tool calls and tool results between these two messages are steps. The string and number fields of a record
and of the record's `metadata` are stored in the task's meta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces.fields import object_at, own_id, stored_score
from practicum.tasks.traces.messages import items_of_messages
from practicum.tasks.traces.trace import RecordPlace


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record has this format. For a bare list, see `is_message_list`."""
    return isinstance(record.get("messages"), list)


def is_message_list(value: Any) -> bool:
    """Return whether a value is a bare list of messages."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return False
    return any(isinstance(item.get("role"), str) and "messages" not in item for item in value)


def read(record: Any, place: RecordPlace) -> Iterator[Task]:
    fields: Mapping[str, Any] = {"messages": record} if isinstance(record, list) else record
    return place.task(
        items_of_messages(fields["messages"], place.warn),
        id=own_id(fields, "id", "trace_id", "task_id", "instance_id", "session_id", "conversation_id"),
        score=stored_score(fields, place.warn),
        meta=_plain_fields(object_at(fields, "metadata")) | _plain_fields(fields),
    )


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
