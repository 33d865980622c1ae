"""The laws of entries and deltas, for any sequence of edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.core.context import PAGE, Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Merge, Update, Vote

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


def test_a_merged_text_loses_the_key_of_the_old_one() -> None:
    context = Context().apply(Delta((Add("s", "a", key="question"), Add("s", "b")))).context
    kept = context.apply(Delta((Merge(("e0", "e1")),))).context
    assert entry(kept, "e0").embedded_text == "question"
    rewritten = context.apply(Delta((Merge(("e0", "e1"), "both"),))).context
    assert entry(rewritten, "e0").embedded_text == "both"


@settings(max_examples=examples(20))
@given(st.sets(st.integers(0, 3 * PAGE - 1), max_size=20))
def test_deleting_across_pages(numbers: set[int]) -> None:
    context = seed_context(("s", f"rule {n}") for n in range(3 * PAGE))
    left = context.apply(Delta(tuple(Delete(f"e{n}") for n in numbers))).context
    assert [e.number for e in left] == [n for n in range(3 * PAGE) if n not in numbers]
    assert len(left) == 3 * PAGE - len(numbers)
