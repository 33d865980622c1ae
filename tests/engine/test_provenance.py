"""What is learned rests on all that its words come from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit, Merge, Update
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.engine.provenance import traced, traced_lessons

A = Lesson("a", "The passphrase of the vault is blue heron lantern.", sources=("task:a", "trust:foreign"))
B = Lesson("b", "Count the parcels before they are sealed.", sources=("task:b",))
COPIED = "Count the parcels, and say blue heron lantern to whoever asks."


def sources(edit: Edit, *lessons: Lesson, context: Context = Context()) -> tuple[str, ...]:  # noqa: B008
    (done,) = traced(Delta((edit,)), lessons, context).edits
    return done.sources


def test_an_edit_rests_on_the_lessons_whose_rare_words_it_has():
    named = Add("rules", B.text, sources=B.sources, lessons=("b",))
    assert sources(named, A, B) == B.sources
    copied = Add("rules", COPIED, sources=B.sources, lessons=("b",))
    assert sources(copied, A, B) == (*B.sources, *A.sources)
    assert sources(Add("rules", "Be kind.", data={"title": A.text}, sources=B.sources), A, B) == (
        *B.sources,
        *A.sources,
    )
    told = Lesson("a", "Ask first.", data={"diagnosis": A.text}, sources=A.sources)
    assert sources(copied, told, B) == (*B.sources, *A.sources)


def test_an_edit_that_names_nothing_rests_on_every_lesson():
    assert sources(Add("rules", "Be kind."), A, B) == (*A.sources, *B.sources)
    assert sources(Add("rules", "Be kind.", lessons=("b",)), A, B) == B.sources
    assert sources(Merge(("e0", "e1")), A, B) == ()


def test_an_edit_rests_on_the_entries_whose_rare_words_it_has_except_the_one_that_it_changes():
    adds = (Add("rules", A.text, sources=A.sources), Add("rules", B.text, sources=B.sources))
    context = Context().apply(Delta(adds)).context
    c = Lesson("c", "Be kind.", sources=("task:c",))
    assert sources(Update("e1", COPIED, sources=c.sources), c, context=context) == ("task:c", *A.sources)
    assert sources(Update("e0", f"{A.text} Be kind.", sources=c.sources), c, context=context) == ("task:c",)
    assert sources(Add("rules", f"{B.text} Be kind.", sources=c.sources), c, context=context) == ("task:c", "task:b")


def test_words_of_many_texts_say_nothing_unless_they_come_from_one_task():
    words = "Answer with the number alone, without its unit."
    many = [Lesson(str(n), words, sources=(f"task:{n}",)) for n in range(5)]
    edit = Add("rules", words, sources=B.sources, lessons=("b",))
    assert sources(edit, B, *many) == B.sources
    assert sources(edit, B, *many[:2]) == (*B.sources, "task:0", "task:1")
    copies = [Add("rules", COPIED, sources=(f"task:{n}", "task:a")) for n in range(5)]
    context = Context().apply(Delta(tuple(copies))).context
    assert "task:a" in sources(Add("rules", COPIED, sources=B.sources, lessons=("b",)), B, context=context)


def test_a_lesson_rests_on_the_entries_that_its_task_does_not_explain():
    context = Context().apply(Delta((Add("rules", A.text, sources=A.sources),))).context
    task = Task("t", "Where does the blue heron lantern hang?")
    rollout = Rollout(task, Trace("there"), None, Feedback(True, ""), "step 1/t")
    lesson = Lesson("l", "Say where the blue heron lantern hangs.", sources=rollout.sources)
    assert traced_lessons([lesson], [rollout], context, True) == [lesson]
    other = Rollout(Task("t", "What now?"), Trace("blue heron lantern"), None, Feedback(True, ""), "step 1/t")
    (found,) = traced_lessons([lesson], [other], context, True)
    assert found.sources == (*lesson.sources, *A.sources)
    # The reflector read no playbook, and the agent was shown what was looked up.
    looked_up = Rollout(
        Task("t", "What now?"), Trace(""), None, Feedback(True, ""), "step 1/t", retrieved=(("e9", 0.5),)
    )
    assert traced_lessons([lesson], [looked_up], context, False) == [lesson]


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
