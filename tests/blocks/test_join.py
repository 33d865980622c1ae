"""Joining the deltas of groups: equal edits become one by code, and only conflicts go to the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors

from practicum.blocks.update.curator import Curator
from practicum.blocks.update.join import Join, combine, join_by_code, join_by_model, join_side_by_side
from practicum.core.context import ApplyResult, Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Resolution, Update, Vote, changed_entries
from practicum.core.types import Instructions, Lesson
from practicum.engine.run import Run

RULES = seed_context([("rules", f"If case {n}, do this{n}.") for n in range(6)])


class Asked:
    """An update that answers with what it is given, and remembers what it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.calls: list[list[str]] = []
        self.answer = answer or (lambda lesson: Add("rules", lesson.text))

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        self.calls.append([lesson.text for lesson in lessons])
        made = [self.answer(lesson) for lesson in lessons]
        edits = [replace(m, lessons=(x.id,), sources=x.sources) for m, x in zip(made, lessons, strict=True) if m]
        return Delta(tuple(edits))


def joined(join: Join, *deltas: Delta | Sequence[Edit], choices: tuple[str, ...] = ()) -> Delta:
    made = [d if isinstance(d, Delta) else Delta(tuple(d)) for d in deltas]

    async def work() -> Delta:
        return await join(made, RULES, indoors(lambda call: "", choices=choices))

    return asyncio.run(work())


def by_us(*deltas: Delta | Sequence[Edit], threshold: float | None = None, choices: tuple[str, ...] = ()) -> Delta:
    """Joined by code, where the model must not be asked."""
    asked = Asked()
    delta = joined(join_by_code(asked, threshold=threshold), *deltas, choices=choices)
    assert asked.calls == []
    return delta


def rule(text: str, *lessons: str, **how: Any) -> Add:
    return Add("rules", text, lessons=lessons, sources=tuple(f"task:{lesson}" for lesson in lessons), **how)


def applied(delta: Delta) -> ApplyResult:
    outcome = RULES.apply(delta)
    assert not outcome.refused
    return outcome


def new_texts(delta: Delta) -> list[str]:
    return [e.text for e in applied(delta).context if e.number >= RULES.next_number]


# ---- additions


def test_joining_empty_deltas_gives_an_empty_delta() -> None:
    for join in (join_by_code(Asked()), join_by_model(Asked()), join_side_by_side):
        assert joined(join) == Delta()
        assert joined(join, [], []) == Delta()


def test_equal_additions_become_one_that_rests_on_all_lessons() -> None:
    delta = by_us([rule("If a, do b.", "l1")], [rule("If a,  do B.", "l2")], [rule("If c, do d.", "l3")])
    (one, two) = delta.edits
    assert (one, two.lessons) == (rule("If a, do b.", "l1", "l2"), ("l3",))


def test_the_same_text_in_another_section_or_with_other_data_is_kept_apart() -> None:
    adds = [rule("x", "l1"), rule("x", "l2", data={"answer": "a"}), rule("x", "l3", data={"answer": "b"})]
    delta = by_us(adds, [Add("facts", "x", lessons=("l4",))])
    assert len(delta.edits) == 4


def test_differently_worded_copies_of_a_lesson_become_one() -> None:
    delta = by_us([rule("If a, do b.", "l1")], [rule("Whenever there is a: b!", "l1")])
    assert delta.edits == (rule("If a, do b.", "l1"),)


