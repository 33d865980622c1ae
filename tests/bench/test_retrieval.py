"""The retrieval bench on a small file: what each way finds, and one clear line for a file that is no such thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command

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


def test_tasks_are_found_by_their_label(tmp_path: Path) -> None:
    """The nearest by words alone has the label, by its target or by a field of its meta."""
    known = [
        {"id": f"t{n}", "input": text, "target": target, "meta": {"kinds": kinds}}
        for n, (text, target, kinds) in enumerate(
            [
                ("pay ZX-81", "Ash", ["pay", "buy"]), ("pay the bill", "Elm", ["pay"]),
                ("pay the fee", "Elm", ["pay"]), ("pay the rent", "Elm", ["pay"]),
            ]
        )
    ]  # fmt: skip
    tests = [{"id": "q", "input": "ZX-81", "target": "Ash", "meta": {"kinds": ["pay", "buy"]}}]
    files = written(tmp_path, known, tests)
    for also in ([], ["--label", "kinds"]):
        done = run_command(["bench", "retrieval", *files, *also, "--json"], tmp_path)
        words = {row["way"]: row for row in done.json["rows"]}["words"]
        assert {row["way"] for row in done.json["rows"]} == {"cosine", "words", "mixed"}
        assert [words[name]["mean"] for name in ("nearest", "of 4", "majority")] == [1, 0.25, 0]
    for label, says in (("kind", "'t0' needs a text or a list of texts as meta.kind"), ("kinds", "")):
        done = run_command(["bench", "retrieval", *files, "--label", label], tmp_path)
        assert (done.code == 2, says in done.err) == (bool(says), True)


LOCOMO: dict[str, Any] = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "session_2_date_time": "1 pm on 2 May, 2023",
        "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a red kite"}],
        "session_10_date_time": "9 am on 3 May, 2023",
        "session_10": [{"speaker": "Ben", "dia_id": "D10:1", "text": "I moved to Oslo."}],
    },
    "qa": [
        {"question": "What flew?", "answer": "a kite", "evidence": ["D2:1; D10:01"], "category": 1},
        {"question": "Who?", "adversarial_answer": "Ben", "evidence": ["D2:1"], "category": 5},
        {"question": "Where?", "answer": "Oslo", "evidence": ["D:10:1", "D"], "category": 4},
    ],
}


ONE = {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello."}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"conversation": None}, "not in the format of LoCoMo (conversation: "),
        ({"qa": 3}, "not in the format of LoCoMo (qa: "),
        ({"qa": [{"question": 7}]}, "not in the format of LoCoMo (qa.0.question: "),
        ({"conversation": {"session_1": [{**ONE, "text": None}]}}, "not in the format of LoCoMo (0.text: "),
        ({"conversation": {"session_1": 3}}, "not in the format of LoCoMo (a session: "),
    ],
)
def test_a_file_that_is_not_its_authors_is_told_in_one_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    (tmp_path / "locomo10.json").write_text(json.dumps([LOCOMO | change]))
    done = run_command(["bench", "retrieval", "locomo10.json"], tmp_path)
    assert done.code == 2
    assert done.line.startswith(f"locomo10.json record 1: {says}")


def test_two_turns_of_one_id_are_refused(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(json.dumps([LOCOMO | {"conversation": {"session_1": [ONE], "session_2": [ONE]}}]))
    done = run_command(["bench", "retrieval", "l.json"], tmp_path)
    assert done.line.startswith("l.json record 1, turn 2: id 'conv-1/D1:1' is already used in record 1, turn 1")


@pytest.mark.parametrize(
    ("turn", "question", "says"),
    [
        ({"meta": {}}, {}, "turns.jsonl: 'a1' needs the name of its conversation as meta.conv"),
        ({}, {"meta": {"conv": 7}}, "questions.jsonl: 'q1' needs the name of its conversation as meta.conv"),
        ({}, {"meta": {"conv": "a", "evidence": "a2"}}, "'q1' needs the ids of turns as a list in meta.evidence"),
        (
            {},
            {"meta": {"conv": "a", "evidence": ["b1"]}},
            "the evidence of 'q1' names 'b1', which is not a turn of its",
        ),
        ({}, {"meta": {"conv": "a"}}, "questions.jsonl: no question has evidence to find"),
        ({"id": "a2"}, {}, "turns.jsonl line 2: id 'a2' is already used in line 1"),
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
