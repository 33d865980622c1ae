"""The dynamics of real runs: which tasks are scored, and refusals before anything is paid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers import client, make_tasks, world
from refusals import refused

import practicum
from practicum.analysis.dynamics.checkpoints import Dynamics, dynamics
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient
from practicum.store.database import Store

DEV = make_tasks(5, 300)


def learn(folder: Path, model: ScriptedClient, n: int = 4, **config: Any) -> None:
    parts = practicum.Parts(clients={"agent": model})
    practicum.run_sync(practicum.learn(make_tasks(n), out=folder, parts=parts, settings={"batch": 2}, **config))


def measure(folder: Path, model: ScriptedClient, tasks: list[Task] | None, **how: Any) -> Dynamics:
    parts = how.pop("parts", practicum.Parts(clients={"agent": model}))
    return practicum.run_sync(dynamics(folder, tasks, parts=parts, **how))


def test_a_task_that_no_judge_could_score_at_some_checkpoint_is_left_out(tmp_path: Path) -> None:
    def judge(call: Call) -> str:
        if call.role != "judge":
            return world(call)
        return "hm" if "Message 303" in call.text else json.dumps({"reason": "so", "right": True})

    learn(tmp_path / "run", client(judge), scorer="judge")
    result = measure(tmp_path / "run", client(judge), DEV, every=2)
    assert [task.id for task in result.tasks] == [task.id for task in DEV if task.id != "t303"]
    assert result.solved.all()
    assert result.solved.shape[0] == len(DEV) - 1
    assert result.errors > 0
    with refused("attempts.all_failed"):
        measure(tmp_path / "run", client(judge), DEV[3:4], every=2)


def test_wrong_usage_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    model = client()
    learn(tmp_path / "run", client(), 2)
    for code, tasks, how in (
        ("tasks.missing", None, {}), ("settings.invalid", DEV, {"every": 0}),
        ("settings.invalid", DEV, {"concurrency": 0}), ("tasks.missing", [], {}),
        ("tasks.duplicate_id", [*DEV, DEV[0]], {}), ("tasks.no_target", [Task("x", "no target")], {}),
        ("model.unknown", DEV, {"parts": practicum.Parts()}),
    ):  # fmt: skip
        with refused(code):
            measure(tmp_path / "run", model, tasks, **how)
    with refused("run.not_found"):
        measure(tmp_path / "nowhere", model, DEV)
    with Store.open(tmp_path / "run"), refused("store.busy"):
        measure(tmp_path / "run", model, DEV)
    assert model.calls == []