def test_a_group_may_add_several_entries_for_one_lesson() -> None:
    first = [rule("If a, do b.", "l1"), rule("If c, do d.", "l1")]
    second = [rule("In case of a, b.", "l1"), rule("In case of c, d.", "l1"), rule("If e, do f.", "l1")]
    assert new_texts(by_us(first, second)) == ["If a, do b.", "If c, do d.", "If e, do f."]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("If the total is above 100 dollars, ask first.", "If the total is above 200 dollars, ask first."),
        ("If a user says hello to us, call greet_user.", "If a user says hello to us, call meet_user."),
        ("If a loan is asked for at the desk, answer Red.", "If a loan is asked for at the desk, answer Blue."),
        ("If a loan is asked for at the desk, do tell.", "If a loan is asked for at the desk, do not tell."),
        ("If a loan is asked for, say 'yes' and then \"stop\".", "If a loan is asked for, say 'yes' and then \"go\"."),
    ],
    ids=["numbers", "names", "choices", "negation", "quotations"],
)  # fmt: skip
def test_near_duplicates_become_one_unless_a_detail_differs(one: str, other: str) -> None:
    choices = ("Red", "Blue")
    assert new_texts(by_us([rule(one, "l1")], [rule(other, "l2")], threshold=0.5, choices=choices)) == [one, other]
    worded = f"{one} Indeed"
    assert new_texts(by_us([rule(one, "l1")], [rule(worded, "l2")], threshold=0.5, choices=choices)) == [one]
    assert new_texts(by_us([rule(one, "l1")], [rule(worded, "l2")], threshold=None)) == [one, worded]
    # One that is told apart hides no copy of the other.
    three = [rule(other, "l1")], [rule(one, "l2")], [rule(worded, "l3")]
    assert new_texts(by_us(*three, threshold=0.5, choices=choices)) == [other, one]


def test_similar_texts_with_other_data_stay_apart() -> None:
    one, other = rule("If a, do b.", "l1", data={"answer": "a"}), rule("If a, do b. Indeed", "l2", data={"answer": "c"})
    assert len(by_us([one], [other], threshold=0.5).edits) == 2


WORDS = st.sampled_from([f"word{n} other{n}" for n in range(8)])
TEXTS = st.builds(lambda text, up: text.upper() if up else text, WORDS, st.booleans())


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.lists(TEXTS, max_size=5), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_groups_does_not_change_what_is_kept(groups: list[list[str]], rng: Any) -> None:
    """As long as every lesson says one thing: of several wordings the first is kept."""
    deltas = [[rule(text, text.casefold()) for text in texts] for texts in groups]
    shuffled = list(deltas)
    rng.shuffle(shuffled)
    for threshold in (None, 0.9):
        one, other = by_us(*deltas, threshold=threshold), by_us(*shuffled, threshold=threshold)
        said = {text.casefold() for texts in groups for text in texts}
        assert {t.casefold() for t in new_texts(one)} == {t.casefold() for t in new_texts(other)} == said
        assert len(one.edits) == len(other.edits) == len(said)
        rests = {(e.text.casefold(), frozenset(e.lessons)) for e in one.edits if isinstance(e, Add)}
        assert rests == {(e.text.casefold(), frozenset(e.lessons)) for e in other.edits if isinstance(e, Add)}


# ---- changes


def test_edits_of_different_entries_stand_side_by_side() -> None:
    edits: list[Edit] = [Update("e0", "x"), Merge(("e1", "e2"), "y"), Delete("e3"), Vote("e4", 1, uses=1)]
    outcome = applied(by_us(*[[edit] for edit in edits]))
    assert {type(a.edit) for a in outcome.applied} == {Update, Merge, Delete, Vote}


def test_the_same_change_by_several_groups_is_one_change() -> None:
    for change in (Update("e0", "x"), Merge(("e0", "e1"), "x"), Merge(("e0", "e1")), Delete("e0")):
        delta = by_us(*[[replace(change, lessons=(f"l{n}",), sources=(f"task:{n}",), reason=str(n))] for n in range(3)])
        (edit,) = delta.edits
        assert (edit.lessons, edit.sources) == (("l0", "l1", "l2"), ("task:0", "task:1", "task:2"))


def test_equal_votes_of_several_groups_all_count() -> None:
    delta = by_us([Vote("e0", 1, uses=1)], [Vote("e0", 1, uses=1)], [Vote("e0", 0, 1, uses=1), Vote("e0", 1, uses=1)])
    entry = applied(delta).context.get("e0")
    assert entry is not None
    assert (entry.helpful, entry.harmful, entry.uses) == (3, 1, 4)


