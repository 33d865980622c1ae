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
from practicum.core.errors import TaskFileError
from practicum.core.types import Score, Task, Trace
from practicum.engine.scorers import CommonGenScorer, SoftwareScorer
from practicum.models.scripted import Call
from practicum.session.components import make_scorer
from practicum.session.config import config_from
from practicum.tasks.sandbox.runner import Limits, ProgramResult, Sandbox
from practicum.tasks.scoring.registry import SCORERS
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


def looked(**files: str) -> Any:
    return asyncio.run(inspect_project({f"{name}.py": text for name, text in files.items()}, SANDBOX))


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
        ("```python\nimport os; os.fork()\n```", {}, "complete 1, runs 0.*reached for the network, or to start"),
        ("```python\ndef f(:\n```", {}, "complete 0, runs 0, consistent 0.00.*main.py line 1: SyntaxError"),
        ("", {}, "the answer holds no files"),
    ],
)
def test_one_that_is_not_scores_nothing(answer: str, meta: dict[str, Any], note: str) -> None:
    score = software(answer, **meta)
    assert (score.value, score.correct) == (0.0, False)
    assert re.search(note, score.note), score.note


@needs_fences
def test_a_program_that_asks_for_more_input_than_there_is_has_run() -> None:
    assert software("```python\nname = input('Name? ')\nprint('till add', name)\n```").correct


@needs_fences
def test_what_is_left_open_is_found() -> None:
    source = (
        "from abc import abstractmethod\nclass Empty(Exception):\n    pass\n"
        "from typing import Protocol\nclass Form(Protocol):\n    def f(self): ...\n"
        "class A:\n    @abstractmethod\n    def f(self): ...\n    def g(self):\n        '''Later.'''\n"
        "def h():\n    raise NotImplementedError\n"
        "try:\n    h()\nexcept Exception:\n    pass\n"
        "text = 'TODO'\n"
    )
    assert looked(main=source).gaps == ("main.py line 10: g does nothing", "main.py line 12: h does nothing")


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


@needs_fences
def test_measures_of_code() -> None:
    one = "# a comment\ndef f(a, b):\n    if a and b or a:\n        return [x for x in a if x]\n\n    return 1\n"
    two = "import main\nfor i in range(3):\n    print(i)\n"
    # f: 1, the if, two in its condition, two in the comprehension; nothing outside. two: 1 and its loop.
    assert looked(main=one, two=two, notes="x = 1").measures == {
        "files": 3, "lines": 8, "tokens": 35, "functions": 1, "complexity": 1 + 6 + 2 + 1,
    }  # fmt: skip


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


@needs_fences
def test_files_too_deep_to_parse_are_a_fault_and_not_a_crash() -> None:
    assert "main.py: " in " ".join(looked(main="(" * 5000 + ")" * 5000).gaps + looked(main="-" * 200_000 + "1").gaps)


GRADES = {"reason": "A list.", "grammar": 10, "fluency": 8, "relevance": 6, "logic": 4}


def graded(answer: str, grades: dict[str, Any] = GRADES) -> tuple[Score, list[str]]:
    asked: list[str] = []

    def respond(call: Call) -> str:
        asked.append(call.prompt.user)
        return json.dumps(grades)

    task = Task("t", "Use: dog, cat", meta={"concepts": ["dog", "cat"], "secret": "x"})
    score = asyncio.run(CommonGenScorer()(task, Trace(answer), indoors(respond)))
    return score, asked


def test_commongen_is_coverage_times_the_mean_grade() -> None:
    whole, asked = graded("Dogs and cats.")
    assert whole == Score(0.7, True, "A list.")
    assert asked == ["# Concepts\ndog, cat\n\n# Text\nDogs and cats."]
    half, _ = graded("Dogs.")
    assert half == Score(0.35, False, "1 of 2 concepts are used; missing: cat A list.")


def test_no_judge_is_asked_about_nothing() -> None:
    assert graded("  ") == (Score(0.0, False, "0 of 2 concepts are used; missing: dog, cat"), [])


@needs_fences
@pytest.mark.parametrize(
    ("scorer", "meta", "text"),
    [
        ("tests", {}, "the test tasks: task 't' has no meta.tests"),
        ("coverage", {"concepts": "a"}, "the test tasks: task 't' has no meta.concepts"),
        ("commongen", {}, "the test tasks: task 't' has no meta.concepts"),
        ("software", {"args": "a"}, "the test tasks: task 't' has a meta.args that is not a list"),
        ("software", {"entry": "../a.py"}, "the test tasks: task 't' has a meta.entry that is not a relative path"),
    ],
)
def test_tasks_that_cannot_be_scored_are_refused_before_anything_is_paid(
    scorer: str, meta: dict[str, Any], text: str
) -> None:
    model = client()
    with pytest.raises(TaskFileError, match=text):
        practicum.run_sync(
            practicum.evaluate(
                [Task("t", "x", meta=meta)],
                practicum.Context(),
                scorer=scorer,
                parts=practicum.Parts(clients={"agent": model}),
            )
        )
    assert model.calls == []


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
    notes = [r.score.note for r in found.rollouts if r.score is not None]
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
    assert evaluated().rollouts == found.rollouts
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
    assert "the code stopped when it reached for the network, or to start" in done.json["attempts"][0]["note"]
    done = launcher.run(["learn", *how, "--method", "episodes", "--out", "run", "--json"], tmp_path)
    assert done.json["errors"] == {"stopped_programs": 1}, done.err
    assert "1 whose code was stopped" in launcher.run(["monitor", "run"], tmp_path).out


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")


@needs_fences
def test_what_running_code_showed_is_journaled_and_what_a_rule_says_is_not() -> None:
    names = [name for name in SCORERS.core if name != "choice"]
    made = {name: make_scorer(config_from({"scorer": name}), practicum.Parts()) for name in names}
    assert [name for name, scorer in made.items() if not scorer.pure] == ["regex", "tests", "software"]
    assert {name: scorer.name for name, scorer in made.items()} == {name: name for name in made}


@needs_fences
@pytest.mark.parametrize("name", ["tests", "coverage", "commongen"])
def test_a_task_without_what_its_scorer_needs_has_no_score_where_that_is_not_needed(name: str) -> None:
    run = indoors(lambda call: "")
    run._state.scorer = make_scorer(config_from({"scorer": name}), practicum.Parts())
    assert asyncio.run(run.score(Task("t", "x"), Trace("x = 1"))) is None


@needs_fences
@pytest.mark.parametrize("name", ["exact", "tests", "coverage", "software"])
def test_an_attempt_that_failed_scores_zero(name: str) -> None:
    run = indoors(lambda call: "")
    run._state.scorer = make_scorer(config_from({"scorer": name}), practicum.Parts())
    task = Task("t", "x", "x", {"tests": "assert f", "concepts": ["dog"]})
    assert asyncio.run(run.score(task, Trace("x", error="timed out"))) == Score(0.0, False, "timed out")
