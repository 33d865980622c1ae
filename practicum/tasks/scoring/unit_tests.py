"""Scorer `tests`: runs the unit tests of a task on an answer's code, in the sandbox.

`meta.tests` is code with asserts, or a list of such code. `meta.entry_point` is the name that the answer must define;
if the tests define a function `check`, `check` is called with the object that has the name `meta.entry_point` in the
answer (as in HumanEval). `meta.prompt` is code that an answer may continue. The score is 1 if all asserts hold and else
0, so the mean score is pass@1. The note gives the number of asserts that held, and the first failure. The reflector
sees this note if the setting `labels` is on. If no assert is reached, the score is 0; tests that cannot reach an assert
are rejected before the run.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from practicum.core.types import Score, Task, Trace
from practicum.tasks.sandbox.judge_tests import names_used
from practicum.tasks.sandbox.runner import ProgramResult, Sandbox, was_refused
from practicum.tasks.scoring.code_blocks import python_code

SANDBOX = Path(__file__).parents[1] / "sandbox"

REPORT_KB = 3  # output that the report may add, per assert in the tests (kB)


async def score_tests(sandbox: Sandbox, task: Task, trace: Trace) -> Score:
    """Score 1 if all asserts of the task hold, else 0. Raises UsageError if code cannot be run on this machine."""
    entry_point = task.meta.get("entry_point")
    code = python_code(trace.answer, entry_point)
    if not code.strip():
        return Score(0.0, False, "the answer holds no code")
    tests = _joined(task.meta["tests"])
    job = {"prompt": task.meta.get("prompt", ""), "entry_point": entry_point}
    limits = sandbox.limits
    # The tests wait for the answer, so the process of the tests gets twice the time of the process of the answer.
    test_limits = replace(limits, wall=2 * limits.wall, output_kb=limits.output_kb + REPORT_KB * tests.count("assert"))
    answer, tested = await sandbox.run_tested(
        _program("run_answer.py"),
        _program("judge_tests.py"),
        (json.dumps({**job, "code": code}), json.dumps({**job, "tests": tests})),
        test_limits,
    )
    fields: dict[str, Any] = {}
    for line in tested.stdout.split("\n"):
        with suppress(ValidationError):  # a line may be truncated by the output limit
            fields |= _Report.model_validate_json(line).model_dump(exclude_unset=True)
    report = _Report(**fields)
    note = _fault_in(report, answer, tested)
    # The scripts catch exceptions of the code, so the first failure may be a refusal of the sandbox.
    stopped = answer.stopped or tested.stopped or was_refused(report.first[1])
    unfenced = answer.unfenced or tested.unfenced
    scored = Score(float(not note), not note, note, stopped=stopped, unfenced=unfenced)
    return replace(scored, untestable=bool(report.untestable))


@cache
def _program(script: str) -> dict[str, str]:
    """Return the files that the sandbox needs to run a script: the script and `plain.py`."""
    shared = SANDBOX / "plain.py"
    name = shared.relative_to(Path(__file__).parents[3]).as_posix()
    return {"main.py": (SANDBOX / script).read_text("utf-8"), name: shared.read_text("utf-8")}


class _Report(BaseModel):
    """Report that the tests print line by line, a few fields per line."""

    at: str | None = None  # source of the assert that was reached last
    total: int | None = None  # number of asserts in the tests
    done: int | None = None  # number of asserts that were reached; None until the tests have ended
    failed: int = 0
    first: tuple[str, str] = ("", "")  # source of the first failed assert, and the reason
    fault: str = ""  # reason why nothing could be tested
    answer_ended: bool = False  # whether the answer's process ended before the tests
    broken: str = ""  # exception that the tests raised outside their asserts
    untestable: str = ""  # type of an argument that cannot be sent to the answer


def _fault_in(report: _Report, answer: ProgramResult, tested: ProgramResult) -> str:
    """Return why the tests did not pass; empty if they passed."""
    if report.fault:
        return report.fault
    if report.done is None:
        reason = f"ended with {report.broken}" if report.broken else tested.reason
        if report.answer_ended or (report.total is None and answer.reason):
            reason = answer.reason
        reason = reason or "ended before its tests did"
        if report.at is not None:
            return f"the code {reason} while testing: {report.at}"
        return f"the code {reason}" if report.total is None else f"the tests could not be run: the code {reason}"
    if report.failed:
        source, why = report.first
        return f"passed {report.done - report.failed} of {report.done} tests; failed: {source} ({why})"
    if not report.done:
        return "nothing was tested: the tests came to their end without reaching an assert"
    if report.untestable:
        return f"an argument of type {report.untestable} could not reach the answer: define its class in meta.prompt"
    return ""


def _joined(tests: str | list[str]) -> str:
    return tests if isinstance(tests, str) else "\n".join(tests)


def tests_fault(meta: Mapping[str, Any]) -> str | None:
    """Return why a task has no usable tests, phrased to follow "task X"; None if the tests are usable."""
    tests = meta.get("tests")
    valid = isinstance(tests, str) or (isinstance(tests, list) and all(isinstance(test, str) for test in tests))
    if not tests or not valid:
        return "has no meta.tests (code with asserts, or a list of such code), which scorer 'tests' needs"
    for name in ("entry_point", "prompt"):
        if not isinstance(meta.get(name, ""), str):
            return f"has a meta.{name} that is not a string; scorer 'tests' needs a string"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hides style warnings about the tests
            tree = ast.parse(_joined(tests))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"has meta.tests that are not valid Python: {error}"
    if not _has_assert(tree):
        return "has meta.tests without an assert; scorer 'tests' counts asserts, not the methods of unittest"
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if meta.get("entry_point"):
        names.add("check")
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    # A decorator may call or register the decorated function, so decorated functions are not checked.
    plain = (node for node in tree.body if isinstance(node, definitions) and not node.decorator_list)
    for name in (node.name for node in plain if node.name not in names and _has_assert(node)):
        hint = ", or set meta.entry_point to the name that check is called with" if name == "check" else ""
        return f"has meta.tests that never call {name}, so the asserts in {name} test nothing: call {name}{hint}"
    if not names_used(_joined(tests), meta.get("entry_point"))[0]:
        return "has meta.tests that use no name of the answer: set meta.entry_point to the name that an answer defines"
    return None


def _has_assert(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(tree))