def test_a_change_takes_precedence_over_a_deletion() -> None:
    for change in (Update("e0", "x", lessons=("l1",)), Merge(("e0", "e1"), "x", lessons=("l1",))):
        for groups in ([[Delete("e0")], [change]], [[change], [Delete("e0"), Delete("e3")]]):
            outcome = applied(by_us(*groups))
            assert "e0" in outcome.context
            assert change in [a.edit for a in outcome.applied]


def test_a_lesson_whose_deletion_is_not_made_is_not_settled() -> None:
    """Two say that an entry is wrong, and a third has it changed: the two are left for `accounted` to see to."""
    wrong = [
        Delta((Delete("e0", lessons=(f"l{n}",)), Delete(f"e{n}")), (Resolution(f"l{n}", reason="DELETE: wrong"),))
        for n in (1, 2)
    ]
    change = Delta((Update("e0", "x", lessons=("l3",)),))
    for join in (join_by_code(Asked()), join_by_model(Asked(lambda lesson: Update("e0", lesson.text)))):
        assert joined(join, *wrong, change).resolutions == ()
        assert [r.lesson for r in joined(join, *wrong).resolutions] == ["l1", "l2"]
    assert combine([change, *wrong]).resolutions == ()


def test_new_text_and_new_data_of_one_entry_are_both_applied() -> None:
    delta = by_us([Update("e0", "x")], [Update("e0", data={"a": 1})], [Update("e1", section="facts")])
    entry = applied(delta).context.get("e0")
    assert entry is not None
    assert (entry.text, entry.data) == ("x", {"a": 1})
    merged = by_us([Merge(("e0", "e1"), "y")], [Update("e1", data={"a": 1})])
    assert len(applied(merged).applied) == 2


def test_only_edits_in_conflict_go_to_the_model_and_keep_their_lessons() -> None:
    asked = Asked(lambda lesson: Update("e0", "both", reason="joined") if lesson.text == "one" else None)
    groups: list[list[Edit]] = [
        [Update("e0", "one", lessons=("l1",), sources=("task:1",)), rule("If g, do h.", "l9")],
        [Update("e0", "two", lessons=("l2",), sources=("task:2",)), Update("e3", "three", lessons=("l3",))],
        [Update("e0", "one", lessons=("l4",), sources=("task:4",)), Delete("e0")],
    ]
    delta = joined(join_by_code(asked), *groups)
    assert asked.calls == [["one", "two"]]
    outcome = applied(delta)
    solved = next(a.edit for a in outcome.applied if a.id == "e0")
    assert (solved.lessons, solved.sources) == (("l1", "l4"), ("task:1", "task:4"))
    assert [e.text for e in outcome.context if e.id in ("e0", "e3")] == ["both", "three"]


