"""The retrieval bench on small files: retrieved labels, and one line for a file in another form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command

TURNS = [
    {"id": "a1", "input": "Ann: I adopted a puppy.", "meta": {"conv": "a"}},
    {"id": "a2", "input": "Ben: The code of the gate is ZX-81.", "meta": {"conv": "a"}},
    {"id": "b1", "input": "Cem: ZX-81 was my first computer.", "meta": {"conv": "b"}},
]
QUESTIONS: list[dict[str, Any]] = [
    {"id": "q1", "input": "ZX-81?", "meta": {"conv": "a", "evidence": ["a2"], "category": 4}},
    {"id": "q3", "input": "Who is Dora?", "meta": {"conv": "a", "evidence": [], "category": 4}},
]


def written(folder: Path, turns: list[dict[str, Any]], questions: list[dict[str, Any]]) -> tuple[str, str]:
    for name, lines in (("turns", turns), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "turns.jsonl"), str(folder / "questions.jsonl")


def test_tasks_are_retrieved_by_their_label(tmp_path: Path) -> None:
    """Only the nearest by words has the label, by its target or by a field of its meta."""
    texts = [
        ("pay ZX-81", "Ash", ["pay", "buy"]), ("pay the bill", "Elm", ["pay"]), ("pay the fee", "Elm", ["pay"]),
        ("pay the rent", "Elm", ["pay"]),
    ]  # fmt: skip
    tasks = [
        {"id": f"t{n}", "input": text, "target": target, "meta": {"kinds": kinds}}
        for n, (text, target, kinds) in enumerate(texts)
    ]
    tests = [{"id": "q", "input": "ZX-81", "target": "Ash", "meta": {"kinds": ["pay", "buy"]}}]
    files = written(tmp_path, tasks, tests)
    for label in ([], ["--label", "kinds"]):
        done = run_command(["bench", "retrieval", *files, *label, "--json"], tmp_path)
        words = {row["way"]: row for row in done.json["rows"]}["words"]
        assert {row["way"] for row in done.json["rows"]} == {"cosine", "words", "mixed"}
        assert [words[name]["mean"] for name in ("nearest", "of 4", "majority")] == [1, 0.25, 0]
    done = run_command(["bench", "retrieval", *files, "--label", "kind"], tmp_path)
    assert (done.code, "'t0'" in done.line, "meta.kind" in done.line) == (2, True, True)


ONE = {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello."}
LOCOMO: dict[str, Any] = {
    "sample_id": "conv-1",
    "conversation": {"speaker_a": "Ann", "session_1_date_time": "1 pm on 2 May, 2023", "session_1": [ONE]},
    "qa": [{"question": "Who?", "answer": "Ann", "evidence": ["D1:1"], "category": 1}],
}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"conversation": None}, "(conversation: "),
        ({"qa": [{"question": 7}]}, "(qa.0.question: "),
        ({"conversation": {"session_1": [{**ONE, "text": None}]}}, "(0.text: "),
        ({"conversation": {"session_1": 3}}, "(a session: "),
        ({"conversation": {"session_1": [ONE], "session_2": [ONE]}}, "id 'conv-1/D1:1' is already used"),
    ],
)
def test_a_damaged_locomo_file_is_one_line_with_the_place(tmp_path: Path, change: dict[str, Any], place: str) -> None:
    (tmp_path / "locomo10.json").write_text(json.dumps([LOCOMO | change]))
    done = run_command(["bench", "retrieval", "locomo10.json"], tmp_path)
    assert done.code == 2
    assert done.line.startswith("locomo10.json record 1")
    assert place in done.line


@pytest.mark.parametrize(
    ("turn", "question", "texts"),
    [
        ({"meta": {}}, {}, ("turns.jsonl", "'a1'", "meta.conv")),
        ({}, {"meta": {"conv": 7}}, ("questions.jsonl", "'q1'", "meta.conv")),
        ({}, {"meta": {"conv": "a", "evidence": "a2"}}, ("'q1'", "meta.evidence")),
        ({}, {"meta": {"conv": "a", "evidence": ["b1"]}}, ("'q1'", "'b1'")),
        ({}, {"meta": {"conv": "a"}}, ("questions.jsonl", "evidence")),
        ({"id": "a2"}, {}, ("turns.jsonl line 2", "'a2'")),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(
    tmp_path: Path, turn: dict[str, Any], question: dict[str, Any], texts: tuple[str, ...]
) -> None:
    turns, questions = [{**TURNS[0], **turn}, *TURNS[1:]], [{**QUESTIONS[0], **question}, QUESTIONS[1]]
    done = run_command(["bench", "retrieval", *written(tmp_path, turns, questions)], tmp_path)
    assert done.code == 2
    assert [text for text in texts if text not in done.line] == []
