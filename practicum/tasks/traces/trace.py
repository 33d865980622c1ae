"""Types for reading stored traces: tasks with recorded attempts, and problems of reading.

A format's reader converts a record to items in order (messages, thoughts, actions, observations). `RecordPlace.task`
converts the items to a task: the agent's input, its steps, and its last message or action as the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, BinaryIO, NamedTuple

from practicum.core.images import marked
from practicum.core.thoughts import split_thoughts
from practicum.core.types import Evidence, Recorded, Score, Step, Task, Trace, Turn

MOST_DOCUMENT = 2**28
"""Maximum size of a file that is one JSON document (bytes). Files of JSON lines have no limit."""

MOST_LINE = 2**26
"""Maximum size of a line (bytes)."""

MOST_PROBLEMS = 300
"""Maximum number of problems that are stored with their reasons; further problems are only counted."""

MOST_REASONS = 50
"""Maximum number of distinct problem reasons per file."""

LINES_SHOWN = 6
"""Maximum number of lines that a problem names."""

OTHER_REASONS = "other problems"

_AGENT_KINDS = ("thought", "message", "action")


class Item(NamedTuple):
    """One item of a trace. `kind` is "system", "user", "thought", "message" (by the agent), "action", "observation", in
    a session also "interruption" and "error", or, for a message of an unknown role, the name of that role. `call` is
    the id that a tool call shares with the result of the call; empty for other items, and for calls without an id.
    `images` are the addresses of the images whose marks are in the text."""

    kind: str
    text: str
    call: str = ""
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Part of a file that could not be read in full. Problems with the same reason in a file are merged and counted."""

    path: str
    line: int | None
    reason: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f' line {self.line}'}: {self.reason}"


