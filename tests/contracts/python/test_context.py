"""The laws of a context: applying edits is total and deterministic, and says why it refuses one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import practicum
from practicum import Add, Context, Delete, Delta, Entry, Merge, Update, Vote

LIVE = st.integers(0, 9).map(lambda n: f"e{n}")
IDS = LIVE | st.sampled_from(["", "e", "e07", "E1", "e-1", "e" + "9" * 5000, "new", "e²"])
TEXT = st.sampled_from(["", " ", "a", "b", "c\nd", "If x, do y.", "é"])
SECTION = st.sampled_from(["", "rules", "facts", ".retired rules", "two\nlines"])
SOURCES = st.lists(st.sampled_from(["task:1", "task:2", "tag:x"]), max_size=2).map(tuple)
COUNT = st.integers(-1, 3)
EDIT = st.one_of(
    st.builds(
        Add, SECTION, TEXT, helpful=COUNT, harmful=COUNT, ref=st.sampled_from(["", "", "new", "e3"]), sources=SOURCES
    ),
    st.builds(Update, IDS, st.none() | TEXT, st.none() | SECTION, data=st.none() | st.just({"n": 1}), sources=SOURCES),
    st.builds(Merge, st.lists(IDS, max_size=4).map(tuple), st.none() | TEXT, SOURCES),
    st.builds(Delete, IDS, SOURCES),
    st.builds(Vote, IDS, COUNT, COUNT, COUNT, SOURCES),
)
EDITS = st.lists(EDIT, max_size=8)


def start() -> Context:
    return Context().apply(Delta(tuple(Add(f"section {n % 2}", f"rule {n}") for n in range(6)))).context


def grown(deltas: list[list[Any]]) -> Context:
    context = start()
    for edits in deltas:
        context = context.apply(Delta(tuple(edits))).context
    return context


@given(st.lists(EDITS, max_size=4))
def test_edits_are_applied_or_refused_and_the_applied_rebuild_the_context(deltas: list[list[Any]]) -> None:
    """The applied edits of a step are stored, and are enough for its version. No id is used twice."""
    context = rebuilt = start()
    ids = {entry.id for entry in context}
    for edits in deltas:
        before = list(context)
        outcome = context.apply(Delta(tuple(edits)))
        assert len(outcome.applied) + len(outcome.refused) == len(edits)
        assert all(refused.reason for refused in outcome.refused)
        # A context is a value: applying a delta does not change it.
        assert list(context) == before
        assert outcome.context.version == context.version + bool(outcome.applied)
        assert len(outcome.context) == len(list(outcome.context))
        assert all(entry.text.strip() and entry.section.strip() for entry in outcome.context)
        assert all(outcome.context.get(entry.id) == entry for entry in outcome.context)
        added = [done.id for done in outcome.applied if isinstance(done.edit, Add)]
        assert len(added) == len(set(added))
        assert not ids & set(added)
        ids |= set(added)
        again = rebuilt.apply(Delta(tuple(done.edit for done in outcome.applied)))
        assert again.refused == ()
        context, rebuilt = outcome.context, again.context
        assert list(rebuilt) == list(context)
    # The same edits give the same context.
    other = grown(deltas)
    assert practicum.export(context, "json") == practicum.export(other, "json")
    assert context.digest == other.digest
    # Votes change counters, and no text in prompts.
    voted = context.apply(Delta(tuple(Vote(entry.id, 1, 2, 3) for entry in context))).context
    assert voted.digest == context.digest
    for old, new in zip(context, voted, strict=True):
        counts = {"helpful": old.helpful + 1, "harmful": old.harmful + 2, "uses": old.uses + 3}
        # A helpful vote ends a row of harmful votes, and the harmful votes of the same edit begin a new row.
        assert new == replace(old, **counts, changed=new.changed, failing=2)
    failed = voted.apply(Delta(tuple(Vote(entry.id, harmful=1) for entry in voted))).context
    assert [entry.failing for entry in failed] == [3] * len(failed)
    rewritten = failed.apply(Delta(tuple(Update(entry.id, text="It is new.") for entry in failed))).context
    assert all(entry.failing == 0 for entry in rewritten if entry.changed == rewritten.version)


@given(st.lists(EDITS, max_size=3), st.sets(LIVE, min_size=2, max_size=4), st.none() | st.just("all of them"), SOURCES)
def test_a_merge_keeps_the_oldest_adds_counters_and_joins_sources(
    deltas: list[list[Any]], ids: set[str], text: str | None, sources: tuple[str, ...]
) -> None:
    context = grown(deltas)
    parts = [entry for entry in context if entry.id in ids]
    outcome = context.apply(Delta((Merge(tuple(sorted(ids)), text, sources),)))
    if len(parts) < len(ids):
        assert outcome.refused
        return
    merged = outcome.context.get(parts[0].id)
    assert merged is not None
    assert (merged.helpful, merged.harmful, merged.uses) == tuple(
        sum(getattr(part, count) for part in parts) for count in ("helpful", "harmful", "uses")
    )
    assert set(merged.sources) == {source for part in parts for source in part.sources} | set(sources)
    assert merged.text == (text or parts[0].text)
    assert len(outcome.context) == len(context) - len(parts) + 1


@given(EDITS, st.sampled_from([".retired rules", "rules"]))
def test_an_entry_that_is_taken_back_starts_again_and_keeps_its_sources(edits: list[Any], section: str) -> None:
    context = grown([[Update("e0", section=".retired rules"), Vote("e0", 3, 9, 12), *edits]])
    if (old := context.get("e0")) is None or not old.retired:
        return
    after = context.apply(Delta((Update("e0", "new text", section, sources=("hand",)),)))
    new = after.context.get("e0")
    assert new is not None
    assert (new.text, new.section, new.changed) == ("new text", section, after.context.version)
    assert new.sources == (*old.sources, "hand")
    votes, counts = (old.helpful, old.harmful, old.uses, old.born), (new.helpful, new.harmful, new.uses, new.born)
    assert counts == (votes if new.retired else (0, 0, 0, after.context.version))


def test_an_edit_that_cannot_be_applied_is_refused() -> None:
    context = start()
    for edit in (
        Update("e99", "x"), Update("e0", " "), Update("e0", "rule 0"), Delete("e99"), Merge(("e0",)),
        Merge(("e0", "e99")), Vote("e0"), Vote("e0", helpful=-1), Add("", "x"), Add("rules", ""),
        Add("two\nlines", "x"), Add("rules", "x", ref="e3"),
    ):  # fmt: skip
        outcome = context.apply(Delta((edit,)))
        assert (outcome.applied, [refused.edit for refused in outcome.refused]) == ((), [edit])
        assert outcome.refused[0].reason
        assert outcome.context is context


def test_later_edits_of_a_delta_may_name_an_entry_that_it_adds() -> None:
    outcome = start().apply(Delta((Add("rules", "new", ref="n"), Vote("n", 1), Merge(("n", "e0")), Update("n", "x"))))
    assert [done.id for done in outcome.applied] == ["e6", "e6", "e0"]
    assert len(outcome.refused) == 1
    entry = outcome.context.get("e0")
    assert isinstance(entry, Entry)
    assert entry.helpful == 1
