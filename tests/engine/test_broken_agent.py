"""An agent that does not work: nothing is learned from it, and a corrected one begins where it failed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks, run_command, write_tasks
from refusals import refused

import practicum
from practicum.models.scripted import ScriptedClient

SEQUENTIAL: dict[str, Any] = {"method": "ace", "settings": {"batch": 4, "rounds": 0}}
ASYNC: dict[str, Any] = {"asynchronous": True, "batch": 4, "rounds": 0}
RUNS: dict[str, dict[str, Any]] = {
    "a batch": SEQUENTIAL,
    "one task": {"method": "ace", "settings": {"batch": 1}},
    "episodes": {"method": "episodes"},
    "groups": {"method": "rcl", "settings": {"batch": 2}},
    "without a barrier": {"method": "combee", "settings": ASYNC, "concurrency": 8},
    "before": {**SEQUENTIAL, "test": make_tasks(7, 50), "before": True},
    "validation": {**SEQUENTIAL, "val": make_tasks(3, 50)},
}


def right(input: str, context: str) -> str:
    return input.split()[-1]


def parts_of(agent: Callable[..., Any], model: ScriptedClient) -> practicum.Parts:
    return practicum.Parts(agent=agent, clients={"reflector": model, "curator": model, "agent": model})


def learn(folder: Path, agent: Callable[..., Any], model: ScriptedClient, **config: Any) -> practicum.Result:
    return practicum.run_sync(practicum.learn(make_tasks(8), out=folder, parts=parts_of(agent, model), **config))


@pytest.mark.parametrize("how", RUNS.values(), ids=RUNS)
def test_a_broken_agent_stops_before_anything_is_learned_and_a_corrected_one_continues(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    corrected = False
    tried: list[str] = []

    def act(input: str, context: str) -> str:
        tried.append(input)
        return right(input, context) if corrected else str(1 // 0)

    act.__qualname__ = right.__qualname__
    model = client()
    with refused("agent.always_failed"):
        learn(tmp_path / "run", act, model, **how)
    with sqlite3.connect(tmp_path / "run" / "practicum.sqlite") as db:
        attempts = db.execute("select place, ok from journal where role = 'agent'").fetchall()
    db.close()
    assert (model.calls, attempts) == ([], [])
    assert len(tried) <= 16
    corrected = True
    done = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts_of(act, model)))
    assert done.errors.get("failed_attempts", 0) == 0
    if how is not RUNS["without a barrier"]:  # there, the order in which threads end decides
        assert context_bytes(done) == context_bytes(learn(tmp_path / "whole", right, client(), **how))


def test_the_command_line_reports_the_first_error_at_once_and_ends_with_it(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(6))
    how = ("--agent", "command:false", "--model", "http://127.0.0.1:1/v1#none", "--out", "run")
    done = run_command(("learn", "tasks.jsonl", "--method", "ace", *how), tmp_path)
    assert done.code == 1
    assert len(re.findall("^.* t[0-9]: false ended with exit code 1", done.out, re.MULTILINE)) == 1
    assert "practicum space resume run" in done.line
