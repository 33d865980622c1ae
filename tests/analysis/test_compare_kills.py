"""A comparison that is killed at random moments or interrupted, and continued by the same command."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import Launcher, make_tasks, wait_until, write_tasks

from practicum.testing import ServerProcess, start_process

KILLS = 10
CONCURRENCY = 4
DIGEST_LINE = 65
"""Bytes of a line in the server's log."""
MEASURED = {"single_run_s", "work_s", "critical_s", "wall_s", "cached_share"}
"""Fields that depend on the server: how fast it was, and what its cache held."""


def received(log: Path) -> int:
    return log.stat().st_size // DIGEST_LINE if log.exists() else 0


def journaled(folder: Path) -> int:
    """Calls of all runs whose answer is on the disk."""
    calls = 0
    for file in folder.glob("runs/*/practicum.sqlite"):
        try:
            with sqlite3.connect(file) as db:
                calls += int(
                    db.execute("select coalesce(sum(calls), 0) from journal where role <> 'in flight'").fetchone()[0]
                )
        except sqlite3.OperationalError:
            continue  # killed before there were tables
        finally:
            db.close()
    return calls


def report(folder: Path) -> dict[str, Any]:
    """The report without what the server alone decides."""
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    found["front"].pop("single_run_s")
    found["variants"] = [{k: v for k, v in row.items() if k not in MEASURED} for row in found["variants"]]
    for row in found["variants"]:
        for usage in row["by_role"].values():
            del usage["cached_tokens"]
    return found


def command(url: str, out: str) -> tuple[str, ...]:
    return (
        "compare", "tasks.jsonl", "--test", "test.jsonl", "--methods", "none,episodes,ace,combee", "--seeds", "2",
        "--set", "batch=4", "--set", "rounds=1", "--concurrency", str(CONCURRENCY), "--model", f"{url}#sim",
        "--out", out,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.durable
def test_a_comparison_killed_at_chosen_moments_ends_with_the_same_report(
    tmp_path: Path, fast_server: ServerProcess, launcher: Launcher
) -> None:
    """In a run's first step, as a run's evaluation begins, and in the evaluation of another run."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(4))
    write_tasks(tmp_path / "test.jsonl", make_tasks(10, 50))
    few = ("--methods", "none,episodes,ace", "--seeds", "1")
    whole = launcher.run((*command(fast_server.url, "whole"), *few), tmp_path)
    assert whole.code == 0, whole.err
    once, folder = fast_server.stats()["calls"], tmp_path / "killed"
    assert once == journaled(tmp_path / "whole")

    moments = (("journal", "step 1/", 2), ("journal", "evaluate test", 1), ("journal", "evaluate test", 12))
    for moment in moments:
        running = launcher.start((*command(fast_server.url, "killed"), *few), tmp_path, kill_before=moment)
        assert running.end().code == -signal.SIGKILL, running.errors
    over = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/measured.json")}
    last = launcher.run((*command(fast_server.url, "killed"), *few), tmp_path)
    assert last.code == 0, last.err
    assert report(folder) == report(tmp_path / "whole")
    assert journaled(folder) == once
    assert 2 * once <= fast_server.stats()["calls"] <= 2 * once + CONCURRENCY * len(moments)
    assert {path: path.stat().st_mtime_ns for path in over} == over


@pytest.mark.slow
@pytest.mark.durable
def test_a_comparison_killed_at_ten_random_moments_ends_with_the_same_report(
    tmp_path: Path, launcher: Launcher
) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(8))
    write_tasks(tmp_path / "test.jsonl", make_tasks(10, 50))
    log, folder = tmp_path / "log", tmp_path / "killed"
    with start_process(latency=0.02, log=str(log)) as server:
        whole = launcher.run(command(server.url, "whole"), tmp_path)
        assert whole.code == 0, whole.err
        once = received(log)
        assert once == journaled(tmp_path / "whole")

        rng = Random(11)
        moments = sorted(rng.sample(range(1, once - 2 * CONCURRENCY), KILLS))
        lost, finished = 0, Counter[Path]()
        for moment in moments:
            before = received(log) - once, journaled(folder)
            running = launcher.start(command(server.url, "killed"), tmp_path)
            target = once + lost + moment
            wait_until(lambda: running.ended() or received(log) >= target, what="the moment of the kill")  # noqa: B023
            assert not running.ended(), running.errors
            running.kill()
            assert running.end().code == -signal.SIGKILL
            again = (received(log) - once - before[0]) - (journaled(folder) - before[1])
            assert 0 <= again <= CONCURRENCY
            lost += again
            finished.update(folder.glob("runs/*/measured.json"))

        over = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/measured.json")}
        last = launcher.run(command(server.url, "killed"), tmp_path)
    assert last.code == 0, last.err
    assert report(folder) == report(tmp_path / "whole")
    assert journaled(folder) == once
    assert received(log) == 2 * once + lost
    assert max(finished.values(), default=0) > 1
    assert {path: path.stat().st_mtime_ns for path in over} == over
