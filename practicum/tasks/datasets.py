"""Public data sets: their files, recognised by their fields, are converted to tasks.

A format is a model of one record that can turn it into a task, with the scorer, choices and instructions that suit the
data set. What would give an answer away goes to `target` and `meta`, which no model sees.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, model_validator

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task
from practicum.core.words import quantity
from practicum.tasks.load import unique_tasks
from practicum.tasks.records import FIRST, LETTERS, field_names, read_records, type_name

Record = Mapping[str, Any]


class Format(BaseModel):
    """One record of a file."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    about: ClassVar[str]
    scorer: ClassVar[str]
    instructions: ClassVar[str]
    offered: ClassVar[Literal["letters", "targets", "none"]] = "none"  # the choices
    marks: ClassVar[Mapping[str, str]] = {}  # patterns of fields, where formats have fields of the same names
    names: ClassVar[Mapping[str, str]] = {}  # other names that files have for a field, and the field

    def task(self, id: str) -> Task | None:
        """The task of this record, or None if it cannot be one. `id` is for records without an id of their own."""
        raise NotImplementedError

    @classmethod
    def plain(cls, record: Record) -> Record:
        """The record with the names of this format's fields."""
        others = {name: field for name, field in cls.names.items() if field not in record}
        return {others.get(name, name): value for name, value in record.items()}

    @classmethod
    def fits(cls, record: Record) -> bool:
        """Whether the fields of a record match this format."""
        record = cls.plain(record)
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
    """The target is the worked solution, without the notes for a calculator; its last number is the answer."""

    about = "grade-school maths, the answer after ####"
    scorer = "numeric"
    instructions = "Solve the problem step by step. End with a line that holds #### and the answer as a plain number."
    marks = {"answer": "####"}

    question: str
    answer: str = Field(pattern=r"####\s*\S")

    def task(self, id: str) -> Task:
        return Task(id, self.question, re.sub(r"<<.*?>>", "", self.answer).strip())


class CommonGen(Format):
    """The input is the list of concepts."""

    about = "concepts to use in a text (CommonGen-Hard)"
    scorer = "commongen"
    instructions = "Write a short coherent text that uses all of the given words. Answer with the text only."

    concepts: list[str] = Field(min_length=1)

    def task(self, id: str) -> Task:
        return Task(id, ", ".join(self.concepts), None, {"concepts": self.concepts})


class Mmlu(Format):
    """The answer is the index of the correct choice, from 0, or its letter. A table has a column for each choice."""

    about = "questions with lettered choices (MMLU and similar data sets)"
    scorer = "choice"
    offered = "letters"
    instructions = "Choose the right answer. Answer with its letter only."

    question: str
    choices: list[str] = Field(min_length=2, max_length=len(LETTERS))
    answer: StrictInt | str
    subject: str = ""

    @classmethod
    def plain(cls, record: Record) -> Record:
        lettered = [letter for letter in LETTERS if letter in record]
        if "choices" in record or not lettered:
            return record
        return {**record, "choices": [record.get(letter, "") for letter in LETTERS[: LETTERS.index(lettered[-1]) + 1]]}

    def task(self, id: str) -> Task:
        letters, answer = LETTERS[: len(self.choices)], self.answer
        if isinstance(answer, str) and answer.strip().isdecimal():
            answer = int(answer)  # a cell of CSV
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


class Classification(Format):
    """The choices are the labels that occur in the file."""

    about = "texts to classify (banking77, CLINC150 and similar data sets)"
    scorer = "choice"
    offered = "targets"
    instructions = "Which label does the text have? Answer with the label only."
    names = {"category": "label", "intent": "label"}

    text: str
    label: str | int

    @classmethod
    def plain(cls, record: Record) -> Record:
        record = super().plain(record)
        return {**record, "label": record["label_text"]} if "label_text" in record else record  # the number's name

    def task(self, id: str) -> Task:
        label = str(self.label).strip()
        if len(label.splitlines()) != 1:
            raise ValueError(f"field 'label' must be one line of text or a number, not {label[:40]!r}")
        return Task(id, self.text, label)


class Srdd(Format):
    """The requirement is the description; the name of the software is its id and stands before it."""

    about = "programs to write from a description (SRDD)"
    scorer = "software"
    instructions = """\
Write the program in Python, with its standard library alone. Answer with one ```python block for each file, and write \
the name of the file on the line before its block. The program starts in main.py."""
    names = {"Name": "name", "Description": "description", "Category": "category"}

    name: str
    description: str
    category: str

    def task(self, id: str) -> Task:
        return Task(id, f"{self.name}: {self.description}", None, _tags(self.category))


class _Paragraphs(BaseModel):
    title: list[str]
    sentences: list[list[str]]

    @model_validator(mode="before")
    @classmethod
    def _from_pairs(cls, value: Any) -> Any:
        """The layout of the authors: pairs of a title and its sentences."""
        if isinstance(value, dict):
            return value
        if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            raise ValueError("should be pairs of a title and its sentences, or an object with `title` and `sentences`")
        return {"title": [title for title, _ in value], "sentences": [sentences for _, sentences in value]}


