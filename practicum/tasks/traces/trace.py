"""What reading stored traces gives: tasks with recorded attempts, and the problems met on the way.

A format's reader turns a record into items in order (who said or did what). `build_task` turns the items into a task:
what the agent was asked, its steps, and its last message or action as the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from practicum.core.types import Recorded, Score, Step, Task, Trace

SYSTEM, USER = "system", "user"
THOUGHT, MESSAGE, ACTION, OBSERVATION = "thought", "message", "action", "observation"
"""Kinds of items, and of the steps they become. A message is the agent's own."""

_AGENT_KINDS = (THOUGHT, MESSAGE, ACTION)
_MAX_LINES_NAMED = 5

NO_TEXT = "a trace without any text"
NO_TASK = "a trace that does not say what the agent was asked"
NO_AGENT = "a trace without anything from the agent"


class Item(NamedTuple):
    """Something said or done. `call` is the id that a tool call shares with its result, if it has one."""

    kind: str
    text: str
    call: str = ""


class Position(NamedTuple):
    """Where a trace stands in its file; `tag` distinguishes traces without an id of their own."""

    line: int | None = None
    tag: str = ""


class StoredTask(NamedTuple):
    """A task with its recorded attempt. Its id is still as the format has it: empty, or the same as another's."""

    position: Position
    task: Task


@dataclass(frozen=True)
class Problem:
    """Something that could not be read as it was. Equal problems of a file are counted as one."""

    path: str
    line: int | None
    reason: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f' line {self.line}'}: {self.reason}"


@dataclass(frozen=True)
class Traces:
    """Recorded tasks, the problems met in reading them, and the number of traces by format."""

    tasks: tuple[Task, ...]
    problems: tuple[Problem, ...]
    formats: Mapping[str, int]

    @property
    def faults(self) -> int:
        """How many times something could not be read as it was."""
        return sum(problem.count for problem in self.problems)


Warn = Callable[[str], None]
"""Records a problem at one position; reading goes on."""


@dataclass(slots=True)
class _Recorded:
    first_line: int | None
    detail: str
    count: int = 0
    other_lines: list[int] = field(default_factory=list)


class Problems:
    """The problems of one file: each reason once, with its first line, a count and some more lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._recorded: dict[str, _Recorded] = {}

    def add(self, reason: str, line: int | None = None, detail: str = "") -> None:
        """Record one case; `detail` is shown for the first case only."""
        case = self._recorded.setdefault(reason, _Recorded(line, detail))
        case.count += 1
        lines = case.other_lines
        if line not in (None, case.first_line) and len(lines) < _MAX_LINES_NAMED and line not in lines[-1:]:
            lines.append(line)

    def at(self, line: int | None) -> Warn:
        """A function that records problems on this line."""
        return partial(self.add, line=line)

    def all(self) -> list[Problem]:
        """All problems, in the order in which they were first met."""
        problems = []
        for reason, case in self._recorded.items():
            text = f"{reason} ({case.detail})" if case.detail else reason
            if case.count > 1:
                also = f", also on line {', '.join(map(str, case.other_lines))}" if case.other_lines else ""
                text = f"{text}; {case.count} times{also}"
            problems.append(Problem(str(self.path), case.first_line, text, case.count))
        return problems


def build_task(
    items: Iterable[Item],
    position: Position,
    problems: Problems,
    *,
    id: str | None = None,
    answer: str = "",
    error: str | None = None,
    score: Score | None = None,
    meta: Mapping[str, Any],
) -> list[StoredTask]:
    """The task that these items record; none, and a problem, when the task or the agent's part is missing.

    The task is the user's first item, or what the system said if no user speaks. The answer, if none is given, is the
    agent's last message, or its last action if no message came with it; the thoughts right before it are its reasoning.
    """
    items = [item for item in items if item.text.strip()]
    first = next((n for n, item in enumerate(items) if item.kind == USER), len(items))
    before = items[:first]
    system = "\n".join(item.text for item in before if item.kind == SYSTEM)
    asked, system = (items[first].text, system) if first < len(items) else (system, "")
    rest = [*(item for item in before if item.kind != SYSTEM), *items[first + 1 :]]
    agent_spoke = bool(answer.strip()) or any(item.kind in _AGENT_KINDS for item in rest)
    if not asked or not agent_spoke:
        problems.add(NO_TASK if agent_spoke else NO_AGENT if asked else NO_TEXT, position.line)
        return []
    reasoning = ""
    if not answer.strip():
        rest, reasoning, answer = _split_answer(rest)
    trace = Trace(answer, reasoning, steps=tuple(Step(item.kind, item.text) for item in rest), error=error)
    known = {key: value for key, value in {**meta, "system": system}.items() if value not in (None, "")}
    return [StoredTask(position, Task(id or "", asked, None, known, Recorded(trace, score)))]


def _split_answer(items: list[Item]) -> tuple[list[Item], str, str]:
    """The other items, the thoughts right before the answer, and the answer."""
    end = max(n for n, item in enumerate(items) if item.kind in _AGENT_KINDS)
    start = end
    while start and items[start - 1].kind in _AGENT_KINDS:
        start -= 1
    last_of_kind = {items[n].kind: n for n in range(start, end + 1)}
    answer = last_of_kind.get(MESSAGE, last_of_kind.get(ACTION, end))
    thoughts = answer
    while thoughts > start and items[thoughts - 1].kind == THOUGHT:
        thoughts -= 1
    reasoning = "\n".join(item.text for item in items[thoughts:answer])
    return items[:thoughts] + items[answer + 1 :], reasoning, items[answer].text


def own_id(record: Mapping[str, Any], *keys: str) -> str | None:
    """The first of these fields that can be the id of a trace."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return None


def object_at(record: Any, *keys: str) -> Mapping[str, Any]:
    """The object below these keys; an empty one if there is none."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def objects_in(record: Mapping[str, Any], key: str, warn: Warn) -> Iterator[Mapping[str, Any]]:
    """The objects of the list in this field."""
    value = record.get(key)
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            yield item
        else:
            warn(f"{key!r} contains something that is not an object")
    if value is not None and not isinstance(value, list):
        warn(f"{key!r} is not a list")


def text_at(record: Mapping[str, Any], *keys: str) -> str:
    """The first of these fields that is a text; empty if none is."""
    return next((value for key in keys if isinstance(value := record.get(key), str) and value), "")
