"""Scores of small projects and of CommonGen's texts, and what is refused before anything is paid."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fenced import needs_fences
from helpers import Launcher, client
from runs import Words, indoors

import practicum
from practicum.core.types import Score, Task, Trace
from practicum.engine.scorers import SoftwareScorer
from practicum.models.scripted import Call
from practicum.tasks.sandbox.runner import Limits, ProgramResult, Sandbox
from practicum.tasks.scoring.software import Inspection, inspect_project
from practicum.tasks.scoring.unit_tests import score_tests

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


@pytest.mark.slow
@needs_fences
def test_a_project_that_is_whole_and_runs_scores_its_consistency() -> None:
    score = software(WHOLE, stdin="3\n")
    assert score.correct
    assert 0.0 < score.value < 1.0
    assert score.note == f"complete 1, runs 1, consistent {score.value:.2f}"
    near = software(WHOLE, "def add(a, b): if a and b: return a + b return a or b", stdin="3\n")
    assert near.value > score.value


@pytest.mark.slow
@needs_fences
@pytest.mark.parametrize(
    ("answer", "meta", "note"),
    [
        (WHOLE.replace("print", "1 / 0; print"), {}, "runs 0, .*run, it ended with ZeroDivisionError.*main.py line 2"),
        (
            WHOLE.replace("return a + b", "pass"),
            {"stdin": "1"},
            "complete 0, .*left open: shop/till.py line 2: a branch",
        ),
        (
            WHOLE.replace("# the till", "# TODO: the till"),
            {"stdin": "1"},
            "complete 0.*main.py line 1: left to do: TODO",
        ),
        (WHOLE, {"entry": "other.py"}, "run, it there is no file other.py to run"),
        ("```python\nwhile True: pass\n```", {}, "complete 0, runs 0"),
        ("```python\nimport os; os.fork()\n```", {}, "complete 1, runs 0.*tried to use the network, or to start"),
        ("```python\ndef f(:\n```", {}, "complete 0, runs 0, consistent 0.00.*main.py line 1: SyntaxError"),
        ("", {}, "the answer holds no files"),
    ],
)
def test_one_that_is_not_scores_nothing(answer: str, meta: dict[str, Any], note: str) -> None:
    score = software(answer, **meta)
    assert (score.value, score.correct) == (0.0, False)
    assert re.search(note, score.note), score.note


@pytest.mark.slow
@needs_fences
def test_no_more_projects_are_looked_at_at_once_than_the_sandbox_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    start, now, most = Sandbox._run_in, 0, 0

    async def counted(*args: Any) -> ProgramResult:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await start(*args)
        finally:
            now -= 1

    async def all_of_them(sandbox: Sandbox) -> list[Inspection]:
        return list(await asyncio.gather(*(inspect_project({"main.py": f"print({n})"}, sandbox) for n in range(5))))

    monkeypatch.setattr(Sandbox, "_run_in", counted)
    found = asyncio.run(all_of_them(Sandbox(SANDBOX.limits, at_once=2)))
    assert [project.code for project in found] == [f"print({n})" for n in range(5)]
    assert most == 2


@pytest.mark.slow
@needs_fences
def test_a_score_brings_the_measures_of_the_code_and_an_evaluation_their_means() -> None:
    answers = {"a": WHOLE, "b": "```python\nprint(1)\n```", "none": ""}
    score = software(WHOLE, stdin="3\n")
    assert score.measures == {
        "completeness": 1.0, "executability": 1.0, "consistency": score.value,
        "files": 2, "lines": 6, "tokens": 32, "functions": 1, "complexity": 1 + 1 + (1 + 3),
    }  # fmt: skip
    parts = practicum.Parts(clients={"agent": client(lambda call: answers[call.prompt.user])}, embedder=Words())
    tasks = [Task(name, name, meta={"stdin": "3\n"}) for name in answers]
    found = practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), scorer="software", parts=parts))
    consistency = found.measures["consistency"]
    # An empty answer is a lost attempt, which has no measures.
    assert {**found.measures} == {
        "completeness": 1.0, "executability": 1.0, "consistency": consistency,
        "files": 1.5, "lines": 3.5, "tokens": 17.5, "functions": 0.5, "complexity": 3.5,
    }  # fmt: skip
    assert 0 <= consistency < 2 / 3
    assert found.as_json()["measures"] == found.measures


@pytest.mark.slow
@needs_fences
def test_generated_code_is_scored_in_an_evaluation() -> None:
    tasks = [Task(f"t{i}", f"Write f that gives {i}.", meta={"tests": f"assert f() == {i}"}) for i in range(3)]

    def respond(call: Call) -> str:
        return "```python\ndef f():\n    return 1\n```"

    found = practicum.run_sync(
        practicum.evaluate(
            tasks, practicum.Context(), scorer="tests", parts=practicum.Parts(clients={"agent": client(respond)})
        )
    )
    assert found.score == pytest.approx(1 / 3)
    notes = [r.score.note for r in found.attempts if r.score is not None]
    assert notes == [
        "passed 0 of 1 tests; failed: f() == 0 (it gave 1)",
        "",
        "passed 0 of 1 tests; failed: f() == 2 (it gave 1)",
    ]


@pytest.mark.slow
@needs_fences
def test_code_that_was_stopped_is_reported_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"loop": "while True: pass", "right": "return 1", "wrong": "return 2"}
    tasks = [Task(name, name, meta={"tests": "assert f() == 1"}) for name in asked]
    sandbox = Sandbox(Limits(cpu=1, wall=30.0))

    def evaluated() -> practicum.Evaluation:
        model = client(lambda call: f"def f():\n    {asked[call.prompt.user]}\n")
        parts = practicum.Parts(
            clients={"agent": model}, scorer=lambda t, answer: score_tests(sandbox, t, Trace(answer)), embedder=Words()
        )
        return practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), out=tmp_path / "e", parts=parts))

    found = evaluated()
    assert found.counts == {"stopped_programs": 1}
    loop, right, wrong = found.as_json()["attempts"]
    assert re.fullmatch(r"the code stopped after .* while testing: f\(\) == 1", loop.pop("note"))
    assert loop == {"id": "loop", "value": 0.0, "correct": False, "error": None}
    assert right == {"id": "right", "value": 1.0, "correct": True, "note": "", "error": None}
    assert wrong["note"] == "passed 0 of 1 tests; failed: f() == 1 (it gave 2)"
    monkeypatch.setattr(Sandbox, "run", None)
    assert evaluated().attempts == found.attempts
    assert evaluated().counts == found.counts


@pytest.mark.slow
@needs_fences
def test_the_commands_tell_of_code_that_was_stopped(launcher: Launcher, tmp_path: Path) -> None:
    lines = [{"id": name, "input": f"{name} f", "tests": "assert f() == 1"} for name in ("fork", "right")]
    write_lines(tmp_path / "t.jsonl", lines)
    forks = {"match": "fork f", "answer": "import os\ndef f():\n    os.fork()\n    return 1"}
    write_lines(tmp_path / "model", [forks, {"answer": "def f():\n    return 1"}])
    how = ["t.jsonl", "--model", "scripted:model", "--scorer", "tests"]
    done = launcher.run(["eval", *how, "--json"], tmp_path)
    assert done.json["counts"] == {"stopped_programs": 1}, done.err
    assert [(a["id"], a["value"]) for a in done.json["attempts"]] == [("fork", 0.0), ("right", 1.0)]
    assert "the code stopped because it tried to use the network, or to start" in done.json["attempts"][0]["note"]
    done = launcher.run(["learn", *how, "--method", "episodes", "--out", "run", "--json"], tmp_path)
    assert done.json["errors"] == {"stopped_programs": 1}, done.err
    assert "1 whose code was stopped" in launcher.run(["space", "monitor", "run"], tmp_path).out


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
