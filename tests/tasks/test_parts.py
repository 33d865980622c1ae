"""Solutions of parts of a task: a scorer scores a part only if the part can be run by itself."""

from __future__ import annotations

from typing import Any

from practicum.core.types import Task
from practicum.tasks.scoring.parts import task_for_part

CODE = {"entry_point": "total", "tests": "assert total([]) == 0"}
MAIN = "main.py\n```python\nimport json\nfrom till import add\nprint(add(1, 2))\n```\n"
TILL = "till.py\n```python\ndef add(a, b):\n    return a + b\n```\n"


def scored_by(scorer: str, solution: str, **meta: Any) -> Task | None:
    return task_for_part(scorer, Task("t", "the whole", "7", meta), "a part", solution)


def test_tests_need_a_solution_that_defines_the_entry_point() -> None:
    for fence in ("{}", "So:\n```python\n{}\n```\nDone."):
        defined = fence.format("def total(prices):\n    return sum(prices)")
        assert scored_by("tests", defined, **CODE) == Task("t", "the whole", "7", CODE)
        assert scored_by("tests", fence.format("def add(a, b):\n    return total([a, b])"), **CODE) is None
        assert scored_by("tests", defined, tests="assert 1") is None


def test_only_concepts_of_the_part_count() -> None:
    assert scored_by("coverage", "", concepts=["part", "dog"]) == Task("t", "a part", "7", {"concepts": ["part"]})
    assert scored_by("coverage", "", concepts=["dog"]) is None
    assert scored_by("exact", "7") is None


def test_only_a_complete_program_is_scored() -> None:
    assert scored_by("software", MAIN + TILL) == Task("t", "a part", "7", {"entry": "main.py"})
    for solution in (MAIN, TILL + TILL.replace("till", "shop"), "The till should add.", "notes.md\n```\nadd\n```", ""):
        assert scored_by("software", solution) is None
