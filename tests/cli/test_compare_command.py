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
def test_methods_are_compared_and_the_same_command_continues(run: Any, tmp_path: Path) -> None:
    long = "shown-as-many-of-the-examples-as-its-window-can-hold"
    command = ("tasks.jsonl", "--test", "test.jsonl", "--methods", f"none,{long}=icl", "--seeds", "1", "--out", "c")
    first = run(*command)
    assert [line for line in first.out.splitlines() if line.startswith(f"{long}  ") and line.endswith("no claim")]
    assert "1 of 2: " in first.out
    assert "2 runs to go" in first.out
    assert "warning: 1 seed: the report can speak of these runs only" in first.out
    assert "Methods compared with none" in first.out
    assert "c/report.html" in first.out
    again = run(*command, "--json")
    assert again.json["folder"] == "c"
    assert again.json["runs"] == {"planned": 2, "done": 2}
    assert "2 of them done" in again.err
    assert {row["name"]: row["score"] for row in again.json["variants"]}["none"] == pytest.approx(0.5)
    assert sorted(path.name for path in (tmp_path / "c").glob("report.*")) == [
        "report.html",
        "report.json",
        "report.md",
    ]


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


@pytest.mark.slow
def test_every_method_starts_from_a_playbook_file(run: Any, tmp_path: Path) -> None:
    (tmp_path / "start.md").write_text("## rules\n- If message 51, say word51.\n", encoding="utf-8")
    command = ("tasks.jsonl", "--test", "test.jsonl", "--methods", "none,again=none", "--seeds", "1", "--out", "c")
    report = run(*command, "--seed-playbook", "start.md", "--json").json
    assert report["seed_context"]["entries"] == 1
    # Of the odd numbers, which the script does not know, one is in the playbook.
    assert [row["score"] for row in report["variants"]] == [pytest.approx(7 / 12)] * 2
    assert "(--seed-playbook)" in run(*command, code=2).line


def test_few_test_tasks_cause_a_warning(run: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path / "few.jsonl", make_tasks(4, 70))
    done = run("tasks.jsonl", "--test", "few.jsonl", "--methods", "none,icl", "--seeds", "1", "--out", "c")
    assert "warning: 4 tasks scored, fewer than 10: no claim can be made" in done.out
    assert "no claim can be made" in (tmp_path / "c" / "report.md").read_text(encoding="utf-8")


TASKS = ("tasks.jsonl", "--test", "test.jsonl", "--seeds", "1", "--json")


def test_a_sweep(run: Any) -> None:
    swept = run(*TASKS, "--methods", "icl", "--sweep", "window=100,2000", "--out", "s").json
    assert [row["name"] for row in swept["variants"]] == ["icl window=100", "icl window=2000"]


def test_a_failed_run_is_reported_and_sets_the_exit_code(run: Any, tmp_path: Path) -> None:
    rules = [{"role": "reflector", "error": "503"}, {"role": "agent", "answer": {"answer": "x", "used": []}}]
    (tmp_path / "model").write_text("\n".join(map(json.dumps, rules)) + "\n", encoding="utf-8")
    done = run(
        "tasks.jsonl", "--test", "test.jsonl", "--methods", "none,ace", "--seeds", "1", "--set", "rounds=0",
        "--out", "c", code=1,
    )  # fmt: skip
    assert "ace, seed 0, failed: 3 steps in a row were lost" in done.out
    assert "none, seed 0: 0.0%" in done.out
    assert "The same command continues from here" in done.out
    assert "practicum resume" not in done.out


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--methods", "none,acme", "--test", "test.jsonl"), "unknown method 'acme' (did you mean ace?)"),
        (("--methods", "none,ace"), "scores need tasks that were not used for learning"),
        (("--methods", "none,ace", "--test", "tasks.jsonl"), "6 of the 6 test tasks are also training tasks"),
        (("--test", "test.jsonl"), "which methods?"),
        (("--test", "test.jsonl", "--methods", "ace,icl", "--sweep", "rounds=1,2"), "beside one method"),
        (("--test", "test.jsonl", "--methods", "ace", "--sweep", "rounds=1"), "at least two values"),
        (("--test", "test.jsonl", "--methods", "ace", "--sweep", "rond=1,2"), "method ace has no setting 'rond'"),
        (("--test", "test.jsonl", "--methods", "none,ace", "--set", "ace.rond=1"), "ace has no setting 'rond'"),
        (
            ("--test", "test.jsonl", "--methods", "none,my-ace=ace", "--set", "my-ace.rond=1"),
            "my-ace: method ace has no setting 'rond'",
        ),
        (("--test", "test.jsonl", "--methods", "none,ace", "--set", "rounds"), "must read name=value"),
        (
            ("--test", "test.jsonl", "--methods", "none,ace", "--budget-calls", "99", "--budget-tokens", "9999"),
            "two budgets",
        ),
        (("--test", "test.jsonl", "--methods", "none,icl", "--no-labels"), "icl: method icl shows right answers"),
    ],
)
def test_wrong_use_is_reported_in_one_line_and_makes_no_folder(
    run: Any, tmp_path: Path, arguments: tuple[str, ...], match: str
) -> None:
    done = run("tasks.jsonl", *arguments, "--out", "c", code=2)
    assert match in done.line
    assert not (tmp_path / "c").exists()
