"""A comparison that is killed and continued by the same command."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from helpers import Launcher, make_tasks, write_tasks

from practicum.testing import ServerProcess

CONCURRENCY = 4
MEASURED = {"single_run_s", "work_s", "critical_s", "wall_s", "cached_share"}
"""Fields that depend on the server: how fast it was, and how much its cache held."""


def journaled(folder: Path) -> int:
    """Calls of all runs whose answer is on the disk."""
    calls = 0
    for file in folder.glob("runs/*/practicum.sqlite"):
        with sqlite3.connect(file) as db:
            query = "select coalesce(sum(calls), 0) from journal where role <> 'in flight'"
            calls += int(db.execute(query).fetchone()[0])
        db.close()
    return calls


def report(folder: Path) -> dict[str, Any]:
    """The report without the fields that depend on the server."""
    value: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    value["front"].pop("single_run_s")
    value["variants"] = [{k: v for k, v in row.items() if k not in MEASURED} for row in value["variants"]]
    for row in value["variants"]:
        for usage in row["by_role"].values():
            del usage["cached_tokens"]
    return value


@pytest.mark.slow
@pytest.mark.durable
def test_a_comparison_killed_at_chosen_moments_ends_with_the_same_report(
    tmp_path: Path, fast_server: ServerProcess, launcher: Launcher
) -> None:
    """In a run's first step, as a run's evaluation begins, and in the evaluation of another run."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(4))
    write_tasks(tmp_path / "test.jsonl", make_tasks(10, 50))
    command = (
        "compare", "tasks.jsonl", "--test", "test.jsonl", "--methods", "none,episodes,ace", "--seeds", "1",
        "--set", "batch=4", "--set", "rounds=1", "--concurrency", str(CONCURRENCY),
        "--model", f"{fast_server.url}#sim", "--out",
    )  # fmt: skip
    whole = launcher.run((*command, "whole"), tmp_path)
    assert whole.code == 0, whole.err
    once, folder = fast_server.stats()["calls"], tmp_path / "killed"
    assert once == journaled(tmp_path / "whole")

    moments = (("journal", "step 1/", 2), ("journal", "evaluate test", 1), ("journal", "evaluate test", 12))
    for moment in moments:
        running = launcher.start((*command, "killed"), tmp_path, kill_before=moment)
        assert running.end().code == -signal.SIGKILL, running.errors
    over = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/measured.json")}
    last = launcher.run((*command, "killed"), tmp_path)
    assert last.code == 0, last.err
    assert report(folder) == report(tmp_path / "whole")
    assert journaled(folder) == once
    assert 2 * once <= fast_server.stats()["calls"] <= 2 * once + CONCURRENCY * len(moments)
    assert {path: path.stat().st_mtime_ns for path in over} == over
