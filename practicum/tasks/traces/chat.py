"""Chat messages as OpenAI has them: `{"messages": [...]}`, or the bare list. Files for fine-tuning are of this form.

The task is the first user message; the answer is the last message of the assistant. Reasoning (`reasoning_content`,
`reasoning`), tool calls and tool results between them are steps. Other plain fields of a record, and those of its
`metadata`, are kept in the task's meta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from practicum.tasks.traces.messages import of_messages
from practicum.tasks.traces.scores import score_in
from practicum.tasks.traces.trace import Found, Notes, Place, own_id, part_of, told

_IDS = ("id", "trace_id", "task_id", "instance_id", "session_id", "conversation_id")


def read(record: Any, place: Place, notes: Notes) -> Iterator[Found]:
    """The trace of one record."""
    rest: Mapping[str, Any] = {} if isinstance(record, list) else record
    messages = record if isinstance(record, list) else record["messages"]
    odd = notes.at(place.line)
    yield from told(
        of_messages(messages, odd),
        place,
        notes,
        id=own_id(rest, *_IDS),
        score=score_in(rest, odd),
        meta=plain_fields(part_of(rest, "metadata")) | plain_fields(rest),
    )


def plain_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are plain values, and the tags, by which a user can have things forgotten."""
    return {key: value for key, value in record.items() if (_are_tags(value) if key == "tags" else _is_plain(value))}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))


def _are_tags(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(tag, str) for tag in value))
