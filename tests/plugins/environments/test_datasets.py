"""Public data sets in other layouts than their usual one, and refusals of files that are not theirs.

`tests/contracts/cli/test_tasks.py` reads each data set in its usual layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from practicum.core.errors import TaskFileError
from practicum.core.types import Task, Trace
from practicum.plugins.environments.squad import score_words
from practicum.tasks.formats import convert

HEAD = "You know XBRL. Here is a list of US GAAP tags options: ,A,B."
ASK = " Answer the following {n} independent questions by {n} answers. Provide nothing else. \n"

LINES: dict[str, list[dict[str, Any]]] = {
    "gsm8k": [{"question": "1000 and 1?", "answer": "Add <<1000+1=1001>>them.\n#### 1,001"}],
    "commongen": [{"concepts": ["dog", "run"]}],
    "mmlu": [{"question": "Which?", "choices": ["x", "y"], "answer": 1, "subject": "law"},
             {"question": "And now?", "choices": ["x", "y", "z"], "answer": "C"}],
    "finer": [
        {"context": f"{HEAD}{ASK.format(n=2)}1. Name 5?\n2. Name 6?\nOutput US GAAP tags:", "target": "A,B"},
        {"context": f"{HEAD}{ASK.format(n=1)}1. Name 7?\nOutput US GAAP tags:", "target": "A"},
    ],
    "formula": [{"context": "", "target": "0.5"}],
    "rewardbench2": [
        {"id": "7", "prompt": "Say hi.", "chosen": ["Hi!"], "rejected": ["No.", "Why?", "Bye."], "subset": "Focus"},
        {"id": "8", "prompt": "Name a colour.", "chosen": ["Red", "Blue"], "rejected": ["Dog"], "subset": "Ties"},
    ],
    "ddxplus": [{"PATIENT_PROFILE": "Coughs. ", "PATHOLOGY": "URTI", "AGE": 5}],
    "classification": [{"text": "Where is my card?", "category": "arrival"}],
}  # fmt: skip


def write(path: Path, records: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return path


def test_the_shared_tags_of_finer_go_to_the_instructions(tmp_path: Path) -> None:
    shared = convert(write(tmp_path / "d.jsonl", LINES["finer"]))
    assert shared.instructions.startswith(HEAD)
    assert [task.input for task in shared.tasks] == ["1. Name 5?\n2. Name 6?", "1. Name 7?"]
    other = {"context": LINES["finer"][0]["context"].replace(",A,B", ",C"), "target": "C,C"}
    mixed = convert(write(tmp_path / "e.jsonl", [*LINES["finer"], other]))
    assert HEAD not in mixed.instructions
    assert [task.input.split("\n")[0] for task in mixed.tasks] == [HEAD, HEAD, HEAD.replace(",A,B", ",C")]


def test_the_letter_names_the_best_answer_and_every_letter_occurs(tmp_path: Path) -> None:
    lines = [LINES["rewardbench2"][0] | {"id": str(i)} for i in range(60)]
    tasks = convert(write(tmp_path / "d.jsonl", lines)).tasks
    targets = [task.target for task in tasks]
    assert {letter for letter in "ABCD" if targets.count(letter) >= 6} == set("ABCD")
    assert all(f"[{task.target}]\nHi!" in task.input for task in tasks)
    assert tasks[0].meta == {"tags": ["Focus"]}
    assert convert(write(tmp_path / "e.jsonl", LINES["mmlu"])).choices == ("A", "B", "C")


def test_mmlu_is_read_from_tables(tmp_path: Path) -> None:
    path = tmp_path / "law_test.csv"
    path.write_text('"Which,\n\nthen?",x,y,z,w,D\n\nAnd?,1,2,3,4,a\n')
    assert [(task.id, task.input, task.target) for task in convert(path).tasks] == [
        ("law_test-1", "Which,\n\nthen?\nA. x\nB. y\nC. z\nD. w", "D"),
        ("law_test-5", "And?\nA. 1\nB. 2\nC. 3\nD. 4", "A"),
    ]
    for text in ("Which?,x,,z,C\n", "question,answer,A,B,C\nWhich?,2,x,,z\n"):
        path.write_text(text)
        table = convert(path)
        assert (table.format, table.choices) == ("mmlu", ("A", "B", "C"))
        assert (table.tasks[0].input, table.tasks[0].target) == ("Which?\nA. x\nB. \nC. z", "C")
    # An empty cell of the first record hides no format.
    path.write_text("question,A,B,C,answer\nWhich?,x,y,,B\nAnd?,x,y,z,C\n")
    assert convert(path).format == "mmlu"
    # Semicolons and tabs in the first question separate nothing.
    for question in ('"Which\nof; these;\nthen?"', "Which\tof\tthese\tthen?"):
        path.write_text(f"{question},x,y,z,w,D\nAnd?,1,2,3,4,A\n")
        assert [task.target for task in convert(path).tasks] == ["D", "A"]


def test_short_answers_are_compared_in_the_normal_form_of_squad() -> None:
    for target, answer, value, f1 in (
        ("The Eiffel Tower", "eiffel tower.", 1.0, 1.0), ("yes", "no", 0.0, 0.0), ("", "the", 1.0, 1.0),
        ("Ann Lee", "Ann", 0.0, 2 / 3), ("New York", "york, NEW", 0.0, 1.0),
    ):  # fmt: skip
        result = score_words(Task("t", "q", target), Trace(answer))
        assert (result.value, result.correct, result.measures["f1"]) == (value, value == 1.0, pytest.approx(f1))


TTL = {
    "context": "is my card there?\nlabel: 11\n\nwhere is it\nlabel: 4\n\nnow:\nlabel: 11\n",
    "questions": ["did it come?"], "answers": [["4"]], "metadata": {"source": "icl_banking77"},
}  # fmt: skip


def test_test_time_learning_has_examples_and_questions(tmp_path: Path) -> None:
    other = {**TTL, "context": "A long book.", "metadata": {"source": "eventqa"}}
    data = convert(write(tmp_path / "d.jsonl", [TTL, other]))
    assert [(task.input, task.target, task.meta) for task in data.tasks] == [
        ("is my card there?", "11", {}), ("where is it", "4", {}), ("now:", "11", {}),
        ("did it come?", "4", {"split": "test"}),
    ]  # fmt: skip
    assert (data.format, data.choices, data.left_out) == ("memoryagentbench", ("11", "4"), 1)
    with refused("tasks.invalid_field"):
        convert(write(tmp_path / "e.jsonl", [{**TTL, "answers": []}]))


def test_nursery_is_read_with_titles(tmp_path: Path) -> None:
    titles = "parents,has_nurs,form,children,housing,finance,social,health,class"
    line = "usual,proper,complete,1,convenient,inconv,nonprob,priority,very_recom"
    (tmp_path / "nursery.data").write_text(f"{titles}\n{line}\n")
    data = convert(tmp_path / "nursery.data")
    (task,) = data.tasks
    assert (data.format, data.choices, task.target) == ("nursery", ("very_recom",), "very_recom")
    assert task.input.splitlines()[-2:] == ["social conditions: nonprob", "health conditions: priority"]
    (tmp_path / "nursery.data").write_text(f"{line}\n{line}\n")
    with refused("tasks.unknown_format"):
        convert(tmp_path / "nursery.data")


def test_an_error_names_the_line_and_the_field(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("gsm8k", {"answer": "1001"}, "answer"), ("commongen", {"concepts": ["a", 1]}, "concepts.1"),
        ("mmlu", {"answer": "E"}, "answer"), ("mmlu", {"answer": -1}, "answer"), ("mmlu", {"answer": True}, "answer"),
        ("formula", {"context": "Use formula X."}, "context"), ("ddxplus", {"PATIENT_PROFILE": " "}, ""),
        ("classification", {"category": "a\nb"}, "label"),
    ]  # fmt: skip
    for name, change, field in cases:
        path = write(tmp_path / "d.jsonl", [LINES[name][0] | change])
        with pytest.raises(TaskFileError) as caught:
            convert(path, name)
        assert str(caught.value).startswith(f"{path} line 1: "), name
        assert f"field '{field}" in str(caught.value) or not field, name


def test_a_file_that_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    for records, code in (
        ([{"a": 1}], "tasks.unknown_format"),
        ([], "tasks.empty"),
        ([[1]], "tasks.malformed"),
        ([LINES["mmlu"][0] | LINES["commongen"][0]], "tasks.ambiguous_format"),
        ([LINES["rewardbench2"][0]] * 2, "tasks.duplicate_id"),
        ([LINES["gsm8k"][0], {"question": "x"}], "tasks.missing_field"),
        ([LINES["rewardbench2"][1]], "tasks.unknown_format"),
    ):
        with refused(code):
            convert(write(tmp_path / "d.jsonl", records))
    with refused("tasks.unknown_format"):
        convert(tmp_path / "d.jsonl", "bench")
