"""Combee as METHODS section 2 has it: map, shuffle, reduce, in whole runs; its settings and what they refuse."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks
from labels import changed, prompts
from profiles import cases
from pydantic import TypeAdapter
from runs import OPS, learner, lessons_read, random_curator, spelled
from scans import curated, curated_by, insight, learned, lessons

import practicum
from practicum import methods
from practicum.core.context import seed_context
from practicum.core.errors import JournalMismatch, UsageError
from practicum.core.types import Task
from practicum.models.scripted import Call

# ---- the scan


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"groups": 5}, [16] * 5),
        ({"copies": 1}, [6, 6, 7, 7, 7, 7]),
        ({"fan_in": 8}, [8] * 10),
        ({"copies": 4}, [20] * 8),
        ({"groups": 4, "copies": 1, "shuffle": "random"}, [10] * 4),
        ({"levels": 1}, [12, 13, 13, 14, 14, 14]),
        ({"asynchronous": True}, []),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_settings_say_how_lessons_are_dealt(tmp_path: Path, settings: dict[str, Any], sizes: list[int]) -> None:
    run = learned(tmp_path, insight, 40, settings)
    found = sorted(len(read) for read in curated(run))
    assert found == sizes or settings.get("asynchronous")
    assert sum(found) == 40 * settings.get("copies", 2)
    assert {text for read in curated(run) for text in read} == lessons(run) <= {*run.texts}


@pytest.mark.parametrize(("slots", "copies"), [(1, 1), (3, 1), (4, 2), (9, 2)])
def test_with_few_attempts_in_flight_there_is_one_group_and_no_copy(tmp_path: Path, slots: int, copies: int) -> None:
    run = learned(tmp_path, insight, 12, {"asynchronous": True, "batch": slots})
    assert Counter(text for read in curated(run) for text in read) == dict.fromkeys(lessons(run), copies)


# ---- accounting


@pytest.mark.parametrize("n", [4, 7, 20, 55, 100])
@pytest.mark.parametrize("seed", cases([0, 1, 2], 0))
@pytest.mark.parametrize(
    "settings", [{}, {"fan_in": 7, "copies": 3}, {"asynchronous": True}], ids=["", "fan_in", "async"]
)
@pytest.mark.slow
def test_random_curators_read_at_most_fan_in_lessons_and_lose_none(
    tmp_path: Path, n: int, seed: int, settings: dict[str, Any]
) -> None:
    curator = random_curator(seed, OPS[seed::2] if seed else OPS, 0.1, [])
    rules = seed_context([("rules", f"If old {spelled(i)}, do it.") for i in range(5)])
    run = learned(tmp_path, curated_by(curator), n, settings, seed_context=rules)
    assert max(map(len, curated(run)), default=0) <= settings.get("fan_in", 20)
    named = {id for step in run.reports for a in step.applied for id in a.edit.lessons if a.edit.op in NAMING}
    resolutions = {resolution.lesson for step in run.reports for resolution in step.resolutions}
    assert {x.id for step in run.reports for x in step.lessons if x.text} == named | resolutions


NAMING = ("add", "update", "merge")


def test_lessons_left_out_are_asked_about_again_and_then_kept_or_dropped(tmp_path: Path) -> None:
    def odd(call: Call) -> str:
        """Of many lessons it takes the first, of few all but one."""
        count = len(lessons_read(call))
        return json.dumps({"decisions": [{"lesson": n, "op": "ADD"} for n in range(1, 2 if count > 10 else count)] or [
            {"lesson": 99, "op": "ADD"}]})  # fmt: skip

    kept = learned(tmp_path / "kept", curated_by(odd), 40)
    assert sorted(kept.texts) == sorted(lessons(kept))
    assert kept.result.errors["repeated_lessons"] > 0
    assert kept.result.errors["kept_lessons"] > 0
    dropped = learned(tmp_path / "dropped", curated_by(odd), 40, {"uncovered": "drop"})
    assert dropped.result.errors["dropped_lessons"] == kept.result.errors["kept_lessons"]
    assert len(dropped.texts) == 40 - dropped.result.errors["dropped_lessons"]
    once = learned(tmp_path / "once", curated_by(odd), 40, {"again": 0})
    assert "repeated_lessons" not in once.result.errors
    assert len(curated(once)) == 6
    without = learned(tmp_path / "without", curated_by(odd), 40, {"accounting": False})
    assert without.result.errors["dropped_lessons"] == once.result.errors["kept_lessons"]
    assert len(curated(without)) == 6


def test_without_a_barrier_copies_of_a_lesson_are_accounted_for_together(tmp_path: Path) -> None:
    def first(call: Call) -> str:
        """Of each group it takes the first, each time in other words."""
        (lesson, *_), nth = lessons_read(call), len(lessons_read(call))
        text = f"{lesson} So {spelled(nth)} were read."
        return json.dumps({"decisions": [{"lesson": 1, "op": "ADD", "text": text}]})

    how: dict[str, Any] = {"asynchronous": True, "dedupe": "never"}
    for n in (8, 40):
        kept = learned(tmp_path / f"kept {n}", curated_by(first), n, how)
        asked = [text for read in curated(kept) for text in read]
        assert sorted(text.split(" So ")[0] for text in kept.texts) == sorted(lessons(kept))
        assert kept.result.errors["repeated_lessons"] == len(asked) - 2 * n
        assert kept.result.errors["kept_lessons"] == sum(" So " not in text for text in kept.texts)

        dropped = learned(tmp_path / f"dropped {n}", curated_by(first), n, {**how, "accounting": False})
        gone = [resolution for step in dropped.reports for resolution in step.resolutions]
        assert dropped.result.errors["dropped_lessons"] == len(gone) == n - len(dropped.texts) > 0
        told = {resolution.lesson for resolution in gone}
        assert {text.split(" So ")[0] for text in dropped.texts} == {
            x.text for step in dropped.reports for x in step.lessons if x.id not in told
        }


# ---- what else a run is made of


def test_memories_are_appended_with_no_curator_at_all(tmp_path: Path) -> None:
    for settings in ({}, {"asynchronous": True}):
        run = learned(tmp_path / "-".join(settings) / "x", insight, 40, {"curator": "append", **settings})
        assert curated(run) == []
        assert sorted(run.texts) == sorted(lessons(run))


def test_playbooks_rewritten_by_groups_are_joined(tmp_path: Path) -> None:
    def rewriting(call: Call) -> str:
        return json.dumps({"entries": [{"section": "rules", "text": text} for text in lessons_read(call)]})

    run = learned(
        tmp_path, curated_by(rewriting), 40, {"curator": "rewrite"}, seed_context=seed_context([("rules", "Old.")])
    )
    assert sorted(run.texts) == sorted(lessons(run))
    assert run.result.refused == 0


@pytest.mark.parametrize(
    ("settings", "reflections", "curations"),
    [
        ({}, 40, 6),
        ({"batch": 10}, 40, 4 * 3),
        ({"rounds": 2, "refine": "critique", "again": 0}, 80, 8),
        ({"exact": True}, 40, 6 + 1),
        ({"levels": 1}, 40, 6),
        ({"curator": "append"}, 40, 0),
        ({"asynchronous": True, "curator": "append"}, 40, 0),
        ({"reflector": False, "curator": "append", "batch": 12}, 0, 0),
    ],
    ids=str,
)
@pytest.mark.slow
def test_forty_tasks_cost_an_attempt_each_reflections_and_a_curation_a_group(
    tmp_path: Path, settings: dict[str, Any], reflections: int, curations: int
) -> None:
    run = learned(tmp_path, insight, 40, settings)
    asked = Counter(call.role for call in run.model.calls)
    assert asked == Counter(agent=40, reflector=reflections, curator=curations)


@pytest.mark.parametrize("settings", [{"batch": 8}, {"batch": 8, "join": "model"}, {"batch": 8, "exact": True}])
@pytest.mark.parametrize("calls", cases([20, 35, 47], 35))
def test_a_run_stopped_anywhere_by_its_budget_resumes_to_the_same_result(
    tmp_path: Path, settings: dict[str, Any], calls: int
) -> None:
    whole = learned(tmp_path / "whole", learner, 24, settings)
    cut = learned(tmp_path / "cut", learner, 24, settings, max_calls=calls)
    assert cut.result.stopped == f"the budget of {calls} calls is spent"
    parts = practicum.Parts(clients={"agent": cut.model})
    again = practicum.run_sync(practicum.resume(tmp_path / "cut" / "run", max_calls=1000, parts=parts))
    assert context_bytes(again) == context_bytes(whole.result)
    assert len(cut.model.calls) == whole.result.usage.calls


# ---- settings


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"batch": 0}, "setting batch=0 of method combee: Input should be auto or a whole number from 1 on"),
        ({"batch": "many"}, "setting batch='many' of method combee: Input should be auto or a whole number from 1 on"),
        ({"batch": -4}, "setting batch=-4 of method combee: Input should be auto or a whole number from 1 on"),
        ({"groups": 0}, "setting groups=0 of method combee: Input should be sqrt or a whole number from 1 on"),
        ({"levels": 0}, "setting levels=0 of method combee: Input should be auto or a whole number from 1 on"),
        ({"copies": 0}, "setting copies=0 of method combee: Input should be greater than or equal to 1"),
        ({"fan_in": 2}, "setting fan_in=2 of method combee: Input should be greater than or equal to 3"),
        ({"again": -1}, "setting again=-1 of method combee: Input should be greater than or equal to 0"),
        ({"slope": 1}, "setting slope=1 of method combee: Input should be less than 1"),
        ({"max_batch": 0}, "setting max_batch=0 of method combee: Input should be greater than or equal to 1"),
        ({"shuffle": "no"}, "setting shuffle='no' of method combee: Input should be 'stratified' or 'random'"),
        (
            {"staleness": -1, "asynchronous": True},
            "setting staleness=-1 of method combee: Input should be greater than or equal to 0",
        ),
        ({"copies": 3, "groups": 2}, "copies=3 is more than groups=2: each copy goes to another group"),
        ({"copies": 21}, "copies=21 is more than fan_in=20: no group could hold them"),
        (
            {"exact": True, "shuffle": "random"},
            "exact=true is the paper's own way, which settles shuffle: leave that out",
        ),
        (
            {"exact": True, "join": "model", "accounting": True},
            "exact=true is the paper's own way, which settles accounting, join: leave that out",
        ),
        ({"batch": 40, "slope": 0.1}, "slope is for batch=auto"),
        ({"batch": 40, "max_batch": 50, "slope": 0.1}, "max_batch, slope is for batch=auto"),
        (
            {"curator": "append", "uncovered": "drop"},
            "uncovered is for curator=edits, which asks a model",
        ),
        (
            {"curator": "append", "join": "model"},
            "curator=append asks no model, which exact=true and join=model need to join the groups",
        ),
        (
            {"curator": "append", "exact": True},
            "curator=append asks no model, which exact=true and join=model need to join the groups",
        ),
        ({"accounting": False, "again": 3}, "again needs accounting=true"),
        ({"levels": 2}, "levels counts calls of the model: it needs join=model (code joins all groups at once)"),
        ({"online": True}, "a stream needs a batch size of its own: give `batch=N`"),
        ({"staleness": 1}, "staleness needs asynchronous=true"),
        (
            {"asynchronous": True, "shuffle": "random", "join": "model"},
            "join, shuffle has no effect with asynchronous=true: groups are filled as lessons arrive",
        ),
        ({"asynchronous": True, "groups": 9, "batch": 8}, "groups=9 is more than the 8 attempts in flight fill"),
        ({"asynchronous": True, "groups": 50}, "groups=50 is more than the 40 attempts in flight fill"),
        (
            {"asynchronous": True, "copies": 3, "batch": 8},
            "copies=3 is more than the groups that the 8 attempts in flight fill",
        ),
        ({"lessons": "confirmed", "rounds": 0}, "lessons=confirmed needs refine=retry and at least one round"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_impossible_settings_are_refused_in_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        methods.build("combee", settings)
    text = str(refused.value)
    assert text.startswith(line if line.startswith("setting") else f"method combee: {line}")
    assert "\n" not in text


def test_texts_from_the_command_line_are_read_as_numbers() -> None:
    made = methods.settings_of("combee").model_validate(
        {"batch": "40", "groups": "7", "levels": "3", "join": "model", "copies": "3", "accounting": "false"}
    )
    assert (made.batch, made.groups, made.levels, made.copies, made.accounting) == (40, 7, 3, 3, False)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "counted"),
    [
        ({"batch": 50}, {"batch_lowered": 1}),
        ({"groups": 30}, {"groups_lowered": 1}),
        ({"copies": 5}, {"copies_lowered": 1}),
        ({"groups": 2, "fan_in": 4}, {"groups_raised": 1}),
        ({}, {}),
    ],
)
def test_adjusted_settings_are_counted(tmp_path: Path, settings: dict[str, Any], counted: dict[str, int]) -> None:
    assert learned(tmp_path, insight, 12, settings).result.errors == counted


# ---- no labels


@pytest.mark.slow
@pytest.mark.parametrize("labels", [True, False])
def test_without_labels_and_barrier_no_prompt_depends_on_targets(tmp_path: Path, labels: bool) -> None:
    """The other targets are tried with attempts that end in the same order, since that order is part of the input."""
    tasks = make_tasks(13, tags=["a"])
    config: dict[str, Any] = {"settings": {"asynchronous": True, "batch": 5}, "labels": labels}
    before = prompts(tmp_path / "a", tasks, method="combee", **config)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with sqlite3.connect(tmp_path / "b" / "run.sqlite") as db:
        db.execute("delete from journal where role != 'noted'")
        for task in changed(tasks, "other"):
            data = TypeAdapter(Task).dump_json(task).decode()
            db.execute("update tasks set data = ? where task_id = ?", (data, task.id))
    db.close()
    model = client()
    work = practicum.resume(tmp_path / "b", parts=practicum.Parts(clients={"agent": model}))
    # With labels, so that the test could fail: then what happens is another run.
    with suppress(JournalMismatch) if labels else nullcontext():
        practicum.run_sync(work)
    assert (before == sorted((call.role, call.text) for call in model.calls)) is not labels


def test_with_labels_the_same_change_is_seen(tmp_path: Path) -> None:
    tasks = make_tasks(9)
    assert prompts(tmp_path / "a", tasks, method="combee", settings={"batch": 9}) != prompts(
        tmp_path / "b", [replace(t, target="quite-another") for t in tasks], method="combee", settings={"batch": 9}
    )
