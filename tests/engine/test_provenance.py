"""A lesson depends on every source of its words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.types import Lesson
from practicum.engine.provenance import traced

WORDS = "vault heron lantern copper kestrel ZX-4711 parcels sealed"
LESSON = st.builds(
    lambda id, words: Lesson(id, " ".join(words), sources=(f"task:{id}",)),
    st.sampled_from("abcd"),
    st.lists(st.sampled_from(WORDS.split())),
)


@given(st.lists(LESSON, max_size=4, unique_by=lambda x: x.id), LESSON)
def test_no_source_is_lost_and_a_second_look_finds_no_more(lessons: list[Lesson], written: Lesson):
    delta = Delta((Add("rules", written.text or "x", sources=("task:own",)),))
    once = traced(delta, lessons, Context())
    assert {"task:own"} <= {*once.edits[0].sources} <= {"task:own", *(s for x in lessons for s in x.sources)}
    assert traced(once, lessons, Context()) == once
