"""`practicum bench retrieval`: how many of the turns that answer a question about a conversation are found, by vectors,
by words, by both, and by both where the turns before and after count too.

Either the file of LoCoMo (Maharana et al. 2024) as its authors publish it (`locomo10.json`), or JSON lines: a turn is
`{"id", "input", "meta": {"conv"}}` and a question `{"id", "input", "meta": {"conv", "evidence": [ids of turns],
"category"}}`. Recall@k is the share of a question's evidence among the k turns of its conversation that are most
similar to it, as a mean over questions. Questions without evidence and those of category 5, which ask for what was
never said, are left out. No model is asked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from practicum.core.context import Context, initial_context
from practicum.core.edits import CONVERSATION, Add
from practicum.core.errors import TaskFileError
from practicum.core.intervals import mean_ci95
from practicum.core.types import Task
from practicum.core.words import fault
from practicum.retrieval.search import WORDS, Filter, Retriever
from practicum.retrieval.vectors import Embedder, Vectors
from practicum.tasks.load import load_tasks, unique_tasks
from practicum.tasks.records import read_records

KS = (1, 5, 10, 20)

WAYS = {"vectors": (0.0, False), "words": (1.0, False), "hybrid": (WORDS, False), "neighbours": (WORDS, True)}
"""The weight of the words in a similarity, and whether the entries name their conversation."""

UNANSWERABLE = "5"
"""The category of questions that ask for what was never said."""


@dataclass(frozen=True, kw_only=True)
class RetrievalRow:
    """Recall at each of KS with its 95% interval over questions, of one way and category ("all": of all questions).
    `seconds` is the time of all searches of the way, without embedding."""

    way: str
    category: str
    questions: int
    recall: Mapping[int, float]
    ci95: Mapping[int, tuple[float, float]]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        at = {str(k): {"recall": self.recall[k], "ci95": self.ci95[k]} for k in KS}
        return {"way": self.way, "category": self.category, "questions": self.questions, **at, "seconds": self.seconds}


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
                raise TaskFileError(f"{path}: {task.id!r} needs the name of its conversation as meta.conv")
    for question in asked:
        evidence = question.meta.get("evidence", [])
        if not isinstance(evidence, list):
            raise TaskFileError(f"{questions}: {question.id!r} needs the ids of turns as a list in meta.evidence")
        for id in evidence:
            if conversation_of.get(str(id)) != question.meta["conv"]:
                wrong = f"{id!r}, which is no turn of its conversation in {turns}"
                raise TaskFileError(f"{questions}: the evidence of {question.id!r} names {wrong}")
        if evidence and _category(question) != UNANSWERABLE:
            kept.append(question)
    if not kept:
        raise TaskFileError(f"{questions}: no question has evidence to find, a list of ids of turns in meta.evidence")
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
                f"{path} {place}: not as LoCoMo is published ({fault(error, 'a session')}); it needs `conversation` "
                "with session_1, session_2, … and `qa`, or give two files: turns and questions"
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
    rows = []
    for way, (words, naming) in WAYS.items():
        context, retriever = _context(turns, naming), Retriever(vectors, words=words)
        began = time.perf_counter()
        recall = np.array([await _recall(retriever, context, question) for question in questions])
        seconds = time.perf_counter() - began
        rows += [_row(way, "all", recall, seconds)]
        categories = [_category(question) for question in questions]
        for category in sorted({*categories} - {""}):
            rows.append(_row(way, category, recall[[each == category for each in categories]], seconds))
    return rows


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


def _row(way: str, category: str, recall: np.ndarray, seconds: float) -> RetrievalRow:
    """The row of some questions, given the recall of each at each of KS, shape (n, 4)."""
    by_k = dict(zip(KS, recall.T.tolist(), strict=True))
    means, intervals = {k: fmean(each) for k, each in by_k.items()}, {k: mean_ci95(each) for k, each in by_k.items()}
    return RetrievalRow(
        way=way, category=category, questions=len(recall), recall=means, ci95=intervals, seconds=seconds
    )  # fmt: skip
