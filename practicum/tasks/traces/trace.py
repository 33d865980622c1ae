"""What reading stored traces gives: tasks with recorded attempts, and the problems met on the way.

A format's reader turns a record into items in order (who said or did what). `build_task` turns the items into a task:
what the agent was asked, its steps, and its last message or action as the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from practicum.core.types import Recorded, Score, Step, Task, Trace
from practicum.tasks.traces.fields import Warn

_AGENT_KINDS = ("thought", "message", "action")
_MAX_OTHER_LINES = 5

NO_TEXT = "a trace without any text"
NO_TASK = "a trace that does not say what the agent was asked"
NO_AGENT = "a trace without anything from the agent"


class Item(NamedTuple):
    """Something said or done.

    Its kind is "system", "user", "thought", "message" (the agent's own), "action", "observation" or, for an unknown
    role, the role. `call` is the id that a tool call shares with its result, if it has one.
    """

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


@dataclass(slots=True)
class _Cases:
    detail: str
    count: int = 0
    lines: list[int] = field(default_factory=list)


class Problems:
    """The problems of one file: each reason once, with a count, its first line and some more lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cases: dict[str, _Cases] = {}

    def add(self, reason: str, line: int | None = None, detail: str = "") -> None:
        """Record one case; `detail` is shown for the first case only."""
        cases = self._cases.setdefault(reason, _Cases(detail))
        cases.count += 1
        if line is not None and line not in cases.lines and len(cases.lines) <= _MAX_OTHER_LINES:
            cases.lines.append(line)

    def at(self, line: int | None) -> Warn:
        """A function that records problems on this line."""
        return partial(self.add, line=line)

    def all(self) -> list[Problem]:
        """All problems, in the order in which they were first met."""
        problems = []
        for reason, cases in self._cases.items():
            text = f"{reason} ({cases.detail})" if cases.detail else reason
            if cases.count > 1:
                others = ", ".join(map(str, cases.lines[1:]))
                also = f", also on line {others}" if others else ""
                text = f"{text}; {cases.count} times{also}"
            problems.append(Problem(str(self.path), next(iter(cases.lines), None), text, cases.count))
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
    first = next((n for n, item in enumerate(items) if item.kind == "user"), len(items))
    before = items[:first]
    system = "\n".join(item.text for item in before if item.kind == "system")
    asked, system = (items[first].text, system) if first < len(items) else (system, "")
    rest = [*(item for item in before if item.kind != "system"), *items[first + 1 :]]
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
    answer = last_of_kind.get("message", last_of_kind.get("action", end))
    thoughts = answer
    while thoughts > start and items[thoughts - 1].kind == "thought":
        thoughts -= 1
    reasoning = "\n".join(item.text for item in items[thoughts:answer])
    return items[:thoughts] + items[answer + 1 :], reasoning, items[answer].text
