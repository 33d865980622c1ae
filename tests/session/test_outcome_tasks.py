"""The outcomes of a space as tasks: those that are held out, and those of a space that was made elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refused

import practicum
from practicum.core.context import Context
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
    """Have the outcomes of these queries held out, as a service does with a share of them."""
    ids = [task.meta["own_id"] for n, task in enumerate(practicum.load_outcomes(space)) if n in queries]
    o = schema.outcomes
    with Store.open(space) as store:
        store.change(lambda at: at.run(at.update(o).where(o.c.id.in_(ids)).values(state=HELD)))


def inputs(space: Path, held_out: bool = False) -> list[str]:
    return [task.input for task in practicum.load_outcomes(space, held_out=held_out)]


def test_what_is_held_out_is_asked_for(space: Path) -> None:
    hold_out(space, 1)
    assert inputs(space) == ["Question 0?", "Question 2?"]
    assert inputs(space, held_out=True) == ["Question 1?"]


def test_a_space_whose_outcomes_are_all_held_out_says_so(space: Path) -> None:
    with refused("run.no_data"):
        practicum.load_outcomes(space, held_out=True)
    hold_out(space, 0, 1, 2)
    with refused("run.no_data") as caught:
        practicum.load_outcomes(space)
    assert "3 are held out" in str(caught.value)


def test_outcomes_of_a_space_that_was_made_elsewhere_are_foreign(space: Path) -> None:
    assert {task.trust for task in practicum.load_outcomes(space)} == {"own"}
    with Store.open(space) as store:
        update_run(store, mark="")
    assert {task.trust for task in practicum.load_outcomes(space)} == {"foreign"}


def test_an_attempt_of_a_space_is_no_attempt_of_the_run_that_learns_from_it(space: Path) -> None:
    for task in practicum.load_outcomes(space):
        assert task.recorded is not None
        assert (task.recorded.own, task.recorded.retrieved) == (False, ())
        assert task.recorded.score == practicum.Score(0.0, False)


def test_a_run_learns_from_outcomes_in_python(space: Path, tmp_path: Path) -> None:
    tasks = practicum.load_outcomes(space)
    work = practicum.learn(tasks, from_traces=True, method="episodes", model="scripted:none", out=tmp_path / "new")
    result = practicum.run_sync(work)
    assert sorted(entry.text for entry in result.context) == ["Question 0?", "Question 1?", "Question 2?"]
    assert (result.usage.calls, result.held) == (0, 0)
