"""Several nodes on one PostgreSQL database: what one is told holds on all, and everything is decided once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Served, asynchronous, served, until
from sqlalchemy import make_url

pytestmark = pytest.mark.postgres

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"


@asynccontextmanager
async def nodes(postgresql: str, folder: Path, count: int = 2, **settings: Any) -> AsyncIterator[list[Served]]:
    """Nodes of one service, in the event loop of the test."""
    async with AsyncExitStack() as stack:
        found = list[Served]()
        for number in range(count):
            how = {"folder": folder / f"node {number}", **settings}
            found.append(await stack.enter_async_context(served(make_url(postgresql), **how)))
        yield found


@asynchronous
async def test_a_correction_on_one_node_holds_on_the_others(postgresql: str, tmp_path: Path) -> None:
    async with nodes(postgresql, tmp_path) as (a, b):
        reply = await a.ask(QUESTION)
        assert RIGHT not in await b.shown(QUESTION)
        told = await a.report(interaction=reply.interaction, target=RIGHT)
        assert told.json["correction"] == "in effect"
        await until(lambda: len(b.service.spaces["default"].corrections))
        assert RIGHT in await b.shown(QUESTION)
