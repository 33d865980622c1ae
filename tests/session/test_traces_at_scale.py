"""Learning from a stream of traces: the same as from a list, in memory that does not grow, and never from a part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers import make_tasks
from refusals import refused
from scripts import Learned, insight, learned, memory, scripted

from practicum.core.types import Recorded, Score, Task, Trace
from practicum.models.scripted import Call, ScriptedClient

METHODS: dict[str, dict[str, Any]] = {
    "ace": {}, "combee": {"batch": 3}, "naive": {"batch": 3}, "reflexion": {"batch": 2}, "episodes": {}, "expel": {},
    "rcl": {"group": 1, "twin": False, "replay": 0.0, "rollouts": "none"}, "reasoning_bank": {},
}  # fmt: skip


def recorded(count: int = 7, **fields: Any) -> list[Task]:
    made = [Recorded(Trace(f"word{i}" if i % 2 else "no"), Score(i % 2, i % 2 == 1)) for i in range(count)]
    return [replace(task, recorded=one, **fields) for task, one in zip(make_tasks(count), made, strict=True)]


def model() -> ScriptedClient:
    def refusing(call: Call) -> str:
        raise AssertionError("nothing was to be tried")

    def curating(call: Call) -> dict[str, Any]:
        return {"decisions": [{"lesson": 1, "op": "ADD"}], "sheet": "a sheet", "points": ["a point"]}

    return scripted(refusing, lambda call: {**insight(call), **memory("a way"), "reflection": "look"}, curating)


def read(folder: Path, tasks: Any, method: str = "naive", **how: Any) -> Learned:
    settings = how.pop("settings", METHODS[method])
    return learned(folder, model(), tasks, settings, method, from_traces=True, **how)


def test_what_arrives_twice_or_is_no_task_is_refused(tmp_path: Path) -> None:
    with refused("tasks.duplicate_id"):
        read(tmp_path, iter([*recorded(5), recorded(5)[3]]))
    with refused("tasks.invalid_field"):
        read(tmp_path, iter([*recorded(5), "t5"]))
    with refused("tasks.missing"):
        read(tmp_path, iter([]))
