"""`practicum bench retrieval`: what is found by vectors, by words, and by both, as the setting `retrieval` names them.

**Conversations**: which turns answer a question; also by both where the turns before and after count too. Either the
file of LoCoMo (Maharana et al. 2024) as its authors publish it (`locomo10.json`), or JSON lines: a turn is `{"id",
"input", "meta": {"conv"}}` and a question `{"id", "input", "meta": {"conv", "evidence": [ids of turns], "category"}}`.
Recall@k is the share of a question's evidence among the k turns of its conversation that are most similar to it, as a
mean over questions. Questions without evidence and those of category 5, which ask for what was never said, are left
out.

**Tasks**: whether the tasks to learn from that are most similar to a task to test have its label: its target, or a
field of its meta.

No model is asked.
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
from practicum.tasks.load import load_tasks, unique_tasks
from practicum.tasks.records import read_records

KS = (1, 5, 10, 20)

NEAREST = 4
"""Similar tasks that are looked at."""

WAYS: Mapping[str, tuple[Retrieval, bool]] = {
    "cosine": ("cosine", False), "words": ("words", False), "mixed": ("mixed", False), "neighbours": ("mixed", True),
}  # fmt: skip
"""The setting `retrieval`, and whether the entries name their conversation."""

RECALL = tuple(f"@{k}" for k in KS)
SAME_LABEL = ("nearest", f"of {NEAREST}", "majority")
"""The measures of questions, and of tasks: whether the nearest task has the label of a task, the share of the nearest
ones that have it, and whether it is their most frequent label; of equally frequent ones that of the nearest counts."""

UNANSWERABLE = "5"
"""The category of questions that ask for what was never said."""


@dataclass(frozen=True, kw_only=True)
class RetrievalRow:
    """The measures of one way, over the questions or tasks of one category ("all": over all). `seconds` is the time of
    all searches of the way, without embedding."""

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
    """A mean over questions or tasks, from 0 to 1, with its 95% interval; and its paired difference from `cosine` with
    that interval, except for cosine itself."""

    mean: float
    ci95: tuple[float, float]
    effect: tuple[float, tuple[float, float]] | None = None

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"mean": self.mean, "ci95": self.ci95}
        if self.effect is not None:
            shown["less_cosine"] = {"effect": self.effect[0], "ci95": self.effect[1]}
        return shown


def read(turns: Path, questions: Path | None = None) -> tuple[list[Task], list[Task]]:
    """The turns, and the questions that have evidence; both of one file of LoCoMo's if `questions` is None. Raises
    TaskFileError that names the first wrong one."""
    if questions is None:
        said, asked, questions = *_locomo(turns), turns
    else:
        said, asked = load_tasks(turns), load_tasks(questions)
    conversation_of = {turn.id: turn.meta.get("conv") for turn in said}
    kept = []
    for path, tasks in ((turns, said), (questions, asked)):
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
                wrong = f"{id!r}, which is no turn of its conversation in {turns}"
                raise TaskFileError(
                    "tasks.invalid_field", f"{questions}: the evidence of {question.id!r} names {wrong}"
                )
        if evidence and _category(question) != UNANSWERABLE:
            kept.append(question)
    if not kept:
        raise TaskFileError(
            "tasks.missing_field",
            f"{questions}: no question has evidence to find, a list of ids of turns in meta.evidence",
        )
    return said, kept


def _category(question: Task) -> str:
    category = question.meta.get("category")
    return "" if category is None else str(category)


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
    """A conversation as LoCoMo's authors publish it. In `conversation`, session_1, session_2, … are lists of turns, and
    session_1_date_time, … their times."""

    sample_id: str | None = None
    conversation: dict[str, Any]
    qa: list[_Question]


_TURNS = TypeAdapter(list[_Turn])


def _locomo(path: Path) -> tuple[list[Task], list[Task]]:
    """The turns and the questions of the authors' file. A turn has the time of its session before it. Evidence that
    names no turn, as that of some of the published questions does, is left out."""
    turns, questions = list[tuple[str, Task]](), list[tuple[str, Task]]()
    for place, record in read_records(path):
        try:
            sample = _Sample.model_validate(record)
            name, talk = sample.sample_id or place, sample.conversation
            sessions = sorted((key for key in talk if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
            said = [
                Task(f"{name}/{turn.dia_id}", _said(turn, str(talk.get(f"{key}_date_time", ""))), None, {"conv": name})
                for key in sessions
                for turn in _TURNS.validate_python(talk[key])
            ]
        except ValidationError as error:
            raise TaskFileError(
                "tasks.malformed",
                f"{path} {place}: not as LoCoMo is published ({fault(error, 'a session')}); it needs `conversation` "
                "with session_1, session_2, … and `qa`, or give two files: turns and questions",
            ) from None
        known = {turn.id for turn in said}
        turns += [(f"{place}, turn {number}", turn) for number, turn in enumerate(said, 1)]
        for number, one in enumerate(sample.qa):
            evidence = [id for id in _evidence(name, one.evidence) if id in known]
            meta = {"conv": name, "evidence": evidence, "category": one.category}
            questions.append((place, Task(f"{name}/q{number}", one.question, None, meta)))
    return unique_tasks(turns, path), unique_tasks(questions, path)


def _said(turn: _Turn, time: str) -> str:
    picture = f" [shares a picture: {turn.blip_caption}]" if turn.blip_caption else ""
    return f"{time}. {turn.speaker}: {turn.text}{picture}"


def _evidence(name: str, written: Sequence[str]) -> Iterator[str]:
    """The ids of turns: some of the published texts name several, and some have zeros or colons too many."""
    for text in written:
        for session, turn in re.findall(r"D:?(\d+):0*(\d+)", text):
            yield f"{name}/D{session}:{turn}"


async def retrieval(turns: Sequence[Task], questions: Sequence[Task], embedder: Embedder) -> list[RetrievalRow]:
    """Recall of each way, over all questions and by category."""
    vectors = Vectors(embedder)
    await vectors.ready([*(turn.input for turn in turns), *(question.input for question in questions)])
    found = {}
    for way, (setting, naming) in WAYS.items():
        context, retriever = _context(turns, naming), Retriever(vectors, retrieval=setting)
        began = time.perf_counter()
        recall = [await _recall(retriever, context, question) for question in questions]
        found[way] = np.array(recall), time.perf_counter() - began
    return _rows(RECALL, found, [_category(question) for question in questions])


def read_labelled(train: Path, test: Path, label: str = "") -> tuple[list[Task], list[Task]]:
    """The tasks to learn from and to test, each with its label as its target: its own target, or the field `label` of
    its meta, a text or a list of texts. Raises TaskFileError that names the first task without one."""
    return _labelled(train, label), _labelled(test, label)


def _labelled(path: Path, label: str) -> list[Task]:
    tasks = []
    for task in load_tasks(path):
        value = task.meta.get(label) if label else task.target
        given = value if isinstance(value, list) else [value]
        texts = [text for text in given if isinstance(text, str)]
        if not texts or texts != given:
            needs = f"a text or a list of texts as meta.{label}" if label else "a target, or name a field with --label"
            raise TaskFileError(
                "tasks.missing_field", f"{path}: {task.id!r} needs {needs}; turns of conversations need meta.conv"
            )
        tasks.append(replace(task, target=", ".join(texts)))
    return tasks


def has_conversations(path: Path) -> bool:
    """Whether a file holds turns of conversations."""
    return any("conv" in task.meta for task in load_tasks(path))


async def similar(train: Sequence[Task], test: Sequence[Task], embedder: Embedder) -> list[RetrievalRow]:
    """Whether each way finds tasks with the label of a task, over all tasks to test."""
    vectors = Vectors(embedder)
    await vectors.ready([*(task.input for task in train), *(task.input for task in test)])
    context = initial_context([Add("tasks", task.input, data={"label": task.target}) for task in train])
    found = {}
    for way, setting in ((way, setting) for way, (setting, naming) in WAYS.items() if not naming):
        retriever, began = Retriever(vectors, retrieval=setting), time.perf_counter()
        scores = [await _same_label(retriever, context, task) for task in test]
        found[way] = np.array(scores), time.perf_counter() - began
    return _rows(SAME_LABEL, found, [""] * len(test))


async def _same_label(retriever: Retriever, context: Context, task: Task) -> list[float]:
    labels = [m.entry.data["label"] for m in (await retriever.nearest(context, task.input, NEAREST)).found]
    majority = Counter(labels).most_common(1)[0][0]
    same = [label == task.target for label in labels]
    return [float(same[0]), fmean(same), float(majority == task.target)]


def _context(turns: Sequence[Task], naming: bool) -> Context:
    """A section for each conversation, with its turns. With `naming`, the entries name it as their source."""
    found = []
    for turn in turns:
        name = turn.meta["conv"]
        found.append(Add(name, turn.input, sources=(turn.id, *([f"{CONVERSATION}{name}"] if naming else []))))
    return initial_context(found)


async def _recall(retriever: Retriever, context: Context, question: Task) -> list[float]:
    evidence = {*map(str, question.meta["evidence"])}
    search = await retriever.nearest(context, question.input, max(KS), Filter(section=question.meta["conv"]))
    ids = [match.entry.sources[0] for match in search.found]
    return [len(evidence & {*ids[:k]}) / len(evidence) for k in KS]


def _rows(
    names: Sequence[str], found: Mapping[str, tuple[np.ndarray, float]], categories: Sequence[str]
) -> list[RetrievalRow]:
    """The rows of each way, given the measures of each question or task, shape (n, len(names)), and the seconds that
    they took."""
    rows = []
    for way, (scores, seconds) in found.items():
        for category in ("all", *sorted({*categories} - {""})):
            chosen = np.array([category in ("all", each) for each in categories])
            mine, cosine = scores[chosen].T, found["cosine"][0][chosen].T
            measures = {
                name: _measure(scores, None if way == "cosine" else other)
                for name, scores, other in zip(names, mine, cosine, strict=True)
            }
            rows.append(RetrievalRow(way=way, category=category, n=mine.shape[1], measures=measures, seconds=seconds))
    return rows


def _measure(scores: np.ndarray, cosine: np.ndarray | None) -> Measure:
    less = None if cosine is None else difference(scores[:, None], cosine[:, None])
    return Measure(float(scores.mean()), mean_ci95(scores.tolist()), None if less is None else (less.effect, less.ci95))
