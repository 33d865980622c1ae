"""Versions as rows: every one is rebuilt exactly, also after a rollback."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from refusals import refused
from rows import put

from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Merge, Update, Vote, entry_json
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.versions import (
    Version,
    diff_contexts,
    entry_history,
    read_versions,
    rebuild,
    seed_version,
    version_row,
)

DATA = st.dictionaries(
    st.sampled_from(["answer", "good", "π"]), st.none() | st.booleans() | st.integers() | st.text("ab")
)
ID = st.integers(0, 9).map(lambda n: f"e{n}")
EDIT: st.SearchStrategy[Edit] = st.one_of(
    st.builds(
        Add, st.just("facts"), st.just("x"), key=st.sampled_from(["", "k"]), data=DATA,
        ref=st.sampled_from(["", "e9x"]), lessons=st.just(("l1",)), reason=st.just("why"), sources=st.just(("task:1",)),
    ),
    st.builds(Update, ID, st.sampled_from(["one", "two"]), data=st.none() | DATA),
    st.builds(Merge, st.lists(ID | st.just("e9x"), max_size=3).map(tuple), st.none() | st.just("all")),
    st.builds(Delete, ID),
    st.builds(Vote, ID, st.integers(0, 2), uses=st.integers(0, 2)),
)  # fmt: skip
STEP = st.lists(EDIT, max_size=6).map(lambda edits: Delta(tuple(edits))) | st.integers(0, 5)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.lists(STEP, max_size=6))
def test_rows_rebuild_every_version_exactly_also_after_rollbacks(steps: list[Delta | int]) -> None:
    seed = seed_context([("rules", "one"), ("rules", "two")])
    versions, contexts = [seed_version(seed)], [seed]
    for step in steps:
        last = contexts[-1]
        if isinstance(step, int):
            parent = step % len(contexts)
            versions.append(Version(len(contexts), parent, 1, last.next_number, ()))
            contexts.append(Context(contexts[parent].pages, len(contexts), last.next_number, len(contexts[parent])))
        elif (outcome := last.apply(step)).applied:
            versions.append(Version(len(contexts), last.version, 1, outcome.context.next_number, outcome.applied))
            contexts.append(outcome.context)
    with tempfile.TemporaryDirectory() as folder, Store.create(Path(folder) / "run") as store:
        put(store, schema.versions, [version_row(v) for v in reversed(versions)])
        read = read_versions(store)
    assert read == versions
    for version, context in enumerate(contexts):
        made = rebuild(read, version)
        assert list(made) == list(context)
        assert (made.version, made.next_number, len(made)) == (context.version, context.next_number, len(context))
    assert list(rebuild(read)) == list(contexts[-1])


def test_ids_go_on_counting_after_a_rollback() -> None:
    seed = seed_context([("rules", "one")])
    grown = seed.apply(Delta((Add("rules", "two"),)))
    versions = [seed_version(seed), Version(1, 0, 1, 2, grown.applied), Version(2, 0, 1, 2, ())]
    back = rebuild(versions)
    assert [e.id for e in back] == ["e0"]
    assert back.apply(Delta((Add("rules", "three"),))).applied[0].id == "e2"


def test_a_learned_seed_keeps_its_counters() -> None:
    learned = (
        seed_context([("a", "x")]).apply(Delta((Vote("e0", 2, 1, 4), Add("a", "y", key="k", data={"n": 1})))).context
    )
    again = rebuild([seed_version(learned)])
    plain = [{**entry_json(e), "born": 0, "changed": 0} for e in learned]
    assert [entry_json(e) for e in again] == plain
    assert again.version == 0


def test_an_unknown_version_is_refused() -> None:
    with refused("version.unknown"):
        rebuild([seed_version(Context())], 3)
    assert len(rebuild([])) == 0


def test_the_history_of_an_entry_and_what_changed() -> None:
    seed = seed_context([("rules", "one"), ("rules", "two"), ("rules", "three")])
    outcome = seed.apply(Delta((Merge(("e0", "e1")), Update("e2", "3"), Vote("e2", 1), Add("rules", "four"))))
    versions = [seed_version(seed), Version(1, 0, 1, 4, outcome.applied)]
    assert [(e.version, e.done.edit.op) for e in entry_history(versions, "e1")] == [(0, "add"), (1, "merge")]
    assert [(e.version, e.done.edit.op) for e in entry_history(versions, "e2")] == [
        (0, "add"),
        (1, "update"),
        (1, "vote"),
    ]
    added, removed, changed = diff_contexts(seed, outcome.context)
    assert [e.id for e in added] == ["e3"]
    assert [e.id for e in removed] == ["e1"]
    assert [(b.text, a.text) for b, a in changed] == [("three", "3")]


def test_an_entry_as_json() -> None:
    made = entry_json(Entry("e1", "s", "t", data={"pair": (1, 2)}, sources=("task:1",)))
    assert made["data"] == {"pair": [1, 2]}
    assert made["sources"] == ["task:1"]
