"""The index of a stored run: its matches do not depend on its history."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import asynchronous
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed import Run
from profiles import examples
from runs import Words
from searched import FILTERS, adds, edits, texts

from practicum.core.edits import Add, Delete, Entry, Merge, Update, Vote
from practicum.plugins.index.index import Index
from practicum.plugins.index.postings import Postings, counts_of, merged, rows_of
from practicum.retrieval import lists, rough
from practicum.retrieval.lists import Lists, Rows
from practicum.retrieval.search import VISIBLE, WEIGHTS, Filter, Retrieval, Retriever
from practicum.retrieval.vectors import Vectors
from practicum.store.folder import INDEX_FILES
from practicum.store.snapshot import stored_pages

SOURCES = ("tag:a", "tag:b", "trust:user", "trust:foreign", "task:t")

steps = st.lists(
    st.one_of(
        st.lists(edits(SOURCES), min_size=1, max_size=8),
        st.sampled_from(("save", "save without an index", "reopen")),
        st.tuples(st.sampled_from(FILTERS), texts),
    ),
    max_size=12,
)


@pytest.fixture(params=["files", pytest.param("pgvector", marks=[pytest.mark.postgres, pytest.mark.slow])])
def where(request: pytest.FixtureRequest) -> str | None:
    """The place of the index: None for files, or the URL of a database. A test that takes it runs on both."""
    return None if request.param == "files" else request.getfixturevalue("pgvector")


@pytest.mark.slow
@given(st.lists(adds(SOURCES), min_size=1, max_size=90), steps)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@asynchronous
async def test_an_index_that_grew_finds_the_same_as_a_new_one(
    where: str | None, first: list[Add], steps: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run", first, where)
        await run.save()
        count = 0
        for step in steps:
            match step:
                case "save" | "save without an index":
                    await run.save(step == "save")
                case "reopen":
                    run.open()
                case tuple():
                    filter, text = step
                    if len(run.context):
                        count += 1
                        matches = await run.matches(text, filter)
                        if (stored := stored_pages(run.context)) is not None and stored.indexed:
                            assert matches == await run.fresh(Path(folder) / f"fresh{count}", text, filter)
                case list():
                    run.edit(step)
        run.store.close()


@asynchronous
async def test_changes_count_at_once_and_after_merges_and_votes_and_predicates_need_no_new_index(
    tmp_path: Path, where: str | None
) -> None:
    adds = [Add("memories", f"text {n}", data={"n": n}, sources=(f"tag:t{n % 3}",)) for n in range(150)]
    run = Run(tmp_path, adds, where)

    def even(entry: Entry) -> bool:
        return bool(entry.data.get("n", 1) % 2 == 0)

    async def check() -> None:
        assert (await run.matches("text 7", VISIBLE))[0][0] != "e7"
        assert (await run.matches("text 8", VISIBLE))[0][0] == "e8"
        assert (await run.matches("quite new", VISIBLE))[0][0] == "e150"
        assert [id for id, _ in await run.matches("text 9", Filter(section="notes"))] == ["e9"]
        assert (await run.matches("text 9", Filter(section="memories")))[0][0] != "e9"
        assert len(await run.matches("text", Filter(tags=("only",)))) == 1
        search = await run.retriever.nearest(run.context, "text 5", 1)
        assert (search.matches[0].entry.id, search.matches[0].entry.helpful) == ("e5", 3)
        evens = await run.matches("text 101", even)
        assert [int(id[1:]) % 2 for id, _ in evens] == [0] * 4

    await run.save()
    run.edit([Delete("e7"), Add("memories", "quite new"), Update("e9", section="notes"), Vote("e5", helpful=3)])
    run.edit([Merge(("e20", "e21"), sources=("tag:only",))])
    await check()
    # Two texts are new: "quite new" and "text".
    assert run.retriever.vectors.embedded == 152
    assert files(tmp_path) == (set() if where else {"index.0.0"})
    await run.save()
    # Small files are merged.
    assert files(tmp_path) == (set() if where else {"index.0.2"})
    await check()
    run.open()
    await check()
    run.store.close()


@pytest.mark.parametrize("retrieval", WEIGHTS)
@asynchronous
async def test_an_index_finds_the_same_as_comparing_everything(
    tmp_path: Path, where: str | None, retrieval: Retrieval
) -> None:
    """An identical text has 1, also if it has only stop words, no words, or one word 300 times."""
    texts = [f"the card {n} of bank {n % 7}" for n in range(60)] + ["How are you?", "🙂 !", "fee " * 300, "fee card"]
    run = Run(tmp_path, [Add("memories", text) for text in texts], where)
    everything = Retriever(Vectors(Words()), retrieval=retrieval)
    await run.save()
    run.edit([Add("memories", "a note that the index does not know yet")])
    run.open(retrieval)
    for text in (*texts[-4:], "the card 17 of bank 3", "a note that the index does not know yet"):
        similarities = [similarity for _, similarity in await run.matches(text, VISIBLE)]
        exact = (await everything.nearest(run.context, text, 4)).matches
        assert similarities[0] == 1.0 == max(similarities)
        assert similarities == [round(match.similarity, 4) for match in exact]
    run.store.close()


KILLED = """
import os, sys
from pathlib import Path
from practicum.plugins.index import index
from practicum.plugins.index.index import Index

