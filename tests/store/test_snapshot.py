"""Snapshots: a context opened from one is the context of its log; what is not looked at is not read."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import client, make_tasks, world
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from refusals import refused
from rows import put
from runs import Words

import practicum
from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote
from practicum.models.scripted import Call
from practicum.retrieval.search import VISIBLE, Filter, Retriever, SearchResult
from practicum.retrieval.vectors import Vectors
from practicum.session.amend import replace_embedder, save_snapshot
from practicum.session.config import Config, Splits
from practicum.session.forget import forget
from practicum.session.records import begin, load_context, read_run
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE, INDEX_FILES
from practicum.store.snapshot import SnapshotPages, read_context, snapshot_due, with_texts, write_snapshot
from practicum.store.versions import Version, read_versions, rebuild, version_row

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


def begun(store: Store, said: Sequence[str]) -> Context:
    """A run that starts with these memories."""
    adds = tuple(Add("memories", text, sources=("task:t1",) if n % 2 else ("seed",)) for n, text in enumerate(said))
    seed = replace(Context().apply(Delta(adds)).context, version=0)
    begin(store, Config(method="none"), Splits(()), seed, "done")
    return read_context(store)


def changed(store: Store, context: Context, *edits: Edit) -> Context:
    """One version more in the log."""
    outcome = context.apply(Delta(edits))
    if outcome.applied:
        new = outcome.context
        last = max(v.version for v in read_versions(store))
        new = replace(new, version=last + 1)
        made = Version(new.version, context.version, 1, new.next_number, outcome.applied)
        put(store, schema.versions, [version_row(made)])
        return read_context(store)
    return context


def same(one: Context, other: Context) -> bool:
    return (list(one), one.version, one.next_number, len(one)) == (
        list(other), other.version, other.next_number, len(other),
    )  # fmt: skip


@pytest.mark.slow
@given(st.integers(0, 150), steps)
@settings(max_examples=examples(40))
def test_a_context_opened_from_a_snapshot_is_that_of_the_log(n: int, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.create(Path(folder)) as store:
        context = begun(store, [f"text {i}" for i in range(n)])
        for step in steps:
            if step == "snapshot":
                write_snapshot(store, context)
                context = read_context(store)
            elif isinstance(step, tuple):
                versions = read_versions(store)
                last, back = versions[-1], versions[max(0, len(versions) - 1 - step[1])]
                made = Version(last.version + 1, back.version, 1, last.next_number, ())
                put(store, schema.versions, [version_row(made)])
                context = read_context(store)
            else:
                context = changed(store, context, *step)
            assert same(read_context(store), rebuild(read_versions(store)))
        versions = read_versions(store)
        for version in versions:
            assert same(read_context(store, version.version), rebuild(versions, version.version))


def test_only_accessed_pages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(tmp_path) as store:
        write_snapshot(store, begun(store, [f"text {n}" for n in range(640)]))
    read: list[int] = []
    rows = Store.rows

    def counted(self: Store, query: Any) -> list[Any]:
        found = rows(self, query)
        read.append(len(found))
        return found

    monkeypatch.setattr(Store, "rows", counted)
    context = load_context(tmp_path)
    entry = context.get("e100")
    assert entry is not None
    assert entry.text == "text 100"
    assert sum(read) < 70
    assert len(list(context)) == 640


def test_reading_a_replaced_snapshot_is_an_error(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        write_snapshot(store, begun(store, [f"text {n}" for n in range(100)]))
        reader = load_context(tmp_path)
        write_snapshot(store, changed(store, read_context(store), Update("e3", "new")))
        with refused("store.changed"):
            reader.get("e3")
        entry = load_context(tmp_path).get("e3")
        assert entry is not None
        assert entry.text == "new"


def test_missing_versions(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        assert len(read_context(store)) == 0
        write_snapshot(store, begun(store, ["a"]))
        with refused("version.unknown"):
            read_context(store, 7)


def test_a_resumed_run_invalidates_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sitting may end with a version that puts the best one back; the next one makes another of that number."""
    monkeypatch.setattr("practicum.store.snapshot.DUE", 1)
    how: dict[str, Any] = {"method": "ace", "settings": {"batch": 3}, "val": make_tasks(3, 80), "out": tmp_path}

    def right_until_it_has_learned(call: Call) -> str:
        """So that the best version is the first."""
        if call.role == "agent" and call.prompt.pages:
            return "no idea"
        return world(call)

    model = client(right_until_it_has_learned)
    parts = practicum.Parts(clients={"agent": model})
    first = practicum.run_sync(practicum.learn(make_tasks(12), parts=parts, max_calls=40, **how))
    assert first.stopped
    assert len(load_context(tmp_path)) == 0
    monkeypatch.setattr("practicum.store.snapshot.DUE", 1_000)
    practicum.run_sync(practicum.resume(tmp_path, parts=parts, max_calls=1_000))
    with Store.read(tmp_path) as store:
        versions = read_versions(store)
        assert versions[-1].version > first.context.version
        for version in versions:
            assert same(read_context(store, version.version), rebuild(versions, version.version))


