"""Shapes of task files: names of fields that files for fine-tuning, evaluation and question answering have in common.

A shape converts a record to the fields of a task. Its parts may be texts or lists of messages. The messages up to the
last one of the user are the task; the agent's answer to it is the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from practicum.tasks.traces.fields import text_at
from practicum.tasks.traces.messages import (
    Conversation,
    accept,
    conversation,
    is_conversation,
    items_of_content,
    items_of_messages,
)
from practicum.tasks.traces.trace import Item

_CONVERSATIONS = ("messages", "conversations", "conversation")
_QUESTIONS = ("prompt", "question", "query", "instruction")
_ANSWERS = ("completion", "answer", "response", "output")
_MATERIAL = {"context", "passage", "document", "documents", "story", "choices", "options"}
"""Fields that a question may refer to. A record with such a field has no shape, because the question is not the whole
task."""


@dataclass(frozen=True)
class Shape:
    """Shape of a file: the names of its fields, and a sentence about the target."""

    name: str
    question: str
    answer: str
    target: str

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that the task is made of."""
        return (
            self.question,
            self.answer,
            "system",
            "system_prompt",
            "history",
            *(("input",) if self.adds_input else ()),
        )

    @property
    def adds_input(self) -> bool:
        """Whether the field `input` belongs to the question, as in Alpaca."""
        return self.question == "instruction"

    def read(self, record: Mapping[str, Any]) -> tuple[Conversation, str | None]:
        """Return the task of a record as a conversation, and its target."""
        read = conversation(self._items(record))
        ideal = record.get(self.answer) if self.answer == "ideal" else None
        target = next(iter(ideal), None) if isinstance(ideal, list) else ideal
        return read, read.answer or (None if target is None else str(target))

    def _items(self, record: Mapping[str, Any]) -> Iterator[Item]:
        yield Item("system", text_at(record, "system", "system_prompt"))
        history = record.get("history")
        for turn in history if isinstance(history, list) else []:
            for kind, text in zip(("user", "message"), turn if isinstance(turn, list) else [], strict=False):
                yield Item(kind, str(text))
        added = record.get("input") if self.adds_input else None
        question = record[self.question]
        yield from _part(f"{question}\n{added}" if isinstance(added, str) and added.strip() else question, "user")
        if self.answer and self.answer != "ideal":
            yield from _part(record.get(self.answer), "message")


def shape_of(record: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a record that has the fields of all records of a file; None without a shape."""
    if "ideal" in record and isinstance(record.get("input"), str | list):
        return Shape("input`/`ideal", "input", "ideal", "the first of `ideal` is the target")
    if name := next((name for name in _CONVERSATIONS if isinstance(record.get(name), list)), None):
        return Shape(name, name, "", "the last assistant turn is the target")
    question = next((name for name in _QUESTIONS if name in record), None)
    answer = next((name for name in _ANSWERS if name in record), None)
    if (
        question is None
        or answer is None
        or _MATERIAL & record.keys()
        or ("input" in record and question != "instruction")
    ):
        return None
    if "target" in record and "input" in record:
        return None
    names = [question, *(["input"] if "input" in record else []), answer]
    return Shape("`/`".join(names), question, answer, f"`{answer}` is the target")


def _part(value: Any, kind: str) -> Iterator[Item]:
    if is_conversation(value):
        yield from items_of_messages(value, accept)
    elif value is not None:
        yield from items_of_content(value, kind, accept)
