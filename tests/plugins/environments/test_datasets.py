"""Public data sets read as tasks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from refusals import refused

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task
from practicum.tasks.formats import convert

HEAD = "You know XBRL. Here is a list of US GAAP tags options: ,A,B."
ASK = " Answer the following {n} independent questions by {n} answers. Provide nothing else. \n"

LINES: dict[str, list[dict[str, Any]]] = {
    "humaneval": [
        {
            "task_id": "H/0",
            "prompt": "def f():\n    '''One.'''\n",
            "canonical_solution": "    return 1\n",
            "test": "def check(c):\n    assert c() == 1\n",
            "entry_point": "f",
        }
    ],
    "gsm8k": [{"question": "1000 and 1?", "answer": "Add <<1000+1=1001>>them.\n#### 1,001"}],
    "commongen": [{"concepts": ["dog", "run"]}],
    "mmlu": [
        {"question": "Which?", "choices": ["x", "y"], "answer": 1, "subject": "law"},
        {"question": "And now?", "choices": ["x", "y", "z"], "answer": "C"},
    ],
    "finer": [
        {"context": f"{HEAD}{ASK.format(n=2)}1. What is 5?\n2. What is 6?\nOutput US GAAP tags:", "target": "A,B"},
        {"context": f"{HEAD}{ASK.format(n=1)}1. What is 7?\nOutput US GAAP tags:", "target": "A"},
    ],
    "formula": [
        {
            "context": "Use formula Ratio (R) to answer the question. Formula: R = a / b, Explanation: a: one."
            ' Question:  "What is R for 1 and 2?". Answer:',
            "target": "0.5",
        }
    ],
    "rewardbench2": [
        {"id": "7", "prompt": "Say hi.", "chosen": ["Hi!"], "rejected": ["No.", "Why?", "Bye."], "subset": "Focus"},
        {"id": "8", "prompt": "Name a colour.", "chosen": ["Red", "Blue"], "rejected": ["Dog"], "subset": "Ties"},
    ],
    "ddxplus": [
        {"PATIENT_PROFILE": "Coughs. ", "PATHOLOGY": "URTI", "AGE": 5},
        {"PATIENT_PROFILE": "Sneezes.", "PATHOLOGY": "Allergy", "AGE": 6},
    ],
    "hotpotqa": [
        {
            "id": "q1",
            "question": "Who?",
            "answer": "Ann",
            "level": "hard",
            "context": {"title": ["T", "U"], "sentences": [["Ann did.", " Yes."], ["Nothing."]]},
        }
    ],
    "classification": [{"text": "Where is my card?", "category": "arrival"}, {"text": "Hi", "category": "hello"}],
    "srdd": [{"Name": "Till", "Description": "Adds up prices.", "Category": "Shop"}],
}


def write(path: Path, records: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return path


def only(name: str, tmp_path: Path) -> Task:
    return convert(write(tmp_path / "d.jsonl", LINES[name])).tasks[0]


def test_the_shared_tags_of_finer_go_to_the_instructions(tmp_path: Path) -> None:
    found = convert(write(tmp_path / "d.jsonl", LINES["finer"]))
    assert found.instructions.startswith(HEAD)
    assert [task.input for task in found.tasks] == ["1. What is 5?\n2. What is 6?", "1. What is 7?"]
    other = {"context": LINES["finer"][0]["context"].replace(",A,B", ",C"), "target": "C,C"}
    mixed = convert(write(tmp_path / "e.jsonl", [*LINES["finer"], other]))
    assert HEAD not in mixed.instructions
    assert [task.input.split("\n")[0] for task in mixed.tasks] == [HEAD, HEAD, HEAD.replace(",A,B", ",C")]


def test_the_letter_names_the_best_answer_and_ties_are_left_out(tmp_path: Path) -> None:
    found = convert(write(tmp_path / "d.jsonl", LINES["rewardbench2"]))
    (task,) = found.tasks
    assert found.left_out == 1
    assert found.choices == ("A", "B", "C", "D")
    assert f"[{task.target}]\nHi!" in task.input
    assert task.meta == {"tags": ["Focus"]}


def test_the_best_answers_are_at_all_letters(tmp_path: Path) -> None:
    lines = [LINES["rewardbench2"][0] | {"id": str(i)} for i in range(60)]
    targets = [task.target for task in convert(write(tmp_path / "d.jsonl", lines)).tasks]
    assert {letter for letter in "ABCD" if targets.count(letter) >= 6} == set("ABCD")


def test_choices_are_the_letters_in_use_or_the_targets(tmp_path: Path) -> None:
    assert convert(write(tmp_path / "d.jsonl", LINES["mmlu"])).choices == ("A", "B", "C")
    assert convert(write(tmp_path / "e.jsonl", LINES["ddxplus"])).choices == ("Allergy", "URTI")


def test_the_csv_of_mmlu(tmp_path: Path) -> None:
    path = tmp_path / "law_test.csv"
    path.write_text('"Which,\n\nthen?",x,y,z,w,D\n\nAnd?,1,2,3,4,a\n')
    found = convert(path)
    assert [(task.id, task.input, task.target) for task in found.tasks] == [
        ("law_test-1", "Which,\n\nthen?\nA. x\nB. y\nC. z\nD. w", "D"),
        ("law_test-5", "And?\nA. 1\nB. 2\nC. 3\nD. 4", "A"),
    ]


@pytest.mark.parametrize(
    "text",
    ["Which?,x,,z,C\n", "question,A,B,C,answer\nWhich?,x,,z,C\n", "question,answer,A,B,C\nWhich?,C,x,,z\n",
     "question,answer,A,B,C\nWhich?,2,x,,z\n"],
)  # fmt: skip
def test_tables_with_a_column_for_each_choice(tmp_path: Path, text: str) -> None:
    path = tmp_path / "d"
    path.write_text(text)
    found = convert(path)
    assert (found.format, found.choices) == ("mmlu", ("A", "B", "C"))
    assert (found.tasks[0].input, found.tasks[0].target) == ("Which?\nA. x\nB. \nC. z", "C")


@pytest.mark.parametrize(
    "question", ['"Which\nof; these;\nthen?"', "Which; of; these; then?", "Which\tof\tthese\tthen?"]
)
def test_other_signs_in_the_first_question_divide_nothing(tmp_path: Path, question: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text(f"{question},x,y,z,w,D\nAnd?,1,2,3,4,A\n")
    assert [task.target for task in convert(path).tasks] == ["D", "A"]


def test_a_picture_in_a_table_hides_no_text(tmp_path: Path) -> None:
    pyarrow = needs("pyarrow", "parquet")
    from pyarrow import parquet

    path = tmp_path / "d.parquet"
    columns = {"text": ["Hi", "Bye"], "label": ["a", "b"], "image": [b"\xff\xd8\xff", b"plain"]}
    parquet.write_table(pyarrow.table(columns), path)
    assert [(task.input, task.target) for task in convert(path).tasks] == [("Hi", "a"), ("Bye", "b")]
    twice = pyarrow.Table.from_arrays([pyarrow.array(["x"])] * 2, ["text", "text"])
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, twice.schema) as writer:
        writer.write_table(twice)
    with refused("tasks.malformed"):
        convert(path)


def test_hotpotqa_in_the_layout_of_its_authors(tmp_path: Path) -> None:
    (theirs,) = LINES["hotpotqa"]
    pairs = [["T", ["Ann did.", " Yes."]], ["U", ["Nothing."]]]
    record = {"_id": "q1", "supporting_facts": [["T", 0]], "type": "bridge"} | theirs | {"context": pairs}
    del record["id"]
    (tmp_path / "d.json").write_text(json.dumps([record]))
    assert convert(tmp_path / "d.json").tasks == (only("hotpotqa", tmp_path),)
    uneven = record | {"context": {"title": ["T", "U"], "sentences": [["Ann did."]]}}
    (tmp_path / "d.json").write_text(json.dumps([uneven]))
    with refused("tasks.invalid_field"):
        convert(tmp_path / "d.json")
    record["context"] = [["T"]]
    (tmp_path / "d.json").write_text(json.dumps([record]))
    with refused("tasks.invalid_field"):
        convert(tmp_path / "d.json")


def test_columns_of_other_names_and_ids_of_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "train.csv.gz"
    path.write_bytes(gzip.compress(b"text,intent\nWhere?,arrival\nHi,\n"))
    with refused("tasks.missing_field"):
        convert(path)
    path.write_bytes(gzip.compress(b"text,intent\nWhere?,arrival\nHi,hello\n"))
    found = convert(path)
    assert [(task.id, task.input, task.target) for task in found.tasks] == [
        ("train-2", "Where?", "arrival"), ("train-3", "Hi", "hello"),
    ]  # fmt: skip
    both = [{"text": "x", "label": "a", "category": "b"}]
    assert convert(write(tmp_path / "d", both)).tasks[0].target == "a"
    numbered = [{"text": "x", "label": 3, "label_text": "lost card"}]
    assert convert(write(tmp_path / "d", numbered)).tasks[0].target == "lost card"


def test_an_empty_cell_of_the_first_record_hides_no_format(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("question,A,B,C,answer\nWhich?,x,y,,B\nAnd?,x,y,z,C\n")
    assert convert(path).format == "mmlu"
    path.write_text("text,label\n,a\nHi,b\n")
    with refused("tasks.missing_field"):
        convert(path)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("humaneval", {"test": 3}, "line 1: field 'test': Input should be a valid string (the field is a number)"),
        ("gsm8k", {"answer": "1001"}, "line 1: field 'answer': String should match pattern"),
        ("commongen", {"concepts": []}, "line 1: field 'concepts': List should have at least 1 item"),
        ("commongen", {"concepts": ["a", 1]}, "line 1: field 'concepts.1': Input should be a valid string"),
        (
            "mmlu",
            {"answer": "E"},
            "line 1: field 'answer' must be the letter, or the number from 0, of a choice, not 'E'",
        ),
        ("mmlu", {"answer": -1}, "of a choice, not -1"),
        ("mmlu", {"answer": ""}, "of a choice, not ''"),
        ("mmlu", {"answer": "bc"}, "of a choice, not 'bc'"),
        ("mmlu", {"answer": True}, "line 1: field 'answer': Input should be a valid integer"),
        ("formula", {"context": "Use formula X."}, "line 1: field 'context' must hold 'Question:'"),
        ("ddxplus", {"PATIENT_PROFILE": " "}, "line 1: the text of the task is empty"),
        ("classification", {"category": 1.5}, "line 1: field 'category': Input should be"),
        ("classification", {"category": "a\nb"}, "field 'label' must be one line of text or a number, not 'a\\nb'"),
        ("hotpotqa", {"context": ["x"]}, "line 1: field 'context"),
    ],
)
def test_an_error_names_line_and_field(name: str, change: Any, text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", [LINES[name][0] | change])
    with pytest.raises(TaskFileError) as caught:
        convert(path, name)
    assert str(caught.value).startswith(f"{path} ")
    assert text in str(caught.value)


def test_a_file_that_cannot_be_converted(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    for records, code in (
        ([{"a": 1}], "tasks.unknown_format"),
        ([], "tasks.empty"),
        ([[1]], "tasks.malformed"),
        ([LINES["mmlu"][0] | LINES["commongen"][0]], "tasks.ambiguous_format"),
        ([LINES["humaneval"][0]] * 2, "tasks.duplicate_id"),
        ([LINES["gsm8k"][0], {"question": "x"}], "tasks.missing_field"),
        ([LINES["rewardbench2"][1]], "tasks.unknown_format"),
    ):
        with refused(code):
            convert(write(path, records))
    with refused("tasks.unknown_format"):
        convert(write(path, [{"input": "x"}]))
    with pytest.raises(UsageError) as caught:
        convert(path, "bench")
    assert caught.value.code == "tasks.unknown_format"
    with refused("tasks.not_found"):
        convert(tmp_path / "none.jsonl")
    for text, code in (
        ("a,b\n", "tasks.empty"),
        ('a,"b\n', "tasks.malformed"),
        ("a,b\n1,2\n", "tasks.unknown_format"),
    ):
        (tmp_path / "d.csv").write_text(text)
        with refused(code):
            convert(tmp_path / "d.csv")
