"""Public data sets as tasks: their own files are read, told apart by their fields, and written out as ours.

Each format is a model of one line with what makes a task of it, and says what fits the whole: the scorer, the choices,
the instructions. What gives an answer away goes to `target` and `meta`, which no model is shown.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task
from practicum.tasks.load import choices_from, kind_of, numbered_lines, record_of, text_of

LETTERS = "ABCDEFGHIJ"

Record = Mapping[str, Any]


class Format(BaseModel):
    """One line of a file. `task` is None for a line that cannot be one, which is counted and told."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    about: ClassVar[str]
    scorer: ClassVar[str]
    choices: ClassVar[Literal["letters", "targets", "none"]] = "none"
    instructions: ClassVar[str]

    def task(self, id: str) -> Task | None:
        """The task this line is; `id` is for those that have none of their own."""
        raise NotImplementedError

    @classmethod
    def fits(cls, record: Record) -> bool:
        """Whether a line with these fields is of this format."""
        return {name for name, field in cls.model_fields.items() if field.is_required()} <= record.keys()


class HumanEval(Format):
    """The input is the head of a function; its tests, and the whole solution as target."""

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
    """The target is what stands behind the marks; the worked solution is kept apart."""

    about = "grade-school maths, the answer after ####"
    scorer = "numeric"
    instructions = "Solve the problem step by step. End with a line that holds #### and the answer as a plain number."

    question: str
    answer: str = Field(pattern=r"####\s*\S")

    def task(self, id: str) -> Task:
        return Task(id, self.question, self.answer.rpartition("####")[2].strip(), {"solution": self.answer})

    @classmethod
    def fits(cls, record: Record) -> bool:
        answer = record.get("answer")
        return "question" in record and isinstance(answer, str) and "####" in answer


class CommonGen(Format):
    """The input is the list of concepts."""

    about = "concepts to use in a text (CommonGen-Hard)"
    scorer = "commongen"
    instructions = "Write a short coherent text that uses all of the given words. Answer with the text only."

    concepts: list[str] = Field(min_length=1)

    def task(self, id: str) -> Task:
        return Task(id, ", ".join(self.concepts), None, {"concepts": self.concepts})


class Mmlu(Format):
    """The answer is the place of the right choice, from 0, or its letter."""

    about = "questions with lettered choices (MMLU and its like, JSON lines or CSV)"
    scorer = "choice"
    choices = "letters"
    instructions = "Choose the right answer. Answer with its letter only."

    question: str
    choices_: list[str] = Field(alias="choices", min_length=2, max_length=len(LETTERS))
    answer: StrictInt | str
    subject: str = ""

    def task(self, id: str) -> Task:
        said = self.answer.strip().upper() if isinstance(self.answer, str) else self.answer
        place = said if isinstance(said, int) else LETTERS.find(said) if len(said) == 1 else -1
        if not 0 <= place < len(self.choices_):
            raise ValueError(
                f"field 'answer' must be the letter, or the number from 0, of a choice, not {self.answer!r}"
            )
        meta = {"tags": [self.subject]} if self.subject else {}
        return Task(id, f"{self.question}\n{lettered(self.choices_)}", LETTERS[place], meta)

    @classmethod
    def fits(cls, record: Record) -> bool:
        return {"question", "choices", "answer"} <= record.keys()


class Finer(Format):
    """The list of tags, the same in every line, belongs to the instructions."""

    about = "tagging numbers of financial reports (FiNER-139), several a line"
    scorer = "list"
    instructions = "Answer each question with one tag of the list, in the order of the questions, with commas between."

    context: str
    target: str

    def task(self, id: str) -> Task:
        head, _, questions = self.context.partition(" Answer the following ")
        questions = questions.partition("Provide nothing else.")[2].removesuffix("Output US GAAP tags:").strip()
        return Task(id, questions or self.context, self.target, {"preamble": head} if questions else {})

    @classmethod
    def fits(cls, record: Record) -> bool:
        return super().fits(record) and "US GAAP tags" in str(record["context"])


