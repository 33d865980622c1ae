"""`practicum bench retrieval`: measures search by vectors, by words, and by both (the setting `retrieval`).

**Conversations**: whether the search for a question finds the turns that answer it. Search by vectors and words is also
measured with neighbouring turns taken into account. The data are the published file of LoCoMo (Maharana et al. 2024,
`locomo10.json`), a file of LongMemEval (Wu et al. 2024, such as `longmemeval_s.json`), or JSON lines: a turn is `{"id",
"input", "meta": {"conv"}}` and a question `{"id", "input", "meta": {"conv", "evidence": [ids of turns], "category"}}`.
Recall@k is the share of a question's evidence that is among the k turns most similar to the question, searched in the
question's conversation, averaged over the questions. Questions without evidence and questions of category 5
(unanswerable) are skipped.

**Tasks**: whether the training tasks that are most similar to a test task have the same label as the test task. The
label is the target, or a field of meta.

No model is called.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from practicum.core.context import Context, initial_context
from practicum.core.differences import difference
from practicum.core.edits import CONVERSATION, Add
from practicum.core.errors import TaskFileError
from practicum.core.intervals import mean_ci95
from practicum.core.types import Task
from practicum.core.words import fault
from practicum.retrieval.search import Filter, Retrieval, Retriever
from practicum.retrieval.vectors import Embedder, Vectors
from practicum.tasks.load import load_tasks
from practicum.tasks.records import read_records, unique_tasks

KS = (1, 5, 10, 20)

NEAREST = 4
"""Number of most similar training tasks whose labels are compared with the label of a test task."""

WAYS: Mapping[str, tuple[Retrieval, bool]] = {
    "cosine": ("cosine", False), "words": ("words", False), "mixed": ("mixed", False), "neighbours": ("mixed", True),
}  # fmt: skip
"""Way of searching → the setting `retrieval`, and whether the sources of an entry name the conversation of the entry.
With this name, the search uses neighbouring turns."""

RECALL = tuple(f"@{k}" for k in KS)
SAME_LABEL = ("nearest", f"of {NEAREST}", "majority")
"""Measures of questions (RECALL) and of tasks (SAME_LABEL). For a test task: whether the nearest training task has the
test task's label, the share of the nearest training tasks with this label, and whether this label is the most frequent
label among them (on ties, the label of the nearer task counts)."""

UNANSWERABLE = "5"
"""Category of questions that the conversation does not answer."""


@dataclass(frozen=True, kw_only=True)
class RetrievalRow:
    """Measures of one way of searching, over the questions or tasks of one category ("all": all categories). `seconds`:
    time (s) of all searches of the way, without embedding."""

    way: str
    category: str
    n: int
    measures: Mapping[str, Measure]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        measures = {name: measure.as_json() for name, measure in self.measures.items()}
        return {"way": self.way, "category": self.category, "n": self.n, **measures, "seconds": self.seconds}


@dataclass(frozen=True)
class Measure:
    """Mean over questions or tasks, from 0 to 1, with its 95% interval. `effect`: paired difference from the measure of
    `cosine`, and the 95% interval of the difference; None for `cosine` itself."""

    mean: float
    ci95: tuple[float, float]
    effect: tuple[float, tuple[float, float]] | None = None

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"mean": self.mean, "ci95": self.ci95}
        if self.effect is not None:
            shown["less_cosine"] = {"effect": self.effect[0], "ci95": self.effect[1]}
        return shown


def read(turns: Path, questions: Path | None = None) -> tuple[list[Task], list[Task]]:
    """Read the turns, and the questions that have evidence. If `questions` is None, `turns` is a file of LoCoMo or of
    LongMemEval, which contains turns and questions. Raise TaskFileError, which names the first invalid turn or
    question."""
    if questions is None:
        corpus, asked, questions = *_published(turns), turns
    else:
        corpus, asked = load_tasks(turns), load_tasks(questions)
    conversation_of = {turn.id: turn.meta.get("conv") for turn in corpus}
    with_evidence = []
    for path, tasks in ((turns, corpus), (questions, asked)):
        for task in tasks:
            if not isinstance(task.meta.get("conv"), str):
                raise TaskFileError(
                    "tasks.missing_field", f"{path}: {task.id!r} needs the name of its conversation as meta.conv"
                )
    for question in asked:
        evidence = question.meta.get("evidence", [])
        if not isinstance(evidence, list):
            raise TaskFileError(
                "tasks.missing_field", f"{questions}: {question.id!r} needs the ids of turns as a list in meta.evidence"
            )
        for id in evidence:
            if conversation_of.get(str(id)) != question.meta["conv"]:
                wrong = f"{id!r}, which is not a turn of the question's conversation in {turns}"
                raise TaskFileError(
                    "tasks.invalid_field", f"{questions}: the evidence of {question.id!r} names {wrong}"
                )
        if evidence and _category(question) != UNANSWERABLE:
            with_evidence.append(question)
    if not with_evidence:
        raise TaskFileError(
            "tasks.missing_field",
            f"{questions}: no question has evidence to find (a list of ids of turns in meta.evidence)",
        )
    return corpus, with_evidence


def _category(question: Task) -> str:
    category = question.meta.get("category")
    return "" if category is None else str(category)


def _published(path: Path) -> tuple[list[Task], list[Task]]:
    """Read the turns and questions of a published file, by the fields of its first record."""
    first = next((record for _, record in read_records(path)), {})
    return _longmemeval(path) if "haystack_sessions" in first else _locomo(path)


# ---- LongMemEval


class _Message(BaseModel):
    role: str
    content: str
    has_answer: bool = False


class _Haystack(BaseModel):
    """Question in the published format of LongMemEval, with its own history: sessions of messages."""

    question_id: str
    question_type: str = ""
    question: str
    haystack_dates: list[str]
    haystack_sessions: list[list[_Message]]


def _longmemeval(path: Path) -> tuple[list[Task], list[Task]]:
    """Read the messages and the questions of the published file. The text of a message starts with the date of its
    session. The evidence of a question are the messages marked as `has_answer`. Questions without an answer in the
    history (their ids end in "_abs") are skipped."""
    turns, questions = list[tuple[str, Task]](), list[tuple[str, Task]]()
    for place, record in read_records(path):
        try:
            one = _Haystack.model_validate(record)
        except ValidationError as error:
            raise TaskFileError(
                "tasks.malformed",
                f"{path} {place}: not in the format of LongMemEval ({fault(error, 'a session')}); it needs "
                "question_id, question, haystack_dates and haystack_sessions, as in the files of "
                "huggingface.co/datasets/xiaowu0162/longmemeval-cleaned",
            ) from None
        if len(one.haystack_dates) != len(one.haystack_sessions):
            raise TaskFileError(
                "tasks.malformed", f"{path} {place}: haystack_dates must have one date for each session"
            )
        if one.question_id.endswith("_abs"):
            continue
        evidence = []
        for number, (date, session) in enumerate(zip(one.haystack_dates, one.haystack_sessions, strict=True), 1):
            for at, message in enumerate(session, 1):
                id = f"{one.question_id}/{number}:{at}"
                text = f"{date}. {message.role}: {message.content}"
                turns.append((f"{place}, session {number}", Task(id, text, None, {"conv": one.question_id})))
                evidence += [id] if message.has_answer else []
        meta = {"conv": one.question_id, "evidence": evidence, "category": one.question_type}
        questions.append((place, Task(one.question_id, one.question, None, meta)))
    return unique_tasks(turns, path), unique_tasks(questions, path)


# ---- LoCoMo


class _Turn(BaseModel):
    dia_id: str
    speaker: str
    text: str
    blip_caption: str = ""


class _Question(BaseModel):
    question: str
    evidence: list[str] = []
    category: int | str | None = None


class _Sample(BaseModel):
    """Conversation in the published format of LoCoMo. In `conversation`, session_1, session_2, … are lists of turns,
    and session_1_date_time, … the times of the sessions."""

    sample_id: str | None = None
    conversation: dict[str, Any]
    qa: list[_Question]


_TURNS = TypeAdapter(list[_Turn])


def _locomo(path: Path) -> tuple[list[Task], list[Task]]:
    """Read the turns and questions of the published file. The text of a turn starts with the time of its session. Skip
    evidence that names a missing turn: some of the published questions have such evidence."""
    turns, questions = list[tuple[str, Task]](), list[tuple[str, Task]]()
    for place, record in read_records(path):
        try:
            sample = _Sample.model_validate(record)
            name, talk = sample.sample_id or place, sample.conversation
            sessions = sorted((key for key in talk if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
            spoken = [
                Task(f"{name}/{turn.dia_id}", _text(turn, str(talk.get(f"{key}_date_time", ""))), None, {"conv": name})
                for key in sessions
                for turn in _TURNS.validate_python(talk[key])
            ]
        except ValidationError as error:
            raise TaskFileError(
                "tasks.malformed",
                f"{path} {place}: not in the format of LoCoMo ({fault(error, 'a session')}); it needs `conversation` "
                "with session_1, session_2, … and `qa`, or pass two files: turns and questions",
            ) from None
        ids = {turn.id for turn in spoken}
        turns += [(f"{place}, turn {number}", turn) for number, turn in enumerate(spoken, 1)]
        for number, one in enumerate(sample.qa):
            evidence = [id for id in _evidence(name, one.evidence) if id in ids]
            meta = {"conv": name, "evidence": evidence, "category": one.category}
            questions.append((place, Task(f"{name}/q{number}", one.question, None, meta)))
    return unique_tasks(turns, path), unique_tasks(questions, path)


def _text(turn: _Turn, time: str) -> str:
    picture = f" [shares a picture: {turn.blip_caption}]" if turn.blip_caption else ""
    return f"{time}. {turn.speaker}: {turn.text}{picture}"


def _evidence(name: str, written: Sequence[str]) -> Iterator[str]:
    """Yield the ids of the turns that the evidence of a question names. Some of the published texts name several ids,
    and some have extra zeros or colons."""
    for text in written:
        for session, turn in re.findall(r"D:?(\d+):0*(\d+)", text):
            yield f"{name}/D{session}:{turn}"


async def retrieval(turns: Sequence[Task], questions: Sequence[Task], embedder: Embedder) -> list[RetrievalRow]:
    """Measure the recall of each way of searching, over all questions and by category."""
    vectors = Vectors(embedder)
    await vectors.ready([*(turn.input for turn in turns), *(question.input for question in questions)])
    results = {}
    for way, (setting, naming) in WAYS.items():
        context, retriever = _context(turns, naming), Retriever(vectors, retrieval=setting)
        began = time.perf_counter()
        recall = [await _recall(retriever, context, question) for question in questions]
        results[way] = np.array(recall), time.perf_counter() - began
    return _rows(RECALL, results, [_category(question) for question in questions])


def read_labelled(train: Path, test: Path, label: str = "") -> tuple[list[Task], list[Task]]:
    """Read the training and test tasks, and make the label of each task its target. The label is the target in the
    file, or the field `label` of the task's meta (a text or a list of texts). Raise TaskFileError, which names the
    first task without a label."""
    return _labelled(train, label), _labelled(test, label)


def _labelled(path: Path, label: str) -> list[Task]:
    tasks = []
    for task in load_tasks(path):
        value = task.meta.get(label) if label else task.target
        values = value if isinstance(value, list) else [value]
        texts = [text for text in values if isinstance(text, str)]
        if not texts or texts != values:
            needs = f"a text or a list of texts as meta.{label}" if label else "a target, or name a field with --label"
            raise TaskFileError(
                "tasks.missing_field", f"{path}: {task.id!r} needs {needs}; turns of conversations need meta.conv"
            )
        tasks.append(replace(task, target=", ".join(texts)))
    return tasks


def has_conversations(path: Path) -> bool:
    """Return whether a file contains turns of conversations."""
    return any("conv" in task.meta for task in load_tasks(path))


async def similar(train: Sequence[Task], test: Sequence[Task], embedder: Embedder) -> list[RetrievalRow]:
    """Measure whether each way finds training tasks with the label of the test task, over all test tasks."""
    vectors = Vectors(embedder)
    await vectors.ready([*(task.input for task in train), *(task.input for task in test)])
    context = initial_context([Add("tasks", task.input, data={"label": task.target}) for task in train])
    results = {}
    for way, setting in ((way, setting) for way, (setting, naming) in WAYS.items() if not naming):
        retriever, began = Retriever(vectors, retrieval=setting), time.perf_counter()
        scores = [await _same_label(retriever, context, task) for task in test]
        results[way] = np.array(scores), time.perf_counter() - began
    return _rows(SAME_LABEL, results, [""] * len(test))


async def _same_label(retriever: Retriever, context: Context, task: Task) -> list[float]:
    labels = [m.entry.data["label"] for m in (await retriever.nearest(context, task.input, NEAREST)).matches]
    majority = Counter(labels).most_common(1)[0][0]
    same = [label == task.target for label in labels]
    return [float(same[0]), fmean(same), float(majority == task.target)]


def _context(turns: Sequence[Task], naming: bool) -> Context:
    """Return a context with a section for each conversation, and the turns of the conversation as entries. With
    `naming`, the sources of an entry also name the conversation of its turn."""
    adds = []
    for turn in turns:
        name = turn.meta["conv"]
        adds.append(Add(name, turn.input, sources=(turn.id, *([f"{CONVERSATION}{name}"] if naming else []))))
    return initial_context(adds)


async def _recall(retriever: Retriever, context: Context, question: Task) -> list[float]:
    evidence = {*map(str, question.meta["evidence"])}
    search = await retriever.nearest(context, question.input, max(KS), Filter(section=question.meta["conv"]))
    ids = [match.entry.sources[0] for match in search.matches]
    return [len(evidence & {*ids[:k]}) / len(evidence) for k in KS]


def _rows(
    names: Sequence[str], results: Mapping[str, tuple[np.ndarray, float]], categories: Sequence[str]
) -> list[RetrievalRow]:
    """Return the rows of each way. `results`: for each way, the measures of each question or task, shape (n,
    len(names)), and the time (s) of the searches."""
    rows = []
    for way, (scores, seconds) in results.items():
        for category in ("all", *sorted({*categories} - {""})):
            chosen = np.array([category in ("all", each) for each in categories])
            mine, cosine = scores[chosen].T, results["cosine"][0][chosen].T
            measures = {
                name: _measure(scores, None if way == "cosine" else other)
                for name, scores, other in zip(names, mine, cosine, strict=True)
            }
            rows.append(RetrievalRow(way=way, category=category, n=mine.shape[1], measures=measures, seconds=seconds))
    return rows


def _measure(scores: np.ndarray, cosine: np.ndarray | None) -> Measure:
    less = None if cosine is None else difference(scores[:, None], cosine[:, None])
    return Measure(float(scores.mean()), mean_ci95(scores.tolist()), None if less is None else (less.effect, less.ci95))
