"""The retrieval bench on a small file: what each way finds, and one clear line for a file that is no such thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command

from practicum.bench.retrieval import WAYS

TURNS = [
    {"id": "a1", "input": "Ann: I adopted a puppy.", "meta": {"conv": "a"}},
    {"id": "a2", "input": "Ben: The code of the gate is ZX-81.", "meta": {"conv": "a"}},
    {"id": "a3", "input": "Ann: Thank you, the weather is fine.", "meta": {"conv": "a"}},
    {"id": "b1", "input": "Cem: ZX-81 was my first computer.", "meta": {"conv": "b"}},
]
QUESTIONS: list[dict[str, Any]] = [
    {"id": "q1", "input": "What about ZX-81?", "meta": {"conv": "a", "evidence": ["a2"], "category": 4}},
    {"id": "q2", "input": "Which computer was it?", "meta": {"conv": "b", "evidence": ["b1"], "category": 1}},
    {"id": "q3", "input": "Who is Dora?", "meta": {"conv": "a", "evidence": [], "category": 4}},
    {"id": "q4", "input": "What did Dora say?", "meta": {"conv": "a", "evidence": ["a1"], "category": 5}},
]


def written(folder: Path, turns: list[dict[str, Any]], questions: list[dict[str, Any]]) -> tuple[str, str]:
    for name, lines in (("turns", turns), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "turns.jsonl"), str(folder / "questions.jsonl")


def test_recall_is_that_of_the_questions_own_conversation(tmp_path: Path) -> None:
    done = run_command(["bench", "retrieval", *written(tmp_path, TURNS, QUESTIONS), "--json"], tmp_path)
    rows = {(row["way"], row["category"]): row for row in done.json["rows"]}
    assert rows.keys() == {(way, category) for way in WAYS for category in ("all", "1", "4")}
    assert {row["questions"] for (_, category), row in rows.items() if category == "all"} == {2}
    for way in ("words", "hybrid"):
        assert rows[way, "all"]["1"]["recall"] == 1
        low, high = rows[way, "all"]["1"]["ci95"]
        assert low < high == 1
    assert all(row["5"]["recall"] == 1 for row in rows.values())


@pytest.mark.parametrize(
    ("turn", "question", "says"),
    [
        ({"meta": {}}, {}, "turns.jsonl: 'a1' needs the name of its conversation as meta.conv"),
        ({}, {"meta": {"conv": 7}}, "questions.jsonl: 'q1' needs the name of its conversation as meta.conv"),
        ({}, {"meta": {"conv": "a", "evidence": "a2"}}, "'q1' needs the ids of turns as a list in meta.evidence"),
        ({}, {"meta": {"conv": "a", "evidence": ["b1"]}}, "the evidence of 'q1' names 'b1', which is no turn of its"),
        ({}, {"meta": {"conv": "a"}}, "questions.jsonl: no question has evidence to find"),
        ({"id": "a2"}, {}, "turns.jsonl line 2: id 'a2' was already used in line 1"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(
    tmp_path: Path, turn: dict[str, Any], question: dict[str, Any], says: str
) -> None:
    turns, questions = [{**TURNS[0], **turn}, *TURNS[1:]], [{**QUESTIONS[0], **question}]
    done = run_command(["bench", "retrieval", *written(tmp_path, turns, questions)], tmp_path)
    assert done.code == 2
    assert says in done.err
    assert "\n" not in done.err.strip()
