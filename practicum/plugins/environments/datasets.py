"""File formats of public data sets, as published by their authors.

Each format is a pydantic model of one record (`tasks.formats.Format`), with the scorer, choices and instructions for
the data set. The entry point group `practicum.formats` registers the formats.
"""

from __future__ import annotations

import random
import re
from typing import Any, ClassVar

from pydantic import BaseModel, Field, StrictInt, model_validator

from practicum.core.types import Task
from practicum.tasks.formats import Format, Record
from practicum.tasks.records import LETTERS


class HumanEval(Format):
    """HumanEval. The input is the head of a function, the target is the whole solution, and the tests are in `meta`."""

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
    """GSM8K. The target is the worked solution without the calculator annotations (<<...>>). The last number of the
    solution is the answer."""

    about = "grade-school maths problems, with the answer after ####"
    scorer = "numeric"
    instructions = "Solve the problem step by step. End with a line that holds #### and the answer as a plain number."
    marks: ClassVar = {"answer": "####"}

    question: str
    answer: str = Field(pattern=r"####\s*\S")

    def task(self, id: str) -> Task:
        return Task(id, self.question, re.sub(r"<<.*?>>", "", self.answer).strip())


class CommonGen(Format):
    """CommonGen-Hard. The input is the list of concepts."""

    about = "concepts to use in a text (CommonGen-Hard)"
    scorer = "commongen"
    instructions = "Write a short coherent text that uses all of the given words. Answer with the text only."

    concepts: list[str] = Field(min_length=1)

    def task(self, id: str) -> Task:
        return Task(id, ", ".join(self.concepts), None, {"concepts": self.concepts})


class Mmlu(Format):
    """MMLU. The answer is the index (from 0) or the letter of the correct choice. In CSV, each choice has a column that
    is named by the choice's letter."""

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
            answer = int(answer)  # CSV stores the index as text
        letter = answer.strip().upper() if isinstance(answer, str) else letters[answer : answer + 1]
        if len(letter) != 1 or letter not in letters:
            raise ValueError(f"field 'answer' must be the letter or the index (from 0) of a choice, not {answer!r}")
        choices = [f"{letter}. {choice}" for letter, choice in zip(letters, self.choices, strict=True)]
        return Task(id, "\n".join([self.question, *choices]), letter, _tags(self.subject))


class Finer(Format):
    """FiNER-139. The list of tags, which is the same in all lines, becomes part of the instructions."""

    about = "numbers of financial reports to tag (FiNER-139), several per line"
    scorer = "list"
    instructions = "Answer each question with one tag of the list, in the order of the questions, with commas between."
    marks: ClassVar = {"context": "US GAAP tags"}

    context: str
    target: str

    def task(self, id: str) -> Task:
        head, _, questions = self.context.partition(" Answer the following ")
        questions = questions.partition("Provide nothing else.")[2].removesuffix("Output US GAAP tags:").strip()
        return Task(id, questions or self.context, self.target, {"preamble": head} if questions else {})


class Formula(Format):
    """XBRL Formula. The input is only the question, because the formula and its explanation reveal what should be
    learned."""

    about = "financial formulas applied to numbers (XBRL Formula)"
    scorer = "numeric"
    instructions = "Answer with a plain number with two decimal places, and nothing else."
    marks: ClassVar = {"context": "^Use formula"}

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
    """RewardBench 2. The task is to choose the best of several answers. Answers are shuffled with the id as the seed,
    so that their order is reproducible. Lines with several correct answers (the subset Ties) are skipped, because the
    benchmark scores these lines by ratings of their answers, not by a choice."""

    about = "requests with four answers, to choose the best answer (RewardBench 2)"
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
    """DDXPlus. The choices are the diagnoses that occur in the file."""

    about = "patients to diagnose (DDXPlus of StreamBench)"
    scorer = "choice"
    offered = "targets"
    instructions = "Diagnose the patient. Answer with one of the diagnoses only."

    PATIENT_PROFILE: str
    PATHOLOGY: str

    def task(self, id: str) -> Task:
        return Task(id, self.PATIENT_PROFILE.strip(), self.PATHOLOGY.strip())


class Classification(Format):
    """Text classification. The choices are the labels that occur in the file."""

    about = "texts to classify (banking77, CLINC150 and similar data sets)"
    scorer = "choice"
    offered = "targets"
    instructions = "Which label does the text have? Answer with the label only."
    names: ClassVar = {"category": "label", "intent": "label"}

    text: str
    label: str | int

    @classmethod
    def plain(cls, record: Record) -> Record:
        record = super().plain(record)
        # Use `label_text`, the name of the label, instead of its number in `label`.
        return {**record, "label": record["label_text"]} if "label_text" in record else record

    def task(self, id: str) -> Task:
        label = str(self.label).strip()
        if len(label.splitlines()) != 1:
            raise ValueError(f"field 'label' must be one line of text or a number, not {label[:40]!r}")
        return Task(id, self.text, label)


