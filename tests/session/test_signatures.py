"""The keywords of the public functions are checked by mypy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


USER = """
import practicum
from practicum import Context, Method, Parts, Result, Task, Watch
from practicum.methods import ace

tasks = [Task("1", "a", "b")]


async def main(method: Method) -> Result:
    result = await practicum.learn(tasks, method="ace", model="local", settings={"rounds": 1}, max_calls=3)
    await practicum.learn(tasks, method=method, choices=["a", "b"], sections={"a": "b"}, out="x", parts=Parts())
    await practicum.learn(tasks, settings=ace.Settings(rounds=2), temperature=None, watch=Watch())
    await practicum.evaluate(tasks, result.context, repeat=2, scorer="exact")
    await practicum.compare(tasks, test=tasks, methods=["ace", "icl"], max_tokens=10)
    answered = await practicum.ask("q", "runs/first", model="local")
    await practicum.resume("runs/first", max_calls=3, model="local")
    print(answered.text, [match.similarity for match in answered.retrieved])
    await practicum.learn(tasks, modle="local")  # Unexpected keyword argument "modle"
    await practicum.resume("runs/first", max_cals=3)  # Unexpected keyword argument "max_cals"
    await practicum.learn(tasks, max_calls="many")  # Argument "max_calls"
    await practicum.learn(tasks, method=3)  # Argument "method"
    await practicum.learn(tasks, settings=ace.Settings(ronds=2))  # Unexpected keyword argument "ronds"
    await practicum.evaluate(tasks, Context(), parts={"agent": None})  # Argument "parts"
    await practicum.compare(tasks, methods=ace)  # Argument "methods"
    await practicum.ask("q", "runs/first", lern=True)  # Unexpected keyword argument "lern"
    return result
"""


@pytest.mark.slow
def test_mypy_finds_each_wrong_call_in_a_program_of_a_user_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "user.py")]
    # From the root, where mypy finds its cache of the package.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    wrong = [(n, line.partition("  # ")[2]) for n, line in enumerate(USER.splitlines(), 1) if "  # " in line]
    assert len(errors) == len(wrong), done.stdout
    for error, (line, words) in zip(errors, wrong, strict=True):
        assert f"user.py:{line}: error: {words}" in error
