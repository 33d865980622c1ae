"""The outcomes of a space as tasks, and learning from traces that are too long for their model."""

from __future__ import annotations

from pathlib import Path

from refusals import refused

import practicum
from practicum.core.context import Context
from practicum.session.outcomes import HELD
from practicum.session.records import create_seed, update_run
from practicum.store import schema
from practicum.store.database import Store


def test_outcomes_are_scored_attempts_and_held_out_ones_are_loaded_on_request_only(tmp_path: Path) -> None:
    """A service holds a share of them out. They are foreign if the space was created elsewhere."""
    space = tmp_path / "space"
    create_seed(space, Context())

    async def report() -> None:
        async with practicum.open(space) as opened:
            for n in range(3):
                await opened.report(await opened.show(f"Question {n}?"), answer="no", target=f"word{n}")

    def held_out(*queries: int) -> list[str]:
        """Hold these outcomes out; the inputs that are loaded on request."""
        o, own = schema.outcomes, [ids[n] for n in queries]
        with Store.open(space) as store:
            store.change(lambda at: at.run(at.update(o).where(o.c.id.in_(own)).values(state=HELD)))
        return [task.input for task in practicum.load_outcomes(space, held_out=True)]

    practicum.run_sync(report())
    tasks = practicum.load_outcomes(space)
    ids = [task.meta["own_id"] for task in tasks]
    assert {task.trust for task in tasks} == {"own"}
    for task in tasks:
        assert task.recorded is not None
        assert (task.recorded.own, task.recorded.retrieved) == (False, ())
        assert task.recorded.score == practicum.Score(0.0, False)
    with refused("run.no_data"):
        practicum.load_outcomes(space, held_out=True)
    assert held_out(1) == ["Question 1?"]
    with Store.open(space) as store:
        update_run(store, mark="")
    assert [(t.input, t.trust) for t in practicum.load_outcomes(space)] == [
        ("Question 0?", "foreign"), ("Question 2?", "foreign")
    ]  # fmt: skip
    assert len(held_out(0, 2)) == 3
    with refused("run.no_data"):
        practicum.load_outcomes(space)
