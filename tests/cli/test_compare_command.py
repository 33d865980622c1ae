"""`practicum compare`: its report on the terminal, its JSON, and bad input as one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, make_tasks, run_command, write_tasks

SCRIPT = (
    {"role": "agent", "match": r"say (?P<word>word\d*[02468])\Z", "answer": r"\g<word>"},
    {"role": "agent", "match": r"(?s)If message (\d+), say (\w+).*Message \1:", "answer": r"\2"},
    {"role": "agent", "answer": "no idea"},
    {
        "role": "reflector",
        "answer": {
            "reasoning": "r", "diagnosis": "d", "cause": "c", "correction": "c", "tags": [],
            "insights": [{"section": "checks", "text": "i"}],
        },
    },
    {"role": "curator", "answer": {"changes": [{"op": "ADD", "insights": [1]}]}},
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs `practicum compare ARGUMENTS` beside tasks and a scripted model; it must end with this exit code."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(6))
    write_tasks(tmp_path / "test.jsonl", make_tasks(12, 50))
    script = [
        {**rule, "answer": {"answer": rule["answer"], "used": []}} if rule["role"] == "agent" else rule
        for rule in SCRIPT
    ]
    (tmp_path / "model").write_text("\n".join(map(json.dumps, script)) + "\n", encoding="utf-8")

    def go(*arguments: object, code: int = 0, model: str = "scripted:model") -> Done:
        done = run_command(["compare", *(str(a) for a in arguments), "--model", model], tmp_path)
        assert done.code == code, done.out + done.err
        assert "Traceback" not in done.err
        return done

    return go


@pytest.mark.slow
def test_what_tools_return_can_be_trusted_in_a_comparison(run: Any, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(
        "def read() -> str:\n    'Read.'\n    return 'word'\n\ntools = [read]\n"
        "def score(task, answer):\n    return True\n",
        encoding="utf-8",
    )
    acts = {"match": r"Observation", "answer": {"thought": "", "action": {"finish": {"answer": "done"}}}}
    looks = {"answer": {"thought": "", "action": {"read": {}}}}
    (tmp_path / "acting").write_text("\n".join(map(json.dumps, (acts, looks))), encoding="utf-8")
    agent = ("--agent", "tools:desk:tools", "--scorer", "desk:score", "--methods", "none,episodes", "--seeds", "1")
    for folder, more, kept in (("waits", (), 0), ("trusted", ("--trust-tools",), 6), ("open", ("--review", "none"), 6)):
        command = ("tasks.jsonl", "--test", "test.jsonl", *agent, *more, "--out", folder, "--json")
        rows = {row["name"]: row for row in run(*command, model="scripted:acting").json["variants"]}
        assert rows["episodes"]["entries"] == kept
