"""The order of interactions and reports is that of their acknowledgements, not that of clocks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from serving import Place, asynchronous, served
from sqlalchemy import select

from practicum.store import schema as tables
from practicum.view.read.episodes import EpisodeFilter, interactions

SESSION = {"x-practicum-session": "s"}

HOUR, YEARS = 3_600.0, 20 * 365 * 86_400.0


class Clock:
    """The wall clock, which runs or is stopped, `ahead` of the true time (s)."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        true, self.began = time.time, time.time()
        self.ahead, self.stopped = 0.0, False
        patch.setattr(time, "time", lambda: (self.began if self.stopped else true()) + self.ahead)
        patch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@asynchronous
async def test_equal_times_are_no_tie(clock: Clock, place: Place) -> None:
    clock.stopped = True
    async with served(**place) as at:
        asked = [(await at.ask(f"Question {number}?", SESSION)).interaction for number in range(6)]
        assert (await at.report(session="s", score=1.0)).json["interaction"] == asked[-1]
        listed = (await at.send("GET", "/v1/interactions?since=2001-01-01")).json["interactions"]
        page = await asyncio.to_thread(interactions, at.service.spaces["default"].store, EpisodeFilter())
        assert [one["id"] for one in listed] == [one["id"] for one in page.rows] == asked[::-1]


@asynchronous
async def test_a_clock_that_was_years_ahead_for_a_moment_changes_no_order(clock: Clock, tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        for clock.ahead, score in ((YEARS, 0.0), (0.0, 1.0)):
            reply = await at.ask("Now?", SESSION)
            assert (await at.report(interaction=reply.interaction, score=score)).status == 200
        space, h = at.service.spaces["default"], tables.hours
        # Both were counted, in the order in which they came, and the later one in its own hour.
        assert (space.counted, space.scored) == (2, 2)
        rows = at.service.database.rows(select(h.c.hour, h.c.scored, h.c.total).order_by(h.c.hour))
        assert [(row.scored, row.total) for row in rows] == [(1, 1.0), (1, 0.0)]
        assert abs(rows[0].hour - time.time() / HOUR) <= 1
