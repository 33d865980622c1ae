"""`practicum tasks`: a data set's file becomes tasks that the other commands take."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from helpers import run_command

from practicum.tasks.load import load_tasks

MODEL = {"role": "agent", "answer": {"reasoning": "", "used": [], "answer": "#### 4"}}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    lines = [{"question": f"{n} and {n}?", "answer": f"It is {2 * n}.\n#### {2 * n}"} for n in (1, 2)]
    (tmp_path / "gsm.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "model").write_text(json.dumps(MODEL))
    return tmp_path


def test_the_printed_command_can_be_run(here: Path) -> None:
    made = run_command(["tasks", "gsm.jsonl", "--out", "out/tasks.jsonl"], here)
    assert made.code == 0, made.err
    assert [task.target for task in load_tasks(here / "out" / "tasks.jsonl")] == [
        "It is 2.\n#### 2", "It is 4.\n#### 4",
    ]  # fmt: skip
    assert "gsm8k: grade-school maths" in made.out
    typed = made.out.split("practicum learn ")[1]
    done = run_command(["eval", *shlex.split(typed), "--model", "scripted:model", "--json"], here)
    assert done.json["score"] == 0.5, done.err


def test_json_has_the_options_and_nothing_is_written_without_out(here: Path) -> None:
    said = run_command(["tasks", "gsm.jsonl", "--json"], here).json
    assert {path.name for path in here.iterdir() if path.name[0] != "."} == {"gsm.jsonl", "model"}
    assert said.pop("instructions").startswith("Solve the problem step by step.")
    assert said == {
        "format": "gsm8k", "tasks": 2, "left_out": 0, "scorer": "numeric", "choices": [], "options": [], "out": None,
    }  # fmt: skip


def test_choices_that_hold_commas_go_to_a_file(here: Path) -> None:
    rows = [("I sneeze.", "Allergy, seasonal"), ("I cough.", "Cold"), ("I sneeze a lot.", "Allergy, seasonal")]
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    (here / "texts.json").write_text("[" + ",".join(lines) + "]")
    (here / "model").write_text(json.dumps({"role": "agent", "answer": "It is Allergy, seasonal."}))
    unwritten = run_command(["tasks", "texts.json"], here)
    assert "--choices auto" in unwritten.out
    made = run_command(["tasks", "texts.json", "--out", "t.jsonl"], here)
    assert (here / "t.choices.txt").read_text() == "Allergy, seasonal\nCold\n"
    typed = shlex.split(made.out.split("practicum learn ")[1])
    done = run_command(["eval", *typed, "--model", "scripted:model", "--json"], here)
    assert done.json["score"] == pytest.approx(2 / 3), done.err


def test_bad_input_is_reported_in_one_line(here: Path) -> None:
    for arguments, line in (
        (["gsm.jsonl", "--format", "mmlu"], "gsm.jsonl line 1: field 'choices' is missing"),
        (
            ["gsm.jsonl", "--out", "gsm.jsonl"],
            "--out gsm.jsonl would overwrite the file that it is made from: give another name",
        ),
        (["model"], "model: the fields of its first records ('role', 'answer') match no known format"),
    ):
        done = run_command(["tasks", *arguments], here)
        assert done.code == 2
        assert done.line.startswith(line)


@pytest.mark.parametrize("command", ["learn", "eval"])
def test_a_data_set_given_as_tasks_is_recognized(here: Path, command: str) -> None:
    told = run_command([command, "gsm.jsonl", "--model", "scripted:model"], here)
    assert told.code == 2
    assert told.line.startswith("gsm.jsonl line 1: field 'input' is missing; the record has 'question', 'answer'")
    typed = told.line.partition("make tasks of it with practicum ")[2]
    assert run_command(shlex.split(typed), here).code == 0
    assert len(load_tasks(here / "tasks.jsonl")) == 2


@pytest.mark.parametrize(
    ("line", "more"),
    [('{"question": "a", "answer": "b"}', []), ('{"input": 3, "concepts": ["a"]}', []), ("[1]", []), ("", []),
     ("a,b\n1,2", []), ('{"question": "a", "answer": "#### b"}', ["--fields", "input=ask"])],
)  # fmt: skip
def test_other_files_are_not_taken_for_a_data_set(here: Path, line: str, more: list[str]) -> None:
    (here / "other.jsonl").write_text(line)
    told = run_command(["eval", "other.jsonl", "--model", "scripted:model", *more], here)
    assert told.code == 2
    assert "practicum tasks" not in told.line