def test_conflicts_are_counted_and_their_resolutions_name_the_lessons() -> None:
    async def covers(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return Delta(resolutions=tuple(Resolution(lesson.id, "e1", "said already") for lesson in lessons))

    run = indoors(lambda call: "")
    groups = [Delta((Update("e0", f"x{n}", lessons=(f"l{n}", f"m{n}")),)) for n in range(3)]
    delta = asyncio.run(join_by_code(covers)(groups, RULES, run))
    assert delta == Delta(
        resolutions=tuple(Resolution(f"{k}{n}", "e1", "said already") for n in range(3) for k in "lm")
    )
    assert run.counts["conflicting_edits"] == 3


@pytest.mark.parametrize(
    "changes",
    [
        [Merge(("e0", "e1")), Merge(("e1", "e2"))],
        [Merge(("e0", "e1"), "x"), Merge(("e1", "e2"), "y")],
        [Merge(("e0", "e1")), Update("e1", "x")],
        [Merge(("e0", "e1"), "x"), Update("e0", "y")],
        [Update("e0", "x"), Merge(("e0", "e1")), Delete("e1")],
    ],
)
def test_changes_that_overlap_are_in_conflict(changes: list[Edit]) -> None:
    asked = Asked()
    delta = joined(join_by_code(asked), *[[replace(edit, lessons=(f"l{n}",))] for n, edit in enumerate(changes)])
    ((first, second),) = asked.calls
    assert first == (getattr(changes[0], "text", None) or "If case 0, do this0.")
    assert {id for edit in delta.edits for id in edit.lessons} == {"l0", "l1"}
    assert len(applied(delta).applied) == 2
    assert second


def test_many_conflicts_are_read_in_calls_of_at_most_the_fan_in() -> None:
    def update_of(lesson: Lesson) -> Edit:
        return Update(f"e{lesson.text.split()[0]}", lesson.text)

    for fan_in in (2, 3, 5):
        asked = Asked(update_of)
        groups: list[list[Edit]] = [
            [Update(f"e{n}", f"{n} {group}", lessons=(f"l{n}{group}",)) for n in range(3)] for group in range(7)
        ]
        outcome = applied(joined(join_by_code(asked, fan_in), *groups))
        assert max(map(len, asked.calls)) <= fan_in
        assert {text for call in asked.calls for text in call} == {f"{n} {g}" for n in range(3) for g in range(7)}
        assert {a.id for a in outcome.applied} == {"e0", "e1", "e2"}


def test_a_conflict_larger_than_one_call_is_solved_level_by_level() -> None:
    calls: list[int] = []

    async def joins(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        calls.append(len(lessons))
        ids = tuple(lesson.id for lesson in lessons)
        words = sorted({word for lesson in lessons for word in lesson.text.split()})
        return Delta((Update("e0", " ".join(words), lessons=ids),))

    groups: list[list[Edit]] = [[Update("e0", f"w{n}", lessons=(f"l{n}",))] for n in range(50)]
    (edit,) = applied(joined(join_by_code(joins, 5), *groups)).applied
    assert isinstance(edit.edit, Update)
    assert edit.edit.text == " ".join(sorted(f"w{n}" for n in range(50)))
    assert set(edit.edit.lessons) == {f"l{n}" for n in range(50)}
    assert calls == [5] * 10 + [5, 5] + [2]


def test_solving_ends_if_the_conflicts_do_not_become_fewer() -> None:
    asked = Asked(lambda lesson: Update("e0", lesson.text))
    groups: list[list[Edit]] = [[Update("e0", f"w{n}", lessons=(f"l{n}",))] for n in range(9)]
    delta = joined(join_by_code(asked, 3), *groups)
    assert len(asked.calls) == 3
    # The first call's word stands; the lessons of the others are in no edit, for `accounted` to see to.
    assert {id for e in delta.edits for id in e.lessons} == {"l0", "l1", "l2"}


def test_equal_refs_of_different_groups_are_kept_apart() -> None:
    deltas: list[list[Edit]] = [
        [rule(f"If a{n}, do b{n}.", f"l{n}", ref="new0"), Merge(("e0", "new0") if n == 0 else ("e1", "new0"))]
        for n in range(2)
    ]
    outcome = applied(by_us(*deltas))
    assert len(outcome.context) == len(RULES)
    kept = {a.id: a.edit for a in outcome.applied if isinstance(a.edit, Merge)}
    assert kept.keys() == {"e0", "e1"}


def test_the_ref_of_a_joined_addition_names_the_one_it_was_joined_into() -> None:
    for ref in ("", "mine"):
        first, second = rule("If a, do b.", "l1", ref=ref), rule("If a, do B.", "l2", ref="yours")
        outcome = applied(by_us([first], [second, Vote("yours", 1, uses=1), Update("yours", data={"a": 1})]))
        entry = outcome.context.get("e6")
        assert entry is not None
        assert (entry.text, entry.helpful, entry.data) == ("If a, do b.", 1, {"a": 1})


def test_an_edit_that_names_no_entry_is_passed_on() -> None:
    outcome = RULES.apply(by_us([Merge((), "x", lessons=("l1",))]))
    assert [r.reason for r in outcome.refused] == ["it names fewer than two entries"]


# ---- resolutions


def test_a_lesson_has_one_resolution_and_none_if_an_edit_names_it() -> None:
    for join in (join_by_code(Asked()), join_side_by_side):
        delta = joined(
            join,
            Delta(
                (rule("If a, do b.", "l1"),),
                (Resolution("l2", reason="dull"), Resolution("l3", "e1"), Resolution("l4", reason="x")),
            ),
            Delta((), (Resolution("l1", "e0"), Resolution("l2", "e2", "said"), Resolution("l3", reason="dull"))),
        )
        assert set(delta.resolutions) == {
            Resolution("l2", "e2", "said"),
            Resolution("l3", "e1"),
            Resolution("l4", reason="x"),
        }


# ---- by the model


def test_join_by_model_shows_it_every_proposal_but_votes_and_deletions() -> None:
    asked = Asked()
    groups: list[list[Edit]] = [
        [rule("If a, do b.", "l1"), Update("e0", "zero", lessons=("l2",)), Delete("e4"), Vote("e1", 1, uses=1)],
        [rule("If a, do b.", "l1"), Merge(("e1", "e2"), lessons=("l3",)), Delete("e4"), Vote("e1", 1, uses=1)],
    ]
    outcome = applied(joined(join_by_model(asked), *groups))
    # The copies of a lesson led to one proposal, and not to the same entry twice.
    assert asked.calls == [["If a, do b.", "zero", "If case 1, do this1."]]
    assert [e.id for e in RULES if e.id not in outcome.context] == ["e4"]
    entry = outcome.context.get("e1")
    assert entry is not None
    assert entry.helpful == 2
    assert [a.edit.lessons for a in outcome.applied if isinstance(a.edit, Add)] == [("l1",), ("l2",), ("l3",)]


def test_a_change_by_the_model_takes_precedence_over_a_deletion() -> None:
    asked = Asked(lambda lesson: Update("e0", lesson.text))
    outcome = applied(joined(join_by_model(asked), [Delete("e0"), Delete("e1")], [Update("e0", "x", lessons=("l1",))]))
    assert [e.text for e in outcome.context][:2] == ["x", "If case 2, do this2."]


@pytest.mark.parametrize(
    ("groups", "fan_in", "levels", "calls"),
    [
        (1, 4, None, []),
        (4, 4, None, [4]),
        (5, 4, None, [4, 2]),
        (16, 4, None, [4, 4, 4, 4, 4]),
        (17, 4, None, [4, 4, 4, 4, 4, 2]),
        (17, None, None, [17]),
        (17, 4, 2, [17]),
        (17, 4, 3, [4, 4, 4, 4, 5]),
        (17, 4, 9, [4, 4, 4, 4, 4, 2]),
    ],
)
def test_no_level_exceeds_the_fan_in(groups: int, fan_in: int | None, levels: int | None, calls: list[int]) -> None:
    reads: list[int] = []

    async def one(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        reads.append(len(lessons))
        return Delta((Add("rules", "+".join(x.text for x in lessons), lessons=tuple(x.id for x in lessons)),))

    deltas = [[rule(f"r{n}", f"l{n}")] for n in range(groups)]
    (edit,) = joined(join_by_model(one, fan_in, levels), *deltas).edits
    assert reads == calls
    assert edit.lessons == tuple(f"l{n}" for n in range(groups))


def test_the_same_proposals_lead_to_the_same_journal_places() -> None:
    def places() -> set[str]:
        run = indoors(lambda call: "")
        deltas = [Delta((rule(f"r{n}", f"l{n}"),)) for n in range(9)]
        asyncio.run(join_by_model(Asked(), 3)(deltas, RULES, run))
        return run._state.opened

    assert places() == places() == {"level 2, 0", "level 2, 1", "level 2, 2", "level 3, 0"}


# ---- beside each other


EDITS = st.lists(
    st.one_of(
        st.builds(lambda n, text: Update(f"e{n}", text), st.integers(0, 5), st.sampled_from(["x", "y"])),
        st.builds(lambda n: Delete(f"e{n}"), st.integers(0, 5)),
        st.builds(
            lambda ids, text: Merge(tuple(f"e{n}" for n in sorted(ids)), text),
            st.sets(st.integers(0, 5), min_size=2, max_size=3), st.sampled_from([None, "z"]),
        ),
        st.builds(lambda n: rule(f"text {n}"), st.integers(0, 3)),
        st.builds(lambda n: Vote(f"e{n}", 1, uses=1), st.integers(0, 5)),
    ),
    max_size=4,
)  # fmt: skip


def valid(edits: Sequence[Edit], group: int) -> Delta:
    """What of these edits can be applied one after the other, each resting on a lesson of its own."""
    named = tuple(replace(e, lessons=(f"g{group}.{n}",), sources=(f"task:{group}.{n}",)) for n, e in enumerate(edits))
    refused = [r.edit for r in RULES.apply(Delta(named)).refused]
    return Delta(tuple(e for e in named if e not in refused))


def touched(edit: Edit) -> set[str]:
    return set(changed_entries(edit))


def test_combined_equal_changes_become_one_that_rests_on_both() -> None:
    update = Update("e0", "x", lessons=("l1",), sources=("task:1",))
    other = replace(update, lessons=("l2",), sources=("task:2",), reason="another")
    delta = combine([Delta((update,)), Delta((other, Update("e1", "y"))), Delta((Update("e0", "z"), Delete("e1")))])
    assert delta.edits == (
        replace(update, lessons=("l1", "l2"), sources=("task:1", "task:2")), Update("e1", "y"),
    )  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EDITS, max_size=4))
def test_combined_deltas_do_not_undo_earlier_ones(groups: list[list[Edit]]) -> None:
    deltas = [valid(edits, n) for n, edits in enumerate(groups)]
    delta = combine(deltas)
    stands = {id: edit for edit in delta.edits for id in edit.lessons}
    outcome = RULES.apply(delta)
    assert not [r for r in outcome.refused if not isinstance(r.edit, Vote)]
    done: set[str] = set()
    for one in deltas:
        mine = set[str]()
        for edit in one.edits:
            if done & touched(edit):
                same = stands.get(edit.lessons[0])
                assert same is None or (same.op, touched(same)) == (edit.op, touched(edit))
            else:
                assert edit.lessons[0] in stands
                mine |= touched(edit)
        done |= mine


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EDITS, max_size=4), st.integers(0, 2))
def test_joined_edits_of_valid_groups_all_apply(groups: list[list[Edit]], how: int) -> None:
    """Whatever the groups do and however they are joined: of what they do nothing is refused."""
    answers: list[Any] = [
        lambda lesson: Add("rules", lesson.text),
        lambda lesson: Update("e0", lesson.text),
        lambda lesson: None,
    ]
    deltas = [valid(edits, n) for n, edits in enumerate(groups)]
    for join in (join_by_code(Asked(answers[how]), 3, None), join_by_model(Asked(answers[how]), 3), join_side_by_side):
        refused = [r for r in RULES.apply(joined(join, *deltas)).refused if not isinstance(r.edit, Vote)]
        assert not [r for r in refused if "it does not change" not in r.reason]


def test_a_curator_reads_conflicts_as_lessons() -> None:
    decisions = [
        {"lesson": 1, "op": "UPDATE", "ids": ["e0"], "text": "If case 0, do this0, x0 and x1."},
        {"lesson": 2, "op": "COVERED", "ids": ["e0"], "reason": "said"},
    ]
    run = indoors(lambda call: json.dumps({"decisions": decisions}))
    groups = [Delta((Update("e0", f"x{n}", lessons=(f"l{n}",)),)) for n in range(2)]
    delta = asyncio.run(join_by_code(Curator(Instructions("Curate."), guards=True))(groups, RULES, run))
    assert [(e.op, e.lessons) for e in delta.edits] == [("update", ("l0",))]
    assert delta.resolutions == (Resolution("l1", "e0", "said"),)
