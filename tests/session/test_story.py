"""The story of a run: every id that is listed can be opened, and what is told is what happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from helpers import client, make_tasks, world

import practicum
from practicum.core.errors import UsageError
from practicum.core.types import Recorded, Step, Trace
from practicum.models.scripted import Call
from practicum.session.story import Story

TEST = make_tasks(2, 20)
TRACES = [
    replace(task, recorded=Recorded(Trace("wrong", steps=(Step("action", "look"),)), None)) for task in make_tasks(2)
]


def look(word: str) -> str:
    """Look at a word."""
    return f"seen {word}"


def working(call: Call) -> str:
    """Looks once, then finishes."""
    if call.role != "agent":
        return world(call)
    action = {"finish": {"answer": "word1"}} if "Observation" in call.prompt.user else {"look": {"word": "x"}}
    return json.dumps({"used": [], "thought": "on", "action": action})


def own(text: str, context: str) -> str:
    if "word0" in text:
        raise ValueError("broken")
    return text.split()[-1]


MAKE: dict[str, dict[str, Any]] = {
    "ace": {"method": "ace", "settings": {"batch": 2}, "test": TEST, "val": TEST[:1], "before": True},
    "combee": {"method": "combee", "settings": {"batch": 2}},
    "without a barrier": {"method": "combee", "settings": {"asynchronous": True, "batch": 2, "epochs": 2}},
    "rcl": {"method": "rcl", "tasks": make_tasks(2)},
    "parallel": {"method": "reasoning_bank", "settings": {"scaling": "parallel", "k": 3}, "test": TEST},
    "sequential": {"method": "reasoning_bank", "settings": {"scaling": "sequential", "k": 2}, "labels": False,
                   "judged": True},
    "mael": {"method": "mael", "test": TEST[:1]},
    "traces": {"method": "ace", "tasks": TRACES, "from_traces": True},
    "tools": {"method": "ace", "settings": {"rounds": 0}, "respond": working, "tools": [look], "test": TEST[:1]},
    "own agent": {"method": "ace", "agent": own, "test": TEST[:1]},
    "candidates": {"method": "ape", "settings": {}},
    "judge": {"method": "ace", "settings": {"rounds": 0}, "scorer": "judge"},
}  # fmt: skip


@cache
def run_of(name: str) -> Path:
    """The folder of a run, made once."""
    how = dict(MAKE[name])
    respond: Callable[[Call], str] = how.pop("respond", world)
    objects = {key: how.pop(key) for key in ("tools", "agent") if key in how}
    parts = practicum.Parts(clients={"agent": client(respond)}, **objects)
    folder = Path(mkdtemp(prefix="practicum-story-"))
    tasks = how.pop("tasks", make_tasks(3))
    practicum.run_sync(practicum.learn(tasks, out=folder / "run", parts=parts, **how))
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
def test_everything_that_is_listed_can_be_opened(name: str) -> None:
    with Story.open(run_of(name)) as story:
        lines = {line.id: line for line in story.attempts()}
        assert len(lines) == len(list(story.attempts())) > 0
        for id, line in lines.items():
            told = story.attempt(id)
            assert told.line == line
            assert story.attempt(line.place).line == line
            assert json.loads(json.dumps(told.as_json()))["line"]["id"] == id
            assert told.calls or told.reused or told.recorded
            assert {member.id for member in told.group} <= lines.keys()
        steps = {step.step: step for step in story.steps()}
        assert {line.step for line in lines.values()} - {None} <= steps.keys()
        assert sum(step.lessons for step in steps.values()) == len(list(story.lessons()))
        for lesson in story.lessons():
            assert lesson.attempts
            assert lines.keys() >= {*lesson.attempts}
            for fate in lesson.fates:
                assert fate.what in ("applied", "covered", "dropped", "refused", "waits")
                assert (fate.what == "waits") == bool(fate.review)
                if fate.what == "applied":
                    assert story.entry(fate.entry).events
        calls = list(story.calls())
        for call in calls:
            assert story.call(call.id) == story.call(call.place) == call
            assert call.prompt is not None
            assert (call.answer, call.ok) != ("", True)
            # Candidates are compared by attempts that are no part of a step.
            assert call.attempts or "/accept/" in call.place
            assert lines.keys() >= {*call.attempts}
        assert {c.id for step in steps for c in story.calls(step=step)} == {
            c.id for c in calls if not c.place.startswith("evaluate ")
        }
        assert sum(call.usage.calls for call in calls) == story.info.usage.calls
        for entry in story.context():
            made = story.entry(entry.id)
            assert made.now == entry
            assert lines.keys() >= {*made.attempts}
            assert all(line in lines.values() for line in story.attempts_with(entry.id))


def test_an_attempt_is_told_from_the_task_to_what_became_of_it() -> None:
    with Story.open(run_of("own agent")) as story:
        (failed,) = story.attempts(failed=True, task="t0")
        one = story.attempt(failed.id)
        assert failed.outcome == "failed"
        assert one.task.input == "Message 0: say word0"
        assert one.calls[0].prompt is not None
        assert one.calls[0].prompt.user == one.task.input
        assert one.calls[0].model == ""
        assert "ValueError: broken" in one.calls[0].answer
        assert {call.role for call in one.reflecting} == {"reflector"}
        assert [call.place.split("/")[1] for call in one.updating] == ["update"]
        assert any(fate.what == "applied" for lesson in one.lessons for fate in lesson.fates)
        assert one.usage.calls == len(one.reflecting)


def test_several_attempts_at_a_task_know_each_other() -> None:
    with Story.open(run_of("parallel")) as story:
        one = story.attempt("1.t0.3" if next(story.attempts()).task == "t0" else f"{next(story.attempts()).id}.3")
        assert (one.line.number, one.line.tries) == (3, 3)
        assert [member.id for member in one.group] == [one.group[0].id, f"{one.group[0].id}.2", one.id]
        assert sum(member.chosen for member in one.group) == 1
        assert one.choice["of"] == 3
        assert len(one.calls) == 1
    with Story.open(run_of("rcl")) as story:
        one = story.attempt(next(story.attempts()).id)
        assert one.twin is not None
        assert len(one.group) == 3
    with Story.open(run_of("tools")) as story:
        one = story.attempt(next(story.attempts()).id)
        assert [step.kind for step in one.trace.steps] == ["thought", "action", "observation", "thought"]
        assert len(one.calls) == 2
        assert one.calls[1].prompt is not None
        assert one.calls[1].prompt.user.startswith("Observation: seen x")


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("t1", r"at the task t1: \d\.t1"),
        ("1.t99", r"did you mean 1\.t"),
        ("test.t2", r"did you mean test\.t2[01], test\.t2[01]"),
        ("99.t1", "--attempts lists them"),
        ("step 1/attempt/9.t9", "--attempts lists them|did you mean"),
        ("", "--attempts lists them"),
    ],
)
def test_an_unknown_attempt_is_refused_with_those_that_are_like_it(id: str, words: str) -> None:
    with Story.open(run_of("ace")) as story, pytest.raises(UsageError, match=words):
        story.attempt(id)
