"""The laws of entries and deltas, for any sequence of edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from refusals import refused

from practicum.core.context import PAGE, Context, seed_context
from practicum.core.edits import Add, Applied, Delete, Delta, Edit, Entry, Merge, Update, Vote

LIVE = st.integers(0, 12).map(lambda n: f"e{n}")
IDS = LIVE | st.sampled_from(["", "e", "e07", "E1", "e-1", "e1_0", "e" + "9" * 5000, "new", "e²", "x", "e 1"])
TEXT = st.sampled_from(["", " ", "a", "b", "c\nd", "If x, do y.", "é"])
SECTION = st.sampled_from(["", "rules", "facts", "two\nlines"])
SOURCES = st.lists(st.sampled_from(["task:1", "task:2", "tag:x", "seed"]), max_size=2).map(tuple)
COUNT = st.integers(-1, 3)
REF = st.sampled_from(["", "", "", "new", "other", "e3"])

ADD = st.builds(Add, SECTION, TEXT, helpful=COUNT, harmful=COUNT, ref=REF, sources=SOURCES)
EDIT: st.SearchStrategy[Edit] = st.one_of(
    ADD,
    st.builds(Update, IDS, st.none() | TEXT, st.none() | SECTION, data=st.none() | st.just({"n": 1}), sources=SOURCES),
    st.builds(Merge, st.lists(IDS, max_size=4).map(tuple), st.none() | TEXT, SOURCES),
    st.builds(Delete, IDS, SOURCES),
    st.builds(Vote, IDS, COUNT, COUNT, COUNT, SOURCES),
)
DELTAS = st.lists(st.lists(EDIT, max_size=8).map(lambda edits: Delta(tuple(edits))), max_size=6)


def grown(deltas: Sequence[Delta]) -> Context:
    context = seed_context((f"section {n % 2}", f"rule {n}") for n in range(6))
    for delta in deltas:
        context = context.apply(delta).context
    return context


def entry(context: Context, id: str) -> Entry:
    found = context.get(id)
    assert found is not None
    return found


@given(DELTAS, st.lists(EDIT, max_size=8))
def test_apply_is_total_and_accounts_for_every_edit(deltas: list[Delta], edits: list[Edit]) -> None:
    context = grown(deltas)
    before = list(context)
    outcome = context.apply(Delta(tuple(edits)))
    assert len(outcome.applied) + len(outcome.refused) == len(edits)
    assert all(r.reason for r in outcome.refused)
    refused = [r.edit for r in outcome.refused]
    assert [e for e in edits if any(e is r for r in refused)] == refused
    assert list(context) == before
    assert len(outcome.context) == len(list(outcome.context))
    assert (outcome.context is context) == (not outcome.applied)
    assert all(e.text.strip() and e.section.strip() for e in outcome.context)
    for at in outcome.context:
        assert outcome.context.get(at.id) == at
        assert at.id in outcome.context


@given(DELTAS)
def test_ids_are_never_reused(deltas: list[Delta]) -> None:
    context = grown([])
    given_out = {e.id for e in context}
    for delta in deltas:
        outcome = context.apply(delta)
        made = [a.id for a in outcome.applied if isinstance(a.edit, Add)]
        assert len(made) == len(set(made))
        assert not given_out & set(made)
        given_out |= set(made)
        context = outcome.context
        assert {e.id for e in context} <= given_out


@given(DELTAS)
def test_the_log_rebuilds_every_version(deltas: list[Delta]) -> None:
    context = rebuilt = grown([])
    for delta in deltas:
        outcome = context.apply(delta)
        if outcome.applied:
            context, rebuilt = outcome.context, rebuilt.replay(outcome.applied)
        assert list(rebuilt) == list(context)
        assert (rebuilt.version, rebuilt.next_number, len(rebuilt), rebuilt.digest) == (
            context.version,
            context.next_number,
            len(context),
            context.digest,
        )


@given(DELTAS, st.sets(LIVE, min_size=2, max_size=4), st.none() | st.just("all of them"), SOURCES)
def test_merging_adds_counters_and_joins_provenance(
    deltas: list[Delta], ids: set[str], text: str | None, sources: tuple[str, ...]
) -> None:
    context = grown(deltas)
    parts = [e for e in context if e.id in ids]
    outcome = context.apply(Delta((Merge(tuple(sorted(ids)), text, sources),)))
    if len(parts) < len(ids):
        assert outcome.refused
        return
    kept = entry(outcome.context, parts[0].id)
    assert (kept.helpful, kept.harmful, kept.uses) == (
        sum(e.helpful for e in parts),
        sum(e.harmful for e in parts),
        sum(e.uses for e in parts),
    )
    assert set(kept.sources) == {s for e in parts for s in e.sources} | set(sources)
    assert len(set(kept.sources)) == len(kept.sources)
    assert kept.text == (text or parts[0].text)
    assert len(outcome.context) == len(context) - len(parts) + 1


def said(context: Context, order: dict[str, int]) -> list[Entry]:
    """Entries with new ids told apart by what they say, since edits in another order number them differently."""
    return sorted(
        (replace(e, id=e.id if e.id in order else "", born=0, changed=0) for e in context),
        key=lambda e: (e.id, e.section, e.text, e.sources, e.helpful, e.harmful),
    )


@given(DELTAS, st.lists(EDIT, max_size=6), st.randoms(use_true_random=False))
def test_independent_edits_commute_up_to_the_ids_of_new_entries(
    deltas: list[Delta], edits: list[Edit], random: object
) -> None:
    context = grown(deltas)
    touched: set[str] = set()
    independent: list[Edit] = []
    for edit in edits:
        match edit:
            case Add():
                independent.append(replace(edit, ref=""))
                continue
            case Merge():
                about = set(edit.ids)
            case _:
                about = {edit.id}
        # An id that is not there yet may be that of an entry another edit adds.
        if not about & touched and all(id in context for id in about):
            independent.append(edit)
            touched |= about
    shuffled = list(independent)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = context.apply(Delta(tuple(independent))), context.apply(Delta(tuple(shuffled)))
    order = {e.id: 0 for e in context}
    assert said(one.context, order) == said(other.context, order)
    assert one.context.next_number == other.context.next_number
    assert len(one.refused) == len(other.refused)


def test_later_edits_of_a_delta_can_refer_to_an_added_entry() -> None:
    context = seed_context([("rules", "old")])
    delta = Delta((Add("rules", "new", ref="n"), Vote("n", 1), Merge(("n", "e0")), Update("n", "no longer there")))
    outcome = context.apply(delta)
    assert [a.id for a in outcome.applied] == ["e1", "e1", "e0"]
    assert outcome.applied == (
        Applied(Add("rules", "new"), "e1"),
        Applied(Vote("e1", 1), "e1"),
        Applied(Merge(("e0", "e1")), "e0"),
    )
    assert [r.reason for r in outcome.refused] == ["there is no entry 'n'"]
    assert entry(outcome.context, "e0").helpful == 1


@pytest.mark.parametrize("ref", ["n", "e0"])
def test_a_ref_that_is_taken_is_refused(ref: str) -> None:
    outcome = Context().apply(Delta((Add("s", "a", ref="n"), Add("s", "b", ref=ref))))
    assert [r.reason for r in outcome.refused] == [f"its ref {ref!r} is taken"]


def test_an_update_that_changes_nothing_is_refused_and_leaves_provenance() -> None:
    context = seed_context([("rules", "old")])
    outcome = context.apply(Delta((Update("e0", "old", sources=("task:1",)),)))
    assert outcome.refused[0].reason == "it does not change e0"
    assert entry(outcome.context, "e0").sources == ("seed",)


def test_a_merged_text_loses_the_key_of_the_old_one() -> None:
    context = Context().apply(Delta((Add("s", "a", key="question"), Add("s", "b")))).context
    kept = context.apply(Delta((Merge(("e0", "e1")),))).context
    assert entry(kept, "e0").embedded_text == "question"
    rewritten = context.apply(Delta((Merge(("e0", "e1"), "both"),))).context
    assert entry(rewritten, "e0").embedded_text == "both"


@given(DELTAS)
def test_the_digest_depends_on_texts_and_not_on_counters(deltas: list[Delta]) -> None:
    context = grown(deltas)
    voted = context.apply(Delta(tuple(Vote(e.id, 1, 1, 1) for e in context))).context
    assert voted.digest == context.digest
    again = Context().apply(Delta(tuple(Add(e.section, e.text) for e in context))).context
    edited = again.apply(Delta((Update("e0", "something else"),))).context
    assert (edited.digest == again.digest) == (edited is again)


def test_a_seed_is_at_version_0_and_was_born_there() -> None:
    context = seed_context([("a", "x"), ("b", "y")])
    assert [(e.id, e.born, e.changed) for e in context] == [("e0", 0, 0), ("e1", 0, 0)]
    assert context.version == 0
    with refused("playbook.invalid_entry"):
        seed_context([("a", "x"), ("a", " ")])


@settings(max_examples=examples(20))
@given(st.sets(st.integers(0, 3 * PAGE - 1), max_size=20))
def test_deleting_across_pages(numbers: set[int]) -> None:
    context = seed_context(("s", f"rule {n}") for n in range(3 * PAGE))
    left = context.apply(Delta(tuple(Delete(f"e{n}") for n in numbers))).context
    assert [e.number for e in left] == [n for n in range(3 * PAGE) if n not in numbers]
    assert len(left) == 3 * PAGE - len(numbers)
