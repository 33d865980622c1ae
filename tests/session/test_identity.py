"""Names that are unique within one run: whatever contexts meet, none stands for two traces, attempts or tasks."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import scripts
from helpers import context_bytes
from scripts import Learned, scripted
from teams import SHOWING, learned, team

from practicum import load_tasks
from practicum.core.edits import Entry
from practicum.core.types import Task
from practicum.session.amend import roll_back
from practicum.session.forget import ForgetReport, forget
from practicum.store.database import Store


def lines(path: Path, *numbers: int) -> list[Task]:
    """The tasks of a file whose records have no ids."""
    records = ({"input": f"Message {n}: say word{n}", "target": f"word{n}"} for n in numbers)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return load_tasks(path)


def about(entry: Entry) -> int:
    """The message that an experience is about."""
    return int(re.findall(r"Message (\d+)", entry.key)[0])


def traces(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """The messages that each stored trace is about."""
    found: dict[str, set[int]] = defaultdict(set)
    for entry in entries:
        found[entry.data["trace"]].add(about(entry))
    return found


def forgotten(folder: Path, **named: Any) -> ForgetReport:
    with Store.open(folder) as store:
        return forget(store, **named)


@pytest.fixture
def first(tmp_path: Path) -> Learned:
    return learned(tmp_path / "a", lines(tmp_path / "one.jsonl", 1, 3))


def following(folder: Path, first: Learned, respond: Any = None, **how: Any) -> Learned:
    """A run on other tasks at the same places, on the context of the first."""
    tasks, settings = lines(folder.parent / "two.jsonl", 5, 7), {**SHOWING, "experience": "task"}
    return learned(folder, tasks, settings, respond, seed_context=first.result.context, **how)


# ---- runs that follow each other


def test_equal_runs_are_equal_at_any_concurrency_and_after_any_kill(tmp_path: Path, first: Learned) -> None:
    whole = following(tmp_path / "whole", first)
    again = following(tmp_path / "again", first, concurrency=1)
    assert context_bytes(again.result) == context_bytes(whole.result)
    scripts.same_after_any_kill(whole, team(), tmp_path / "cut", lambda at, model: following(at, first, model))


# ---- other names


def test_a_leg_after_a_removal_has_places_of_its_own(tmp_path: Path) -> None:
    """The ids of the tasks are long enough to be looked for, and the note about a leg names them."""
    tasks = [Task(f"ticket-00000{n}", f"Message {n}: say word{n}", f"word{n}") for n in range(4)]
    run = scripts.learned(tmp_path, scripted(scripts.wrong), tasks, {"batch": 1, "rounds": 0})

    def next_leg() -> list[str]:
        with Store.open(run.folder) as store:
            roll_back(store, 1)
        return [r.place for r in scripts.resumed(run, scripted(scripts.wrong)).attempts]

    places = next_leg()
    found = forgotten(run.folder, tasks=[places[-1].partition(".")[2]])
    assert found.left == 0
    assert not {*places} & {*next_leg()}
