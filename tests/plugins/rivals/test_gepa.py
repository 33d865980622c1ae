"""GEPA through the `gepa` package: what it learns, what it pays, and that a resume pays for nothing twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import make_tasks
from scripts import Learned, number, right, scripted

import practicum
from practicum.models.scripted import Call, ScriptedClient

ON: dict[str, Any] = {"attempts": 60, "minibatch": 3}


def known(text: str) -> set[int]:
    """The messages an instruction solves: "solve 3 5"."""
    return {int(n) for line in re.findall(r"solve ([\d ]+)", text) for n in line.split()}


def obeying(call: Call) -> str:
    return right(call) if number(call) in known(call.prompt.head) else "wrong"


def mending(call: Call) -> dict[str, Any]:
    """The instruction it reads, and beside it one of the messages that failed."""
    now, _, attempts = call.prompt.user.partition("# Attempts")
    failed = re.findall(r"Message (\d+)[^\n]*\nAnswer: wrong", attempts)
    solved = sorted({*known(now), *map(int, failed[:1])})
    return {"instruction": "solve " + " ".join(map(str, solved))}


def mind(agent: Callable[[Call], Any] = obeying, reflector: Callable[[Call], Any] = mending) -> ScriptedClient:
    return scripted(agent, reflector=reflector)


def run_of(
    folder: Path, model: ScriptedClient | None = None, n: int = 6, val: int = 0, seed: int = 0,
    how: dict[str, Any] | None = None, **settings: Any,
) -> Learned:  # fmt: skip
    watched = Learned(model or mind(), folder / "run")
    work = practicum.learn(
        make_tasks(n), val=tuple(make_tasks(val, 100)), out=watched.folder, method="gepa", settings={**ON, **settings},
        watch=watched, seed=seed, parts=practicum.Parts(clients={"agent": watched.model}), **(how or {}),
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


def test_groups_reflect_at_once_and_are_joined(tmp_path: Path) -> None:
    def reflector(call: Call) -> dict[str, Any]:
        if "# Instruction 2" in call.prompt.user:
            return {"instruction": "solve " + " ".join(map(str, sorted(known(call.prompt.user))))}
        return mending(call)

    run = run_of(tmp_path, mind(reflector=reflector), minibatch=6, groups=3)
    joins = [prompt for prompt in run.prompts("reflector") if "# Instruction 2" in prompt]
    assert joins
    assert len(run.calls("reflector")) == 4 * len(joins)
    assert max(e.data["score"] for e in run.result.context) == 1.0
