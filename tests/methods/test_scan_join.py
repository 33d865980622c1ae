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
from practicum.methods.blocks.scan import Join, combine, join_by_code

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


def test_the_ref_of_a_joined_addition_names_the_one_it_was_joined_into() -> None:
    for ref in ("", "mine"):
        first, second = rule("If a, do b.", "l1", ref=ref), rule("If a, do B.", "l2", ref="yours")
        outcome = applied(by_us([first], [second, Vote("yours", 1, uses=1), Update("yours", data={"a": 1})]))
        entry = outcome.context.get("e6")
        assert entry is not None
        assert (entry.text, entry.helpful, entry.data) == ("If a, do b.", 1, {"a": 1})


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
