"""Public data sets: their files, recognised by their fields, are converted to tasks.

A format is a model of one line that can turn it into a task, with the scorer, choices and instructions that suit the
data set. What would give an answer away goes to `target` and `meta`, which no model sees.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task
from practicum.tasks.load import field_names, numbered_records, read_text, type_name, unique_tasks

LETTERS = "ABCDEFGHIJ"

Record = Mapping[str, Any]


class Format(BaseModel):
    """One line of a file."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    about: ClassVar[str]
    scorer: ClassVar[str]
    instructions: ClassVar[str]
    offered: ClassVar[Literal["letters", "targets", "none"]] = "none"  # the choices
    marks: ClassVar[Mapping[str, str]] = {}  # patterns of fields, where formats have fields of the same names

    def task(self, id: str) -> Task | None:
        """The task of this line, or None if it cannot be one. `id` is for lines without an id of their own."""
        raise NotImplementedError

    @classmethod
    def fits(cls, record: Record) -> bool:
        """Whether the fields of a line match this format."""
        required = {name for name, field in cls.model_fields.items() if field.is_required()}
        marks = (re.search(pattern, str(record[name])) for name, pattern in cls.marks.items())
        return required <= record.keys() and all(marks)


class HumanEval(Format):
    """The input is the head of a function, the target the whole solution; the tests are in `meta`."""

    about = "functions to write, with unit tests"
    scorer = "tests"
    instructions = "Write the Python function. Answer with the whole function in one ```python block, and nothing else."

    task_id: str
    prompt: str
    canonical_solution: str
    test: str
    entry_point: str

    def task(self, id: str) -> Task:
        meta = {"tests": self.test, "entry_point": self.entry_point, "prompt": self.prompt}
        return Task(self.task_id, self.prompt, self.prompt + self.canonical_solution, meta)


class Gsm8k(Format):
    """The target follows the mark ####; the worked solution is in `meta`."""

    about = "grade-school maths, the answer after ####"
    scorer = "numeric"
    instructions = "Solve the problem step by step. End with a line that holds #### and the answer as a plain number."
    marks = {"answer": "####"}

    question: str
    answer: str = Field(pattern=r"####\s*\S")

    def task(self, id: str) -> Task:
        return Task(id, self.question, self.answer.rpartition("####")[2].strip(), {"solution": self.answer})


class CommonGen(Format):
    """The input is the list of concepts."""

    about = "concepts to use in a text (CommonGen-Hard)"
    scorer = "commongen"
    instructions = "Write a short coherent text that uses all of the given words. Answer with the text only."

    concepts: list[str] = Field(min_length=1)

    def task(self, id: str) -> Task:
        return Task(id, ", ".join(self.concepts), None, {"concepts": self.concepts})


class Mmlu(Format):
    """The answer is the index of the correct choice, from 0, or its letter."""

    about = "questions with lettered choices (MMLU and similar data sets, JSON lines or CSV)"
    scorer = "choice"
    offered = "letters"
    instructions = "Choose the right answer. Answer with its letter only."

    question: str
    choices: list[str] = Field(min_length=2, max_length=len(LETTERS))
    answer: StrictInt | str
    subject: str = ""

    def task(self, id: str) -> Task:
        letters, answer = LETTERS[: len(self.choices)], self.answer
        letter = answer.strip().upper() if isinstance(answer, str) else letters[answer : answer + 1]
        if len(letter) != 1 or letter not in letters:
            raise ValueError(f"field 'answer' must be the letter, or the number from 0, of a choice, not {answer!r}")
        choices = [f"{letter}. {choice}" for letter, choice in zip(letters, self.choices, strict=True)]
        return Task(id, "\n".join([self.question, *choices]), letter, _tags(self.subject))


class Finer(Format):
    """The list of tags, which all lines share, goes to the instructions."""

    about = "tagging numbers of financial reports (FiNER-139), several a line"
    scorer = "list"
    instructions = "Answer each question with one tag of the list, in the order of the questions, with commas between."
    marks = {"context": "US GAAP tags"}

    context: str
    target: str

    def task(self, id: str) -> Task:
        head, _, questions = self.context.partition(" Answer the following ")
        questions = questions.partition("Provide nothing else.")[2].removesuffix("Output US GAAP tags:").strip()
        return Task(id, questions or self.context, self.target, {"preamble": head} if questions else {})