def test_a_snapshot_is_due_after_many_edits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.store.snapshot.DUE", 10)
    with Store.create(tmp_path) as store:
        context = begun(store, ["a"] * 9)
        assert not snapshot_due(store)
        context = changed(store, context, Vote("e0", helpful=1))
        assert snapshot_due(store)
        asyncio.run(save_snapshot(store, context, Retriever(Vectors(Words(), store))))
        assert not snapshot_due(store)
        context = changed(store, read_context(store), *[Vote("e0", helpful=1)] * 9)
        assert not snapshot_due(store)
        # A rollback to before the snapshot makes it useless.
        last = read_versions(store)[-1]
        put(store, schema.versions, [version_row(Version(last.version + 1, 0, 1, last.next_number, ()))])
        assert snapshot_due(store)


class Counting(Words):
    """Counts what it embeds."""

    def __init__(self, name: str = "words", dims: int = 64) -> None:
        self.name = name
        self.dims = dims
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return (await super().embed(texts))[:, : self.dims]


SAID = [f"text {n}" for n in range(640)]


def saved(folder: Path) -> None:
    """A run with a snapshot and its index."""
    with Store.create(folder) as store:
        context = begun(store, SAID)
        retriever = Retriever(Vectors(Words(), store), 1)

        async def work() -> None:
            write_snapshot(store, context, await retriever.save(context))

        asyncio.run(work())


def asked(folder: Path, text: str, k: int = 3, where: Filter = VISIBLE, many: int = 1) -> tuple[SearchResult, Counting]:
    embedder = Counting()
    with Store.read(folder) as store:
        search = Retriever(Vectors(embedder, store), many).nearest(read_context(store), text, k, where)
        return asyncio.run(search), embedder


def test_a_search_reads_what_it_finds_and_embeds_the_question_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    read: list[int] = []
    whole = SnapshotPages.page
    monkeypatch.setattr(SnapshotPages, "page", lambda self, index: (read.append(index), whole(self, index))[1])
    search, embedder = asked(tmp_path, "text 400 of old")
    assert search.matches[0].entry.text == "text 400"
    assert not search.exact
    assert embedder.asked == ["text 400 of old"]
    assert read == []


def test_no_search_goes_through_all_entries(tmp_path: Path) -> None:
    """What SQLite says it will do, for the very statements that are run."""
    saved(tmp_path)
    said: list[str] = []
    connect = sqlite3.connect

    def listening(*a: Any, **k: Any) -> sqlite3.Connection:
        db = connect(*a, **k)
        db.set_trace_callback(said.append)
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", listening)
        asked(tmp_path, "text 400 of old")
        context = load_context(tmp_path)
        assert [entry.id for entry in with_texts(context, {"text 7", "text 700"})] == ["e7"]
        context.get("e100")
    of_entries = [each for each in said if "FROM snapshots LEFT OUTER JOIN entries" in each]
    assert len(of_entries) == 3
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    plans = [step for each in of_entries for *_, step in db.execute(f"EXPLAIN QUERY PLAN {each}")]
    db.close()
    assert [plan for plan in plans if "entries" in plan] == [
        "SEARCH entries USING PRIMARY KEY (space=? AND number=?) LEFT-JOIN",
        "SEARCH entries USING INDEX entries_by_hash (hash=?) LEFT-JOIN",
        "SEARCH entries USING PRIMARY KEY (space=? AND number>? AND number<?) LEFT-JOIN",
    ]


