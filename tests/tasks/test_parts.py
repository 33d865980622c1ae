"""Which solutions of parts a scorer can take, and what it then scores them by."""

from __future__ import annotations

from typing import Any

import pytest

from practicum.core.types import Task
from practicum.tasks.scoring.parts import task_for_part

CODE = {"entry_point": "total", "tests": "assert total([]) == 0"}


MAIN = "main.py\n```python\nimport json\nfrom till import add\nprint(add(1, 2))\n```\n"
TILL = "till.py\n```python\ndef add(a, b):\n    return a + b\n```\n"


def scored_by(scorer: str, solution: str, part: str = "a part", **meta: Any) -> Task | None:
    return task_for_part(scorer, Task("t", "the whole", "7", meta), part, solution)


@pytest.mark.parametrize("fence", ["{}", "So:\n```python\n{}\n```\nDone."])
def test_tests_need_a_solution_that_defines_the_entry_point(fence: str) -> None:
    defined = fence.format("def total(prices):\n    return sum(prices)")
    assert scored_by("tests", defined, **CODE) == Task("t", "the whole", "7", CODE)
    assert scored_by("tests", fence.format("def add(a, b):\n    return total([a, b])"), **CODE) is None
    assert scored_by("tests", defined, tests="assert 1") is None


@pytest.mark.parametrize(
    "solution",
    [MAIN, TILL + TILL.replace("till", "shop"), "The till should add.", "notes.md\n```\nadd things\n```", ""],
    ids=["needs another", "no entry", "words", "no program", "nothing"],
)
def test_an_incomplete_program_cannot_be_scored(solution: str) -> None:
    assert scored_by("software", solution) is None
