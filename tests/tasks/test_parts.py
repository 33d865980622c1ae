"""Which solutions of parts a scorer can take, and what it then scores them by."""

from __future__ import annotations

from typing import Any

import pytest

from practicum.core.types import Task
from practicum.tasks.scoring.parts import task_for_part

CODE = {"entry_point": "total", "tests": "assert total([]) == 0"}
WORDS = {"concepts": ["dog", "catch", "frisbee"]}
MAIN = "main.py\n```python\nimport json\nfrom till import add\nprint(add(1, 2))\n```\n"
TILL = "till.py\n```python\ndef add(a, b):\n    return a + b\n```\n"


def scored_by(scorer: str, solution: str, part: str = "a part", **meta: Any) -> Task | None:
    return task_for_part(scorer, Task("t", "the whole", "7", meta), part, solution)


@pytest.mark.parametrize("scorer", ["exact", "numeric", "choice", "contains", "regex", "list", "judge", "my:function"])
def test_most_scorers_cannot_score_a_part(scorer: str) -> None:
    assert scored_by(scorer, "7") is None


@pytest.mark.parametrize("fence", ["{}", "So:\n```python\n{}\n```\nDone."])
def test_tests_need_a_solution_that_defines_the_entry_point(fence: str) -> None:
    defined = fence.format("def total(prices):\n    return sum(prices)")
    assert scored_by("tests", defined, **CODE) == Task("t", "the whole", "7", CODE)
    assert scored_by("tests", fence.format("def add(a, b):\n    return total([a, b])"), **CODE) is None
    assert scored_by("tests", defined, tests="assert 1") is None


@pytest.mark.parametrize("scorer", ["coverage", "commongen"])
def test_the_concepts_of_a_part_are_those_it_names(scorer: str) -> None:
    found = scored_by(scorer, "A dog runs.", "Say how dogs caught it.", **WORDS)
    assert found == Task("t", "Say how dogs caught it.", "7", {"concepts": ["dog", "catch"]})
    assert scored_by(scorer, "A dog runs.", "Choose a place.", **WORDS) is None


@pytest.mark.parametrize(
    ("solution", "meta", "entry"),
    [
        (MAIN + TILL, {}, "main.py"),
        (TILL, {"stdin": "3\n"}, "till.py"),
        (TILL, {"entry": "shop.py"}, "till.py"),
        ("```python\nfrom . import x\nimport os.path\n```", {}, "main.py"),
        (MAIN + TILL, {"entry": "till.py"}, "till.py"),
    ],
    ids=["whole", "module", "another entry", "relative", "entry"],
)
def test_a_complete_program_is_a_project_of_its_own(solution: str, meta: dict[str, Any], entry: str) -> None:
    assert scored_by("software", solution, **meta) == Task("t", "a part", "7", {**meta, "entry": entry})


@pytest.mark.parametrize(
    "solution",
    [MAIN, TILL + TILL.replace("till", "shop"), "The till should add.", "notes.md\n```\nadd things\n```", ""],
    ids=["needs another", "no entry", "words", "no program", "nothing"],
)
def test_an_incomplete_program_cannot_be_scored(solution: str) -> None:
    assert scored_by("software", solution) is None


def test_without_the_scorers_meta_no_part_is_scored() -> None:
    assert scored_by("tests", "def total(): pass", entry_point="total") is None
    assert scored_by("coverage", "dog", "dog") is None
