"""The dashboard: sign-in that expires, links from other sites, paged interactions, and the chart of the overview.

`tests/contracts/service/test_pages.py` has the promises of docs/view.md.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from persons import Person
from serving import Served, asynchronous, served

from practicum.serve import access
from practicum.serve.site import ServiceActions
from practicum.store import schema
from practicum.store.sums import add_to_hours
from practicum.view.read import episodes, sums


async def add_to_chart(at: Served, *requests: tuple[float, int]) -> None:
    """Count requests: each with its age (h) and its version."""
    now, id = time.time(), at.service.spaces["default"].id
    rows = [
        {"space": id, "at": now - 3_600 * age, "version": version, "model": "m", "requests": 1, "input_tokens": 9}
        for age, version in requests
    ]
    await asyncio.wrap_future(at.service.database.do(lambda at_: add_to_hours(at_.db, rows)))


@asynchronous
async def test_a_reviewer_is_signed_out_when_the_login_expires(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        _, key = await asyncio.to_thread(access.add_key, at.service.database, "anna", "", ["review"], None)
        at.keys.forget()
        await at.keys.refresh()
        person = Person(at)
        assert (await person.sign_in(key)).status == 303
        assert (await person.get("/s/default")).status == 200
        # A link from another site reaches the page although browsers send no cookie with it.
        page = await Person(at).get("/s/default?days=30", **{"sec-fetch-site": "cross-site"})
        assert (page.status, 'content="0;url=/s/default?days=30"' in page.text) == (200, True)
        t = schema.logins
        await asyncio.wrap_future(at.service.database.do(lambda at_: at_.run(t.update().values(expires=1.0))))
        assert (await person.get("/s/default")).status == 303
        # A page that is open reports this, and requests its part no more.
        part = await person.get("/s/default/live", **{"hx-request": "true"})
        assert (part.status, part.headers["hx-reswap"], "hx-get" in part.text) == (401, "outerHTML", False)


@asynchronous
async def test_interactions_are_paged_and_a_search_for_few_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "SEARCHED", 8)
    monkeypatch.setattr(episodes, "ROWS", 5)
    async with served(tmp_path) as at:
        asked = [(await at.ask(f"question {n}")).interaction for n in range(20)]
        await at.report(interaction=asked[1], score=0)

        def listed(kind: str) -> tuple[list[str], int]:
            ids, pages = list[str](), 1
            store, only = at.service.spaces["default"].store, episodes.EpisodeFilter(only=kind)
            page = episodes.episodes(store, None, only, "")
            while page.before:
                ids, pages = ids + [row["id"] for row in page.rows], pages + 1
                page = episodes.episodes(store, None, only, page.before)
            return ids + [row["id"] for row in page.rows], pages

        assert await asyncio.to_thread(listed, "all") == (asked[::-1], 4)
        assert await asyncio.to_thread(listed, "wrong") == ([asked[1]], 3)
        unscored, _ = await asyncio.to_thread(listed, "open")
        assert unscored == [id for id in asked[::-1] if id != asked[1]]


@asynchronous
async def test_the_chart_begins_with_the_first_request_and_marks_a_version_where_it_was_first_shown(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as at:
        price = ServiceActions(at.service, at.keys).price
        # Ages (h) of requests, their number in the last 7 days, and the points and the step (h) of the chart.
        for ages, count, points, step in (((0, 9), 2, 12, 1), ((91.2, 96), 4, 20, 6), ((120, 240, 400), 5, 28, 6)):
            await add_to_chart(at, *((age, 0) for age in ages))
            it = await asyncio.to_thread(sums.course, at.service.spaces["default"].store, 7, price)
            # The price of a model at this address is unknown.
            assert (it.step, it.whole.requests, it.whole.usd) == (step, count, None)
            assert abs(len(it.points) - points) <= (4 if step > 1 else 0)
        await add_to_chart(at, (96, 1), (93.6, 2), (91.2, 1))
        for days, marks, labels in ((7, {1, 2}, {"v2"}), (30, {0, 1, 2}, {"v0", "v2"})):
            page = await Person(at).get(f"/s/default?days={days}")
            lines = re.findall(r'<line class="mark (\w+)".*?version (\d) live</title>', page.text)
            assert {*lines} == {("good", str(version)) for version in marks}
            # Of two marks that are near to each other the newer one has a label.
            assert {*re.findall(r'<text class="label good"[^>]*>(v\d)<', page.text)} == labels


@pytest.mark.slow
@asynchronous
async def test_many_spaces_are_paged_and_searched(tmp_path: Path) -> None:
    names = tuple(f"team-{n:02}" for n in range(30))
    async with served(tmp_path, spaces=("default", *names)) as at:
        person = Person(at)
        assert "page 1 of 2" in (await person.get("/")).words
        assert "team-29" in (await person.get("/?page=2")).text
        page = await person.get("/?q=TEAM-1")
        assert ("10 spaces with" in page.words, "team-20" in page.words) == (True, False)
