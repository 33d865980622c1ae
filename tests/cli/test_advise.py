"""`practicum advise`: the method for the tasks, the model and the budget, and a command that `learn` takes."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from helpers import client, make_tasks, run_command, write_tasks
from hypothesis import given
from hypothesis import strategies as st

import practicum
from practicum import methods
from practicum.core.types import Profile, Task, Usage
from practicum.models.registry import price_of
from practicum.retrieval.vectors import WordLlama
from practicum.session.advice_table import ADVICE, CALLS, ModelKind, Row, TaskKind
from practicum.session.advise import estimate, look, planned
from practicum.session.components import Parts
from practicum.session.config import Splits

ROOT = Path(__file__).parents[2]
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


def test_similar_tasks_are_learned_by_examples_and_others_by_rules(here: Path) -> None:
    alike = advised(here, similar(40), *SCRIPTED, "--profile", "small")
    assert (alike["tasks"], alike["model"], alike["method"]) == ("choices", "small", "episodes")
    assert alike["nearest"] == {"tasks": 40, "right": 1.0, "most_frequent": 0.25}
    other = advised(here, unlike(40), *SCRIPTED, "--profile", "small")
    assert (other["tasks"], other["model"], other["method"]) == ("choices", "small", "ace")
    assert "67% to 73%" in other["reason"]
    assert other["measured"].startswith("docs/results.md#")
    assert other["nearest"]["right"] < 0.7
    assert advised(here, unlike(12), *SCRIPTED)["method"] == "episodes"


@pytest.mark.parametrize(
    ("options", "tasks", "model"),
    [
        ([], "answers", "capable"),
        (["--model", "openai:gpt-4.1-mini"], "answers", "capable"),
        (["--model", "local"], "answers", "tiny"),
        (["--model", "local:/models/any.gguf"], "answers", "small"),
        (["--model", "http://localhost:1/v1#m", "--profile", "small"], "answers", "small"),
        (["--model", "local:/models/any.gguf", "--role", "reflector=openai:gpt-4.1"], "answers", "capable"),
        (["--model", "openai:gpt-4.1", "--role", "generator=local"], "answers", "tiny"),
        (["--scorer", "judge"], "text", "capable"),
        (["--no-labels"], "text", "capable"),
        (["--choices", ",".join(f"word{n}" for n in range(30))], "choices", "capable"),
        (["--agent", "tools:worlds_here:World", "--scorer", "worlds_here:score"], "tools", "capable"),
        (["--agent", "tools:worlds_here:World", "--scorer", "worlds_here:score", "--model", "local"], "tools", "tiny"),
    ],
)
def test_the_kinds_of_tasks_and_models(
    here: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], tasks: str, model: str
) -> None:
    monkeypatch.syspath_prepend(here)
    found = advised(here, make_tasks(30), *options)
    assert (found["tasks"], found["model"]) == (tasks, model)
    assert found["nearest"] is None or tasks in ("choices", "answers")
    row = next(r for r in ADVICE if (r.tasks, r.model, r.reason) == (tasks, model, found["reason"]))
    assert (found["method"], found["settings"]) == (row.method, row.settings)


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


def test_every_row_is_accepted_with_every_budget_left_out() -> None:
    tasks = Splits(tuple(similar(4)), test=tuple(similar(4)))
    for row in ADVICE:
        profile: Profile = "full" if row.model == "capable" else "small"
        assert planned(row, {"model": "local", "profile": profile}, tasks).config.method == row.method
        assert (row.method, profile) in CALLS
        methods.read_settings(row.method, row.settings, profile)
    for kind in get_args(TaskKind):
        for model in get_args(ModelKind):
            assert [r.when for r in ADVICE if (r.tasks, r.model) == (kind, model)][-1] == "any"


def test_measured_rows_name_a_section_of_the_documentation() -> None:
    for place in {row.measured for row in ADVICE} - {""}:
        path, _, section = place.partition("#")
        titles = [t.strip("# ").lower() for t in (ROOT / path).read_text().splitlines() if t.startswith("#")]
        slugs = ["".join(c for c in t if c.isalnum() or c in " -_").replace(" ", "-") for t in titles]
        assert section in slugs


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


def test_dollars_are_those_of_the_models_that_are_asked(here: Path) -> None:
    hosted = advised(here, unlike(40), "--model", "openai:gpt-4.1-mini", "--test", "tasks.jsonl")
    assert 0.01 < hosted["learning"]["usd"] < 5
    assert 0 < hosted["evaluation"]["usd"] < hosted["learning"]["usd"]
    assert advised(here, unlike(40), "--model", "local:any.gguf")["learning"]["usd"] == 0
    at_address = ("--model", "http://localhost:1/v1#m")
    assert advised(here, unlike(40), *at_address)["learning"]["usd"] is None
    assert advised(here, unlike(40), *at_address, "--price", "in=1,out=1")["learning"]["usd"] > 0.01
    cheap = advised(here, unlike(40), "--model", "openai:gpt-4.1-mini", "--max-usd", "0.1")
    assert cheap["method"] == "episodes"


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


def test_long_targets_need_a_scorer_that_reads_them(here: Path) -> None:
    worked = [replace(task, target=f"{'It follows. ' * 20}\n#### {i}") for i, task in enumerate(unlike(30))]
    found = advised(here, worked, *SCRIPTED)
    assert found["tasks"] == "text"
    assert "targets are long, and `exact` wants the same text" in found["notes"][-1]
    assert advised(here, worked, *SCRIPTED, "--scorer", "numeric")["tasks"] == "answers"


def test_a_program_needs_no_model_for_solved_tasks(here: Path) -> None:
    found = advised(here, similar(8), "--agent", "command:true")
    assert (found["method"], found["learning"]["calls"]) == ("episodes", 0)
    assert "--model" not in found["command"]
    assert "--model NAME" in advised(here, unlike(40), "--agent", "command:true")["command"]


def test_the_page_shows_what_is_printed(here: Path) -> None:
    page = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    command, shown = page.split("## Which method")[1].split("```bash\n")[1].split("```\n")[0:3:2]
    done = run_command(shlex.split(command.replace("REPO", str(ROOT)).replace("\\\n", ""))[1:], here)
    assert done.out.replace(str(ROOT), "REPO") == shown


def test_what_waits_for_review_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    world = ("--agent", "tools:worlds_here:World", "--scorer", "worlds_here:score")
    assert "--trust-tools" in advised(here, make_tasks(4), *world, *SCRIPTED)["notes"][0]
    assert not advised(here, make_tasks(4), *world, *SCRIPTED, "--trust-tools")["notes"]


def test_many_tasks_are_looked_at_in_a_sample() -> None:
    found = asyncio.run(look(similar(600), WordLlama()))
    assert found.tasks == 500
    assert found.nearest > 0.95


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


def test_the_price_of_a_model_is_known_without_opening_it() -> None:
    usage = Usage(1, 1_000_000, 0, 0)
    assert price_of("local", {})(usage) == 0
    assert price_of("scripted:x", {})(usage) == 0
    assert price_of("http://h/v1#m", {})(usage) is None
    assert price_of("openai:gpt-4.1-mini", {})(usage) == pytest.approx(0.4)
