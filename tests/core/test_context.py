"""Laws of deltas below the public ones (contracts/python/test_context.py): order, pages and keys."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Merge, Update, Vote

IDS = st.integers(0, 7).map(lambda n: f"e{n}")
TEXT = st.sampled_from(["", "a", "b", "c\nd", "If x, do y."])
SECTION = st.sampled_from(["", "rules", "facts", "two\nlines"])
SOURCES = st.lists(st.sampled_from(["task:1", "task:2", "tag:x", "seed"]), max_size=2).map(tuple)
COUNT = st.integers(-1, 3)
EDIT: st.SearchStrategy[Edit] = st.one_of(
    st.builds(Add, SECTION, TEXT, helpful=COUNT, harmful=COUNT, sources=SOURCES),
    st.builds(Update, IDS, st.none() | TEXT, st.none() | SECTION, data=st.none() | st.just({"n": 1}), sources=SOURCES),
    st.builds(Merge, st.lists(IDS, max_size=4).map(tuple), st.none() | TEXT, SOURCES),
    st.builds(Delete, IDS, SOURCES),
    st.builds(Vote, IDS, COUNT, COUNT, COUNT, SOURCES),
)


def contents(context: Context, ids: set[str]) -> list[Entry]:
    """Entries in the order of their contents: edits in another order give new entries other ids."""
    return sorted(
        (replace(e, id=e.id if e.id in ids else "", born=0, changed=0) for e in context),
        key=lambda e: (e.id, e.section, e.text, e.sources, e.helpful, e.harmful),
    )


@given(st.lists(EDIT, max_size=8), st.integers())
def test_independent_edits_commute_up_to_the_ids_of_new_entries(edits: list[Edit], seed: int) -> None:
    context = seed_context((f"section {n % 2}", f"rule {n}") for n in range(6))
    touched: set[str] = set()
    independent: list[Edit] = []
    for edit in edits:
        about = set() if isinstance(edit, Add) else {*edit.ids} if isinstance(edit, Merge) else {edit.id}
        # A missing id may be that of an entry that another edit adds.
        if not about & touched and all(id in context for id in about):
            independent.append(edit)
            touched |= about
    shuffled = list(independent)
    Random(seed).shuffle(shuffled)
    one, other = context.apply(Delta(tuple(independent))), context.apply(Delta(tuple(shuffled)))
    ids = {e.id for e in context}
    assert contents(one.context, ids) == contents(other.context, ids)
    assert one.context.next_number == other.context.next_number
    assert len(one.refused) == len(other.refused)


def test_a_merged_text_loses_the_key_of_the_old_one() -> None:
    context = Context().apply(Delta((Add("s", "a", key="question"), Add("s", "b")))).context
    for merge, expected in ((Merge(("e0", "e1")), "question"), (Merge(("e0", "e1"), "both"), "both")):
        entry = context.apply(Delta((merge,))).context.get("e0")
        assert entry is not None
        assert entry.embedded_text == expected
