"""The setting `retrieval`: what a run retrieves, wherever it retrieves it, is measured by it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import client
from refusals import refused
from serving import asynchronous, served

import practicum
from practicum import methods
from practicum.core.types import Task
from practicum.retrieval.search import Retrieval
from practicum.retrieval.vectors import WordLlama

NEAR, NAMED = "My bank card was stolen on the train", "Which depot has parcel K7?"
QUERY = "Thieves took my debit card and purse, depot K7"
TRAIN = [Task("t0", NEAR, "Cards"), Task("t1", NAMED, "Parcels")]
BY_COSINE = [NEAR, NAMED]
"""The tasks by the cosine to the query. The other one has more of its words: a place and a number."""
FIRST: Mapping[Retrieval, str] = {"cosine": NEAR, "words": NAMED}


def parts(**more: Any) -> practicum.Parts:
    return practicum.Parts(clients={"agent": client(lambda call: "Cards")}, **more)


def learned(folder: Path, retrieval: str, tasks: Sequence[Task] = TRAIN, method: str = "episodes", **how: Any) -> Path:
    work = practicum.learn(
        tasks,
        out=folder / "run",
        method=method,
        settings={"retrieval": retrieval, "online": True},
        parts=parts(),
        **how,
    )
    practicum.run_sync(work)
    return folder / "run"


def cosine(one: str, other: str) -> float:
    first, second = asyncio.run(WordLlama().embed([one, other]))
    return float(np.dot(first, second))


def test_a_method_of_ones_own_names_its_measure(tmp_path: Path) -> None:
    made = replace(methods.build("episodes", {}), name="mine", retrieval="cosine")
    run = tmp_path / "run"
    practicum.run_sync(practicum.learn(TRAIN, out=run, method=made, parts=parts()))

    async def asked() -> list[str]:
        async with practicum.open(run, parts=parts(method=made)) as space:
            return [match.entry.text for match in (await space.ask(QUERY)).retrieved]

    assert practicum.run_sync(asked()) == BY_COSINE
    wrong = replace(made, retrieval="cosinus")
    with refused("settings.invalid"):
        practicum.run_sync(practicum.learn(TRAIN, out=tmp_path / "no", method=wrong, parts=parts()))


@asynchronous
@pytest.mark.parametrize(("retrieval", "first"), FIRST.items())
async def test_a_space_retrieves_entries_and_notes_by_its_setting(
    tmp_path: Path, retrieval: Retrieval, first: str
) -> None:
    run = await asyncio.to_thread(learned, tmp_path, retrieval)
    async with served(tmp_path / "store", context=str(run)) as at:
        listed = await at.send("GET", "/v1/playbook?search=" + QUERY.replace(" ", "+"))
        assert listed.json["entries"][0]["text"].startswith(first), listed.json
        for about in (NEAR, NAMED):
            assert (await at.send("POST", "/v1/notes", {"text": "Look.", "about": about})).status == 200
        near = await at.service.spaces["default"].corrections.near(QUERY)
        assert near[-1].correction.query == first
