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
from practicum.session.result import Result

SEQUENTIAL: dict[str, Any] = {"method": "ace", "settings": {"batch": 4, "rounds": 0}}
RUNS: dict[str, dict[str, Any]] = {
    "a batch": SEQUENTIAL,
    "one task": {"method": "ace", "settings": {"batch": 1}},
    "episodes": {"method": "episodes"},
    "groups": {"method": "rcl", "settings": {"batch": 2}},
    "without a barrier": {
        "method": "combee",
        "settings": {"asynchronous": True, "batch": 4, "rounds": 0},
        "concurrency": 8,
    },
    "before": {**SEQUENTIAL, "test": make_tasks(7, 50), "before": True},
    "validation": {**SEQUENTIAL, "val": make_tasks(3, 50)},
}


def right(input: str, context: str) -> str:
    return input.split()[-1]


def learn(folder: Path, agent: Callable[..., Any], model: ScriptedClient, **config: Any) -> Result:
    parts = practicum.Parts(agent=agent, clients={"reflector": model, "curator": model, "agent": model})
    return practicum.run_sync(practicum.learn(make_tasks(12), out=folder, parts=parts, **config))


def kept(folder: Path) -> list[tuple[Any, ...]]:
    """The attempts in the journal: how each ended."""
    with sqlite3.connect(folder / "practicum.sqlite") as db:
        found = db.execute("select place, ok from journal where role = 'agent'").fetchall()
    db.close()
    return found


@pytest.mark.parametrize("how", RUNS.values(), ids=RUNS)
def test_a_broken_agent_stops_before_anything_is_learned_and_a_corrected_one_goes_on(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    mended = False
    tried: list[str] = []

    def act(input: str, context: str) -> str:
        tried.append(input)
        return right(input, context) if mended else str(1 // 0)

    act.__qualname__ = right.__qualname__
    model = client()
    with refused("agent.always_failed"):
        learn(tmp_path / "run", act, model, **how)
    assert (model.calls, kept(tmp_path / "run")) == ([], [])
    assert len(tried) <= 16
    mended = True
    parts = practicum.Parts(agent=act, clients={"reflector": model, "curator": model, "agent": model})
    done = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts))
    assert done.errors.get("failed_attempts", 0) == 0
    if how is not RUNS["without a barrier"]:  # there, the order in which threads end decides
        assert context_bytes(done) == context_bytes(learn(tmp_path / "whole", right, client(), **how))


def one(input: str) -> str: ...


def test_the_command_line_tells_the_first_error_at_once_and_ends_with_it(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(6))

    how = ("--agent", "command:false", "--model", "http://127.0.0.1:1/v1#none", "--out", "run")
    done = run_command(("learn", "tasks.jsonl", "--method", "ace", *how), tmp_path)
    assert done.code == 1
    assert (
        len(re.findall("^the agent failed on task t[0-9]: false ended with exit code 1", done.out, re.MULTILINE)) == 1
    )
    assert "practicum space resume run" in done.line
