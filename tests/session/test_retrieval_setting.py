"""The setting `retrieval` is the measure of every retrieval of a run: of entries, and of notes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import client
from profiles import cases
from serving import asynchronous, served

import practicum
from practicum.core.types import Task
from practicum.retrieval.search import Retrieval

NEAR, NAMED = "My bank card was stolen on the train", "Which depot has parcel K7?"
QUERY = "Thieves took my debit card and purse, depot K7"
TRAIN = [Task("t0", NEAR, "Cards"), Task("t1", NAMED, "Parcels")]
"""By the cosine to the query, the first is nearer. The second shares more words: a place and a number."""


def parts(**more: object) -> practicum.Parts:
    return practicum.Parts(clients={"agent": client(lambda call: "Cards")}, **more)


@asynchronous
@pytest.mark.parametrize("retrieval", cases(["cosine", "words"], "words"))
async def test_a_space_retrieves_entries_and_notes_by_its_setting(tmp_path: Path, retrieval: Retrieval) -> None:
    first = NEAR if retrieval == "cosine" else NAMED
    settings = {"retrieval": retrieval, "online": True}
    await practicum.learn(TRAIN, out=tmp_path / "run", method="episodes", settings=settings, parts=parts())
    async with served(tmp_path / "store", context=str(tmp_path / "run")) as at:
        listed = await at.send("GET", "/v1/playbook?search=" + QUERY.replace(" ", "+"))
        assert listed.json["entries"][0]["text"].startswith(first), listed.json
        for about in (NEAR, NAMED):
            assert (await at.send("POST", "/v1/notes", {"text": "Look.", "about": about})).status == 200
        near = await at.service.spaces["default"].corrections.near(QUERY)
        assert near[-1].correction.query == first
