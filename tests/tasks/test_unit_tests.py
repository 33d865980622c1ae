"""Code in answers, and the scorer that tests it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fenced import needs_fences
from refusals import refused

from practicum.core.types import Score, Task, Trace
from practicum.tasks.load import require_meta
from practicum.tasks.sandbox.runner import Limits, Sandbox
from practicum.tasks.scoring.unit_tests import score_tests

PROMPT = 'from typing import List\n\n\ndef total(numbers: List[int]) -> int:\n    """Add them up."""\n'
TESTS = """
def check(candidate):
    assert candidate([]) == 0
    for n in range(3):
        assert candidate([n, 1]) == n + 1
    assert candidate([5]) == 5, "five"
"""
UNITTEST = "import unittest\nclass TestAdd(unittest.TestCase):\n    def test_add(self):\n"
META = {"tests": TESTS, "entry_point": "total", "prompt": PROMPT}


LIMITS = Limits(cpu=3, wall=30.0)


def scored(answer: str, limits: Limits = LIMITS, **meta: Any) -> Score:
    task = Task("t", PROMPT, meta={**META, **meta})
    return asyncio.run(score_tests(Sandbox(limits), task, Trace(answer)))


@needs_fences
@pytest.mark.parametrize(
    "answer",
    [
        "def total(numbers):\n    return sum(numbers)",
        "```python\ndef total(numbers: List[int]) -> int:\n    return sum(numbers)\n```",
        "Here it is:\n\ndef total(numbers):\n    return sum(numbers)\n",
        "    return sum(numbers)\n",
        "return sum(numbers)",
        PROMPT + "    return sum(numbers)\n",
        "total = sum",
        "def total(numbers):\n    print('looking at', numbers)\n    return sum(numbers)",
        "from dataclasses import dataclass\n\n@dataclass\nclass Sum:\n    of: list\n    rest: 'Sum | None' = None\n\n"
        "def total(numbers):\n    return sum(Sum(numbers).of)",
        "def total(numbers: list) -> int:\n    return sum(numbers) if total.__annotations__['return'] is int else -1",
    ],
)
@pytest.mark.slow
def test_a_right_answer_in_all_forms(answer: str) -> None:
    assert scored(answer) == Score(1.0, True)


@needs_fences
@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (
            "def total(numbers):\n    return len(numbers)",
            "passed 1 of 3 tests; failed: candidate([n, 1]) == n + 1 (it gave 2)",
        ),
        (
            "def total(numbers):\n    return numbers[0]",
            "passed 1 of 3 tests; failed: candidate([]) == 0 (IndexError: list",
        ),
        ("def add(numbers):\n    return sum(numbers)", "the answer defines no total"),
        ("I do not know.", "the code ended with SyntaxError: invalid syntax (answer.py line 1)"),
        (
            "def total(numbers):\n    return sum(numbers)\n1 / 0",
            "the code ended with ZeroDivisionError: division by zero (answer",
        ),
        ("import sys\nsys.exit(0)", "the code ended before its tests did"),
        (
            "def total(numbers):\n    import os\n    os._exit(0)",
            "the code ended before its tests did while testing: candidate([]) == 0",
        ),
        ("", "the answer holds no code"),
    ],
)
def test_the_note_says_why_an_answer_is_wrong(answer: str, note: str) -> None:
    score = scored(answer)
    assert (score.value, score.correct) == (0.0, False)
    assert score.note.startswith(note)


@pytest.mark.slow
@needs_fences
def test_code_that_is_stopped_scores_zero_and_the_note_says_where() -> None:
    body = "def total(numbers):\n    "
    printing = scored(body + "while True: print('x' * 1000)")
    assert printing.value == 0.0
    assert printing.stopped
    assert printing.note == "the code stopped after it printed more than 64 kB while testing: candidate([]) == 0"
    for harm in ("__import__('os').fork()", "__import__('socket').socket()", "__import__('os').kill(1, 9)"):
        score = scored(f"{body}try:\n        {harm}\n    except BaseException: pass\n    return sum(numbers)")
        assert score.value == 0.0
        assert "tried to use the network, or to start or signal another process" in score.note
        assert score.stopped
    for call in ("open('/tmp/theirs', 'w')", "bytearray(10**10)"):
        score = scored(f"{body}return {call}")
        assert score.note.startswith("passed 0 of 3 tests; failed: ")
        assert score.stopped
    signalled = scored(body + "__import__('os').kill(__import__('os').getpid(), 40)")
    assert signalled.note == "the code crashed with signal 40 while testing: candidate([]) == 0"
    assert not signalled.stopped
    assert not scored(body + "raise PermissionError('not yours')").stopped


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({}, "tasks.missing_field"),
        ({"tests": ""}, "tasks.missing_field"),
        ({"tests": [1]}, "tasks.missing_field"),
        ({"tests": "assert f", "entry_point": 3}, "tasks.missing_field"),
        ({"tests": "add(1, 2)"}, "tasks.missing_field"),
        ({"tests": UNITTEST + "        self.assertEqual(add(1, 2), 3)"}, "tasks.missing_field"),
        ({"tests": UNITTEST + "        assert add(1, 2) == 3"}, "tasks.missing_field"),
        ({"tests": "assert add\ndef test_add():\n    assert add(1, 2) == 3"}, "tasks.missing_field"),
        ({"tests": TESTS}, "tasks.missing_field"),
        ({"tests": "assert sum([1]) == 1"}, "tasks.missing_field"),
        ({"tests": "assert add(1"}, "tasks.missing_field"),
        ({"tests": "assert '\0'"}, "tasks.missing_field"),
    ],
)
def test_a_task_without_tests_is_refused(meta: dict[str, Any], code: str) -> None:
    with refused(code):
        require_meta([Task("t", "x", meta=META), Task("t", "x", meta=meta)], "tests", "tasks.jsonl")