class HotpotQa(Format):
    """All paragraphs are shown, including those that do not help."""

    about = "questions about paragraphs (HotpotQA, distractor setting)"
    scorer = "exact"
    marks = {"context": r"^[\[{]"}
    names = {"_id": "id"}
    instructions = "Answer the question from the paragraphs, with a few words and no explanation."

    id: str | int | None = None
    question: str
    answer: str
    context: _Paragraphs

    def task(self, id: str) -> Task:
        if len(self.context.title) != len(self.context.sentences):
            raise ValueError("field 'context' must have as many lists of sentences as titles")
        titled = zip(self.context.title, self.context.sentences, strict=True)
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
    "classification": Classification,
    "srdd": Srdd,
}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A file as tasks, with the scorer, choices and instructions that suit them."""

    format: str
    tasks: tuple[Task, ...]
    scorer: str
    choices: tuple[str, ...]
    instructions: str
    left_out: int = 0  # records that cannot be tasks
    about: str = ""
    options: tuple[str, ...] = ()  # further options of `practicum learn`


def convert(path: Path | str, format: str | None = None) -> Dataset:
    """The tasks of a public data set's file. Without `format`, the fields of the first records tell it. Raises
    UsageError for an unknown format, and TaskFileError, with file, line or record, and field, for a malformed file."""
    if format is not None and format not in FORMATS:
        raise UsageError("tasks.unknown_format", f"unknown format {format!r}; use one of {', '.join(FORMATS)}")
    records = list(read_records(Path(path)))
    if not records:
        raise TaskFileError("tasks.empty", f"{path}: the file holds no records", file=str(path))
    name = format or _detect_format(_fields_of(records), path)
    kind = FORMATS[name]
    made = ((place, _parse_task(kind, record, path, place)) for place, record in records)
    tasks = unique_tasks(((place, task) for place, task in made if task is not None), path)
    if not tasks:
        raise TaskFileError(
            "tasks.unknown_format", f"{path}: of {quantity(len(records), 'record')}, none is a task of format {name!r}"
        )
    left_out = len(records) - len(tasks)
    tasks, instructions = _move_preamble(tasks, kind.instructions)
    choices: tuple[str, ...] = ()
    if kind.offered == "targets":
        choices = tuple(sorted({task.target for task in tasks if task.target is not None}))
    elif kind.offered == "letters":
        plain = [kind.plain(record) for _, record in records]
        most = max(len(r.get("choices") or [*r.get("chosen", ()), *r.get("rejected", ())]) for r in plain)
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
    """The formats that match the first records of a file; none if it is malformed, or holds tasks already."""
    try:
        record = _fields_of(read_records(path))
    except TaskFileError:
        return []
    return [] if "input" in record else _matches(record)


def _fields_of(records: Iterable[tuple[str, Record]]) -> Record:
    """The fields of the first records, each with its first value: one record may have empty cells."""
    found: dict[str, Any] = {}
    for _, record in islice(records, FIRST):
        found = {**record, **found}
    return found


def _matches(record: Record) -> list[str]:
    return [name for name, kind in FORMATS.items() if kind.fits(record)]


def _detect_format(record: Record, path: Path | str) -> str:
    matches = _matches(record)
    if len(matches) == 1:
        return matches[0]
    if "input" in record:
        raise UsageError(
            "tasks.unknown_format", f"{path}: the file already holds tasks, so there is nothing to convert"
        )
    fields = field_names(record)
    if not matches:
        raise TaskFileError(
            "tasks.unknown_format",
            f"{path}: the fields of its first records ({fields}) match no known format; name one with `format` "
            f"({', '.join(FORMATS)}), or read the file as it is with `fields=input=NAME,target=NAME`",
        )
    raise TaskFileError(
        "tasks.ambiguous_format", f"{path}: its fields ({fields}) match {' and '.join(matches)}; name one with `format`"
    )


def _parse_task(kind: type[Format], record: Record, path: Path | str, place: str) -> Task | None:
    where = f"{path} {place}"
    try:
        stem = Path(Path(path).name.removesuffix(".gz")).stem
        task = kind.model_validate(kind.plain(record)).task(f"{stem}-{place.split()[1]}")
    except ValidationError as error:
        first = error.errors()[0]
        # Of what is inside the field, the places in lists; pydantic's names of types say nothing to a user.
        field, *inner = (str(part) for part in first["loc"] if part == first["loc"][0] or isinstance(part, int))
        known = [field, *(other for other, name in kind.names.items() if name == field)]
        if first["type"] == "missing" and not inner:
            named = " or ".join(map(repr, known))
            raise TaskFileError(
                "tasks.missing_field", f"{where}: field {named} is missing; the record has {field_names(record)}"
            ) from None
        field = next((name for name in known if name in record), field)
        value = type_name(record.get(field))
        said = (
            f"field {'.'.join((field, *inner))!r}: {first['msg'].removeprefix('Value error, ')} (the field is {value})"
        )
        raise TaskFileError("tasks.invalid_field", f"{where}: {said}") from None
    except ValueError as error:
        raise TaskFileError("tasks.invalid_field", f"{where}: {error}") from None
    if task is not None and not task.input.strip():
        raise TaskFileError("tasks.missing_field", f"{where}: the text of the task is empty")
    return task


def _move_preamble(tasks: list[Task], instructions: str) -> tuple[list[Task], str]:
    """Move a preamble that all tasks share to the instructions; different ones go before each task's input."""
    preambles = [task.meta.get("preamble", "") for task in tasks]
    bare = [replace(t, meta={key: value for key, value in t.meta.items() if key != "preamble"}) for t in tasks]
    if len(set(preambles)) == 1:
        return bare, "\n".join(filter(None, (preambles[0], instructions)))
    both = zip(bare, preambles, strict=True)
    return [replace(t, input=f"{preamble}\n{t.input}") if preamble else t for t, preamble in both], instructions