class Formula(Format):
    """The question alone: the formula and its explanation would give away what is to be learned."""

    about = "financial formulas applied to numbers (XBRL Formula)"
    scorer = "numeric"
    instructions = "Answer with a plain number with two decimal places, and nothing else."

    context: str
    target: str

    def task(self, id: str) -> Task:
        head, mark, question = self.context.partition("Question:")
        if not mark:
            raise ValueError("field 'context' must hold 'Question:', as lines of the Formula data do")
        name = re.match(r"Use formula (.*?) to answer", head)
        question = question.strip().removesuffix("Answer:").strip().removesuffix(".").strip()
        return Task(id, question.strip('"'), self.target, {"formula": name[1]} if name else {})

    @classmethod
    def fits(cls, record: Record) -> bool:
        return super().fits(record) and str(record["context"]).startswith("Use formula")


class RewardBench2(Format):
    """The best of several answers. Their order is dealt by the id, so that it is the same each time.

    Lines with more than one right answer (the subset Ties) are scored by ratings in the benchmark, and left out.
    """

    about = "the best of four answers to choose (RewardBench 2)"
    scorer = "choice"
    choices = "letters"
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
        meta = {"tags": [self.subset]} if self.subset else {}
        return Task(str(self.id), f"# Request\n{self.prompt}\n\n# Answers\n{answers}", target, meta)


class DdxPlus(Format):
    """One of the diagnoses that occur in the file."""

    about = "patients to diagnose (DDXPlus of StreamBench)"
    scorer = "choice"
    choices = "targets"
    instructions = "Diagnose the patient. Answer with one of the diagnoses only."

    PATIENT_PROFILE: str
    PATHOLOGY: str

    def task(self, id: str) -> Task:
        return Task(id, self.PATIENT_PROFILE.strip(), self.PATHOLOGY.strip())


class _Paragraphs(BaseModel):
    title: list[str]
    sentences: list[list[str]]


class HotpotQa(Format):
    """All paragraphs are shown, those that do not help as well."""

    about = "questions about paragraphs (HotpotQA of StreamBench, distractor setting)"
    scorer = "exact"
    instructions = "Answer the question from the paragraphs, with a few words and no explanation."

    id: str | int | None = None
    question: str
    answer: str
    context: _Paragraphs

    def task(self, id: str) -> Task:
        told = zip(self.context.title, self.context.sentences, strict=False)
        paragraphs = "\n\n".join(f"{title}: {''.join(sentences).strip()}" for title, sentences in told)
        own = id if self.id is None else str(self.id)
        return Task(own, f"{paragraphs}\n\nQuestion: {self.question.strip()}", self.answer.strip())


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
class Converted:
    """A file as tasks, with what fits them. `left_out` counts lines that make no task; `options` are what else to
    learn with."""

    format: str
    tasks: tuple[Task, ...]
    scorer: str
    choices: tuple[str, ...]
    instructions: str
    left_out: int = 0
    about: str = ""
    options: tuple[str, ...] = ()


def convert(path: Path | str, format: str | None = None) -> Converted:
    """The tasks of a public data set's file. The format is told by the fields of the first line, or named.

    Raises UsageError for a format there is not; TaskFileError with file, line and field for what does not fit.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    records = list(_records(Path(path)))
    if not records:
        raise TaskFileError(f"{path}: the file holds no lines")
    name = format or _told(records[0][1], path)
    kind = FORMATS[name]
    made = [(number, _task(kind, record, path, number)) for number, record in records]
    _unique(made, path)
    tasks = [task for _, task in made if task is not None]
    if not tasks:
        raise TaskFileError(f"{path}: none of its {len(made)} lines makes a task of format {name!r}")
    tasks, instructions = _instructed(tasks, kind.instructions)
    choices = _choices(kind, tasks, records)
    return Converted(name, tuple(tasks), kind.scorer, choices, instructions, len(made) - len(tasks), kind.about)


def as_lines(tasks: Sequence[Task]) -> str:
    """Tasks as the JSON lines that `load_tasks` reads."""
    lines = []
    for task in tasks:
        target = {} if task.target is None else {"target": task.target}
        meta = {"meta": dict(task.meta)} if task.meta else {}
        lines.append(json.dumps({"id": task.id, "input": task.input, **target, **meta}, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def lettered(choices: Sequence[str]) -> str:
    """Choices as lines, each with its letter."""
    return "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.suffix.lower() == ".csv":
        yield from _rows(path)
        return
    for number, text in numbered_lines(path):
        yield number, record_of(text, f"{path} line {number}")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """MMLU's own files: question, choices, letter; no head."""
    reader = csv.reader(io.StringIO(text_of(path), newline=""), strict=True)
    where = f"{path} line "
    try:
        for row in filter(None, reader):
            if len(row) < 4:
                expected = "where a question, two or more choices and a letter are expected"
                raise TaskFileError(f"{where}{reader.line_num}: {len(row)} columns {expected}")
            yield reader.line_num, {"question": row[0], "choices": row[1:-1], "answer": row[-1]}
    except csv.Error as error:
        raise TaskFileError(f"{where}{reader.line_num}: not CSV ({error})") from None


