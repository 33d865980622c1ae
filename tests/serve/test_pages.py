"""The dashboard over HTTP: who may see it, what its forms take, and that no text of others becomes markup."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from persons import Person
from serving import Place, Served, asynchronous, served

from practicum.serve import access
from practicum.serve.site import ServiceActions
from practicum.store import schema
from practicum.store.sums import add_to_hours
from practicum.view.read import episodes, sums


async def a_key(at: Served, name: str, *roles: access.Role, space: str = "", days: float | None = None) -> str:
    _, key = await asyncio.to_thread(access.add_key, at.service.database, name, space, roles, days)
    return key


async def a_reviewer(at: Served, name: str = "anna") -> Person:
    """Somebody who is signed in with a key for reviews."""
    person = Person(at)
    key = await a_key(at, name, "review")
    await known(at)
    assert (await person.sign_in(key)).status == 303
    return person


async def known(at: Served) -> None:
    """Let the service know the keys that were added to its store."""
    at.keys.forget()
    await at.keys.refresh()


async def an_entry(person: Person, text: str, section: str = "rules") -> None:
    await person.get("/s/default/entries")
    done = await person.post("/s/default/entries", text=text, section=section)
    assert done.status == 303, done.words


# Who may see what


@asynchronous
async def test_whose_key_is_removed_or_expires_is_signed_out(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        first, second = await a_reviewer(at, "first"), await a_reviewer(at, "second")
        await asyncio.to_thread(access.remove_key, at.service.database, "first", "")
        await known(at)
        assert (await first.get("/s/default")).status == 303
        # A page that is open says so, and its part no longer asks.
        part = await first.get("/s/default/live", **{"hx-request": "true"})
        assert (part.status, part.headers["hx-reswap"]) == (401, "outerHTML")
        assert "You are signed out" in part.words
        assert "hx-get" not in part.text
        assert (await second.get("/s/default")).status == 200
        t = schema.logins
        await asyncio.wrap_future(at.service.database.do(lambda at_: at_.run(t.update().values(expires=1.0))))
        assert (await second.get("/s/default")).status == 303


@asynchronous
async def test_a_link_from_another_site_finds_who_is_signed_in(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        await a_key(at, "anna", "review")
        await known(at)
        page = await Person(at).get("/s/default?days=30", **{"sec-fetch-site": "cross-site"})
        assert page.status == 200
        assert 'content="0;url=/s/default?days=30"' in page.text


# What is shown


@asynchronous
async def test_interactions_are_paged_and_the_search_for_few_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "SEARCHED", 8)
    monkeypatch.setattr(episodes, "ROWS", 5)
    async with served(tmp_path) as at:
        asked = [(await at.ask(f"question {n}")).interaction for n in range(20)]
        await at.report(interaction=asked[1], score=0)

        def listed(which: str) -> tuple[list[str], int]:
            found, before, pages = list[str](), "", 0
            store, only = at.service.spaces["default"].store, episodes.EpisodeFilter(only=which)
            while True:
                page = episodes.episodes(store, None, only, before)
                found += [row["id"] for row in page.rows]
                pages += 1
                if not page.before:
                    return found, pages
                before = page.before

        assert await asyncio.to_thread(listed, "all") == (asked[::-1], 4)
        assert await asyncio.to_thread(listed, "wrong") == ([asked[1]], 3)
        found, _ = await asyncio.to_thread(listed, "open")
        assert found == [id for id in asked[::-1] if id != asked[1]]


@asynchronous
async def test_sums_of_the_overview_are_those_of_what_happened(place: Place) -> None:
    async with served(**place) as at:
        for n in range(10):
            reply = await at.ask(f"question {n}", model="sim")
            await at.report(interaction=reply.interaction, score=float(n < 7))
        course = await asyncio.to_thread(
            sums.course, at.service.spaces["default"].store, 7, ServiceActions(at.service, at.keys).price
        )
        whole = course.whole
        assert (whole.requests, whole.scored, whole.total) == (10, 10, 7.0)
        assert [*course.models] == ["sim"]
        # Nobody knows what a model at this address costs.
        assert whole.usd is None
        page = await Person(at).get("/s/default")
        assert "70.0%" in page.words


@asynchronous
async def test_an_edit_by_hand_is_no_trial(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        person = Person(at)
        await an_entry(person, "Cards: the blue team.")
        page = await person.get("/s/default")
        assert "version 1 is live: edited by hand</title>" in page.text
        assert "version 1 tried" not in page.text


@pytest.mark.slow
@asynchronous
async def test_a_version_is_marked_where_it_was_first_shown_and_not_where_the_picture_begins(place: Place) -> None:
    async with served(**place) as at:
        now, day, id = time.time(), 86_400, at.service.spaces["default"].id
        shown = [
            {
                "space": id,
                "at": now - days * day,
                "version": version,
                "model": "m",
                "requests": 1,
            }
            for days, version in ((10, 0), (5, 0), (4, 1), (3.9, 2), (3.8, 1))
        ]
        await asyncio.wrap_future(at.service.database.do(lambda at_: add_to_hours(at_.db, shown)))
        person = Person(at)
        for days, marks, labels in ((7, {1, 2}, {"v2"}), (30, {0, 1, 2}, {"v0", "v2"})):
            page = await person.get(f"/s/default?days={days}")
            lines = re.findall(r'<line class="mark (\w+)".*?version (\d) live</title>', page.text)
            assert {*lines} == {("good", str(version)) for version in marks}
            # Of two that are near to each other the newer one has a label.
            assert {*re.findall(r'<text class="label good"[^>]*>(v\d)<', page.text)} == labels


@asynchronous
@pytest.mark.parametrize(
    ("hours", "points", "step"), [((0,), 8, 1), ((0, 9), 12, 1), ((0, 100), 20, 6), ((400,), 28, 6)]
)
async def test_a_chart_begins_with_the_first_request_if_that_was_later(
    hours: tuple[int, ...], points: int, step: int, tmp_path: Path
) -> None:
    async with served(tmp_path) as at:
        now, id = time.time(), at.service.spaces["default"].id
        asked = [{"space": id, "at": now - 3_600 * ago, "version": 0, "model": "m", "requests": 1} for ago in hours]
        await asyncio.wrap_future(at.service.database.do(lambda at_: add_to_hours(at_.db, asked)))
        price = ServiceActions(at.service, at.keys).price
        course = await asyncio.to_thread(sums.course, at.service.spaces["default"].store, 7, price)
        assert course.step == step
        assert abs(len(course.points) - points) <= (4 if step > 1 else 0)
        assert course.whole.requests == sum(ago < 168 for ago in hours)


# Pages that were open for long


@pytest.mark.slow
@asynchronous
async def test_many_spaces_are_paged_and_searched(tmp_path: Path) -> None:
    names = tuple(f"team-{n:02}" for n in range(30))
    async with served(tmp_path, spaces=("default", *names)) as at:
        person = Person(at)
        page = await person.get("/")
        assert "page 1 of 2" in page.words
        assert "team-29" in (await person.get("/?page=2")).text
        page = await person.get("/?q=TEAM-1")
        assert "10 spaces with" in page.words
        assert "team-20" not in page.text
