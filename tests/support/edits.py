"""A playbook of six rules, and hypothesis strategies for edits of it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote

RULES = seed_context([("rules", f"If case {n}, do this{n}.") for n in range(6)])
IDS = st.integers(0, 5).map("e{}".format)
EDITS = st.lists(
    st.one_of(
        st.builds(Update, IDS, st.sampled_from(["x", "y", "z"]), lessons=st.tuples(st.sampled_from(["l1", "l2"]))),
        st.builds(Delete, IDS),
        st.builds(
            lambda ids, text: Merge(tuple(sorted(ids)), text), st.sets(IDS, min_size=2, max_size=3),
            st.sampled_from([None, "w"]),
        ),
        st.builds(lambda n: Add("rules", f"new {n}"), st.integers(0, 9)),
        st.builds(lambda id: Vote(id, 1, uses=1), IDS),
    ),
    max_size=5,
)  # fmt: skip


def applicable(edits: Sequence[Edit], base: Context) -> Delta:
    """The edits that can be applied one after the other."""
    return Delta(tuple(done.edit for done in base.apply(Delta(tuple(edits))).applied))