def formats_of(path: Path) -> list[str]:
    """The formats that the first line of a file fits; none where it is no record, or a task already."""
    try:
        _, record = next(_records(path), (0, {}))
    except TaskFileError:
        return []
    return [] if "input" in record else _fitting(record)


def _fitting(record: Record) -> list[str]:
    return [name for name, kind in FORMATS.items() if kind.fits(record)]


def _told(record: Record, path: Path | str) -> str:
    fitting = _fitting(record)
    if len(fitting) == 1:
        return fitting[0]
    fields = ", ".join(map(repr, record)) or "no fields"
    if "input" in record:
        raise UsageError(f"{path}: these are tasks already, there is nothing to convert")
    if not fitting:
        raise TaskFileError(
            f"{path}: the fields of its first line ({fields}) are those of no known format; name one with --format "
            f"({', '.join(FORMATS)}), or read the file as it is with --fields input=NAME,target=NAME"
        )
    raise TaskFileError(f"{path}: its first line ({fields}) fits {' and '.join(fitting)}; name one with --format")


def _task(kind: type[Format], record: Record, path: Path | str, number: int) -> Task | None:
    where = f"{path} line {number}"
    try:
        task = kind.model_validate(record).task(f"{Path(path).stem}-{number}")
    except ValidationError as error:
        first = error.errors()[0]
        names = [str(part) for part in first["loc"]]
        if first["type"] == "missing":
            raise TaskFileError(f"{where}: field {names[0]!r} is missing") from None
        value = kind_of(record.get(names[0]))
        raise TaskFileError(f"{where}: field {'.'.join(names)!r}: {first['msg']} (the field is {value})") from None
    except ValueError as error:
        raise TaskFileError(f"{where}: {error}") from None
    if task is not None and not task.input.strip():
        raise TaskFileError(f"{where}: there is nothing to ask; the text of the task is empty")
    return task


def _unique(made: Sequence[tuple[int, Task | None]], path: Path | str) -> None:
    line_of: dict[str, int] = {}
    for number, task in made:
        if task is not None and task.id in line_of:
            raise TaskFileError(f"{path} line {number}: id {task.id!r} was already used on line {line_of[task.id]}")
        if task is not None:
            line_of[task.id] = number


def _instructed(tasks: list[Task], instructions: str) -> tuple[list[Task], str]:
    """What all inputs begin with goes to the instructions, once; where it differs it stays with each task."""
    heads = [task.meta.get("preamble", "") for task in tasks]
    bare = [Task(t.id, t.input, t.target, {k: v for k, v in t.meta.items() if k != "preamble"}) for t in tasks]
    if len(set(heads)) == 1:
        return bare, "\n".join(filter(None, (heads[0], instructions)))
    whole = zip(bare, heads, strict=True)
    return [Task(t.id, f"{head}\n{t.input}" if head else t.input, t.target, t.meta) for t, head in whole], instructions


def _choices(kind: type[Format], tasks: Sequence[Task], records: Sequence[tuple[int, Record]]) -> tuple[str, ...]:
    match kind.choices:
        case "none":
            return ()
        case "targets":
            return choices_from(tasks)
        case "letters":
            longest = max(len(r.get("choices") or [*r.get("chosen", ()), *r.get("rejected", ())]) for _, r in records)
            return tuple(LETTERS[: min(longest, len(LETTERS))])
