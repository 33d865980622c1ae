"""The parts of the story of a run: frozen data, each with `as_json()` for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter

from practicum.core.edits import Entry
from practicum.core.thoughts import SILENCES
from practicum.core.types import Feedback, Prompt, Rating, Score, Task, Trace, Usage
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import Journal, load_failure
from practicum.store.versions import EntryEvent


def plain(value: Any) -> Any:
    """A value as JSON values: of a dataclass, the fields that are not private."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if not f.name.startswith("_")}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def top_place(place: str) -> str:
    """The place of the step, of the attempt without a barrier, or of the evaluated task that a place lies in."""
    parts = place.split("/")
    return "/".join(parts[: 2 if parts[0].startswith(("leg ", "ask ", "evaluate ")) else 1])


class StoryPart:
    """A part of the story that can be given to programs."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values: dict[str, Any] = plain(self)
        return values


@dataclass(frozen=True)
class RunStory(StoryPart):
    """A run as a whole.

    `usage` and `by_role` are what its journal holds so far. `counts` are the counters above zero (see `core.counts`),
    and `scores` what it last reported, if that is about the present version. `tasks` are the numbers of tasks by split.
    """

    folder: Path
    method: str
    model: str
    state: str
    config: Mapping[str, Any]
    scores: Mapping[str, float]
    counts: Mapping[str, int]
    usage: Usage
    by_role: Mapping[str, Usage]
    seconds: float
    steps: int
    versions: int
    tasks: Mapping[str, int]


@dataclass(frozen=True)
class StepStory(StoryPart):
    """One step, as it was counted when it ended.

    `tasks` are the ids of its tasks. `lessons`, `applied`, `refused` and `held` (for review) are numbers; `version`,
    `entries` and `tokens` describe the context after it; `val` is its validation score, if it was validated. `sampled`
    and `evidence` are what the method noted about its batch and its delta.
    """

    step: int
    epoch: int
    tasks: tuple[str, ...]
    score: float
    lessons: int
    applied: int
    refused: int
    held: int
    version: int
    entries: int
    tokens: int
    seconds: float | None
    val: float | None
    best_of_k: float | None
    sampled: Mapping[str, Any]
    evidence: Mapping[str, Any]


STEP = TypeAdapter(StepStory)


@dataclass(frozen=True)
class AttemptLine(StoryPart):
    """One attempt in a line.

    `split` is train for learning, and otherwise that of the evaluation: before, test, val or another one. Of an
    evaluation, `step` is None, and `version` is the evaluated one, if it is still known. `number` counts the attempts
    at the same task at once, of which there are `tries`; reports count number 1, and `chosen` marks the one that stands
    as the best of them. `success` is what learning was told. `reused` is the place of the earlier attempt that was used
    again, if it was.
    """

    id: str
    split: str
    step: int | None
    version: int | None
    task: str
    input: str
    answer: str
    error: str | None
    lost: bool
    score: float | None
    correct: bool | None
    success: bool | None
    feedback: str
    number: int
    tries: int
    chosen: bool
    reused: str
    place: str

    @property
    def failed(self) -> bool:
        """Whether it went wrong: by an error, by its score or, without a score, by the feedback."""
        passed = self.success if self.correct is None else self.correct
        return self.error is not None or passed is False

    @property
    def outcome(self) -> str:
        """How it went, in a word."""
        if self.error is not None:
            return "lost" if self.lost else "failed"
        passed = self.success if self.correct is None else self.correct
        return "unknown" if passed is None else "right" if passed else "wrong"


class CallReader(Protocol):
    """Reads what a call holds when it is asked for, and finds the attempts that rows are about."""

    store: Store
    journal: Journal

    def attempts_of(self, sources: Iterable[str]) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class CallStory(StoryPart):
    """One effect in the journal: a model call, an attempt of an agent of the user's own, or a score that is an effect.

    `id` is a number that `practicum show RUN --call` takes. `model` is the run's model in this role, empty where none
    was called. `seconds` includes waits and repetitions. `prompt` and `answer` are read when they are asked for.
    """

    id: str
    place: str
    role: str
    model: str
    ok: bool
    usage: Usage
    seconds: float
    sources: tuple[str, ...]
    _reader: CallReader

    @property
    def prompt(self) -> Prompt | None:
        """What was asked; None if no model was, or if the run had to forget it."""
        return self._reader.journal.prompt(self.place)

    @property
    def answer(self) -> str:
        """What came back as text: the model's answer, the agent's answer, or the failure."""
        return self._answered[0]

    @property
    def cut(self) -> bool:
        """Whether the answer ended at the limit of output tokens."""
        return self._answered[1]

    @cached_property
    def _answered(self) -> tuple[str, bool]:
        table = schema.journal
        store = self._reader.store
        (row,) = store.rows(store.select(table.c.answer).where(table.c.place == self.place))
        if not self.ok and self.usage.calls:
            _, cut, counted = json.loads(row.answer)
            return f"The answer {next(SILENCES[key] for key in counted if key in SILENCES)}.", cut
        if not self.ok:
            # Only a failed effect that is no model call is stored as JSON.
            return (row.answer if self.model else str(load_failure(row.answer))), False
        said = json.loads(row.answer)
        if isinstance(said, list):
            return said[0], said[1]
        return said.get("answer", row.answer), False

    @property
    def attempts(self) -> tuple[str, ...]:
        """The ids of the attempts that it is about."""
        if self.place.startswith("evaluate "):
            return self._reader.attempts_of([f"attempt:{top_place(self.place)}"])
        return self._reader.attempts_of(self.sources)

    def as_json(self, texts: bool = False) -> dict[str, Any]:
        """Plain values; with `texts`, the prompt and the answer too."""
        values = super().as_json()
        return {**values, "prompt": plain(self.prompt), "answer": self.answer, "cut": self.cut} if texts else values


@dataclass(frozen=True)
class EntryShown(StoryPart):
    """An entry as an attempt met it: its text at that version, and its similarity to the task if it was looked up."""

    id: str
    section: str
    text: str
    similarity: float | None = None


FateWord = Literal["applied", "covered", "dropped", "refused", "waits", "rejected"]


@dataclass(frozen=True)
class Fate(StoryPart):
    """What became of a lesson.

    applied: an edit (`op`) made `version`, in which `entry` was added, changed or voted on. covered: `entry` said it
    already. dropped: it was left out. refused: an edit that rested on it could not be applied. waits, rejected: the
    edit waits for review, or was rejected there; `review` is its id.
    """

    what: FateWord
    step: int
    entry: str = ""
    op: str = ""
    version: int | None = None
    text: str = ""
    reason: str = ""
    review: str = ""


@dataclass(frozen=True)
class LessonStory(StoryPart):
    """What a reflection said: an insight (`text`, empty if it only voted), all findings, and what became of it.

    `votes` are its verdicts on entries, `attempts` the ids of those that it came from, and `of` is the id of the
    lesson whose reflection said this too.
    """

    id: str
    step: int
    section: str
    text: str
    detail: str
    confirmed: bool
    of: str
    votes: Mapping[str, Rating]
    findings: Mapping[str, Any]
    sources: tuple[str, ...]
    attempts: tuple[str, ...]
    fates: tuple[Fate, ...]


@dataclass(frozen=True)
class RoundStory(StoryPart):
    """A reflection within an attempt and, if another try followed, what came of it. `texts` are its insights."""

    texts: str
    answer: str | None
    error: str | None
    success: bool | None
    feedback: str


@dataclass(frozen=True)
class AttemptStory(StoryPart):
    """Everything about one attempt.

    `version` is the one whose context it was made under, None where it is not known (learning without a barrier).
    `calls` are those of the attempt itself, each with its prompt; `judging` those about its outcome and about the
    choice among several; `reflecting` those that reflected on it; `updating` those that made edits of a whole step.
    `retrieved` are the entries that were looked up for it, `used` those that it cites. `group` are all attempts at the
    task at once and `choice` says why one of them stands. `twin` is the attempt with the annotated playbook.
    `recorded` means that it was made before the run, and read from a trace. `usage` and `seconds` are those of `calls`,
    `judging` and `reflecting`.
    """

    line: AttemptLine
    task: Task
    version: int | None
    calls: tuple[CallStory, ...]
    retrieved: tuple[EntryShown, ...]
    trace: Trace
    used: tuple[EntryShown, ...]
    score: Score | None
    feedback: Feedback
    judging: tuple[CallStory, ...]
    rounds: tuple[RoundStory, ...]
    group: tuple[AttemptLine, ...]
    choice: Mapping[str, Any]
    twin: Trace | None
    reused: str
    recorded: bool
    lessons: tuple[LessonStory, ...]
    reflecting: tuple[CallStory, ...]
    updating: tuple[CallStory, ...]
    usage: Usage
    seconds: float

    @property
    def id(self) -> str:
        return self.line.id

    def as_json(self) -> dict[str, Any]:
        """Plain values, with the prompts and the answers of the calls of the attempt itself."""
        return {**super().as_json(), "calls": [call.as_json(texts=True) for call in self.calls]}


@dataclass(frozen=True)
class EntryStory(StoryPart):
    """An entry with every edit that made it what it is. `now` is None if it was removed. `sources` are the names of
    what it came from, and `attempts` the ids of the attempts among them."""

    id: str
    now: Entry | None
    events: tuple[EntryEvent, ...]
    sources: tuple[str, ...]
    attempts: tuple[str, ...]
