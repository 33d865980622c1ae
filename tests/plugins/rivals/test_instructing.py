"""The methods that look for better instructions: what they show and propose, try, and keep."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from scripts import Learned, Role, obeying, scripted

import practicum
from practicum.models.scripted import Call

NAMES = ("opro", "ape", "evoprompt")


ON: dict[str, Any] = {"batch": 4, "candidates": 2, "beam": 2, "steps": 1}
OTHERS: dict[str, dict[str, Any]] = {
    "protegi": {"batch": 4, "beam": 2, "steps": 1, "gradients": 1, "paraphrases": 1},
    "erm": {"batch": 4, "beam": 2, "steps": 1, "feedback": 1},
    "promptbreeder": {"batch": 4, "beam": 2, "steps": 1, "candidates": 1},
}


def writing(*texts: str) -> Role:
    """These instructions, one a call; after that the last one again."""
    left = list(texts)
    return lambda call: {"instruction": left.pop(0) if len(left) > 1 else left[0]}


def faulted(call: Call) -> dict[str, Any]:
    """What is wrong with an instruction: the messages that it failed at."""
    found = "it fails at " + " ".join(re.findall(r"Message (\d+)", call.prompt.user))
    return {"reasons": found, "feedback": [found]}


def run_of(
    folder: Path, name: str = "opro", *texts: str, agent: Role = obeying, curator: Role | None = None, tasks: int = 4,
    how: dict[str, Any] | None = None, **settings: Any,
) -> Learned:  # fmt: skip
    """One run over four messages; nothing is merged in these methods, so there is no setting for it."""
    watched = Learned(scripted(agent, faulted, curator or writing(*texts)), folder / "run")
    base = OTHERS.get(name, ON)
    work = practicum.learn(
        make_tasks(tasks), out=watched.folder, method=name, settings={**base, **settings}, watch=watched,
        parts=practicum.Parts(clients={"agent": watched.model}), **(how or {}),
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


@pytest.mark.parametrize("name", NAMES)
def test_a_step_costs_attempts_a_call_for_each_candidate_and_its_trial(tmp_path: Path, name: str) -> None:
    run = run_of(tmp_path, name, "solve 1", "solve 3", steps=2)
    # What was proposed before is not tried again, and no attempt is made twice.
    assert run.counts == [4 + 2 + 2 * 4, 2]


# ---- OPRO


# ---- APE


# ---- EvoPrompt


# ---- ProTeGi
