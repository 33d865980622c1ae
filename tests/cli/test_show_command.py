"""`practicum show`: attempts, lessons and calls as people and programs read them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, client, make_tasks, run_command, world

import practicum
from practicum.cli.output import Printer
from practicum.cli.story import show_attempt, show_attempts, show_calls


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned from three tasks."""
    folder = tmp_path_factory.mktemp("show") / "run"
    parts = practicum.Parts(clients={"agent": client(world)})
    work = practicum.learn(make_tasks(3), out=folder, parts=parts, settings={"rounds": 1}, test=make_tasks(1, 20))
    practicum.run_sync(work)
    return folder


def show(run: Path, *arguments: object, code: int = 0) -> Done:
    done = run_command(("show", run.name, *arguments), run.parent)
    assert done.code == code, done.out + done.err
    return done


@pytest.mark.slow
def test_each_id_in_a_list_leads_to_its_attempt(run: Path) -> None:
    done = show(run, "--attempts", "--json")
    attempts = done.json["attempts"]
    assert {a["split"] for a in attempts} == {"train", "test"}
    for attempt in attempts:
        told = show(run, "--attempt", attempt["id"], "--json").json
        assert told["line"] == attempt
        assert told["calls"][0]["prompt"]["user"] == attempt["input"]
        text = show(run, "--attempt", attempt["id"]).out
        assert text.startswith(f"{attempt['id']}: ")
        assert f"task {attempt['task']}: {attempt['input']}" in text
        assert attempt["feedback"] in text


def test_no_line_is_wider_than_the_terminal(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    out = Printer(False)
    out._force_terminal = True
    out.width = 80
    how: dict[str, Any] = {"failed": False, "split": None, "step": None, "task": None}
    show_attempts(run, out, **how)
    show_calls(run, out, None, None)
    show_attempt(run, "1.t2" if "1.t2 " in show(run, "--attempts").out else "1.t1", out)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) > 30
    assert max(map(len, [line for line in lines if "practicum show" not in line])) <= 80