folder, before = Path(sys.argv[1]), sys.argv[2]
def killed(*args, **kwargs):
    os.kill(os.getpid(), 9)

if before == "rename":
    Path.replace = killed
elif before == "delete":
    Path.unlink = lambda self, **_: killed() if self.suffix != ".part" else None
else:
    setattr(index, before, killed)
Index.open(folder, sys.argv[3], "words", 1).merge(2)
"""


def killed_before(before: str, folder: Path, id: str) -> int:
    """The exit code of a process that merges an index and is killed before a step of it."""
    return subprocess.run([sys.executable, "-c", KILLED, str(folder), before, id], check=False).returncode


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob(INDEX_FILES)}


@pytest.mark.slow
@pytest.mark.parametrize("before", ["merged", "rename", "delete"])
@asynchronous
async def test_a_merge_that_is_killed_loses_nothing(tmp_path: Path, before: str) -> None:
    run = Run(tmp_path, [Add("memories", f"text {n}") for n in range(200)])
    await run.save()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Index, "due", lambda self: 0)
        run.edit([Delete("e7"), Add("memories", "quite new")])
        await run.save()
    assert files(tmp_path) == {"index.0.0", "index.1.1"}
    assert killed_before(before, tmp_path, run.store.space) == -signal.SIGKILL
    run.open()
    assert (await run.matches("quite new", VISIBLE))[0][0] == "e200"
    assert (await run.matches("text 7", VISIBLE))[0][0] != "e7"
    assert run.retriever.vectors.embedded <= 2
    # The next save merges, and clears the remains.
    run.edit([Add("memories", "newest")])
    await run.save()
    assert files(tmp_path) == {"index.0.2"}
    assert (await run.matches("newest", VISIBLE))[0][0] == "e201"
    run.store.close()


def test_an_index_of_another_embedder_or_run_is_not_used(tmp_path: Path) -> None:
    run = Run(tmp_path, [Add("memories", f"text {n}") for n in range(50)])
    asyncio.run(run.save())
    id = run.store.space
    assert Index.open(tmp_path, id, "words", 0) is not None
    for other in ((id, "other", 0), ("other", "words", 0), (id, "words", 1)):
        assert Index.open(tmp_path, *other) is None
    run.store.close()


@given(
    st.lists(st.lists(st.lists(st.integers(0, 2**63 - 2) | st.integers(0, 5), max_size=6), max_size=12), min_size=1),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(8))
def test_merged_postings_equal_the_postings_of_all_rows(parts: list[list[list[int]]], random: Any) -> None:
    rows = [row for part in parts for row in part]
    new = [n if random.random() < 0.8 else -1 for n in range(len(rows))]
    remaining = [row for row, number in zip(rows, new, strict=True) if number >= 0]
    numbers = np.cumsum([number >= 0 for number in new]) - 1
    numbers = np.where(np.array(new, dtype=np.int64) >= 0, numbers, -1).astype(np.int32) if rows else np.zeros(0)
    starts = np.cumsum([0, *map(len, parts)])
    inputs = [
        (Postings.count(part), numbers[start : start + len(part)].astype(np.int32))
        for part, start in zip(parts, starts, strict=False)
    ]
    packed: list[np.ndarray] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("practicum.plugins.index.postings.SLICE", 7)
        keys, begins = merged(inputs, packed.append)
    result, expected = Postings(keys, begins, np.concatenate(packed)), Postings.count(remaining)
    assert result.keys.tolist() == expected.keys.tolist()
    for key in {0, 1, 2, *expected.keys.tolist()}:
        assert result.of(key).tolist() == expected.of(key).tolist()
        has = [n for n, row in enumerate(remaining) if key in row]
        assert rows_of(result.of(key)).tolist() == has
        counts = counts_of(result.of(key), np.arange(len(remaining)))
        assert counts.tolist() == [min(row.count(key), 255) for row in remaining]


def clustered(n: int, dims: int = 64) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n // 100, dims), np.float32)
    points = centres[rng.integers(0, len(centres), n)] + 0.8 * rng.standard_normal((n, dims), np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "library"), [(1.0, True), (0.1, False), (0.01, True)])
def test_lists_find_the_nearest_rows_of_a_selection(
    keep: float, library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SCANNED", 2_000)
    if not library:
        monkeypatch.setattr(rough, "rough_installed", lambda: False)
    points = clustered(10_000)
    lists_ = Lists.of(len(points), points.__getitem__)
    assert len(lists_.order.centres) > 50
    mask = np.random.default_rng(1).random(len(points)) < keep
    selected, hits = Rows(mask), 0
    for query in points[:50]:
        true = np.flatnonzero(mask)[np.argsort(-(points[mask] @ query))[:5]]
        nearest = lists_.near(query, 20, None if keep == 1 else selected)
        assert mask[nearest].all()
        hits += len(set(true) & set(nearest))
    assert hits >= 0.95 * 5 * 50