class Formula(Format):
    """Only the question: the formula and its explanation would give away what is to be learned."""

    about = "financial formulas applied to numbers (XBRL Formula)"
    scorer = "numeric"
    instructions = "Answer with a plain number with two decimal places, and nothing else."
    marks = {"context": "^Use formula"}

    context: str
    target: str

    def task(self, id: str) -> Task:
        head, mark, question = self.context.partition("Question:")
        if not mark:
            raise ValueError("field 'context' must hold 'Question:', as lines of the Formula data do")
        name = re.match(r"Use formula (.*?) to answer", head)
        question = question.strip().removesuffix("Answer:").strip().removesuffix(".").strip()
        return Task(id, question.strip('"'), self.target, {"formula": name[1]} if name else {})


class RewardBench2(Format):
    """The best of several answers, which are shuffled with the id as the seed, so that their order is reproducible.
    Lines with several correct answers (the subset Ties), which the benchmark scores by ratings, are left out."""

    about = "the best of four answers to choose (RewardBench 2)"
    scorer = "choice"
    offered = "letters"
    instructions = "Which answer to the request is the best? Answer with its letter only."

    id: str | int
    prompt: str
    chosen: list[str] = Field(min_length=1)
    rejected: list[str] = Field(min_length=1)
    subset: str = ""

    def task(self, id: str) -> Task | None:
        if len(self.chosen) > 1 or len(self.rejected) >= len(LETTERS):
            return None
        order = [*self.chosen, *self.rejected]
        random.Random(str(self.id)).shuffle(order)
        answers = "\n\n".join(f"[{letter}]\n{text}" for letter, text in zip(LETTERS, order, strict=False))
        target = LETTERS[order.index(self.chosen[0])]
        return Task(str(self.id), f"# Request\n{self.prompt}\n\n# Answers\n{answers}", target, _tags(self.subset))


class DdxPlus(Format):
    """The choices are the diagnoses that occur in the file."""

    about = "patients to diagnose (DDXPlus of StreamBench)"
    scorer = "choice"
    offered = "targets"
    instructions = "Diagnose the patient. Answer with one of the diagnoses only."

    PATIENT_PROFILE: str
    PATHOLOGY: str

    def task(self, id: str) -> Task:
        return Task(id, self.PATIENT_PROFILE.strip(), self.PATHOLOGY.strip())


class _Paragraphs(BaseModel):
    title: list[str]
    sentences: list[list[str]]


class HotpotQa(Format):
    """All paragraphs are shown, including those that do not help."""

    about = "questions about paragraphs (HotpotQA of StreamBench, distractor setting)"
    scorer = "exact"
    instructions = "Answer the question from the paragraphs, with a few words and no explanation."

    id: str | int | None = None
    question: str
    answer: str
    context: _Paragraphs

    def task(self, id: str) -> Task:
        titled = zip(self.context.title, self.context.sentences, strict=False)
        paragraphs = [f"{title}: {''.join(sentences).strip()}" for title, sentences in titled]
        text = "\n\n".join([*paragraphs, f"Question: {self.question.strip()}"])
        return Task(id if self.id is None else str(self.id), text, self.answer.strip())


def _tags(tag: str) -> dict[str, list[str]]:
    return {"tags": [tag]} if tag else {}


