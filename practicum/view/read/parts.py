"""Data that a `Story` returns: frozen dataclasses, each with `as_json()` for programs."""

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
    """Convert a value to JSON values. Private fields of dataclasses are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if not f.name.startswith("_")}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def top_place(place: str) -> str:
    """Return the outer place that contains a place: the place of a step; in learning without a barrier, the place of an
    attempt; in an evaluation, the place of a task."""
    parts = place.split("/")
    return "/".join(parts[: 2 if parts[0].startswith(("leg ", "ask ", "evaluate ")) else 1])


class StoryPart:
    """Base class of the data that a `Story` returns."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        values: dict[str, Any] = plain(self)
        return values


@dataclass(frozen=True)
class RunStory(StoryPart):
    """Summary of a run.

    `usage` and `by_role`: the usage of all calls in the journal so far, in total and by role. `counts`: the counters
    above zero (see `core.counts`). `scores`: the scores in the last report; empty if the content of the last version
    differs from the content that this report scored. `tasks`: the number of tasks by split. `seconds`: the duration of
    the run so far."""

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
    """Summary of one step, recorded at its end.

    `tasks`: the ids of the step's tasks. `lessons`: the number of lessons. `applied`, `refused` and `held` (for
    review): the numbers of edits. `version`, `entries` and `tokens`: the context after the step. `val`: the validation
    score of this context; None: not validated. `sampled`: notes of the method about the batch. `evidence`: notes of the
    method about the delta."""

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
    """Summary of one attempt.

    `split`: train for learning, else the split of the evaluation, such as before, test or val. `step`: None for an
    evaluation. `version`: the evaluated version; None for learning, or if the version was removed. `number`: the number
    of the attempt in its group of `tries` attempts, from 1; scores count the attempt with number 1. `chosen`: whether
    the attempt was chosen as the best of the group. `success`: whether the attempt succeeded, by the feedback for
    learning. `reused`: the place of the earlier attempt whose result was reused; empty if the attempt was made."""

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
        """Whether the attempt failed: by an error, by its score or, without a score, by the feedback."""
        passed = self.success if self.correct is None else self.correct
        return self.error is not None or passed is False

    @property
    def outcome(self) -> str:
        """Outcome in a word: lost, failed, unknown, right or wrong."""
        if self.error is not None:
            return "lost" if self.lost else "failed"
        passed = self.success if self.correct is None else self.correct
        return "unknown" if passed is None else "right" if passed else "wrong"


class CallReader(Protocol):
    """Reader of the prompts and answers of calls, and of the attempts that a call is about."""

    store: Store
    journal: Journal

    def attempts_of(self, sources: Iterable[str]) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class CallStory(StoryPart):
    """One effect in the journal: a model call, an attempt of a user's agent, or a score.

    `id`: the number for `practicum show RUN --call`. `model`: the run's model for `role`; empty if no model was
    called. `seconds`: the duration, including waits and retries. `prompt` and `answer` are only read when they are
    used.
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
        """Prompt of the call; None if no model was called, or if the prompt was forgotten."""
        return self._reader.journal.prompt(self.place)

    @property
    def answer(self) -> str:
        """Text that the model or the agent answered; for a failed call, a text about the failure."""
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
            # Failed model calls are stored as text, other failed effects as JSON.
            return (row.answer if self.model else str(load_failure(row.answer))), False
        answer = json.loads(row.answer)
        if isinstance(answer, list):
            return answer[0], answer[1]
        return answer.get("answer", row.answer), False

    @property
    def attempts(self) -> tuple[str, ...]:
        """Ids of the attempts that the call is about."""
        if self.place.startswith("evaluate "):
            return self._reader.attempts_of([f"attempt:{top_place(self.place)}"])
        return self._reader.attempts_of(self.sources)

    def as_json(self, texts: bool = False) -> dict[str, Any]:
        """Return the fields as JSON values. `texts`: add the prompt and the answer."""
        values = super().as_json()
        return {**values, "prompt": plain(self.prompt), "answer": self.answer, "cut": self.cut} if texts else values


@dataclass(frozen=True)
class EntryShown(StoryPart):
    """Entry that an attempt saw: the text that the attempt saw, and the similarity of the entry to the task (None: the
    entry was not looked up)."""

    id: str
    section: str
    text: str
    similarity: float | None = None


FateWord = Literal["applied", "covered", "dropped", "refused", "waits", "rejected"]


@dataclass(frozen=True)
class Fate(StoryPart):
    """Fate of a lesson: the edit that followed from the lesson, or the reason why no edit followed.

    Values of `kind`: `applied`: an edit of the type `op` was applied to `entry` in `version`.
    `covered`: `entry` already contained the lesson. `dropped`: the lesson was left out. `refused`: an edit from the
    lesson could not be applied. `waits`, `rejected`: the edit waits for review, or was rejected in review; `review` is
    the id of the review.
    """

    kind: FateWord
    step: int
    entry: str = ""
    op: str = ""
    version: int | None = None
    text: str = ""
    reason: str = ""
    review: str = ""


@dataclass(frozen=True)
class LessonStory(StoryPart):
    """Lesson of a reflection.

    `text`: the insight; empty if the lesson only votes. `findings`: all fields of the reflection. `votes`: the ratings
    of entries. `attempts`: the ids of the attempts that the reflection was about. `of`: the id of the first lesson of
    the same reflection; empty for the first lesson. `fates`: the edits, refusals and reviews that followed from the
    lesson.
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
    """Reflection within an attempt. `texts`: the insights of the reflection. The other fields are the result of the try
    that followed the reflection; they are empty if no try followed."""

    texts: str
    answer: str | None
    error: str | None
    success: bool | None
    feedback: str


@dataclass(frozen=True)
class AttemptStory(StoryPart):
    """All data of one attempt.

    `version`: the version that the attempt saw; None: not recorded (learning without a barrier). `calls`: the calls of
    the attempt itself, with their prompts. `judging`: calls that judged the attempt or chose the best attempt of its
    group. `reflecting`: calls that reflected on the attempt. `updating`: calls that turned the lessons from the attempt
    into edits. `retrieved`: entries that were looked up for the attempt. `used`: entries that the attempt cites.
    `group`: all attempts made together at the task; empty for a single attempt. `choice`: data about the choice of the
    best attempt. `twin`: trace of a second attempt at the same task, which saw the annotated playbook. `reused`: the id
    of the earlier attempt whose result was reused; empty if the attempt was made. `recorded`: whether the attempt was
    read from a recorded trace. `usage` and `seconds`: totals of `calls`, `judging` and `reflecting`."""

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
        """Return the fields as JSON values, with the prompts and answers of `calls`."""
        return {**super().as_json(), "calls": [call.as_json(texts=True) for call in self.calls]}


@dataclass(frozen=True)
class EntryStory(StoryPart):
    """An entry with all its edits. `now`: the current entry; None if the entry was removed. `sources`: the
    sources of the entry. `attempts`: the ids of the attempts among the sources."""

    id: str
    now: Entry | None
    events: tuple[EntryEvent, ...]
    sources: tuple[str, ...]
    attempts: tuple[str, ...]
