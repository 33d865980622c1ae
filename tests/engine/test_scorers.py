"""Scores of small projects and of generated code."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from fenced import needs_fences
from helpers import client
from runs import Words, indoors

import practicum
from practicum.core.types import Score, Task, Trace
from practicum.engine.scorers import SoftwareScorer
from practicum.tasks.sandbox.runner import Limits, Sandbox
from practicum.tasks.scoring.unit_tests import score_tests

pytestmark = [pytest.mark.slow, needs_fences]

SANDBOX = Sandbox(Limits(cpu=1, wall=30.0))

WHOLE = """main.py
```python
from shop.till import add  # the till
print(add(int(input()), 2))
```
shop/till.py
```python
def add(a, b):
    if a and b:
        return a + b
    return a or b
```
"""


def software(answer: str, requirement: str = "till add", **meta: Any) -> Score:
    scorer = SoftwareScorer(SANDBOX)
    return asyncio.run(scorer(Task("t", requirement, meta=meta), Trace(answer), indoors(lambda call: "")))


def test_a_complete_project_that_runs_scores_its_consistency_and_measures_its_code() -> None:
    score = software(WHOLE, stdin="3\n")
    assert score.correct
    assert 0.0 < score.value < 1.0
    assert score.measures == {
        "completeness": 1.0, "executability": 1.0, "consistency": score.value,
        "files": 2, "lines": 6, "tokens": 32, "functions": 1, "complexity": 1 + 1 + (1 + 3),
    }  # fmt: skip
    near = software(WHOLE, "def add(a, b): if a and b: return a + b return a or b", stdin="3\n")
    assert near.value > score.value


@pytest.mark.parametrize(
    ("answer", "meta", "note"),
    [
        (WHOLE.replace("print", "1 / 0; print"), {}, "runs 0, .*ZeroDivisionError.*main.py line 2"),
        (WHOLE.replace("return a + b", "pass"), {"stdin": "1"}, "complete 0, .*shop/till.py line 2: a branch"),
        (WHOLE.replace("# the till", "# TODO: the till"), {"stdin": "1"}, "complete 0.*main.py line 1: .*TODO"),
        (WHOLE, {"entry": "other.py"}, "runs 0, .*other.py"),
        ("```python\nimport os; os.fork()\n```", {}, "complete 1, runs 0.*tried to use the network, or to start"),
        ("```python\ndef f(:\n```", {}, "complete 0, runs 0, consistent 0.00.*main.py line 1: SyntaxError"),
        ("", {}, "no files"),
    ],
)
def test_any_other_project_scores_0(answer: str, meta: dict[str, Any], note: str) -> None:
    score = software(answer, **meta)
    assert (score.value, score.correct) == (0.0, False)
    assert re.search(note, score.note), score.note


def test_an_evaluation_has_the_means_of_the_measures_and_leaves_out_lost_attempts() -> None:
    answers = {"a": WHOLE, "b": "```python\nprint(1)\n```", "none": ""}
    parts = practicum.Parts(clients={"agent": client(lambda call: answers[call.prompt.user])}, embedder=Words())
    tasks = [Task(name, name, meta={"stdin": "3\n"}) for name in answers]
    result = practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), scorer="software", parts=parts))
    consistency = result.measures["consistency"]
    assert {**result.measures} == {
        "completeness": 1.0, "executability": 1.0, "consistency": consistency,
        "files": 1.5, "lines": 3.5, "tokens": 17.5, "functions": 0.5, "complexity": 3.5,
    }  # fmt: skip
    assert 0 <= consistency < 2 / 3
    assert result.as_json()["measures"] == result.measures


def test_stopped_code_is_reported_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = {"fork": "__import__('os').fork()", "right": "return 1", "wrong": "return 2"}
    tasks = [Task(name, name, meta={"tests": "assert f() == 1"}) for name in bodies]

    def evaluated() -> practicum.Evaluation:
        model = client(lambda call: f"def f():\n    {bodies[call.prompt.user]}\n")
        parts = practicum.Parts(
            clients={"agent": model}, scorer=lambda t, answer: score_tests(SANDBOX, t, Trace(answer)), embedder=Words()
        )
        return practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), out=tmp_path / "e", parts=parts))

    first = evaluated()
    assert first.counts == {"stopped_programs": 1}
    fork, right, wrong = first.as_json()["attempts"]
    assert fork.pop("note").startswith("the code stopped ")
    assert fork == {"id": "fork", "value": 0.0, "correct": False, "error": None}
    assert right == {"id": "right", "value": 1.0, "correct": True, "note": "", "error": None}
    assert wrong["note"] == "passed 0 of 1 tests; failed: f() == 1 (it gave 2)"
    monkeypatch.setattr(Sandbox, "run", None)
    again = evaluated()
    assert (again.attempts, again.counts) == (first.attempts, first.counts)