FORMATS: Mapping[str, type[Format]] = {
    "humaneval": HumanEval,
    "gsm8k": Gsm8k,
    "commongen": CommonGen,
    "mmlu": Mmlu,
    "finer": Finer,
    "formula": Formula,
    "rewardbench2": RewardBench2,
    "ddxplus": DdxPlus,
    "hotpotqa": HotpotQa,
}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A file as tasks, with the scorer, choices and instructions that suit them."""

    format: str
    tasks: tuple[Task, ...]
    scorer: str
    choices: tuple[str, ...]
    instructions: str
    left_out: int = 0  # lines that cannot be tasks
    about: str = ""
    options: tuple[str, ...] = ()  # further options of `practicum learn`


def convert(path: Path | str, format: str | None = None) -> Dataset:
    """The tasks of a public data set's file. Without `format`, the fields of the first line tell it. Raises UsageError
    for an unknown format, and TaskFileError, with file, line and field, for a malformed file."""
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; use one of {', '.join(FORMATS)}")
    records = list(_records(Path(path)))
    if not records:
        raise TaskFileError(f"{path}: the file holds no lines")
    name = format or _detect_format(records[0][1], path)
    kind = FORMATS[name]
    made = ((number, _parse_task(kind, record, path, number)) for number, record in records)
    tasks = unique_tasks(((number, task) for number, task in made if task is not None), path)
    if not tasks:
        raise TaskFileError(f"{path}: none of its {len(records)} lines is a task of format {name!r}")
    left_out = len(records) - len(tasks)
    tasks, instructions = _move_preamble(tasks, kind.instructions)
    choices: tuple[str, ...] = ()
    if kind.offered == "targets":
        choices = tuple(sorted({task.target for task in tasks if task.target is not None}))
    elif kind.offered == "letters":
        most = max(len(r.get("choices") or [*r.get("chosen", ()), *r.get("rejected", ())]) for _, r in records)
        choices = tuple(LETTERS[:most])
    return Dataset(name, tuple(tasks), kind.scorer, choices, instructions, left_out, kind.about)


def as_json_lines(tasks: Sequence[Task]) -> str:
    """Tasks as the JSON lines that `load_tasks` reads."""
    lines = []
    for task in tasks:
        target = {} if task.target is None else {"target": task.target}
        meta = {"meta": dict(task.meta)} if task.meta else {}
        lines.append(json.dumps({"id": task.id, "input": task.input, **target, **meta}, ensure_ascii=False) + "\n")
    return "".join(lines)


def matching_formats(path: Path) -> list[str]:
    """The formats that match the first line of a file; none if it is malformed, or a task already."""
    try:
        _, record = next(_records(path), (0, {}))
    except TaskFileError:
        return []
    return [] if "input" in record else [name for name, kind in FORMATS.items() if kind.fits(record)]


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.suffix.lower() != ".csv":
        yield from numbered_records(path)
        return
    # MMLU's own files: question, choices, letter; no header.
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        for row in filter(None, reader):
            if len(row) < 4:
                expected = "expected a question, two or more choices and a letter"
                raise TaskFileError(f"{path} line {reader.line_num}: {len(row)} columns; {expected}")
            yield reader.line_num, {"question": row[0], "choices": row[1:-1], "answer": row[-1]}
    except csv.Error as error:
        raise TaskFileError(f"{path} line {reader.line_num}: not CSV ({error})") from None


def _detect_format(record: Record, path: Path | str) -> str:
    matches = [name for name, kind in FORMATS.items() if kind.fits(record)]
    if len(matches) == 1:
        return matches[0]
    if "input" in record:
        raise UsageError(f"{path}: the file already holds tasks, so there is nothing to convert")
    fields = field_names(record)
    if not matches:
        raise TaskFileError(
            f"{path}: the fields of its first line ({fields}) match no known format; name one with `format` "
            f"({', '.join(FORMATS)}), or read the file as it is with `fields=input=NAME,target=NAME`"
        )
    raise TaskFileError(f"{path}: its first line ({fields}) matches {' and '.join(matches)}; name one with `format`")


def _parse_task(kind: type[Format], record: Record, path: Path | str, number: int) -> Task | None:
    where = f"{path} line {number}"
    try:
        task = kind.model_validate(record).task(f"{Path(path).stem}-{number}")
    except ValidationError as error:
        first = error.errors()[0]
        names = [str(part) for part in first["loc"]]
        if first["type"] == "missing":
            raise TaskFileError(f"{where}: field {names[0]!r} is missing") from None
        value = type_name(record.get(names[0]))
        raise TaskFileError(f"{where}: field {'.'.join(names)!r}: {first['msg']} (the field is {value})") from None
    except ValueError as error:
        raise TaskFileError(f"{where}: {error}") from None
    if task is not None and not task.input.strip():
        raise TaskFileError(f"{where}: the text of the task is empty")
    return task


def _move_preamble(tasks: list[Task], instructions: str) -> tuple[list[Task], str]:
    """Move a preamble that all tasks share to the instructions; different ones go before each task's input."""
    preambles = [task.meta.get("preamble", "") for task in tasks]
    bare = [replace(t, meta={key: value for key, value in t.meta.items() if key != "preamble"}) for t in tasks]
    if len(set(preambles)) == 1:
        return bare, "\n".join(filter(None, (preambles[0], instructions)))
    both = zip(bare, preambles, strict=True)
    return [replace(t, input=f"{preamble}\n{t.input}") if preamble else t for t, preamble in both], instructions
