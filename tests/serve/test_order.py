"""What came last is what was acknowledged last: clocks that go back, differ or stand still decide no order."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from serving import Place, Served, asynchronous, served, until
from sqlalchemy import make_url, select

from practicum.serve import tables
from practicum.serve.pages import reads
from practicum.store import schema
from practicum.store.database import Store

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
    page = await asyncio.to_thread(reads.interactions, at.service.log, at.service.spaces["default"].id)
    return [one["id"] for one in told], [one["id"] for one in page.rows]


@pytest.mark.parametrize("steps", [(0.0, -HOUR, -2 * HOUR), (YEARS, 0.0, HOUR), (0.0, -30 * 24 * HOUR, HOUR)])
@asynchronous
async def test_the_last_request_of_a_session_is_the_one_that_was_answered_last(
    clock: Clock, place: Place, steps: tuple[float, ...]
) -> None:
    asked = list[str]()
    for number, clock.ahead in enumerate(steps):
        # Each time the service starts anew: what it knew in memory is gone.
        async with served(**place) as at:
            asked.append(await ask(at, f"Question {number}?"))
            assert await last_of_session(at) == asked[-1]
            assert await listed(at) == (asked[::-1], asked[::-1])


@asynchronous
async def test_equal_times_are_no_tie(clock: Clock, place: Place) -> None:
    clock.stands = True
    async with served(**place) as at:
        asked = [await ask(at, f"Question {number}?") for number in range(8)]
        assert await last_of_session(at) == asked[-1]
        assert await listed(at) == (asked[::-1], asked[::-1])


@pytest.mark.postgres
@asynchronous
async def test_nodes_whose_clocks_differ_agree(clock: Clock, postgresql: str, tmp_path_factory: Any) -> None:
    url, folders = make_url(postgresql), [tmp_path_factory.mktemp(name) for name in "ab"]
    async with served(url, folder=folders[0]) as a, served(url, folder=folders[1]) as b:
        asked = list[str]()
        for number in range(6):
            clock.ahead, at = ((HOUR, a), (0.0, b))[number % 2]
            asked.append(await ask(at, f"Question {number}?"))
            at.service.log.do(lambda db: None).result()
        assert [await last_of_session(at) for at in (a, b)] == [asked[-1]] * 2
        assert await listed(a) == await listed(b) == (asked[::-1], asked[::-1])


@asynchronous
async def test_the_turns_of_a_session_are_learned_in_their_order(clock: Clock, place: Place) -> None:
    async with served(**place) as at:
        for number in range(3):
            clock.ahead = -number * HOUR
            await ask(at, f"Question {number}?")
        await at.report(session="s", score=0.0, correction="Wrong.")
        space = at.service.spaces["default"]
        await asyncio.to_thread(at.service.learner._hand_over, space)
        with Store.read(space.folder) as store:
            ((raw,),) = store.rows(select(schema.outcomes.c.data).where(schema.outcomes.c.run_id == store.run_id))
        data = json.loads(raw)
        steps = [step["text"] for step in data["trace"]["steps"] if step["kind"] == "user"]
        assert [data["query"], *steps] == [f"Question {number}?" for number in range(3)]


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
        rows = at.service.log.rows(select(h.c.hour, h.c.scored, h.c.total).order_by(h.c.hour))
        assert [(row.scored, row.total) for row in rows] == [(1, 1.0), (1, 0.0)]
        assert abs(rows[0].hour - time.time() / HOUR) <= 1


@asynchronous
async def test_learning_is_due_although_the_clock_went_back(clock: Clock, tmp_path: Any) -> None:
    settings = {"method": "episodes", "learn_every": 10_000, "learn_minutes": 0.0, "canary": 0.5}
    clock.ahead = HOUR
    async with served(tmp_path, **settings) as at:
        await at.report(interaction=await ask(at, "Which team?"), target="The blue team.")
        await at.report(interaction=await ask(at, "Which?"), score=0.0, correction="Wrong.")
    clock.ahead = 0.0
    async with served(tmp_path, learn=True, **settings) as at:
        await until(lambda: at.service.counts["rounds"])
