"""Where the quality of a part comes from, in whole runs: the task's own metric where it can tell, else a judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scripts
from fenced import needs_fences
from helpers import client
from scripts import Learned, shape

from practicum.core.types import Task
from practicum.models.scripted import Call

WORDS = Task("w", "Message 1: use dog, frisbee, park and sun", meta={"concepts": ["dog", "frisbee", "park", "sun"]})
HALVES = ("a sentence with dog and frisbee", "a sentence with park and sun")

RIGHT = "```python\ndef total(prices):\n    return sum(prices)\n```"
WRONG = "```python\ndef total(prices):\n    return 0\n```"
HELPER = "```python\ndef add(a, b):\n    return a + b\n```"
CODE = Task("c", "Message 1: write total", meta={"entry_point": "total", "tests": "assert total([2, 3]) == 5"})


def team(parts: tuple[str, str], first: dict[str, str], mended: str, whole: str) -> Callable[[Call], str]:
    """A team whose first part is poor and is mended; the second is found good at once."""

    def respond(call: Call) -> str:
        user = call.prompt.user
        match shape(call):
            case "Ability":
                said: Any = {"reason": "", "alone": False}
            case "Plan":
                said = {"parts": [{"text": part, "needs": []} for part in parts]}
            case "Answered":
                given = next(part for part in parts if part in user)
                said = {"solution": mended if "# What is said of it" in user else first[given]}
            case "Critique":
                poor = user.partition("# Its solution")[2].strip().startswith(first[parts[0]])
                said = {"feedback": "mend it", "adequate": not poor}
            case "Quality":
                said = {"reason": "", "points": 6}
            case "Grades":
                said = {"reason": "", "grammar": 10, "fluency": 8, "relevance": 6, "logic": 4}
            case _:
                return whole
        return json.dumps(said)

    return respond


def rewards(run: Learned) -> list[tuple[str, float]]:
    return [(entry.data["kind"], entry.data["reward"]) for entry in run.result.context]


def learned(folder: Path, respond: Callable[[Call], str], task: Task, scorer: str, **how: Any) -> Learned:
    return scripts.learned(folder, client(respond), [task], {}, "mael", scorer=scorer, profile="small", **how)


COVERING = team(HALVES, {HALVES[0]: "A dog.", HALVES[1]: "Sun in the park."}, "A dog and a frisbee.", "A dog, the sun.")


def test_commongens_metric_asks_its_own_judge(tmp_path: Path) -> None:
    run = learned(tmp_path, COVERING, WORDS, "commongen")
    assert [reward for _, reward in rewards(run)] == [0.7, 0.7, 0.35, 0.35, 0.7, 0.7, 0.7, 0.7, 0.35]
    assert {shape(call) for call in run.calls("judge")} == {"Grades"}


@pytest.mark.slow
@needs_fences
def test_a_part_that_answers_the_tests_is_run_and_others_are_judged(tmp_path: Path) -> None:
    parts = ("write the function", "write a helper")
    run = learned(tmp_path, team(parts, {parts[0]: WRONG, parts[1]: HELPER}, RIGHT, RIGHT), CODE, "tests")
    assert rewards(run) == [
        ("judge", 0.8), ("decompose", 0.8), ("solve", 0.0), ("critique", 1.0), ("solve", 1.0), ("critique", 1.0),
        ("solve", 0.6), ("critique", 0.6), ("aggregate", 1.0),
    ]  # fmt: skip
    assert len(run.calls("judge")) == 1


@pytest.mark.slow
@needs_fences
def test_a_module_that_stands_alone_is_run_as_a_project(tmp_path: Path) -> None:
    parts = ("till add a b", "describe the till")
    module = "till.py\n```python\ndef add(a, b):\n    return a + b\n```"
    broken = module.replace("return a + b", "pass")
    task = Task("s", "Message 1: a till", meta={"stdin": "1"})
    run = learned(tmp_path, team(parts, {parts[0]: broken, parts[1]: "It adds."}, module, module), task, "software")
    solved = [reward for kind, reward in rewards(run) if kind == "solve"]
    assert solved[0] == 0.0
    assert 0.0 < solved[1] < 1.0
    assert solved[2] == 0.6
    assert len(run.calls("judge")) == 1
