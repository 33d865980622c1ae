"""A scripted team of agents for MAEL: the answer of each kind of step, tasks that need parts, and whole runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scripts
from helpers import client, make_tasks
from scripts import Learned, shape

from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient

Output = str | Exception | dict[str, Any]
Step = Callable[[Call], Output]


def number(call: Call) -> int:
    """The number of the message."""
    return int(re.findall(r"Message (\d+)", call.prompt.user)[0])


def ability(call: Call) -> Output:
    """Only the whole task is divided, and only if its message is odd."""
    return {"reason": "so", "alone": number(call) % 2 == 0}


def plan(call: Call) -> Output:
    n = number(call)
    parts = [f"first half of Message {n}", f"second half of Message {n}"]
    return {"parts": [{"text": parts[0], "needs": []}, {"text": parts[1], "needs": [1]}]}


def solution(call: Call) -> Output:
    again = "# What is said of it" in call.prompt.user
    return {"solution": f"{'better' if again else 'poor'} of Message {number(call)}"}


def critique(call: Call) -> Output:
    """The first half has to be done again; the second is good."""
    part = call.prompt.user.partition("# A part of it")[2]
    return {"feedback": "say more", "adequate": "second half" in part or "better" in part}


def quality(call: Call) -> Output:
    return {"reason": "", "points": 9 if "better" in call.prompt.user.partition("# Its solution")[2] else 5}


def whole(call: Call) -> Output:
    return f"word{number(call)}"


STEPS: dict[str, Step] = {
    "Ability": ability, "Plan": plan, "Answered": solution, "Critique": critique, "Quality": quality, "": whole,
}  # fmt: skip


def team(**steps: Step) -> Callable[[Call], str | Exception]:
    """A model for all agents and the judge; a function answers for each kind of step."""

    def respond(call: Call) -> str | Exception:
        answer = {**STEPS, **steps}[shape(call)](call)
        return json.dumps(answer) if isinstance(answer, dict) else answer

    return respond


def learned(
    folder: Path, tasks: int | list[Task] = 1, settings: dict[str, Any] | None = None,
    respond: Callable[[Call], str | Exception] | ScriptedClient | None = None, **how: Any,
) -> Learned:  # fmt: skip
    model = respond if isinstance(respond, ScriptedClient) else client(respond or team())
    return scripts.learned(folder, model, tasks, settings, "mael", **{"profile": "small", **how})


def divided(n: int) -> list[Task]:
    """Tasks that are worth dividing."""
    return [task for task in make_tasks(2 * n) if int(task.id[1:]) % 2]
