"""What reading comes to: traces, and what went wrong on the way.

A format turns what it reads into words in their order (who said what); here words become a trace: what the agent
was asked, its steps, its last word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from practicum.core.types import Score, Step, Task, Trace

SYSTEM, USER = "system", "user"
THOUGHT, MESSAGE, ACTION, OBSERVATION = "thought", "message", "action", "observation"
"""Kinds of words, and of the steps they become. A message is the agent's own; others speak as system and user."""

_OF_THE_AGENT = (THOUGHT, MESSAGE, ACTION)
_LINES_NAMED = 5


@dataclass(frozen=True)
class Problem:
    """Something that could not be read, or not as it stood. Equal ones of a file are one, with a count."""

    path: str
    line: int | None
    reason: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f' line {self.line}'}: {self.reason}"


@dataclass(frozen=True)
class Traces:
    """What was read: recorded tasks, what went wrong, and how many traces there were of each format."""

    tasks: tuple[Task, ...]
    problems: tuple[Problem, ...]
    formats: Mapping[str, int]

    @property
    def faults(self) -> int:
        """How many times something could not be read, or not as it stood."""
        return sum(problem.count for problem in self.problems)


class Place(NamedTuple):
    """Where in its file a trace stands; `tag` tells it from others of the file where it has no id of its own."""

    line: int | None = None
    tag: str = ""


class Word(NamedTuple):
    """Something said or done. `call` is the id that a tool call and its result share, where there is one."""

    kind: str
    text: str
    call: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """One trace as its format has it; its id may still be missing or be another's too."""

    place: Place
    id: str | None
    input: str
    trace: Trace
    score: Score | None = None
    target: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


Odd = Callable[[str], None]
"""Takes down that something was odd at one place; what is read goes on."""


@dataclass(slots=True)
class _Noted:
    first: int | None
    detail: str
    count: int = 0
    others: list[int] = field(default_factory=list)


class Notes:
    """What went wrong in one file: each kind of it once, with the first place, a count and some more lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._noted: dict[str, _Noted] = {}

    def add(self, reason: str, line: int | None = None, detail: str = "") -> None:
        """Take down one case; `detail` is told of the first case only."""
        noted = self._noted.setdefault(reason, _Noted(line, detail))
        noted.count += 1
        if line not in (None, noted.first) and len(noted.others) < _LINES_NAMED and line not in noted.others[-1:]:
            noted.others.append(line)

    def at(self, line: int | None) -> Odd:
        """A way to take down what is odd on this line."""
        return partial(self.add, line=line)

    def problems(self) -> list[Problem]:
        """All that was taken down, in the order in which it first came up."""
        return [Problem(str(self.path), n.first, reason + _more(n), n.count) for reason, n in self._noted.items()]


def _more(noted: _Noted) -> str:
    detail = f" ({noted.detail})" if noted.detail else ""
    if noted.count == 1:
        return detail
    also = f", also on line {', '.join(map(str, noted.others))}" if noted.others else ""
    return f"{detail}; {noted.count} times{also}"


class Reader(Protocol):
    """Reads the records of one format in one file. What belongs together may be spread over records."""

    def take(self, place: Place, record: Any) -> Iterator[Found]:
        """The traces that this record completes."""
        ...

    def end(self) -> Iterator[Found]:
        """The traces that only the end of the file completes."""
        ...


@dataclass(frozen=True, slots=True)
class Each:
    """Reads a format in which a record is a whole trace."""

    read: Callable[[Any, Place, Notes], Iterator[Found]]
    notes: Notes

    def take(self, place: Place, record: Any) -> Iterator[Found]:
        """The traces of this record."""
        return self.read(record, place, self.notes)

    def end(self) -> Iterator[Found]:
        """Nothing: no record waits for another."""
        return iter(())


NO_TEXT = "a trace without any text"
NO_TASK = "a trace that does not say what the agent was asked"
NO_AGENT = "a trace without a word of the agent"


def told(
    words: Iterable[Word],
    place: Place,
    notes: Notes,
    *,
    id: str | None = None,
    answer: str = "",
    error: str | None = None,
    score: Score | None = None,
    meta: Mapping[str, Any],
) -> Iterator[Found]:
    """The trace that these words are; none, and a note, where the task or the agent's part is missing.

    The task is the first words of a user (of the system where no user speaks). The answer, where none is given, is
    the agent's last word: its last message, or its last action where that came without one.
    """
    asked, system, rest = _asked([word for word in words if word.text.strip()])
    spoke = bool(answer.strip()) or any(word.kind in _OF_THE_AGENT for word in rest)
    if not asked or not spoke:
        notes.add(NO_TASK if spoke else NO_AGENT if asked else NO_TEXT, place.line)
        return
    steps, reasoning = rest, ""
    if not answer.strip():
        steps, reasoning, answer = _last_word(rest)
    trace = Trace(answer, reasoning, steps=tuple(Step(word.kind, word.text) for word in steps), error=error)
    known = {key: value for key, value in {**meta, "system": system}.items() if value not in (None, "")}
    yield Found(place, id, asked, trace, score, meta=known)


def _asked(words: Sequence[Word]) -> tuple[str, str, list[Word]]:
    """The task, what the system said before it, and the other words."""
    first = next((n for n, word in enumerate(words) if word.kind == USER), None)
    lead = words if first is None else words[:first]
    system = "\n".join(word.text for word in lead if word.kind == SYSTEM)
    rest = [word for word in lead if word.kind != SYSTEM]
    return (system, "", rest) if first is None else (words[first].text, system, [*rest, *words[first + 1 :]])


def _last_word(words: list[Word]) -> tuple[list[Word], str, str]:
    """The other words, the thought right before the last word, and the last word."""
    end = max(n for n, word in enumerate(words) if word.kind in _OF_THE_AGENT)
    start = end
    while start and words[start - 1].kind in _OF_THE_AGENT:
        start -= 1
    turn = range(start, end + 1)
    by_kind = {words[n].kind: n for n in turn}
    last = by_kind.get(MESSAGE, by_kind.get(ACTION, end))
    before = last
    while before > start and words[before - 1].kind == THOUGHT:
        before -= 1
    reasoning = "\n".join(word.text for word in words[before:last])
    return words[:before] + words[last + 1 :], reasoning, words[last].text


def own_id(record: Mapping[str, Any], *keys: str) -> str | None:
    """The first of these fields that can name a trace."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return None


def part_of(record: Any, *keys: str) -> Mapping[str, Any]:
    """The object below these keys; an empty one where there is none."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def items_of(record: Mapping[str, Any], key: str, odd: Odd) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; whatever else stands in its place is odd."""
    value = record.get(key)
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            yield item
        else:
            odd(f"in {key!r} something that is not an object")
    if value is not None and not isinstance(value, list):
        odd(f"{key!r} is not a list")


def text_of(record: Mapping[str, Any], *keys: str) -> str:
    """The first of these fields that is a text; empty where none is."""
    return next((value for key in keys if isinstance(value := record.get(key), str) and value), "")
