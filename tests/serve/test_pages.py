"""The dashboard: sign-in that expires, links from other sites, and paged interactions.

`tests/contracts/service/test_pages.py` has the promises of docs/view.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from persons import Person
from serving import asynchronous, served

from practicum.serve import access
from practicum.store import schema
from practicum.view.read import episodes


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
