"""The laws of a context: applying edits is total and deterministic, and says why it refuses one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import practicum
from practicum import Add, Context, Delete, Delta, Entry, Merge, Update, Vote

LIVE = st.integers(0, 9).map(lambda n: f"e{n}")
IDS = LIVE | st.sampled_from(["", "e", "e07", "E1", "e-1", "e" + "9" * 5000, "new", "e²"])
TEXT = st.sampled_from(["", " ", "a", "b", "c\nd", "If x, do y.", "é"])
SECTION = st.sampled_from(["", "rules", "facts", "two\nlines"])
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


@given(st.lists(EDITS, max_size=4), EDITS)
def test_every_edit_is_applied_or_refused_with_a_reason(before: list[list[Any]], edits: list[Any]) -> None:
    context, other = grown(before), grown(before)
    # The same edits give the same context.
    assert practicum.export(context, "json") == practicum.export(other, "json")
    assert context.digest == other.digest
    outcome = context.apply(Delta(tuple(edits)))
    assert len(outcome.applied) + len(outcome.refused) == len(edits)
    assert all(refused.reason for refused in outcome.refused)
    # A context is a value: applying a delta does not change it.
    assert list(context) == list(other)
    assert outcome.context.version == context.version + bool(outcome.applied)
    assert len(outcome.context) == len(list(outcome.context))
    assert all(entry.text.strip() and entry.section.strip() for entry in outcome.context)
    assert all(outcome.context.get(entry.id) == entry for entry in outcome.context)


@given(st.lists(EDITS, max_size=4))
def test_an_id_is_never_used_twice_and_applied_edits_rebuild_the_context(deltas: list[list[Any]]) -> None:
    """The applied edits of a step are stored, and are enough for its version."""
    context = rebuilt = start()
    ids = {entry.id for entry in context}
    for edits in deltas:
        outcome = context.apply(Delta(tuple(edits)))
        added = [done.id for done in outcome.applied if isinstance(done.edit, Add)]
        assert len(added) == len(set(added))
        assert not ids & set(added)
        ids |= set(added)
        again = rebuilt.apply(Delta(tuple(done.edit for done in outcome.applied)))
        assert again.refused == ()
        context, rebuilt = outcome.context, again.context
        assert list(rebuilt) == list(context)


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


@given(st.lists(EDITS, max_size=3))
def test_votes_change_counters_and_no_text_in_prompts(deltas: list[list[Any]]) -> None:
    context = grown(deltas)
    voted = context.apply(Delta(tuple(Vote(entry.id, 1, 2, 3) for entry in context))).context
    assert voted.digest == context.digest
    for old, new in zip(context, voted, strict=True):
        assert new == replace(
            old, helpful=old.helpful + 1, harmful=old.harmful + 2, uses=old.uses + 3, changed=new.changed
        )


@pytest.mark.parametrize(
    "edit",
    [
        Update("e99", "x"), Update("e0", " "), Update("e0", "rule 0"), Delete("e99"), Merge(("e0",)),
        Merge(("e0", "e99")), Vote("e0"), Vote("e0", helpful=-1), Add("", "x"), Add("rules", ""),
        Add("two\nlines", "x"), Add("rules", "x", ref="e3"),
    ],
    ids=str,
)  # fmt: skip
def test_an_edit_that_cannot_be_applied_is_refused(edit: Any) -> None:
    context = start()
    outcome = context.apply(Delta((edit,)))
    assert outcome.applied == ()
    (refused,) = outcome.refused
    assert refused.edit == edit
    assert refused.reason
    assert outcome.context is context


def test_later_edits_of_a_delta_may_name_an_entry_that_it_adds() -> None:
    outcome = start().apply(Delta((Add("rules", "new", ref="n"), Vote("n", 1), Merge(("n", "e0")), Update("n", "x"))))
    assert [done.id for done in outcome.applied] == ["e6", "e6", "e0"]
    assert len(outcome.refused) == 1
    entry = outcome.context.get("e0")
    assert isinstance(entry, Entry)
    assert entry.helpful == 1


def test_an_entry_has_the_versions_that_created_and_changed_it() -> None:
    first = Context().apply(Delta((Add("rules", "a"), Add("rules", "b")))).context
    second = first.apply(Delta((Update("e1", "c"), Vote("e0", uses=1)))).context
    assert [(entry.id, entry.born, entry.changed) for entry in second] == [("e0", 1, 1), ("e1", 1, 2)]
