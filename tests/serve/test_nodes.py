"""Several nodes on one PostgreSQL database: what one is told holds on all, and everything is decided once."""

from __future__ import annotations

from needs import needs

needs("psycopg", "postgres")

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import Served, add_learned, asynchronous, served, until
from sqlalchemy import make_url, select

from practicum.core.edits import Add
from practicum.session.amend import writing
from practicum.session.outcomes import LEARNED
from practicum.session.rollout import PROMOTED, Rollout
from practicum.store import schema as tables
from practicum.store.database import Store
from practicum.store.names import LIVE, name_version

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"
LENGTH = 20
"""Scored requests of a candidate."""


@asynccontextmanager
async def nodes(postgresql: str, folder: Path, count: int = 2, **settings: Any) -> AsyncIterator[list[Served]]:
    """Nodes of one service, in the event loop of the test."""
    async with AsyncExitStack() as stack:
        found = list[Served]()
        for number in range(count):
            how = {"folder": folder / f"node {number}", **settings}
            found.append(await stack.enter_async_context(served(make_url(postgresql), **how)))
        yield found


async def begin(a: Served, b: Served) -> None:
    """Show a candidate, which is version 1, to half of the sessions that begin from now on."""
    space = a.service.spaces["default"]
    async with writing(space.store) as store:
        add_learned(store, Add("rules", "Lost cards are of the green team."))
    await until(lambda: all(at.service.spaces["default"].last == 1 for at in (a, b)))
    assert await a.service.rollouts.begin(space, Rollout.begin(1, 1, 0, 0.5, LENGTH, np.zeros((0, 1)), {}))
    await until(lambda: b.service.spaces["default"].rollout)


@asynccontextmanager
async def with_candidate(postgresql: str, folder: Path) -> AsyncIterator[tuple[Served, Served]]:
    """Two nodes whose versions are 0 and 1: 0 is live, and half of the sessions see 1."""
    async with nodes(postgresql, folder) as (a, b):
        await begin(a, b)
        yield a, b


async def seen(at: Served, session: str) -> int:
    """The version that a session sees."""
    reply = await at.ask(QUESTION, {"x-practicum-session": session})
    return int(reply.headers["x-practicum-version"])


def rows(at: Served, table: Any) -> list[Any]:
    return list(at.service.database.rows(select(table)))


@pytest.mark.slow
@asynchronous
async def test_one_node_learns_from_the_outcomes_of_all(postgresql: str, tmp_path: Path) -> None:
    # Which outcomes are held out is drawn by their ids, so how many of the 24 wait is not known.
    how = {"method": "episodes", "learn": True, "learn_every": 8, "canary": 0.5}
    async with nodes(postgresql, tmp_path, **how) as at:
        for n in range(24):
            reply = await at[n % 2].ask(f"Which team handles case {n}?")
            await at[n % 2].report(interaction=reply.interaction, target=f"team {n}")
        spaces = [each.service.spaces["default"] for each in at]
        await until(lambda: all(space.rollout for space in spaces))
        assert len(rows(at[0], tables.rollouts)) == 1
        assert sum(each.service.counts["learning_rounds"] for each in at) == 1
        await until(lambda: spaces[0].waiting == spaces[1].waiting)
        learned = [row.id for row in rows(at[0], tables.outcomes) if row.state == LEARNED]
        assert len(learned) >= 8


@pytest.mark.slow
@asynchronous
async def test_a_session_that_says_anything_is_kept(postgresql: str, tmp_path: Path) -> None:
    async with nodes(postgresql, tmp_path) as (a, b):
        reply = await a.ask("What is \0 and \x1a?", {"x-practicum-session": "s 1"})
        assert (await b.report(session="s 1", comment="\0 is nothing")).json["interaction"] == reply.interaction
        assert (await b.report(session="\0", score=1.0)).status == 404


@pytest.mark.slow
@asynchronous
async def test_a_version_made_live_in_the_run_is_live_on_all_nodes(postgresql: str, tmp_path: Path) -> None:
    async with with_candidate(postgresql, tmp_path) as (a, b):
        folder = tmp_path / "elsewhere"
        # As `practicum store connect` and then `practicum space name` do.
        Store.connect(folder, postgresql, "default").close()
        with Store.open_shared(folder) as store:
            name_version(store, LIVE, 1)
        spaces = [at.service.spaces["default"] for at in (a, b)]
        await until(lambda: all(space.live == 1 and space.rollout is None for space in spaces))
        assert {await seen(at, "new") for at in (a, b)} == {1}
        (row,) = rows(a, tables.rollouts)
        assert row.state == PROMOTED
