"""`--json` shows the code of a bug too."""

import json
from pathlib import Path

import pytest
from helpers import make_tasks, run_command, write_tasks

TWICE = '{"id": "a", "input": "1 + 1", "target": "2"}\n' * 2


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(4))
    (tmp_path / "twice.jsonl").write_text(TWICE)
    (tmp_path / "book.md").write_text("## rules\n- Add the numbers.\n")
    (tmp_path / "model").write_text('{"role": "agent", "answer": {"answer": "2"}}\n')
    return tmp_path


def test_a_bug_has_a_code_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a slip")

    monkeypatch.setattr("practicum.cli.output.Printer.result", broken)
    done = run_command(("bench", "methods", "--json"), here)
    assert (done.code, json.loads(done.out)["error"]["code"]) == (1, "practicum.bug")
