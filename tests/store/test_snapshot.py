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
from profiles import examples
from refusals import refused
from rows import put
from runs import Words

from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote, entry_json
from practicum.retrieval.search import VISIBLE, Filter, Retriever, SearchResult
from practicum.retrieval.vectors import Vectors
from practicum.session.amend import replace_embedder
from practicum.session.config import Config, Splits
from practicum.session.forget import forget
from practicum.session.records import begin, load_context, read_run
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
steps = st.lists(
    st.one_of(
        st.lists(edits, min_size=1, max_size=6),
        st.just("snapshot"),
        st.integers(0, 5).map(lambda back: ("rollback", back)),
    ),
    max_size=10,
)


def begun(store: Store, memories: Sequence[str]) -> Context:
    """A run that starts with these memories."""
    adds = tuple(Add("memories", text, sources=("task:t1",) if n % 2 else ("seed",)) for n, text in enumerate(memories))
    seed = replace(Context().apply(Delta(adds)).context, version=0)
    begin(store, Config(method="none"), Splits(()), seed, "done")
    return read_context(store)


def changed(store: Store, context: Context, *edits: Edit) -> Context:
    """Append a version to the log."""
    outcome = context.apply(Delta(edits))
    if outcome.applied:
        last = max(v.version for v in read_versions(store))
        version = Version(last + 1, context.version, 1, outcome.context.next_number, outcome.applied)
        put(store, schema.versions, [version_row(version)])
        return read_context(store)
    return context


def rolled_back(store: Store, back: int) -> Context:
    versions = read_versions(store)
    last, target = versions[-1], versions[max(0, len(versions) - 1 - back)]
    put(store, schema.versions, [version_row(Version(last.version + 1, target.version, 1, last.next_number, ()))])
    return read_context(store)


def same(one: Context, other: Context) -> bool:
    return (list(one), one.version, one.next_number, len(one)) == (
        list(other), other.version, other.next_number, len(other),
    )  # fmt: skip


