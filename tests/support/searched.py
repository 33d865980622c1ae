"""Entries that tests search for: short texts of a few words, so that many are alike."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from practicum.core.edits import Add, Delete, Edit, Merge, Update, Vote
from practicum.retrieval.search import VISIBLE, Filter

SAID = ("card", "stolen", "bank", "fee", "lost", "abroad", "top up", "refund")
SECTIONS = ("memories", "notes", ".hidden")
OUTCOMES = ("success", "failure")

FILTERS = (
    VISIBLE, Filter(section="memories"), Filter(section=".hidden"), Filter(outcome="failure"), Filter(trust="user"),
    Filter(section="memories", tags=("a",), outcome="success"), Filter(tags=("a", "b")),
)  # fmt: skip

texts = st.lists(st.sampled_from(SAID), min_size=1, max_size=3).map(" ".join)
ids = st.integers(0, 90).map("e{}".format)


def adds(sources: Sequence[str]) -> st.SearchStrategy[Add]:
    """Entries with some of these sources."""
    return st.builds(
        Add,
        st.sampled_from(SECTIONS),
        texts,
        key=st.one_of(st.just(""), texts),
        data=st.one_of(st.just({}), st.fixed_dictionaries({"outcome": st.sampled_from(OUTCOMES)})),
        sources=st.lists(st.sampled_from(sources), unique=True).map(tuple),
    )


def edits(sources: Sequence[str]) -> st.SearchStrategy[Edit]:
    """Edits of such entries."""
    return st.one_of(
        adds(sources),
        st.builds(Update, ids, text=texts),
        st.builds(Update, ids, section=st.sampled_from(SECTIONS)),
        st.builds(Delete, ids),
        st.builds(Vote, ids, helpful=st.just(1)),
        st.builds(
            Merge,
            st.tuples(ids, ids),
            text=st.one_of(st.none(), texts),
            sources=st.sampled_from(((), tuple(sources[:3:2]))),
        ),
    )
