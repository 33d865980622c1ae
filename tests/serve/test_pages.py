"""The dashboard: paged interactions.

`tests/contracts/service/test_pages.py` has the promises of docs/view.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from serving import asynchronous, served

from practicum.view.read import episodes


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