def test_a_search_finds_entries_that_changed_after_the_snapshot(tmp_path: Path) -> None:
    saved(tmp_path)
    with Store.open(tmp_path) as store:
        context = read_context(store)
        context = changed(store, context, Update("e7", "a new wording"), Delete("e8"), Add("memories", "quite new"))
        changed(store, context, Vote("e9", helpful=1), Add("notes", "text 9"))
    texts = {text: asked(tmp_path, text, 1)[0].matches[0].entry for text in ("a new wording", "quite new", "text 9")}
    assert [entry.id for entry in texts.values()] == ["e7", "e640", "e9"]
    assert texts["text 9"].helpful == 1
    assert asked(tmp_path, "text 7", 1)[0].matches[0].entry.id != "e7"
    assert "e8" not in [f.entry.id for f in asked(tmp_path, "text 8", 5)[0].matches]
    assert [f.entry.id for f in asked(tmp_path, "text 9", 2)[0].matches] == ["e9", "e641"]
    assert [f.entry.id for f in asked(tmp_path, "text 9", 2, Filter(section="notes"))[0].matches] == ["e641"]


def test_an_index_that_is_lost_or_damaged_is_made_again(tmp_path: Path) -> None:
    saved(tmp_path)
    (file,) = tmp_path.glob(INDEX_FILES)
    whole = file.read_bytes()
    for spoil in (None, b"not an index", b"", whole[:200], whole[:-1], whole[64:]):
        file.unlink()
        if spoil is not None:
            file.write_bytes(spoil)
        search, embedder = asked(tmp_path, "text 33", 1)
        assert (search.exact, search.matches[0].entry.id, embedder.asked) == (False, "e33", ["text 33"])
        assert file.read_bytes() == whole
    # Where nothing may be written, all entries are compared.
    file.unlink()
    with Store.read(tmp_path) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("practicum.plugins.index.files.os.access", lambda *_: False)
        context = read_context(store)
        search = asyncio.run(Retriever(Vectors(Counting(), store), 641).nearest(context, "text 33", 1))
        assert (search.exact, search.matches[0].entry.id) == (True, "e33")
    assert not file.exists()


def test_saving_again_adds_what_is_new_to_the_index(tmp_path: Path) -> None:
    saved(tmp_path)
    with Store.open(tmp_path) as store:
        context = changed(store, read_context(store), Add("memories", "quite new"))
        embedder = Counting()

        async def work() -> int:
            indexed = await Retriever(Vectors(embedder, store), 1).save(context)
            write_snapshot(store, context, indexed)
            return indexed

        assert asyncio.run(work()) == len(SAID) + 1
        assert embedder.asked == ["quite new"]
    assert asked(tmp_path, "quite new", 1)[0].matches[0].entry.id == "e640"


def test_forgotten_entries_are_in_no_snapshot_and_no_index(tmp_path: Path) -> None:
    saved(tmp_path)
    with Store.open(tmp_path) as store:
        assert forget(store, sources=["task:t1"]).left == 0
        assert not list(tmp_path.glob(INDEX_FILES))
        assert store.rows(schema.entries.select()) == []
        assert len(read_context(store)) == len(SAID) // 2


def test_reembedding_with_another_embedder(tmp_path: Path) -> None:
    saved(tmp_path)
    other = Counting("other", dims=32)
    with Store.open(tmp_path) as store:
        with refused("embedder.mismatch"):
            Vectors(other, store)
        assert asyncio.run(replace_embedder(store, other)) == len(SAID)
        assert read_run(store)[0].embedder == "other"
        retriever = Retriever(Vectors(other, store))
        other.asked.clear()
        assert asyncio.run(retriever.nearest(read_context(store), "text 33", 1)).matches[0].entry.id == "e33"
        assert other.asked == []
        with refused("embedder.mismatch"):
            Vectors(Words(), store)


def test_reembedding_after_the_model_behind_a_name_changed(tmp_path: Path) -> None:
    saved(tmp_path)
    changed_one = Counting("words", dims=32)
    with Store.open(tmp_path) as store:
        with refused("embedder.mismatch"):
            asyncio.run(Vectors(changed_one, store)(["something"]))
        asyncio.run(replace_embedder(store, changed_one))
        assert asyncio.run(Vectors(changed_one, store)(["something", "text 1"])).shape == (2, 32)


def test_a_failing_embedder_changes_nothing(tmp_path: Path) -> None:
    saved(tmp_path)

    class Failing(Counting):
        async def embed(self, texts: Sequence[str]) -> np.ndarray:
            raise RuntimeError("away")

    with Store.open(tmp_path) as store, pytest.raises(RuntimeError, match="away"):
        asyncio.run(replace_embedder(store, Failing("other")))
    assert not asked(tmp_path, "text 33", 1)[0].exact
