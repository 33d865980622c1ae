"""What came last is what was acknowledged last: clocks that go back, differ or stand still decide no order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from serving import Place, Served, asynchronous, served
from sqlalchemy import select

from practicum.store import schema as tables
from practicum.view.read.episodes import EpisodeFilter, interactions

SESSION = {"x-practicum-session": "s"}

HOUR, YEARS = 3_600.0, 20 * 365 * 86_400.0


class Clock:
    """The wall clock, which goes on or stands still, `ahead` of the true time (s)."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        true, self.began = time.time, time.time()
        self.ahead, self.stands = 0.0, False
        patch.setattr(time, "time", lambda: (self.began if self.stands else true()) + self.ahead)
        patch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def ask(at: Served, text: str) -> str:
    return (await at.ask(text, SESSION)).interaction


async def last_of_session(at: Served) -> str:
    return str((await at.report(session="s", score=1.0)).json["interaction"])


async def listed(at: Served) -> tuple[list[str], list[str]]:
    """All interactions, the newest first, as the API and the pages list them."""
    told = (await at.send("GET", "/v1/interactions?since=2001-01-01")).json["interactions"]
    page = await asyncio.to_thread(interactions, at.service.spaces["default"].store, EpisodeFilter())
    return [one["id"] for one in told], [one["id"] for one in page.rows]


@pytest.mark.slow
@asynchronous
async def test_equal_times_are_no_tie(clock: Clock, place: Place) -> None:
    clock.stands = True
    async with served(**place) as at:
        asked = [await ask(at, f"Question {number}?") for number in range(8)]
        assert await last_of_session(at) == asked[-1]
        assert await listed(at) == (asked[::-1], asked[::-1])


@asynchronous
async def test_a_clock_that_was_years_ahead_for_a_moment_leaves_no_trace(clock: Clock, tmp_path: Any) -> None:
    async with served(tmp_path) as at:
        clock.ahead = YEARS
        assert (await at.report(interaction=await ask(at, "Early?"), score=0.0)).status == 200
        clock.ahead = 0.0
        assert (await at.report(interaction=await ask(at, "Now?"), score=1.0)).status == 200
        space, h = at.service.spaces["default"], tables.hours
        # Both were counted, in the order in which they came, and the later one in its own hour.
        assert (space.counted, space.scored) == (2, 2)
        rows = at.service.database.rows(select(h.c.hour, h.c.scored, h.c.total).order_by(h.c.hour))
        assert [(row.scored, row.total) for row in rows] == [(1, 1.0), (1, 0.0)]
        assert abs(rows[0].hour - time.time() / HOUR) <= 1