@pytest.mark.slow
@given(st.integers(0, 150), steps)
@settings(max_examples=examples(15))
def test_every_version_is_read_exactly_from_snapshots_and_rows_also_after_rollbacks(n: int, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.create(Path(folder)) as store:
        contexts = [begun(store, [f"text {i}" for i in range(n)])]
        for step in steps:
            last = contexts[-1]
            if step == "snapshot":
                write_snapshot(store, read_context(store))
            elif isinstance(step, tuple):
                rolled_back(store, step[1])
                target = contexts[max(0, len(contexts) - 1 - step[1])]
                contexts.append(replace(target, version=len(contexts), next_number=last.next_number))
            elif (outcome := last.apply(Delta(tuple(step)))).applied:
                changed(store, read_context(store), *step)
                contexts.append(outcome.context)
            assert same(read_context(store), contexts[-1])
        versions = read_versions(store)
        for version, context in enumerate(contexts):
            assert same(read_context(store, version), context)
            assert same(rebuild(versions, version), context)


def test_ids_go_on_counting_after_a_rollback() -> None:
    seed = seed_context([("rules", "one")])
    grown = seed.apply(Delta((Add("rules", "two"),)))
    back = rebuild([seed_version(seed), Version(1, 0, 1, 2, grown.applied), Version(2, 0, 1, 2, ())])
    assert [e.id for e in back] == ["e0"]
    assert back.apply(Delta((Add("rules", "three"),))).applied[0].id == "e2"
    with refused("version.unknown"):
        rebuild([seed_version(Context())], 3)
    assert len(rebuild([])) == 0


def test_a_learned_seed_keeps_its_counters() -> None:
    edits = Delta((Vote("e0", 2, 1, 4), Add("a", "y", key="k", data={"n": 1, "pair": (1, 2)})))
    learned = seed_context([("a", "x")]).apply(edits).context
    again = rebuild([seed_version(learned)])
    assert [entry_json(e) for e in again] == [{**entry_json(e), "born": 0, "changed": 0} for e in learned]
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


def test_a_merged_text_loses_the_key_of_the_old_one() -> None:
    context = Context().apply(Delta((Add("s", "a", key="question"), Add("s", "b")))).context
    for merge, expected in ((Merge(("e0", "e1")), "question"), (Merge(("e0", "e1"), "both"), "both")):
        entry = context.apply(Delta((merge,))).context.get("e0")
        assert entry is not None
        assert entry.embedded_text == expected


def test_a_replaced_snapshot_and_a_missing_version_are_refused(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        assert len(read_context(store)) == 0
        write_snapshot(store, begun(store, [f"text {n}" for n in range(100)]))
        with refused("version.unknown"):
            read_context(store, 7)
        reader = load_context(tmp_path)
        write_snapshot(store, changed(store, read_context(store), Update("e3", "new")))
        with refused("store.changed"):
            reader.get("e3")
        entry = load_context(tmp_path).get("e3")
        assert entry is not None
        assert entry.text == "new"


class Counting(Words):
    """Records the texts that it embeds."""

    def __init__(self, name: str = "words", dims: int = 64) -> None:
        self.name = name
        self.dims = dims
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return (await super().embed(texts))[:, : self.dims]


SIZE = 192


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    with Store.create(folder) as store:
        context = begun(store, [f"text {n}" for n in range(SIZE)])
        retriever = Retriever(Vectors(Words(), store), 1)

        async def work() -> None:
            write_snapshot(store, context, await retriever.save(context))

        asyncio.run(work())
    return folder


@pytest.fixture
def saved(template: Path, tmp_path: Path) -> Path:
    """A run with a snapshot and its index."""
    return Path(shutil.copytree(template, tmp_path / "run"))


def asked(folder: Path, text: str, k: int = 3, where: Filter = VISIBLE, many: int = 1) -> tuple[SearchResult, Counting]:
    embedder = Counting()
    with Store.read(folder) as store:
        search = Retriever(Vectors(embedder, store), many).nearest(read_context(store), text, k, where)
        return asyncio.run(search), embedder


def first(folder: Path, text: str) -> str:
    return asked(folder, text, 1)[0].matches[0].entry.id


def test_a_search_finds_entries_that_changed_after_the_snapshot(saved: Path) -> None:
    with Store.open(saved) as store:
        context = read_context(store)
        context = changed(store, context, Update("e7", "a new wording"), Delete("e8"), Add("memories", "quite new"))
        changed(store, context, Vote("e9", helpful=1), Add("notes", "text 9"))
    assert [first(saved, text) for text in ("a new wording", "quite new")] == ["e7", f"e{SIZE}"]
    assert first(saved, "text 7") != "e7"
    assert "e8" not in [f.entry.id for f in asked(saved, "text 8", 5)[0].matches]
    nines = asked(saved, "text 9", 2)[0].matches
    assert [(f.entry.id, f.entry.helpful) for f in nines] == [("e9", 1), (f"e{SIZE + 1}", 0)]
    assert [f.entry.id for f in asked(saved, "text 9", 2, Filter(section="notes"))[0].matches] == [f"e{SIZE + 1}"]


def test_an_index_that_is_lost_or_damaged_is_built_again(saved: Path) -> None:
    (file,) = saved.glob(INDEX_FILES)
    whole = file.read_bytes()
    for damaged in (None, b"not an index", whole[64:]):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        search, embedder = asked(saved, "text 33", 1)
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


class Failing(Counting):
    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        raise RuntimeError("away")


def test_reembedding_replaces_all_vectors_or_none(saved: Path) -> None:
    with Store.open(saved) as store, pytest.raises(RuntimeError, match="away"):
        asyncio.run(replace_embedder(store, Failing("other")))
    assert not asked(saved, "text 33", 1)[0].exact
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
        # The model changes and keeps its name.
        changed_model = Counting("other", dims=16)
        with refused("embedder.mismatch"):
            asyncio.run(Vectors(changed_model, store)(["another text"]))
        asyncio.run(replace_embedder(store, changed_model))
        assert asyncio.run(Vectors(changed_model, store)(["another text", "text 1"])).shape == (2, 16)
