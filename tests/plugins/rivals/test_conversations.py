"""The teams that learn nothing, MAEL's rivals: who is asked, in which order, what each reads, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks
from scripts import learned, right, shape

from practicum.models.scripted import Call

NAMES = ("chain", "group_chat", "evomac")


# ---- a chain


# ---- a group chat


# ---- an evolving team


def team(*names: str) -> dict[str, Any]:
    return {"members": [{"name": name, "job": f"do the {name}"} for name in names]}


def teams(*rosters: dict[str, Any]) -> Callable[[Call], Any]:
    left = list(rosters)
    return lambda call: left.pop(0) if len(left) > 1 else left[0]


def faults(*found: list[str]) -> Callable[[Call], Any]:
    left = list(found)
    return lambda call: {"faults": left.pop(0) if len(left) > 1 else left[0]}


CHECKS = {"checks": ["it says a word"]}


# ---- all of them


def all_forms(call: Call) -> str:
    form = {
        "Contribution": {"text": f"as {call.prompt.user[-9:]}"}, "Turn": {"next": "worker"}, "Checks": CHECKS,
        "Message": {"text": "said", "done": "said" in call.prompt.user}, "Team": team("one", "two"),
        "Faults": {"faults": ["a fault"]},
    }  # fmt: skip
    return right(call) if call.schema is None else json.dumps(form[shape(call)])


@pytest.mark.parametrize("name", NAMES)
def test_a_team_learns_nothing_and_pays_for_evaluation_alone(tmp_path: Path, name: str) -> None:
    run = learned(tmp_path, client(all_forms), 6, {}, name, test=make_tasks(2, 50))
    assert (run.result.steps, len(run.result.context), run.result.scores["test"]) == (0, 0, 1)
    assert {call.prompt.user.count("Message 5") for call in run.model.calls} == {1}
