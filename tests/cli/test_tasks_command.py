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


@pytest.mark.parametrize("command", ["learn", "eval"])
def test_a_data_set_given_as_tasks_is_recognized(here: Path, command: str) -> None:
    told = run_command([command, "gsm.jsonl", "--model", "scripted:model"], here)
    assert told.code == 2
    assert told.line.startswith("gsm.jsonl line 1: field 'input' is missing; the record has 'question', 'answer'")
    typed = told.line.partition("make tasks of it with practicum ")[2]
    assert run_command(shlex.split(typed), here).code == 0
    assert len(load_tasks(here / "tasks.jsonl")) == 2
