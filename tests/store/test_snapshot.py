"""Versions and snapshots: a context opened from one is that of its log, and only the pages that are used are read."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed import Run
from profiles import examples
from refusals import refused
from rows import put
from runs import Words

from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Merge, Update, Vote, entry_json
from practicum.retrieval.search import Retriever, SearchResult
from practicum.retrieval.vectors import Vectors
from practicum.session.amend import replace_embedder
from practicum.session.forget import forget
from practicum.session.records import is_own, load_context, read_config, read_run, update_run
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import INDEX_FILES
from practicum.store.snapshot import read_context, write_snapshot
from practicum.store.versions import (
    Version,
    diff_contexts,
    entry_history,
    read_versions,
    rebuild,
    seed_version,
    version_row,
)

ids = st.integers(0, 200).map("e{}".format)
texts = st.sampled_from(["card lost", "bank fee", "top up", "refund", "a quite long text\nof two lines, “quoted”"])
edits = st.one_of(
    st.builds(Add, st.sampled_from(["memories", "notes"]), texts, key=st.one_of(st.just(""), texts)),
    st.builds(Update, ids, text=texts),
    st.builds(Update, ids, data=st.just({"outcome": "failure", "n": 1.5})),
    st.builds(Delete, ids),
    st.builds(Vote, ids, helpful=st.just(2), uses=st.just(1)),
    st.builds(Merge, st.tuples(ids, ids), sources=st.just(("task:t1",))),
)
step = st.lists(edits, min_size=1, max_size=6) | st.just("snapshot") | st.integers(0, 5)
"""Edits, a snapshot, or a rollback by this many versions."""


def memories(n: int) -> list[Add]:
    return [Add("memories", f"text {i}", sources=("task:t1",) if i % 2 else ("seed",)) for i in range(n)]


def parts_of(context: Context) -> tuple[Any, ...]:
    return [*context], context.version, context.next_number, len(context)


@pytest.mark.slow
@given(st.integers(0, 150), st.lists(step, max_size=10))
@settings(max_examples=examples(15))
def test_every_version_is_read_exactly_from_snapshots_and_rows_also_after_rollbacks(n: int, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), memories(n))
        contexts = [run.context]
        for step in steps:
            last, target = contexts[-1], max(0, len(contexts) - 1 - step) if isinstance(step, int) else 0
            if step == "snapshot":
                write_snapshot(run.store, run.context)
            elif isinstance(step, int):
                row = version_row(Version(len(contexts), target, 1, last.next_number, ()))
                put(run.store, schema.versions, [row])
                contexts.append(replace(contexts[target], version=len(contexts), next_number=last.next_number))
            elif (outcome := last.apply(Delta(tuple(step)))).applied:
                run.edit(step)
                contexts.append(outcome.context)
            run.context = read_context(run.store)
            assert parts_of(run.context) == parts_of(contexts[-1])
        versions = read_versions(run.store)
        for version, context in enumerate(contexts):
            assert parts_of(read_context(run.store, version)) == parts_of(context)
            assert parts_of(rebuild(versions, version)) == parts_of(context)
        run.store.close()


def test_ids_go_on_counting_after_a_rollback() -> None:
    seed = seed_context([("rules", "one")])
    grown = seed.apply(Delta((Add("rules", "two"),)))
    back = rebuild([seed_version(seed), Version(1, 0, 1, 2, grown.applied), Version(2, 0, 1, 2, ())])
    assert [e.id for e in back] == ["e0"]
    assert back.apply(Delta((Add("rules", "three"),))).applied[0].id == "e2"


def test_a_learned_seed_keeps_its_counters() -> None:
    edits = Delta((Vote("e0", 2, 1, 4), Add("a", "y", key="k", data={"n": 1, "pair": (1, 2)})))
    learned = seed_context([("a", "x")]).apply(edits).context
    again = rebuild([seed_version(learned)])
    assert [entry_json(e) for e in again] == [{**entry_json(e), "born": 0, "changed": 0, "failing": 0} for e in learned]
    assert entry_json([*again][1])["data"] == {"n": 1, "pair": [1, 2]}
    assert again.version == 0


def test_the_history_of_an_entry_and_the_difference_of_two_versions() -> None:
    seed = seed_context([("rules", "one"), ("rules", "two"), ("rules", "three")])
    outcome = seed.apply(Delta((Merge(("e0", "e1")), Update("e2", "3"), Vote("e2", 1), Add("rules", "four"))))
    versions = [seed_version(seed), Version(1, 0, 1, 4, outcome.applied)]
    histories = [[(e.version, e.done.edit.op) for e in entry_history(versions, id)] for id in ("e1", "e2")]
    assert histories == [[(0, "add"), (1, "merge")], [(0, "add"), (1, "update"), (1, "vote")]]
    added, removed, changed = diff_contexts(seed, outcome.context)
    assert ([e.id for e in added], [e.id for e in removed]) == (["e3"], ["e1"])
    assert [(b.text, a.text) for b, a in changed] == [("three", "3")]


def test_a_replaced_snapshot_and_a_missing_version_are_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, memories(100))
    asyncio.run(run.save(index=False))
    with refused("version.unknown"):
        read_context(run.store, 7)
    reader = load_context(tmp_path)
    run.edit([Update("e3", "new")])
    asyncio.run(run.save(index=False))
    with refused("store.changed"):
        reader.get("e3")
    entry = load_context(tmp_path).get("e3")
    assert entry is not None
    assert entry.text == "new"
    run.store.close()


class Counting(Words):
    """Records the texts that it embeds."""

    def __init__(self, name: str = "words", dims: int = 64) -> None:
        self.name = name
        self.dims = dims
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return (await super().embed(texts))[:, : self.dims]


SIZE = 80


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    run = Run(folder, memories(SIZE))
    asyncio.run(run.save())
    run.store.close()
    return folder


@pytest.fixture
def saved(template: Path, tmp_path: Path) -> Path:
    """A run with a snapshot and its index."""
    return Path(shutil.copytree(template, tmp_path / "run"))


def asked(folder: Path) -> tuple[SearchResult, Counting]:
    """A search for the text of entry e33, and the embedder that it used."""
    embedder = Counting()
    with Store.read(folder) as store:
        search = Retriever(Vectors(embedder, store), 1).nearest(read_context(store), "text 33", 1)
        return asyncio.run(search), embedder


def test_an_index_that_is_lost_or_damaged_is_built_again(saved: Path) -> None:
    (file,) = saved.glob(INDEX_FILES)
    whole = file.read_bytes()
    for damaged in (None, b"not an index", whole[64:]):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        search, embedder = asked(saved)
        assert (search.exact, search.matches[0].entry.id, embedder.asked) == (False, "e33", ["text 33"])
        assert file.read_bytes() == whole
    # Where nothing may be written, all entries are compared.
    file.unlink()
    with Store.read(saved) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("practicum.plugins.index.files.os.access", lambda *_: False)
        context = read_context(store)
        search = asyncio.run(Retriever(Vectors(Counting(), store), SIZE + 1).nearest(context, "text 33", 1))
        assert (search.exact, search.matches[0].entry.id) == (True, "e33")
    assert not file.exists()


def test_forgotten_entries_are_in_no_snapshot_and_no_index(saved: Path) -> None:
    with Store.open(saved) as store:
        assert forget(store, sources=["task:t1"]).left == 0
        assert not list(saved.glob(INDEX_FILES))
        assert store.rows(schema.entries.select()) == []
        assert len(read_context(store)) == SIZE // 2


def test_the_index_of_a_run_created_elsewhere_is_not_opened(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("practicum.plugins.index.index.Part.open", opened.append)

    def opened_by_a_search() -> list[str]:
        opened.clear()
        with Store.read(saved) as store:
            is_own(store, read_config(store)[0])
            asyncio.run(Retriever(Vectors(Words(), store), 1).nearest(read_context(store), "text 33", 1))
        return [path.name for path in opened]

    (file,) = saved.glob(INDEX_FILES)
    assert opened_by_a_search() == [file.name]
    with Store.open(saved) as store:
        update_run(store, mark="")
    assert opened_by_a_search() == []


class Failing(Counting):
    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        raise RuntimeError("away")


def test_reembedding_replaces_all_vectors_or_none(saved: Path) -> None:
    with Store.open(saved) as store, pytest.raises(RuntimeError, match="away"):
        asyncio.run(replace_embedder(store, Failing("other")))
    assert not asked(saved)[0].exact
    other = Counting("other", dims=32)
    with Store.open(saved) as store:
        with refused("embedder.mismatch"):
            Vectors(other, store)
        assert asyncio.run(replace_embedder(store, other)) == SIZE
        assert read_run(store)[0].embedder == "other"
        other.asked.clear()
        retriever = Retriever(Vectors(other, store))
        assert asyncio.run(retriever.nearest(read_context(store), "text 33", 1)).matches[0].entry.id == "e33"
        assert other.asked == []
        with refused("embedder.mismatch"):
            Vectors(Words(), store)
