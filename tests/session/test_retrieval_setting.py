"""The setting `retrieval`: what a run retrieves, wherever it retrieves it, is measured by it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import client, run_command, write_tasks
from refusals import refused
from serving import asynchronous, served

import practicum
from practicum import methods
from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.types import Task
from practicum.retrieval.search import WEIGHTS, Retrieval
from practicum.retrieval.vectors import WordLlama
from practicum.session.config import Config
from practicum.session.memories import search
from practicum.session.records import create_seed
from practicum.session.story.parts import AttemptLine
from practicum.session.story.story import Story
from practicum.store.database import Store

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


def retrieved_for(story: Story, line: AttemptLine) -> list[tuple[str, float | None]]:
    return [(entry.text, entry.similarity) for entry in story.attempt(line.id).retrieved]


def cosine(one: str, other: str) -> float:
    first, second = asyncio.run(WordLlama().embed([one, other]))
    return float(np.dot(first, second))


@pytest.mark.parametrize("retrieval", WEIGHTS)
def test_the_similarities_of_a_run_are_those_of_its_setting(tmp_path: Path, retrieval: Retrieval) -> None:
    """A stream in which the second task is new and the third the same as the first."""
    tasks = [*TRAIN, replace(TRAIN[0], id="t2")]
    with Store.read(learned(tmp_path, retrieval, tasks)) as store:
        story = Story(store)
        retrieved = {line.task: retrieved_for(story, line) for line in [*story.attempts(split="train")]}
    assert retrieved["t0"] == []
    ((text, similarity),) = retrieved["t1"]
    # They have no word in common but words of grammar.
    weight = {"cosine": 1.0, "words": 0.0, "mixed": 1 / 3}[retrieval]
    assert (text, similarity) == (NEAR, pytest.approx(weight * cosine(NEAR, NAMED), abs=1e-4))
    assert retrieved["t2"][0] == (NEAR, 1.0)


@pytest.mark.parametrize(("retrieval", "first"), FIRST.items())
def test_everything_that_reads_a_run_follows_its_setting(tmp_path: Path, retrieval: Retrieval, first: str) -> None:
    run = learned(tmp_path, retrieval)
    assert practicum.run_sync(search(run, QUERY))[0].entry.text == first
    shown = run_command(
        ["memory", "search", str(run), QUERY, "--section", "episodes", "--json"], tmp_path
    ).json["entries"]  # fmt: skip
    assert shown[0]["text"] == first

    async def asked(**how: Any) -> tuple[float, list[str]]:
        async with practicum.open(run, parts=parts(), **how) as space:
            answered, shown = await space.ask(QUERY), await space.context_for(QUERY)
        assert shown.scores == {match.entry.id: match.similarity for match in answered.retrieved}
        return answered.retrieved[0].similarity, [match.entry.text for match in answered.retrieved]

    similarity, texts = practicum.run_sync(asked())
    assert (texts[0], similarity <= 1) == (first, True)
    # Another value for one answer leaves the run as it is.
    assert practicum.run_sync(asked(settings={"retrieval": "cosine"}))[1] == BY_COSINE
    assert practicum.run_sync(asked())[1] == texts


@pytest.mark.parametrize(("preset", "first"), [("specification", NEAR), ("standard", NAMED)])
def test_a_search_follows_what_a_preset_sets(tmp_path: Path, preset: str, first: str) -> None:
    memories = initial_context([Add("memories", text) for text in (NEAR, NAMED)])
    create_seed(tmp_path / "run", memories, config=Config(method="unified", settings={"preset": preset}))
    assert practicum.run_sync(search(tmp_path / "run", QUERY))[0].entry.text == first


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


def test_a_bad_value_and_a_method_that_retrieves_nothing_are_refused_in_one_line(tmp_path: Path) -> None:
    write_tasks(tmp_path / "t.jsonl", TRAIN)
    for method, value in (("episodes", "bm25"), ("ace", ""), ("gepa", "cosine"), ("none", "words")):
        done = run_command(
            ["learn", "t.jsonl", "--method", method, "--set", f"retrieval={value}", "--model", "sim:m"], tmp_path
        )
        assert (done.code, done.err.strip().count("\n"), "retrieval" in done.err) == (2, 0, True), done.err
    run = learned(tmp_path, "words")
    with refused("settings.unknown"):
        practicum.run_sync(practicum.resume(run, settings={"retrieval": "cosine"}, parts=parts()))  # type: ignore[call-arg]


def test_a_comparison_of_the_ways_needs_their_names_alone(tmp_path: Path) -> None:
    work = practicum.compare(
        TRAIN, test=[Task("h", QUERY, "Cards")], methods=["cosine=episodes", "words=episodes"], out=tmp_path / "c",
        settings={"cosine.retrieval": "cosine", "words.retrieval": "words", "k": 1}, seeds=1, parts=parts(),
    )  # fmt: skip
    practicum.run_sync(work)
    for way in ("cosine", "words"):
        (run,) = (path.parent for path in (tmp_path / "c").rglob("run.sqlite") if path.parent.name.startswith(way))
        with Store.read(run) as store:
            story = Story(store)
            (line,) = story.attempts(split="test")
            assert retrieved_for(story, line)[0][0] == FIRST[way]


@asynchronous
@pytest.mark.parametrize(("retrieval", "first"), FIRST.items())
async def test_a_space_retrieves_entries_and_notes_by_its_setting(
    tmp_path: Path, retrieval: Retrieval, first: str
) -> None:
    run = await asyncio.to_thread(learned, tmp_path, retrieval)
    async with served(tmp_path / "store", context=str(run)) as at:
        listed = await at.send("GET", "/v1/playbook?q=" + QUERY.replace(" ", "+"))
        assert listed.json["entries"][0]["text"].startswith(first), listed.json
        for about in (NEAR, NAMED):
            assert (await at.send("POST", "/v1/notes", {"text": "Look.", "about": about})).status == 200
        near = await at.service.spaces["default"].corrections.near(QUERY)
        assert near[-1].correction.query == first