@dataclass(frozen=True)
class Traces:
    """Result of reading stored traces: tasks with recorded attempts, problems of reading these traces, and the number
    of traces per format. `unscored` is the number of traces whose score or right answer was dropped because the traces
    are foreign. `further` is the number of problems that are not listed in `problems`. `evidence` is the number of
    requests in sessions per signal about the agent's work (see `practicum.tasks.traces.evidence`)."""

    tasks: tuple[Task, ...]
    problems: tuple[Problem, ...]
    formats: Mapping[str, int]
    unscored: int = 0
    further: int = 0
    evidence: Mapping[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> int:
        """Number of parts that could not be read in full."""
        return sum(problem.count for problem in self.problems) + self.further


@dataclass
class Cases:
    """Problems with the same reason in a file: their count, the detail of the first problem, and the lines of
    the first problems."""

    detail: str
    count: int = 0
    lines: list[int] = field(default_factory=list)

    def add(self, line: int | None) -> None:
        self.count += 1
        if line is not None and len(self.lines) < LINES_SHOWN and line not in self.lines:
            self.lines.append(line)


@dataclass(frozen=True)
class Source:
    """File or run to read. `shown` is its address in messages, without passwords. `open` opens a file for sequential
    reading, and `open_table` for random access. Both functions take the path of the source, or of a file in the same
    folder or in a folder above it. `cases` holds the problems of the source by reason."""

    path: PurePath
    name: str
    shown: str
    open: Callable[[PurePath], BinaryIO]
    open_table: Callable[[PurePath], BinaryIO]
    is_run: bool = False
    formats: set[str] = field(default_factory=set)
    cases: dict[str, Cases] = field(default_factory=dict)

    def problems(self) -> Iterator[Problem]:
        """Yield one problem per reason, with the count, the first detail and the first lines, in order of
        occurrence."""
        for reason, cases in self.cases.items():
            text = f"{reason} ({cases.detail})" if cases.detail else reason
            if cases.count > 1:
                others = ", ".join(map(str, cases.lines[1:]))
                text += f"; {cases.count} times" + (f", also on line {others}" if others else "")
            yield Problem(self.shown, cases.lines[0] if cases.lines else None, text, cases.count)


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Position of a record in its source. `tag` is appended to the name of the source to make the id of a trace without
    an id."""

    source: Source
    line: int | None = None
    tag: str = ""

    def warn(self, reason: str, detail: str = "") -> None:
        """Add a problem at this place; reading continues. Of several problems with the same `reason`, only the `detail`
        of the first is stored."""
        cases = self.source.cases
        if reason not in cases and len(cases) >= MOST_REASONS:
            reason, detail = OTHER_REASONS, ""
        cases.setdefault(reason, Cases(detail)).add(self.line)

    def task(
        self,
        items: Iterable[Item],
        *,
        id: str | None = None,
        answer: str = "",
        error: str | None = None,
        score: Score | None = None,
        meta: Mapping[str, Any],
        history: tuple[Turn, ...] = (),
        evidence: tuple[Evidence, ...] = (),
        later: str = "",
    ) -> Iterator[Task]:
        """Yield the task that these items record. If no item holds the input, or if the agent has neither an item nor
        an `answer`, report a problem instead.

        The task's input is the first user item, or the system message if no user item exists. An empty `answer` is
        replaced by the last message in the agent's last turn, or by the last action in this turn if the turn has no
        message. The thoughts directly before the answer become the reasoning of the trace. `Task` defines `history`;
        `Recorded` defines `evidence` and `later`.
        """
        items = [item for item in items if item.text.strip()]
        first = next((n for n, item in enumerate(items) if item.kind == "user"), len(items))
        before = items[:first]
        system = "\n".join(item.text for item in before if item.kind == "system")
        asked, system = (items[first].text, system) if first < len(items) else (system, "")
        rest = [*(item for item in before if item.kind != "system"), *items[first + 1 :]]
        agent_spoke = bool(answer.strip()) or any(item.kind in _AGENT_KINDS for item in rest)
        if not asked or not agent_spoke:
            no_agent = "a trace without a message or action of the agent" if asked else "a trace without any text"
            self.warn("a trace without a task for the agent" if agent_spoke else no_agent)
            return
        reasoning = ""
        if not answer.strip():
            rest, reasoning, answer = _split_answer(rest)
        answer, thoughts = split_thoughts(answer)
        trace = Trace(
            answer, reasoning or thoughts, steps=tuple(Step(item.kind, item.text) for item in rest), error=error
        )
        id = id if id and id.strip() else f"{self.source.name}{self.tag}"
        line = {} if self.line is None else {"line": self.line}
        meta = nonempty_values({**meta, "system": system}) | line
        images = marked(address for item in items if item.kind == "user" for address in item.images)
        recorded = Recorded(trace, score, evidence=evidence, later=later)
        yield Task(id, asked, None, meta, recorded, history=history, images=images)


def signals_text(evidence: Mapping[str, int]) -> str:
    """Return the number of requests per signal as text."""
    return ", ".join(f"{count} × {signal}" for signal, count in sorted(evidence.items())) or "none"


def nonempty_values(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if value not in (None, "")}


def _split_answer(items: list[Item]) -> tuple[list[Item], str, str]:
    """Split off the agent's answer and the thoughts directly before it. Return the other items, the thoughts and the
    answer. If the agent's last turn has only thoughts, return all items, and an empty text for the thoughts and for the
    answer."""
    end = max(n for n, item in enumerate(items) if item.kind in _AGENT_KINDS)
    start = end
    while start and items[start - 1].kind in _AGENT_KINDS:
        start -= 1
    last_of_kind = {items[n].kind: n for n in range(start, end + 1)}
    answer = last_of_kind.get("message", last_of_kind.get("action"))
    if answer is None:
        return items, "", ""
    thoughts = answer
    while thoughts > start and items[thoughts - 1].kind == "thought":
        thoughts -= 1
    reasoning = "\n".join(item.text for item in items[thoughts:answer])
    return items[:thoughts] + items[answer + 1 :], reasoning, items[answer].text
