"""The scorer `tests`: forms of answers, its notes, and tasks that it refuses (cheats: test_cheats.py)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from fenced import needs_fences
from profiles import cases
from refusals import refused

from practicum.core.types import Score, Task, Trace
from practicum.tasks.load import require_meta
from practicum.tasks.sandbox import runner
from practicum.tasks.sandbox.runner import Limits, Sandbox
from practicum.tasks.scoring.unit_tests import SANDBOX, score_tests

PROMPT = 'from typing import List\n\n\ndef total(numbers: List[int]) -> int:\n    """Add them up."""\n'
TOTALS = """
def check(candidate):
    assert candidate([]) == 0
    for n in range(3):
        assert candidate([n, 1]) == n + 1
    assert candidate([5]) == 5, "five"
"""
META = {"tests": TOTALS, "entry_point": "total", "prompt": PROMPT}

ANSWER = (SANDBOX / "run_answer.py").read_text("utf-8")


def total(answer: str, **meta: str) -> Score:
    task = Task("t", PROMPT, meta={**META, **meta})
    return asyncio.run(score_tests(Sandbox(Limits(cpu=3, wall=30.0)), task, Trace(answer)))


FORMS = (
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
)


@needs_fences
@pytest.mark.parametrize("answer", cases(FORMS, FORMS[0]))
def test_a_right_answer_in_any_form_scores_one(answer: str) -> None:
    assert total(answer) == Score(1.0, True)


BODY = "def total(numbers):\n    "
WRONG = {
    BODY + "return len(numbers)": "passed 1 of 3 tests; failed: candidate([n, 1]) == n + 1 (it gave 2)",
    BODY + "import os\n    os._exit(0)": "the code ended before its tests did while testing: candidate([]) == 0",
    "": "the answer holds no code",
    f"class Any(list):\n    __eq__ = lambda *a: True\n{BODY}return Any()":
        "passed 0 of 3 tests; failed: candidate([]) == 0 (it gave [])",
    BODY + "return numbers[0]": "passed 1 of 3 tests; failed: candidate([]) == 0 (IndexError: list",
    "def add(numbers):\n    return sum(numbers)": "the answer defines no total",
    "I do not know.": "the code ended with SyntaxError: invalid syntax (answer.py line 1)",
    BODY + "return 1\n1 / 0": "the code ended with ZeroDivisionError: division by zero (answer",
    "import sys\nsys.exit(0)": "the code ended before its tests did",
}  # fmt: skip


@needs_fences
@pytest.mark.parametrize("answer", cases(WRONG, *[*WRONG][:4]))
def test_the_note_gives_the_reason_for_a_wrong_answer(answer: str) -> None:
    scored = total(answer)
    assert (scored.value, scored.correct) == (0.0, False)
    assert scored.note.startswith(WRONG[answer])


@pytest.mark.slow
@needs_fences
def test_code_that_is_stopped_scores_zero_and_the_note_names_the_test() -> None:
    for harm, note, stopped in (
        ("while True: print('x' * 1000)", "the code stopped after it printed more than 64 kB while testing: ", True),
        ("while True:\n        try: __import__('os').fork()\n        except BaseException: pass",
         "the code stopped because it tried to use the network, or to start or signal another process", True),
        ("open('/tmp/theirs', 'w')", "passed 0 of 3 tests; failed: ", True),
        ("bytearray(10**10)", "passed 0 of 3 tests; failed: ", True),
        ("__import__('os').kill(__import__('os').getpid(), 40)", "the code crashed with signal 40 while testing: ",
         False),
        ("raise PermissionError('not yours')", "passed 0 of 3 tests; failed: ", False),
    ):  # fmt: skip
        scored = total(BODY + harm)
        assert (scored.value, scored.stopped) == (0.0, stopped)
        assert scored.note.startswith(note)


@pytest.mark.slow
@needs_fences
def test_an_answer_that_ends_late_keeps_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = runner._remove

    def remove_late(folder: Path) -> None:
        time.sleep(3.0 if (folder / "main.py").read_text("utf-8") == ANSWER else 0.0)
        remove(folder)

    monkeypatch.setattr(runner, "_remove", remove_late)
    scored = total(BODY + "while True: print('x' * 1000)")
    assert scored.stopped
    assert scored.note.startswith("the code stopped after it printed more than 64 kB")


@pytest.mark.slow
@needs_fences
def test_an_answer_that_outlives_its_tests_is_stopped() -> None:
    scored = total(BODY + "import os, time\n    os.closerange(3, 99)\n    time.sleep(20)")
    assert (scored.value, scored.stopped) == (0.0, True)
    assert scored.note == "the code did not end with its tests while testing: candidate([]) == 0"


@needs_fences
def test_without_a_reached_assert_an_answer_scores_zero() -> None:
    tests = "def check(candidate):\n    for number in candidate([1, 2]):\n        assert number > 0\n"
    every = BODY + "return numbers"
    assert [total(answer, tests=tests).value for answer in (every, BODY + "return []")] == [1.0, 0.0]


UNITTEST = "import unittest\nclass TestAdd(unittest.TestCase):\n    def test_add(self):\n"


def test_a_task_without_usable_tests_is_refused() -> None:
    for meta in (
        {}, {"tests": ""}, {"tests": [1]}, {"tests": "assert f", "entry_point": 3}, {"tests": "add(1, 2)"},
        {"tests": UNITTEST + "        self.assertEqual(add(1, 2), 3)"}, {"tests": TOTALS},
        {"tests": "assert add\ndef test_add():\n    assert add(1, 2) == 3"}, {"tests": "assert sum([1]) == 1"},
        {"tests": "assert add(1"}, {"tests": "assert '\0'"},
    ):  # fmt: skip
        with refused("tasks.missing_field"):
            require_meta([Task("t", "x", meta=META), Task("t", "x", meta=meta)], "tests", "tasks.jsonl")
