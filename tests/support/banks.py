"""Agents and judges for methods that keep a bank of memories, and tasks with stored traces."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from helpers import make_tasks, world
from scripts import right

from practicum.core.types import Recorded, Score, Step, Task, Trace
from practicum.models.scripted import Call


def guessing(call: Call) -> str:
    """Right about half the time, and another answer each time: by the place of the attempt."""
    seed = call.options.seed or 0
    return right(call) if seed % 2 else f"guess {seed}"


class Differing:
    """An agent whose every attempt comes to something else, and none is right."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, call: Call) -> str:
        self.made += 1
        return f"guess {'abcdefghijklmnopqrstuvwxyz'[self.made % 26]}{self.made}"


def refusing(call: Call) -> dict[str, Any]:
    return {"right": False, "reason": "it is a guess"}


def chancy(call: Call) -> str:
    """Fits any role; what it says follows from the question and its place."""
    if call.role == "judge":
        return json.dumps({"right": (call.options.seed or 0) % 2 == 0, "reason": "so it seems"})
    return world(replace(call, prompt=replace(call.prompt, user=f"{call.options.seed} {call.prompt.user}")))


def traced(n: int, score: Score | None) -> Task:
    trace = Trace(f"word{n}", steps=(Step("action", f"look at {n}"),))
    return replace(make_tasks(1, n)[0], recorded=Recorded(trace, score))
