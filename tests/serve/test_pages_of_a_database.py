"""The pages of a service on PostgreSQL are those of the same service on a folder."""

from __future__ import annotations

from needs import needs

needs("psycopg", "postgres")

import re
from pathlib import Path
from typing import Any

import pytest
from serving import Served, asynchronous, served, until
from sqlalchemy import make_url

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

HTML = {"accept": "text/html"}

NAMED = re.compile(r"i[0-9a-f]{13}-[0-9a-f]{12}|\b[0-9a-f]{8,}\b|[0-9][0-9.,:]*")
"""Ids, times and other numbers of a page."""


async def fill(at: Served) -> None:
    """Edit, note, correct, let something wait, and learn from outcomes until a version is tried."""
    for path, body in (
        ("/v1/notes", {"text": "Ask for the number."}), ("/v1/playbook", {"section": "rules", "text": "Be brief."}),
        ("/v1/playbook", {"id": "e0", "text": "Be polite."}),
    ):  # fmt: skip
        assert (await at.send("POST", path, body)).status == 200, path
    anna = {"x-practicum-user": "anna", "x-practicum-session": "of anna"}
    reply = await at.ask("Which team handles lost cards?", anna)
    await at.report(anna, interaction=reply.interaction, target="the blue team", comment="Not the red one.")
    for n in range(12):
        reply = await at.ask(f"Which team handles case {n}?", {"x-practicum-session": f"s{n}"})
        await at.report(interaction=reply.interaction, target=f"team {n}")
    await until(lambda: at.service.spaces["default"].rollout)


async def crawled(at: Served) -> dict[str, tuple[int, str]]:
    """The status and the words of every page that links lead to, by its address without ids and numbers."""
    found, todo = dict[str, tuple[int, str]](), ["/"]
    while todo:
        path = todo.pop(0)
        name = NAMED.sub("#", path)
        if name in found:
            continue
        reply = await at.send("GET", path, headers=HTML)
        words = " ".join(re.sub(r"<[^>]*>", " ", reply.body.decode()).split())
        found[name] = (reply.status, NAMED.sub("#", words))
        todo += [link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]*)', reply.body.decode())]
    return found


@asynchronous
async def test_every_page_is_the_same_on_a_database_and_on_a_folder(postgresql: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"method": "episodes", "learn": True, "learn_every": 4, "canary": 0.5}
    pages = []
    for store, folder in ((tmp_path / "store", tmp_path / "store"), (make_url(postgresql), tmp_path / "node")):
        async with served(store, folder=folder, **how) as at:
            await fill(at)
            pages.append(await crawled(at))
    of_folder, of_database = pages
    kinds = ("versions", "diff", "entries", "episodes", "steps", "lessons", "calls", "review", "corrections", "costs")
    assert all(any(f"/{kind}" in path for path in of_folder) for kind in kinds)
    assert {path: status for path, (status, _) in of_database.items() if status != 200} == {}
    assert of_database.keys() == of_folder.keys()
