"""`--json` shows why a command failed, by its code."""

import json
from pathlib import Path

import pytest
from helpers import make_tasks, run_command, write_tasks

LEARN = ("learn", "tasks.jsonl", "--model", "scripted:model", "--out", "run", "--json")
TWICE = '{"id": "a", "input": "1 + 1", "target": "2"}\n' * 2


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(4))
    (tmp_path / "twice.jsonl").write_text(TWICE)
    (tmp_path / "book.md").write_text("## rules\n- Add the numbers.\n")
    (tmp_path / "model").write_text('{"role": "agent", "answer": {"answer": "2"}}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("command", "exit_code", "code", "fields"),
    [
        ((*LEARN, "--method", "acee"), 2, "method.unknown", {"method": "acee"}),
        ((*LEARN, "--set", "bacth=3"), 2, "settings.unknown", {"setting": "bacth", "method": "ace"}),
        ((*LEARN, "--set", "rounds=many"), 2, "settings.invalid", {"setting": "rounds"}),
        ((*LEARN, "--max-calls", "1"), 2, "budget.too_small", {"calls": 3}),
        (("learn", "twice.jsonl", *LEARN[2:]), 2, "tasks.duplicate_id", {"id": "a", "place": "line 2"}),
        (("show", "nowhere", "--json"), 2, "run.not_found", {}),
        (("learn", "tasks.jsonl", "--modle", "local", "--json"), 2, "command.invalid", {}),
    ],
)
def test_a_command_that_fails_prints_its_error_as_json(
    command: tuple[str, ...], exit_code: int, code: str, fields: dict[str, object], here: Path
) -> None:
    done = run_command(command, here)
    (error,) = json.loads(done.out).values()
    assert (done.code, error["code"]) == (exit_code, code)
    assert fields.items() <= error["fields"].items()
    assert done.err.splitlines() == [f"practicum: {error['message']}"]


def test_a_result_and_the_error_after_it_are_one_object(here: Path) -> None:
    command = ("eval", "tasks.jsonl", "--context", "book.md", "--model", "scripted:model", "--max-calls", "1")
    done = run_command((*command, "--json"), here)
    printed = json.loads(done.out)
    assert (done.code, printed["n"], printed["error"]["code"]) == (2, 1, "budget.spent")


def test_without_json_standard_output_stays_empty(here: Path) -> None:
    done = run_command(("show", "nowhere"), here)
    assert (done.code, done.out) == (2, "")


def test_a_bug_has_a_code_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a slip")

    monkeypatch.setattr("practicum.cli.output.Printer.result", broken)
    done = run_command(("methods", "--json"), here)
    assert (done.code, json.loads(done.out)["error"]["code"]) == (1, "practicum.bug")
