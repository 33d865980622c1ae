"""Accounting: no lesson is lost silently, whatever a curator forgets, invents or fails at."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from helpers import client
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import OPS, indoors, lessons_read, make_lessons, random_curator, rules_shown, spelled

from practicum.blocks.update.coverage import LEFT_OUT, accounted, keep_or_drop, left_out
from practicum.blocks.update.curator import Curator
from practicum.blocks.update.join import Join, join_by_code, join_by_model, join_side_by_side
from practicum.blocks.update.scan import Dealing, scan
from practicum.core.context import Context, initial_context
from practicum.core.edits import Add, Delete, Delta, Merge, Resolution, Update, Vote
from practicum.core.errors import ProviderError
from practicum.core.types import Instructions, Lesson
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient

CURATOR = Curator(Instructions("Curate."), guards=True)
Reply = str | Exception


def rules(n: int) -> Context:
    """Rules that a deletion may take: each harmed more often than it helped, but for every third."""
    return initial_context(
        Add("rules", f"If old {spelled(i)}, do it.", harmful=i % 3, sources=("seed",)) for i in range(n)
    )


def deciding(decide: Callable[[int, str, list[str]], list[dict[str, Any]]]) -> ScriptedClient:
    """A curator that decides about each lesson by its number, its text and the rules there are."""

    def respond(call: Call) -> str:
        shown = rules_shown(call)
        said = [d for n, text in enumerate(lessons_read(call), 1) for d in decide(n, text, shown)]
        # A curator cannot say nothing at all, but what it says may concern nobody.
        return json.dumps({"decisions": said or [{"lesson": 99, "op": "ADD"}]})

    return client(respond)


def ran(
    model: ScriptedClient | Callable[[Call], Reply], lessons: Sequence[Lesson], context: Context | None = None,
    again: Sequence[int] = (), uncovered: Any = "keep", join: Join | None = None,
) -> tuple[Delta, Run]:  # fmt: skip
    """The curator, accounted for; in a scan where a join is given."""
    run = indoors(model)
    update = scan(CURATOR, Dealing(), join) if join is not None else CURATOR
    made = accounted(update, uncovered, "rules", CURATOR, again)
    return asyncio.run(made(lessons, context or Context(), run)), run


def dropped(lessons: Sequence[Lesson]) -> Delta:
    return Delta(resolutions=tuple(Resolution(lesson.id, "", LEFT_OUT) for lesson in lessons))


def counts(run: Run) -> dict[str, int]:
    return {name: count for name, count in run.counts.items() if count}


# ---- which lessons are accounted for


def test_edits_with_content_and_resolutions_account_for_a_lesson() -> None:
    lessons = [*make_lessons(7), Lesson("silent", "")]
    edits = (
        Add("rules", "x", lessons=("l0",)), Update("e0", "x", lessons=("l1",)), Merge(("e1", "e2"), lessons=("l2",)),
        Vote("e0", 1, lessons=("l3",)), Delete("e3", lessons=("l4",)),
    )  # fmt: skip
    delta = Delta(edits, (Resolution("l5", "e0"), Resolution("l6", reason="dull")))
    assert [x.id for x in left_out(lessons, delta)] == ["l3", "l4"]


def test_an_entry_that_the_same_delta_deletes_covers_no_lesson() -> None:
    lessons = make_lessons(4)
    delta = Delta(
        (Update("e0", "x", lessons=("l0",)), Merge(("e1", "e2"), lessons=("l1",)), Delete("e0"), Delete("e2")),
        (Resolution("l2", "e0"), Resolution("l3", "e3")),
    )
    assert [x.id for x in left_out(lessons, delta)] == ["l0", "l1", "l2"]


def test_kept_and_dropped_lessons_have_a_reason() -> None:
    lessons, run = make_lessons(2), indoors(lambda call: "")
    kept = keep_or_drop("keep", "memories")(lessons, run)
    made = Context().apply(kept).context
    assert [(e.section, e.text, e.sources) for e in made] == [("memories", x.text, x.sources) for x in lessons]
    assert {edit.reason for edit in kept.edits} == {LEFT_OUT}
    assert keep_or_drop("drop", "memories")(lessons, run) == dropped(lessons)
    assert counts(run) == {"kept_lessons": 2, "dropped_lessons": 2}


# ---- retries


def test_lessons_left_out_are_retried_in_smaller_groups_and_then_kept() -> None:
    model = deciding(lambda n, text, shown: [{"lesson": n, "op": "ADD"}] if n == 1 else [])
    delta, run = ran(model, make_lessons(10), again=(4, 2))
    assert [len(lessons_read(call)) for call in model.calls] == [10, 4, 4, 1, 2, 2, 2]
    assert left_out(make_lessons(10), delta) == []
    assert counts(run) == {"repeated_lessons": 9 + 6, "kept_lessons": 3}
    assert {e.text for e in Context().apply(delta).context} == {x.text for x in make_lessons(10)}


def test_no_call_follows_once_every_lesson_is_accounted_for() -> None:
    model = deciding(lambda n, text, shown: [{"lesson": n, "op": "ADD"}])
    _, run = ran(model, make_lessons(5), again=(3, 2, 1))
    assert len(model.calls) == 1
    assert counts(run) == {}


@pytest.mark.parametrize("uncovered", ["keep", "drop"])
@pytest.mark.parametrize("reply", ["nonsense", ProviderError("provider.failed", "it is down")])
def test_every_lesson_is_accounted_for_if_the_curator_always_fails(uncovered: str, reply: Reply) -> None:
    lessons = [replace(x, votes={"e0": "harmful"}) for x in make_lessons(6)]
    delta, run = ran(lambda call: reply, lessons, rules(1), again=(2, 1), uncovered=uncovered)
    after = rules(1).apply(delta).context
    assert left_out(lessons, delta) == []
    assert [e.harmful for e in after if e.id == "e0"] == [6]
    assert run.counts["lost_updates"] == 1 + 3 + 6
    if uncovered == "keep":
        assert [e.text for e in after][1:] == [x.text for x in lessons]
        assert run.counts["kept_lessons"] == 6
    else:
        assert [e.id for e in after] == ["e0"]
        assert delta.resolutions == dropped(lessons).resolutions
        assert run.counts["dropped_lessons"] == 6


def test_without_retries_lessons_left_out_are_dropped_and_counted() -> None:
    model = deciding(lambda n, text, shown: [{"lesson": n, "op": "ADD"}] if n % 2 else [])
    delta, run = ran(model, make_lessons(6), uncovered="drop")
    assert len(model.calls) == 1
    assert len(delta.edits) == 3
    assert delta.resolutions == tuple(Resolution(f"l{n}", "", LEFT_OUT) for n in (1, 3, 5))
    assert run.counts["dropped_lessons"] == 3


def test_lessons_without_text_are_not_retried() -> None:
    model = deciding(lambda n, text, shown: [])
    lessons = [Lesson("s0", "", votes={"e0": "helpful"}), *make_lessons(1), Lesson("s1", "", votes={"e0": "helpful"})]
    delta, _ = ran(model, lessons, rules(1), again=(1,))
    assert [lessons_read(call) for call in model.calls] == [[lessons[1].text]] * 2
    assert next(e.helpful for e in rules(1).apply(delta).context) == 2


def test_votes_count_once_when_a_lesson_is_retried() -> None:
    model = deciding(lambda n, text, shown: [])
    lessons = [replace(x, votes={"e0": "helpful"}) for x in make_lessons(5)]
    delta, _ = ran(model, lessons, rules(1), again=(2, 1))
    entry = rules(1).apply(delta).context.get("e0")
    assert entry is not None
    assert (entry.helpful, entry.uses) == (5, 5)


def test_a_later_answer_does_not_undo_an_earlier_change_of_the_same_rule() -> None:
    """Two lessons that are to go into one rule by calls that know nothing of each other: both are still there."""

    def decide(n: int, text: str, shown: list[str]) -> list[dict[str, Any]]:
        return [{"lesson": n, "op": "UPDATE", "ids": ["e0"], "text": f"If old ba, do it. {text}"}] if n == 1 else []

    delta, run = ran(deciding(decide), make_lessons(3), rules(1), again=(2, 1))
    after = rules(1).apply(delta)
    assert not after.refused
    assert left_out(make_lessons(3), delta) == []
    assert all(any(x.text in e.text for e in after.context) for x in make_lessons(3))
    assert run.counts["kept_lessons"] == 2


@pytest.mark.parametrize("turn", [0, 1], ids=["in the first answer", "in a later one"])
def test_a_removed_rule_covers_no_lesson(turn: int) -> None:
    """One lesson is covered by a rule that another lesson has deleted."""

    def decide(n: int, text: str, shown: list[str]) -> list[dict[str, Any]]:
        if text == make_lessons(1)[0].text:
            return [{"lesson": n, "op": "COVERED", "ids": ["e2"]}]
        return [{"lesson": n, "op": "DELETE", "ids": ["e2"]}] if turn == 0 else []

    def later(call: Call) -> str:
        if turn == 1 and len(lessons_read(call)) == 1:
            return json.dumps({"decisions": [{"lesson": 1, "op": "DELETE", "ids": ["e2"]}]})
        return str(deciding(decide).respond(call))

    delta, _ = ran(later, make_lessons(2), rules(3), again=(1,))
    after = rules(3).apply(delta).context
    assert "e2" not in after
    assert {x.text for x in make_lessons(2)} <= {e.text for e in after}
    assert not [resolution for resolution in delta.resolutions if resolution.entry == "e2"]


def test_concurrent_groups_are_combined_in_the_order_of_places() -> None:
    def once() -> Delta:
        return ran(deciding(lambda n, text, shown: [{"lesson": n, "op": "ADD"}] if n == 1 else []), make_lessons(30),
                   again=(7, 3))[0]  # fmt: skip

    assert once() == once()


# ---- whatever the curator does


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
    seed=st.integers(0, 10**6), n=st.integers(0, 30), size=st.integers(0, 8),
    ops=st.lists(st.sampled_from(OPS), min_size=1, max_size=5, unique=True), failing=st.sampled_from([0.0, 0.3]),
    uncovered=st.sampled_from(["keep", "drop"]), again=st.lists(st.integers(1, 6), max_size=3),
    join=st.sampled_from(sorted(joins(CURATOR))), copies=st.integers(1, 3), profile=st.sampled_from(["full", "small"]),
    guards=st.booleans(),
)  # fmt: skip
def test_no_lesson_is_lost_silently_whatever_the_curator_does(
    seed: int, n: int, size: int, ops: list[str], failing: float, uncovered: Any, again: list[int], join: str,
    copies: int, profile: Any, guards: bool,
) -> None:  # fmt: skip
    read: list[int] = []
    run, curator = indoors(random_curator(seed, ops, failing, read), profile=profile), replace(CURATOR, guards=guards)
    context = rules(size)
    known = [e.id for e in context]
    rng = Random(seed)
    lessons = [
        replace(x, votes={id: rng.choice(["helpful", "harmful", "neutral"]) for id in rng.sample(known, min(2, size))})
        for x in make_lessons(n)
    ]
    scanned = curator if (by := joins(curator)[join]) is None else scan(curator, Dealing(copies=copies, fan_in=6), by)
    delta = asyncio.run(accounted(scanned, uncovered, "rules", curator, again)(lessons, context, run))

    # Everyone is accounted for, once.
    assert left_out(lessons, delta) == []
    assert max(Counter(resolution.lesson for resolution in delta.resolutions).values(), default=1) == 1
    assert all(resolution.entry or resolution.reason for resolution in delta.resolutions)

    # And what accounts for them really happens: the edit is applied, or the entry that says it is there.
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

    # Votes count once a lesson, and every edit names the sources of the lessons it rests on.
    cast = [e for e in applied if isinstance(e, Vote)]
    assert Counter((e.lessons, e.id) for e in cast) == Counter(((x.id,), id) for x in lessons for id in x.votes)
    sources = {x.id: set(x.sources) for x in lessons}
    for edit in applied:
        assert {s for id in edit.lessons for s in sources[id]} <= set(edit.sources)
        assert set(edit.sources) <= {s for own in sources.values() for s in own}

    # No call reads more than it may.
    if n >= 4 and join not in ("none", "model"):
        assert max(read) <= 6


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 40), again=st.lists(st.integers(1, 10), max_size=4))
def test_the_number_of_calls_is_bounded(seed: int, n: int, again: list[int]) -> None:
    read: list[int] = []
    run = indoors(random_curator(seed, OPS, 0.0, read))
    update = scan(CURATOR, Dealing(fan_in=6), join_by_code(CURATOR, 6))
    asyncio.run(accounted(update, "keep", "rules", CURATOR, again)(make_lessons(n), rules(3), run))
    groups = Dealing(fan_in=6).count(n)
    edits = run.counts["conflicting_edits"]
    assert len(read) <= groups + sum(-(-n // size) for size in again) + edits
    assert sum(read) <= 2 * n + len(again) * n + edits