class MemoryAgentBench(Format):
    """Test-time learning of MemoryAgentBench. A record has many labelled examples in one text, and questions. The
    labels are numbers: what a number means, only the examples show. The tasks of the questions have the split "test" in
    `meta`. Records of the other parts of the benchmark have no labelled examples, and are skipped."""

    about = "texts to label by examples (MemoryAgentBench, test-time learning: BANKING77, CLINC150, TREC, NLU)"
    scorer = "exact"
    offered = "targets"
    instructions = "Which label does the text have? Answer with the number of the label only."

    context: str
    questions: list[str]
    answers: list[str | list[str]]
    metadata: dict[str, Any] = Field(default_factory=dict)

    def tasks(self, id: str) -> list[Task]:
        if len(self.questions) != len(self.answers):
            raise ValueError("fields 'questions' and 'answers' must have the same number of items")
        name = str(self.metadata.get("source") or id)
        examples = re.findall(r"(.+)\nlabel: *(\d+)", self.context)
        if not examples:
            return []
        learned = [Task(f"{name}-example-{n}", text, label) for n, (text, label) in enumerate(examples, 1)]
        answers = [answer if isinstance(answer, str) else answer[0] for answer in self.answers]
        asked = enumerate(zip(self.questions, answers, strict=True), 1)
        return learned + [Task(f"{name}-{n}", text, label, {"split": "test"}) for n, (text, label) in asked]


class Nursery(Format):
    """Nursery of the UCI repository: a committee's rules for places in a nursery school, as the attributes of a family
    and the rank of its application. The published file has no titles: add them as its first line."""

    about = "applications to rank by the rules of a committee (Nursery, UCI)"
    scorer = "choice"
    offered = "targets"
    instructions = "Rank the family's application for a place in a nursery school. Answer with the rank only."
    names: ClassVar = {"class": "rank", "classification": "rank"}

    parents: str
    has_nurs: str
    form: str
    children: str
    housing: str
    finance: str
    social: str
    health: str
    rank: str

    def task(self, id: str) -> Task:
        values = ((title, getattr(self, name)) for name, title in self.TITLES.items())
        return Task(id, "\n".join(f"{title}: {value}" for title, value in values), self.rank)

    TITLES: ClassVar = {
        "parents": "parents' occupation", "has_nurs": "child's nursery", "form": "form of the family",
        "children": "number of children", "housing": "housing", "finance": "finances",
        "social": "social conditions", "health": "health conditions",
    }  # fmt: skip


class Srdd(Format):
    """SRDD. The input is the name of the software followed by its description."""

    about = "programs to write from a description (SRDD)"
    scorer = "software"
    instructions = """\
Write the program in Python, with its standard library alone. Answer with one ```python block for each file, and write \
the name of the file on the line before its block. The program starts in main.py."""
    names: ClassVar = {"Name": "name", "Description": "description", "Category": "category"}

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
        """Convert the layout in the authors' files, pairs of a title and its sentences, into two lists."""
        if isinstance(value, dict):
            return value
        if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            raise ValueError("should be pairs of a title and its sentences, or an object with `title` and `sentences`")
        return {"title": [title for title, _ in value], "sentences": [sentences for _, sentences in value]}


class HotpotQa(Format):
    """HotpotQA. The input contains all paragraphs, including the distractors."""

    about = "questions about paragraphs (HotpotQA, distractor setting)"
    scorer = "squad"
    marks: ClassVar = {"context": r"^[\[{]"}
    names: ClassVar = {"_id": "id"}
    instructions = "Answer the question from the paragraphs, with a few words and no explanation."

    id: str | int | None = None
    question: str
    answer: str
    context: _Paragraphs

    def task(self, id: str) -> Task:
        if len(self.context.title) != len(self.context.sentences):
            raise ValueError("field 'context' must have one list of sentences for each title")
        titled = zip(self.context.title, self.context.sentences, strict=True)
        paragraphs = [f"{title}: {''.join(sentences).strip()}" for title, sentences in titled]
        text = "\n\n".join([*paragraphs, f"Question: {self.question.strip()}"])
        return Task(id if self.id is None else str(self.id), text, self.answer.strip())


def _tags(tag: str) -> dict[str, list[str]]:
    return {"tags": [tag]} if tag else {}
