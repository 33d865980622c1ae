"""The outcomes of a space as tasks, and learning from traces that are too long for their model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import make_tasks
from refusals import refused
from scripts import learned, scripted

import practicum
from practicum.core.context import Context
from practicum.core.errors import WindowError
from practicum.core.types import Recorded, Score, Trace
from practicum.models.scripted import Call
from practicum.session.outcomes import HELD
from practicum.session.records import create_seed, update_run
from practicum.store import schema
from practicum.store.database import Store


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """A space with three outcomes that have right answers."""
    folder = tmp_path / "space"
    create_seed(folder, Context())

    async def report() -> None:
        async with practicum.open(folder) as opened:
            for n in range(3):
                await opened.report(await opened.show(f"Question {n}?"), answer="no", target=f"word{n}")

    practicum.run_sync(report())
    return folder


def hold_out(space: Path, *queries: int) -> None:
    """Hold out the outcomes of these queries, as a service does with a share of them."""
    ids = [task.meta["own_id"] for n, task in enumerate(practicum.load_outcomes(space)) if n in queries]
    o = schema.outcomes
    with Store.open(space) as store:
        store.change(lambda at: at.run(at.update(o).where(o.c.id.in_(ids)).values(state=HELD)))


def inputs(space: Path, held_out: bool = False) -> list[str]:
    return [task.input for task in practicum.load_outcomes(space, held_out=held_out)]


def test_held_out_outcomes_are_loaded_on_request_only(space: Path) -> None:
    with refused("run.no_data"):
        practicum.load_outcomes(space, held_out=True)
    hold_out(space, 1)
    assert inputs(space) == ["Question 0?", "Question 2?"]
    assert inputs(space, held_out=True) == ["Question 1?"]
    hold_out(space, 0, 1)
    with refused("run.no_data") as caught:
        practicum.load_outcomes(space)
    assert "3 are held out" in str(caught.value)


def test_outcomes_are_scored_attempts_and_foreign_if_the_space_was_created_elsewhere(space: Path) -> None:
    tasks = practicum.load_outcomes(space)
    assert {task.trust for task in tasks} == {"own"}
    for task in tasks:
        assert task.recorded is not None
        assert (task.recorded.own, task.recorded.retrieved) == (False, ())
        assert task.recorded.score == practicum.Score(0.0, False)
    with Store.open(space) as store:
        update_run(store, mark="")
    assert {task.trust for task in practicum.load_outcomes(space)} == {"foreign"}


def test_a_run_with_only_traces_too_long_for_its_model_fails(tmp_path: Path) -> None:
    def refuse(call: Call) -> str:
        raise AssertionError("no task is to be attempted")

    def overflow(call: Call) -> Exception:
        return WindowError("window.exceeded", "larger than the window")

    records = [Recorded(Trace(f"word{n}" if n % 2 else "no"), Score(n % 2, n % 2 == 1)) for n in range(4)]
    tasks = [replace(task, recorded=record) for task, record in zip(make_tasks(4), records, strict=True)]
    with refused("attempts.all_failed"):
        learned(tmp_path, scripted(refuse, overflow), tasks, {"batch": 4}, "combee", from_traces=True)
