"""Runs of Combee and of its baselines: one batch, one lesson an attempt, and what the curator read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scripts
from helpers import client, make_tasks, number_of, world
from runs import learner, lessons_read, spelled
from scripts import Learned

from practicum.core.types import Task
from practicum.models.scripted import Call


def curated(run: Learned) -> list[list[str]]:
    """The lessons each curator's call read, repairs left out."""
    return [read for call in run.calls("curator") if (read := lessons_read(call))]


def lessons(run: Learned) -> set[str]:
    return {x.text for step in run.reports for x in step.lessons if x.text}


def learned(
    folder: Path, respond: Callable[[Call], str | Exception] = learner, tasks: int | list[Task] = 40,
    settings: dict[str, Any] | None = None, method: str = "combee", **how: Any,
) -> Learned:  # fmt: skip
    """One run, in one batch of all tasks where nothing else is said, with one lesson an attempt."""
    made = make_tasks(tasks) if isinstance(tasks, int) else tasks
    settings = {"batch": max(len(made), 1), "rounds": 0, **(settings or {})}
    return scripts.learned(folder, client(respond), made, settings, method, **how)


def insight(call: Call) -> str:
    """Each reflection teaches something of its own; the curator adds it all."""
    if call.role == "reflector":
        return json.dumps({
            "kind": "", "correction": "", "diagnosis": "", "tags": [],
            "insight": f"If it is {spelled(number_of(call.prompt.user) % 10**6)}, answer it.",
        })  # fmt: skip
    if call.role == "curator":
        return json.dumps({"decisions": [{"lesson": n, "op": "ADD"} for n in range(1, len(lessons_read(call)) + 1)]})
    return world(call)


def curated_by(decide: Callable[[Call], str | Exception]) -> Callable[[Call], str | Exception]:
    return lambda call: decide(call) if call.role == "curator" else insight(call)
