"""`practicum advise`: the method for the tasks, the model and the budget, and a command that `learn` takes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, run_command, write_tasks
from hypothesis import given
from hypothesis import strategies as st

import practicum
from practicum.core.types import Profile, Task
from practicum.session.advice_table import CALLS, Row
from practicum.session.advise import estimate, planned
from practicum.session.components import Parts
from practicum.session.config import Splits

SCRIPTED = ("--model", "scripted:model")
WORLD = """
class World:
    tools = []

    def state(self):
        return {}

def score(task, answer):
    return 1.0
"""
SCRIPT = ({"role": "agent", "answer": "desk1"}, {"answer": "no form that is asked for"})
SUBJECTS = ("a cracked screen", "an empty battery", "a wet keyboard", "a lost password")


def similar(n: int) -> list[Task]:
    """Tasks about four subjects, each with one answer."""
    return [Task(f"t{i}", f"Customer {i} has {SUBJECTS[i % 4]}", f"desk{i % 4}") for i in range(n)]


def unlike(n: int) -> list[Task]:
    """Tasks that are alike, with answers that follow from a number in them."""
    return [Task(f"t{i}", f"A refund of {i * 37 % 101} dollars", f"desk{i * 37 % 101 // 26}") for i in range(n)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "model").write_text("\n".join(map(json.dumps, SCRIPT)))
    (tmp_path / "worlds_here.py").write_text(WORLD)
    return tmp_path


def advised(here: Path, tasks: Iterable[Task], *options: str) -> dict[str, Any]:
    write_tasks(here / "tasks.jsonl", list(tasks))
    done = run_command(["advise", "tasks.jsonl", *options, "--json"], here)
    assert done.code == 0, done.err
    return done.json


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--profile", "small"],
        ["--scorer", "judge", "--role", "judge=scripted:model", "--role", "reflector=scripted:model"],
        ["--no-labels", "--instructions", "Name the desk; it's on the list."],
        ["--max-calls", "30", "--test", "tasks.jsonl", "--role", "curator=scripted:model"],
    ],
)
@pytest.mark.slow
def test_the_printed_command_is_accepted_by_learn(here: Path, options: list[str]) -> None:
    write_tasks(here / "tasks.jsonl", similar(6))
    told = run_command(["advise", "tasks.jsonl", *SCRIPTED, *options], here)
    assert told.code == 0, told.err
    assert sorted(path.name for path in here.iterdir()) == ["model", "tasks.jsonl", "worlds_here.py"]
    (line,) = (line for line in told.out.splitlines() if line.startswith("learn with: "))
    program, *arguments = shlex.split(line.removeprefix("learn with: "))
    assert (program, arguments[:2]) == ("practicum", ["learn", "tasks.jsonl"])
    done = run_command([*arguments, "--out", "run", "--json"], here)
    assert done.code == 0, done.err


def test_a_budget_that_is_too_small_for_the_method_gets_a_cheaper_one(here: Path) -> None:
    free = advised(here, unlike(40), *SCRIPTED)
    assert (free["method"], free["learning"]["calls"], free["notes"]) == ("unified", 400, [])
    tight = advised(here, unlike(40), *SCRIPTED, "--max-calls", "100")
    # Answers that are known are kept without a call.
    assert (tight["method"], tight["learning"]["calls"]) == ("episodes", 0)
    assert tight["notes"][0].startswith("unified is over the budget: about 400 calls, ")
    least = advised(here, unlike(40), *SCRIPTED, "--no-labels", "--judge", "--max-calls", "30")
    assert (least["method"], least["learning"]["calls"]) == ("episodes", 80)  # an attempt and a verdict each
    assert "the budget covers about 15 tasks of 40: " in least["notes"][-1]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["none.jsonl"], "none.jsonl: no such file; "),
        (["empty.jsonl"], "empty.jsonl: the file holds no tasks; "),
        (["open.jsonl"], "2 of 2 tasks have no target: add \"target\", name its field with --fields target=NAME, "
         "let a judge score with --scorer judge, or learn from verdicts with --no-labels --judge"),
        (["tasks.jsonl", "--scorer", "vibes"], "unknown scorer 'vibes'"),
        (["tasks.jsonl", "--model", "gpt-9"], "unknown model 'gpt-9'. Names look like openai:gpt-4.1-mini, "),
        (["tasks.jsonl", "--role", "critic=local"], "unknown role 'critic': known are agent, "),
        (["tasks.jsonl", "--role", "agent=local", "--role", "generator=local"], "one role has two models: "),
        (["tasks.jsonl", "--agent", "chatt"], "unknown agent 'chatt'"),
        (["tasks.jsonl", "--judge"], "a judge's verdict is feedback for learning without labels: add --no-labels"),
        (["tasks.jsonl", "--test", "open.jsonl"], "the test tasks: task 'line-1' has no target, which scorer "),
        (["tasks.jsonl", "--max-calls", "0"], "Invalid value for '--max-calls': Input should be "),
        (["tasks.jsonl", "--max-calls", "3", "--test", "tasks.jsonl"], "the budget of 3 calls is too small: "),
        (["tasks.jsonl", "--model", "http://localhost:1/v1#m", "--max-usd", "1"],
         "the price of http://localhost:1/v1#m is not known, so the budget of 1 USD cannot be enforced: give --price "),
    ],
)  # fmt: skip
def test_bad_input_is_reported_in_one_line(here: Path, options: list[str], line: str) -> None:
    write_tasks(here / "tasks.jsonl", make_tasks(30))
    (here / "empty.jsonl").write_text("")
    (here / "open.jsonl").write_text('{"input": "a"}\n{"input": "b"}\n')
    done = run_command(["advise", *options], here)
    assert done.code == 2
    assert done.line.startswith(line)


def test_held_out_targets_that_are_no_choices_are_told(here: Path) -> None:
    write_tasks(here / "held.jsonl", [Task("h", "Customer 7 has a cracked tile", "desk9")])
    found = advised(here, similar(40), *SCRIPTED, "--test", "held.jsonl")
    assert "1 target of held-out tasks (such as 'desk9') cannot be found" in found["notes"][0]
    assert "--choices" not in found["command"]


@cache
def setup(method: str, profile: Profile, scorer: str) -> Any:
    row = Row("answers", "small", "any", method, {}, "")
    values = {"model": "openai:gpt-4.1-mini", "profile": profile, "scorer": scorer}
    return planned(row, values, Splits(tuple(make_tasks(7)), test=tuple(make_tasks(3, 7))))


@given(st.sampled_from(sorted(CALLS)), st.sampled_from(["exact", "judge"]), st.integers(0, 3000), st.integers(0, 3000))
def test_the_price_never_decreases_with_more_tasks(
    made: tuple[str, Profile], scorer: str, fewer: int, more: int
) -> None:
    at = setup(*made, scorer)
    small, large = estimate(at, min(fewer, fewer + more)), estimate(at, fewer + more)
    for less, most in zip(small, large, strict=True):
        assert less.calls <= most.calls
        assert less.tokens <= most.tokens
        assert less.usd is not None
        assert most.usd is not None
        assert less.usd <= most.usd


@pytest.mark.slow
@pytest.mark.parametrize(("method", "profile"), sorted(CALLS))
def test_the_calls_are_about_those_of_a_run(method: str, profile: Profile, tmp_path: Path) -> None:
    asked, tasks = client(), make_tasks(20)
    result = practicum.run_sync(practicum.learn(
        tasks, method=method, profile=profile, out=tmp_path / "run", parts=Parts(clients={"agent": asked}), watch=[],
    ))  # fmt: skip
    attempts, others = CALLS[method, profile]
    assert result.usage.calls == pytest.approx(len(tasks) * (attempts + others), rel=0.2)
