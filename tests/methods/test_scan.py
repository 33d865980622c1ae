"""Dealing lessons into groups, accounting, and joining the deltas of groups: no lesson is lost silently if a curator
forgets, invents or fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from edits import EDITS, RULES, applicable
from helpers import asynchronous
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import OPS, indoors, make_lessons, random_curator, spelled

from practicum.core.context import ApplyResult, Context, initial_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Resolution, Update, Vote, changed_entries
from practicum.core.types import Instructions, Lesson
from practicum.engine.run import Run
from practicum.methods.blocks.curate import Curator, left_out
from practicum.methods.blocks.scan import (
    Dealing,
    Join,
    accounted,
    combine,
    join_by_code,
    join_by_model,
    join_side_by_side,
    scan,
)

CURATOR = Curator(Instructions("Curate."), guards=True)


def rules(n: int) -> Context:
    """Rules that a deletion may take: each harmed more often than it helped, except every third."""
    return initial_context(
        Add("rules", f"If old {spelled(i)}, do it.", harmful=i % 3, sources=("seed",)) for i in range(n)
    )


def joins(curator: Curator) -> dict[str, Join | None]:
    return {
        "none": None,
        "code": join_by_code(curator, 6),
        "code without embeddings": join_by_code(curator, 6, None),
        "model": join_by_model(curator, 6),
        "side by side": join_side_by_side,
    }


@settings(max_examples=examples(250), deadline=None)
@given(
    seed=st.integers(0, 10**6), n=st.integers(0, 20), size=st.integers(0, 8),
    ops=st.lists(st.sampled_from(OPS), min_size=1, max_size=5, unique=True), failing=st.sampled_from([0.0, 0.3]),
    uncovered=st.sampled_from(["keep", "drop"]), again=st.lists(st.integers(1, 6), max_size=3),
    join=st.sampled_from(sorted(joins(CURATOR))), copies=st.integers(1, 3), profile=st.sampled_from(["full", "small"]),
    guards=st.booleans(),
)  # fmt: skip
@example(
    seed=245, n=19, size=6, ops=["add", "delete", "update"], failing=0.0, uncovered="keep", again=[], join="code",
    copies=3, profile="full", guards=False,
)  # fmt: skip
def test_no_curator_loses_a_lesson_silently(
    seed: int, n: int, size: int, ops: list[str], failing: float, uncovered: Any, again: list[int], join: str,
    copies: int, profile: Any, guards: bool,
) -> None:  # fmt: skip
    read: list[int] = []
    run, curator = indoors(random_curator(seed, ops, failing, read), profile=profile), replace(CURATOR, guards=guards)
    context = rules(size)
    ids = [e.id for e in context]
    rng = Random(seed)
    lessons = [
        replace(x, votes={id: rng.choice(["helpful", "harmful", "neutral"]) for id in rng.sample(ids, min(2, size))})
        for x in make_lessons(n)
    ]
    scanned = curator if (by := joins(curator)[join]) is None else scan(curator, Dealing(copies=copies, fan_in=6), by)
    delta = asyncio.run(accounted(scanned, uncovered, "rules", curator, again)(lessons, context, run))

    # Every lesson is accounted for once.
    assert left_out(lessons, delta) == []
    assert max(Counter(resolution.lesson for resolution in delta.resolutions).values(), default=1) == 1
    assert all(resolution.entry or resolution.reason for resolution in delta.resolutions)

    # The edit is applied, or the covering entry exists.
    outcome = context.apply(delta)
    applied = [a.edit for a in outcome.applied]
    named = {id for e in applied if isinstance(e, Add | Update | Merge) for id in e.lessons}
    merged = {id for e in applied if isinstance(e, Merge) for id in e.ids}
    for resolution in delta.resolutions:
        assert not resolution.entry or resolution.entry in outcome.context or resolution.entry in merged
    deleting = {id for e in applied if isinstance(e, Delete) for id in e.lessons}
    assert {r.lesson for r in delta.resolutions if r.reason.startswith("DELETE")} <= deleting
    assert {x.id for x in lessons} == named | {resolution.lesson for resolution in delta.resolutions}
    assert not [r for r in outcome.refused if not isinstance(r.edit, Delete)]

    # Votes count once a lesson, and every edit names the sources of the lessons it comes from.
    cast = [e for e in applied if isinstance(e, Vote)]
    assert Counter((e.lessons, e.id) for e in cast) == Counter(((x.id,), id) for x in lessons for id in x.votes)
    sources = {x.id: set(x.sources) for x in lessons}
    for edit in applied:
        assert {s for id in edit.lessons for s in sources[id]} <= set(edit.sources)
        assert set(edit.sources) <= {s for own in sources.values() for s in own}

    # No call reads more than it may.
    if n >= 4 and join not in ("none", "model"):
        assert max(read) <= 6


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 25), again=st.lists(st.integers(1, 10), max_size=4))
def test_the_number_of_calls_is_bounded(seed: int, n: int, again: list[int]) -> None:
    read: list[int] = []
    run = indoors(random_curator(seed, OPS, 0.0, read))
    update = scan(CURATOR, Dealing(fan_in=6), join_by_code(CURATOR, 6))
    asyncio.run(accounted(update, "keep", "rules", CURATOR, again)(make_lessons(n), rules(3), run))
    groups = Dealing(fan_in=6).count(n)
    edits = run.counts["conflicting_edits"]
    assert len(read) <= groups + sum(-(-n // size) for size in again) + edits
    assert sum(read) <= 2 * n + len(again) * n + edits


STRATIFIED = st.integers(1, 5).flatmap(
    lambda copies: st.builds(
        Dealing,
        groups=st.just("sqrt") | st.integers(copies, 60),
        copies=st.just(copies),
        fan_in=st.none() | st.integers(copies, 40),
    )
)


@settings(max_examples=examples(200), deadline=None)
@given(STRATIFIED, st.integers(1, 400), st.integers(0, 9))
def test_random_dealing_places_every_copy_in_even_groups(dealing: Dealing, n: int, seed: int) -> None:
    dealing = replace(dealing, shuffle="random")
    groups = dealing.deal(n, Random(seed))
    assert Counter(i for group in groups for i in group) == dict.fromkeys(range(n), dealing.copies)
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == dealing.size(n)
    if dealing.fan_in is not None:
        assert max(sizes) <= dealing.fan_in


async def refusing(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    raise AssertionError("joining by code calls no model")


@asynchronous
async def joined(*deltas: Sequence[Edit], threshold: float | None = None) -> Delta:
    """These deltas joined by code, without a call."""
    join = join_by_code(refusing, threshold=threshold)
    return await join([Delta(tuple(edits)) for edits in deltas], RULES, indoors(lambda call: ""))


def rule(text: str, *lessons: str, **how: Any) -> Add:
    return Add("rules", text, lessons=lessons, sources=tuple(f"task:{lesson}" for lesson in lessons), **how)


def applied(delta: Delta) -> ApplyResult:
    outcome = RULES.apply(delta)
    assert not outcome.refused
    return outcome


WORDS = st.sampled_from([f"word{n} other{n}" for n in range(8)])
TEXTS = st.builds(lambda text, up: text.upper() if up else text, WORDS, st.booleans())


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.lists(TEXTS, max_size=5), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_groups_does_not_change_the_entries(groups: list[list[str]], rng: Any) -> None:
    """Each lesson has one meaning; the first of several wordings remains."""
    deltas = [[rule(text, text.casefold()) for text in texts] for texts in groups]
    meanings = {(text.casefold(), frozenset({text.casefold()})) for texts in groups for text in texts}
    for threshold in (None, 0.9):
        rng.shuffle(deltas)
        delta = joined(*deltas, threshold=threshold)
        assert len(applied(delta).context) - len(RULES) == len(delta.edits) == len(meanings)
        assert {(e.text.casefold(), frozenset(e.lessons)) for e in delta.edits if isinstance(e, Add)} == meanings


def test_equal_changes_of_two_groups_are_one_change() -> None:
    update = Update("e0", text="Look twice.", lessons=("l1",))
    (one,) = joined([update], [replace(update, lessons=("l2",))]).edits
    assert (one.text, set(one.lessons)) == ("Look twice.", {"l1", "l2"})


def test_the_ref_of_a_joined_addition_names_the_one_it_was_joined_into() -> None:
    for ref in ("", "mine"):
        first, second = rule("If a, do b.", "l1", ref=ref), rule("If a, do B.", "l2", ref="yours")
        outcome = applied(joined([first], [second, Vote("yours", 1, uses=1), Update("yours", data={"a": 1})]))
        entry = outcome.context.get("e6")
        assert entry is not None
        assert (entry.text, entry.helpful, entry.data) == ("If a, do b.", 1, {"a": 1})


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EDITS, max_size=4))
def test_combined_deltas_do_not_undo_earlier_ones(groups: list[list[Edit]]) -> None:
    deltas = [
        applicable([replace(edit, lessons=(f"g{group}.{n}",)) for n, edit in enumerate(edits)], RULES)
        for group, edits in enumerate(groups)
    ]
    delta = combine(deltas)
    applied_edits = {id: edit for edit in delta.edits for id in edit.lessons}
    assert not [r for r in RULES.apply(delta).refused if not isinstance(r.edit, Vote)]
    done: set[str] = set()
    for one in deltas:
        mine = set[str]()
        for edit in one.edits:
            ids = {*changed_entries(edit)}
            if done & ids:
                same = applied_edits.get(edit.lessons[0])
                assert same is None or (same.op, {*changed_entries(same)}) == (edit.op, ids)
            else:
                assert edit.lessons[0] in applied_edits
                mine |= ids
        done |= mine


def test_an_entry_that_the_delta_deletes_covers_no_lesson() -> None:
    edits = Update("e0", "x", lessons=("l1",)), Update("e1", "y", lessons=("l2",)), Vote("e0", 1, lessons=("l3",))
    resolutions = tuple(Resolution(lesson, entry, "covered") for lesson, entry in (("l4", "e1"), ("l5", "e0")))
    assert Delta((*edits, Delete("e1", lessons=("l6",))), resolutions).covered == {"l1", "l5"}
