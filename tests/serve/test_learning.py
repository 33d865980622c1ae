"""Learning in the background: rounds, the replay gate, the canary, and what a restart goes on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving import Served, asynchronous, served, until
from sqlalchemy import select

from practicum.serve import tables
from practicum.serve.feedback import LEARNED
from practicum.serve.space import LIVE
from practicum.session.amend import roll_back
from practicum.store.database import Store
from practicum.store.names import name_version

EPISODES: dict[str, Any] = {"method": "episodes", "learn": True, "learn_every": 4, "canary": 0.5, "canary_length": 20}
"""A method that asks no model to learn."""


def states(at: Served, table: Any = tables.rollouts) -> list[str]:
    return [row.state for row in at.service.log.rows(select(table))]


async def teach(at: Served, count: int, start: int = 0, headers: dict[str, str] | None = None) -> None:
    """Ask, and correct the answers."""
    for n in range(start, start + count):
        reply = await at.ask(f"Which team handles case {n}?", headers)
        told = await at.report(headers, interaction=reply.interaction, target=f"team {n}")
        assert told.status == 200


@asynchronous
async def test_a_rollback_during_a_round_drops_what_the_round_learns(tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "learn": False, "learn_every": 10_000}) as at:
        learner = at.service.learner
        await teach(at, 12)
        hand_over = learner._hand_over

        def rolled_back(space: Any) -> Any:
            moved = hand_over(space)
            with Store.open(space.folder) as store:
                name_version(store, store.run_id, LIVE, roll_back(store, 0))
            return moved

        learner._hand_over = rolled_back  # type: ignore[method-assign]
        learner.start()
        learner.want("default")
        await until(lambda: at.service.counts["rounds"] and "dropped" in states(at))
        assert "made live by hand meanwhile" in at.service.log.rows(select(tables.rollouts))[-1].data
        assert LEARNED not in states(at, tables.outcomes)
