"""The scorer `tests`: an answer's code against the unit tests of its task, in the sandbox.

A task brings `meta.tests`, code whose asserts decide, or a list of such; `meta.entry_point`, what the answer has to
define, which is passed to the function `check` of the tests where they have one (as HumanEval's do); and
`meta.prompt`, the code that an answer may go on from. All asserts must hold: the value is 1 or 0, so that a mean is
pass@1. The note says how many held and how the first one failed, which learning with labels is told. Where no assert is
reached nothing was tested, and the value is 0; tests that cannot reach one are refused before.
"""

from __future__ import annotations

import ast
import json
import secrets
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from practicum.core.errors import TaskFileError
from practicum.core.types import Score, Task, Trace
from practicum.tasks.sandbox.runner import Ran, Sandbox, refused
from practicum.tasks.scoring.code_blocks import code_for

CHECKER = Path(__file__).parents[1] / "sandbox" / "run_tests.py"

MOST = 200
"""Characters of an assert that a note quotes."""

TOLD = 3
"""kB that the checker may take to say which assert it has come to, beside what the code prints."""


@dataclass(frozen=True, slots=True)
class Tested:
    """What tests came to: how many asserts held of how many there are, and the first that did not; whether the code
    went too far and was stopped."""

    passed: int
    total: int
    note: str
    stopped: bool = False

    @property
    def right(self) -> bool:
        """Whether nothing failed, and the tests came to their end."""
        return not self.note


@dataclass(frozen=True)
class UnitTests:
    """Scores by the tests of the task. Its result is journaled, since a program may end otherwise another time."""

    sandbox: Sandbox = field(default_factory=Sandbox)
    name: str = field(default="tests", init=False)
    needs_target: bool = field(default=False, init=False)

    async def __call__(self, task: Task, trace: Trace) -> Score:
        """1 where all asserts hold, else 0. Raises TaskFileError for a task without tests."""
        if trace.error is not None:
            return Score(0.0, False, trace.error)
        if fault := tests_fault(task.meta):
            raise TaskFileError(f"task {task.id!r} {fault}")
        tested = await run_tests(task, trace.answer, self.sandbox)
        return Score(float(tested.right), tested.right, tested.note, stopped=tested.stopped)


async def run_tests(task: Task, answer: str, sandbox: Sandbox) -> Tested:
    """Run the tests of a task on an answer's code. Raises UsageError where no code can be run here."""
    tests = _joined(task.meta["tests"])
    entry_point = task.meta.get("entry_point")
    mark = secrets.token_hex(8)
    job = {
        "mark": mark,
        "prompt": task.meta.get("prompt", ""),
        "code": code_for(answer, entry_point),
        "entry_point": entry_point,
        "tests": tests,
        "most": MOST,
    }
    if not job["code"].strip():
        return Tested(0, 0, "the answer holds no code")
    limits = replace(sandbox.limits, output_kb=sandbox.limits.output_kb + TOLD * tests.count("assert"))
    script = {"main.py": CHECKER.read_text(encoding="utf-8")}
    ran = await sandbox.run(script, stdin=json.dumps(job), limits=limits)
    said = _heard(ran, mark)
    # The checker catches what the code raises, so that the refusal may be the reason of a test that failed.
    return replace(_came_to(said, ran), stopped=ran.stopped or refused(said.first[1]))


def _joined(tests: str | list[str]) -> str:
    return tests if isinstance(tests, str) else "\n".join(tests)


class _Said(BaseModel):
    """What the checker tells, each when it knows it: the assert it is at, how many there are, how many were reached and
    how many of these failed, the first of them with its reason, and what kept it from testing."""

    at: str | None = None
    total: int | None = None
    done: int | None = None
    failed: int = 0
    first: tuple[str, str] = ("", "")
    fault: str = ""


def _heard(ran: Ran, mark: str) -> _Said:
    said = _Said()
    for line in ran.out.split("\n"):
        if line.startswith(mark):
            try:
                told = _Said.model_validate_json(line.removeprefix(mark))
            except ValidationError:  # cut off, with all that was printed
                continue
            said = said.model_copy(update=told.model_dump(exclude_unset=True))
    return said


def _came_to(said: _Said, ran: Ran) -> Tested:
    if said.fault:
        return Tested(0, 0, said.fault)
    if said.done is None:
        return Tested(0, said.total or 0, _ended(said, ran))
    passed = said.done - said.failed
    if said.failed:
        source, why = said.first
        return Tested(passed, said.done, f"passed {passed} of {said.done} tests; failed: {source} ({why})")
    if not said.done:
        return Tested(0, said.total or 0, "nothing was tested: the tests came to their end without reaching an assert")
    return Tested(passed, said.done, "" if ran.exit == 0 else f"all tests passed, but then the code {ran.reason}")


def _ended(said: _Said, ran: Ran) -> str:
    reason = ran.reason or "ended before its tests did"
    if said.at is not None:
        return f"the code {reason} while testing: {said.at}"
    return f"the code {reason}" if said.total is None else f"the tests could not be run: the code {reason}"


def tests_fault(meta: Mapping[str, Any]) -> str | None:
    """Why there are no tests to run, to be read after "task X"; else None."""
    tests = meta.get("tests")
    fine = isinstance(tests, str) or (isinstance(tests, list) and all(isinstance(test, str) for test in tests))
    if not tests or not fine:
        return "has no meta.tests (code with asserts, or a list of such), which scorer 'tests' needs"
    for name in ("entry_point", "prompt"):
        if not isinstance(meta.get(name, ""), str):
            return f"has a meta.{name} that is not a string, which scorer 'tests' needs it to be"
    return _idle(_joined(tests), called="check" if meta.get("entry_point") else None)


def _idle(code: str, called: str | None) -> str | None:
    """Why tests would test nothing, or less than they say. `called` is the function that is called from outside."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their style
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"has meta.tests that are no Python: {error}"
    if not _asserts(tree):
        return "has meta.tests without an assert; scorer 'tests' counts asserts, not what unittest's methods find"
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {called}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    plain = (node for node in tree.body if isinstance(node, kinds) and not node.decorator_list)
    for name in (node.name for node in plain if node.name not in named and _asserts(node)):
        check = ", or name in meta.entry_point what check is to be called with" if name == "check" else ""
        return f"has meta.tests whose {name} is never called, so its asserts test nothing: call it{check}"
    return None


def _asserts(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(tree))
