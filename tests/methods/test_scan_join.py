"""Joining the deltas of groups: laws of the joined delta."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors

from practicum.core.context import ApplyResult, Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote, changed_entries
from practicum.core.types import Lesson
from practicum.engine.run import Run
from practicum.methods.blocks.scan import combine, join_by_code

RULES = seed_context([("rules", f"If case {n}, do this{n}.") for n in range(6)])


async def refusing(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    raise AssertionError("joining by code calls no model")


def joined(*deltas: Sequence[Edit], threshold: float | None = None) -> Delta:
    """These deltas joined by code, without a call."""

    async def work() -> Delta:
        join = join_by_code(refusing, threshold=threshold)
        return await join([Delta(tuple(edits)) for edits in deltas], RULES, indoors(lambda call: ""))

    return asyncio.run(work())


def rule(text: str, *lessons: str, **how: Any) -> Add:
    return Add("rules", text, lessons=lessons, sources=tuple(f"task:{lesson}" for lesson in lessons), **how)


def applied(delta: Delta) -> ApplyResult:
    outcome = RULES.apply(delta)
    assert not outcome.refused
    return outcome


def new_texts(delta: Delta) -> list[str]:
    return [e.text for e in applied(delta).context if e.number >= RULES.next_number]


WORDS = st.sampled_from([f"word{n} other{n}" for n in range(8)])
TEXTS = st.builds(lambda text, up: text.upper() if up else text, WORDS, st.booleans())


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.lists(TEXTS, max_size=5), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_groups_does_not_change_the_entries(groups: list[list[str]], rng: Any) -> None:
    """Each lesson has one meaning; the first of several wordings remains."""
    deltas = [[rule(text, text.casefold()) for text in texts] for texts in groups]
    shuffled = list(deltas)
    rng.shuffle(shuffled)
    for threshold in (None, 0.9):
        one, other = joined(*deltas, threshold=threshold), joined(*shuffled, threshold=threshold)
        meanings = {text.casefold() for texts in groups for text in texts}
        assert {t.casefold() for t in new_texts(one)} == {t.casefold() for t in new_texts(other)} == meanings
        assert len(one.edits) == len(other.edits) == len(meanings)
        rests = {(e.text.casefold(), frozenset(e.lessons)) for e in one.edits if isinstance(e, Add)}
        assert rests == {(e.text.casefold(), frozenset(e.lessons)) for e in other.edits if isinstance(e, Add)}


def test_the_ref_of_a_joined_addition_names_the_one_it_was_joined_into() -> None:
    for ref in ("", "mine"):
        first, second = rule("If a, do b.", "l1", ref=ref), rule("If a, do B.", "l2", ref="yours")
        outcome = applied(joined([first], [second, Vote("yours", 1, uses=1), Update("yours", data={"a": 1})]))
        entry = outcome.context.get("e6")
        assert entry is not None
        assert (entry.text, entry.helpful, entry.data) == ("If a, do b.", 1, {"a": 1})


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
    """The edits that can be applied one after the other, each from its own lesson."""
    named = tuple(replace(e, lessons=(f"g{group}.{n}",), sources=(f"task:{group}.{n}",)) for n, e in enumerate(edits))
    refused = [r.edit for r in RULES.apply(Delta(named)).refused]
    return Delta(tuple(e for e in named if e not in refused))


def touched(edit: Edit) -> set[str]:
    return set(changed_entries(edit))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EDITS, max_size=4))
def test_combined_deltas_do_not_undo_earlier_ones(groups: list[list[Edit]]) -> None:
    deltas = [valid(edits, n) for n, edits in enumerate(groups)]
    delta = combine(deltas)
    applied_edits = {id: edit for edit in delta.edits for id in edit.lessons}
    outcome = RULES.apply(delta)
    assert not [r for r in outcome.refused if not isinstance(r.edit, Vote)]
    done: set[str] = set()
    for one in deltas:
        mine = set[str]()
        for edit in one.edits:
            if done & touched(edit):
                same = applied_edits.get(edit.lessons[0])
                assert same is None or (same.op, touched(same)) == (edit.op, touched(edit))
            else:
                assert edit.lessons[0] in applied_edits
                mine |= touched(edit)
        done |= mine
