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


def test_an_evaluation_has_the_means_of_the_measures_and_runs_no_code_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means leave out lost attempts; stopped code is counted."""
    answers = {"a": WHOLE, "b": "```python\nprint(1)\n```", "none": "", "fork": "```python\nimport os; os.fork()\n```"}
    parts = practicum.Parts(clients={"agent": client(lambda call: answers[call.prompt.user])}, embedder=Words())
    how: dict[str, Any] = {"scorer": "software", "out": tmp_path / "e", "parts": parts}
    tasks = [Task(name, name, meta={"stdin": "3\n"}) for name in answers]
    result = practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), **how))
    consistency = result.measures["consistency"]
    assert {**result.measures} == pytest.approx({
        "completeness": 1.0, "executability": 2 / 3, "consistency": consistency,
        "files": 4 / 3, "lines": 8 / 3, "tokens": 41 / 3, "functions": 1 / 3, "complexity": 8 / 3,
    })  # fmt: skip
    assert 0 <= consistency < 2 / 3
    assert result.counts == {"stopped_programs": 1, "empty_answers": 1, "lost_attempts": 1}
    monkeypatch.setattr(SoftwareScorer, "__call__", None)
    again = practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), **how))
    assert (again.attempts, again.counts) == (result.attempts, result.counts)
    assert again.as_json()["measures"] == result.measures
