"""The critical path of a run: which calls wait for which, whatever the schedule, and the same after a resume."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks

import practicum
from practicum.session.result import Result


def timed(folder: Path, method: str, settings: Mapping[str, Any], seconds: str, tests: int = 0) -> Result:
    """A run whose calls are said to have taken so long (an SQL expression), gone on with: nothing is asked again."""
    parts = practicum.Parts(clients={"agent": client()})
    work = practicum.learn(
        make_tasks(12), test=tuple(make_tasks(tests, 50)), method=method, settings=dict(settings), out=folder,
        parts=parts,
    )  # fmt: skip
    practicum.run_sync(work)
    with sqlite3.connect(folder / "run.sqlite") as db:
        db.execute(f"update journal set seconds = {seconds} where calls > 0")
    db.close()
    model = client()
    again = practicum.run_sync(practicum.resume(folder, parts=practicum.Parts(clients={"agent": model})))
    assert model.calls == []
    return again


@pytest.mark.parametrize(
    ("method", "settings", "stages"),
    [
        ("episodes", {"batch": 4, "online": True}, 3),  # three batches, one attempt after the other
        ("episodes", {"batch": 12, "online": True}, 1),
        ("ace", {"batch": 12, "rounds": 0}, 3),  # attempts, reflections, the curator
        ("naive", {"batch": 6, "rounds": 0}, 6),
        ("rcl", {"batch": 12, "group": 3, "twin": True, "heads": True, "replay": 0, "state": True}, 4),  # and the state
        ("reasoning_bank", {"batch": 12, "k": 3}, 3),  # tries, contrasts, extractions
        # Judge, divide, solve, criticise and refine twice, aggregate, reward.
        ("mael", {"batch": 12, "rounds": 2}, 9),
        ("rcl", {"batch": 1, "rollouts": "none", "group": 1, "heads": False, "replay": 0, "state": False}, None),
    ],
)
@pytest.mark.slow
def test_calls_made_at_once_count_once(tmp_path: Path, method: str, settings: Any, stages: int | None) -> None:
    found = timed(tmp_path / "run", method, settings, "1.0")
    assert found.usage.calls > found.critical > 0
    if stages is not None:
        assert found.critical == stages


def test_the_evaluation_is_one_more_stage_and_the_slowest_call_of_a_stage_decides(tmp_path: Path) -> None:
    assert timed(tmp_path / "a", "none", {}, "1.0", tests=9).critical == 1.0
    slow = "case when place like '%t53%' then 5.0 else 1.0 end"
    assert timed(tmp_path / "b", "none", {}, slow, tests=9).critical == 5.0


def test_without_a_barrier_it_follows_the_order_in_which_attempts_ended(tmp_path: Path) -> None:
    settings = {"asynchronous": True, "batch": 4, "rounds": 0, "accounting": False}
    found = timed(tmp_path / "run", "combee", settings, "1.0")
    assert 12 / 4 * 2 <= found.critical < found.usage.calls
