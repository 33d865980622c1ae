"""Dealing lessons into groups and scanning an update over them: no lesson is left out, no call reads too many."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import pytest
from helpers import client
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors, lessons_read, make_lessons

from practicum.blocks.update.append import append, votes
from practicum.blocks.update.curator import rewrite
from practicum.blocks.update.join import join_by_code, join_by_model, join_side_by_side
from practicum.blocks.update.scan import Dealing, scan
from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delta, Update
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.models.scripted import Call

STRATIFIED = st.integers(1, 5).flatmap(
    lambda copies: st.builds(
        Dealing,
        groups=st.just("sqrt") | st.integers(copies, 60),
        copies=st.just(copies),
        fan_in=st.none() | st.integers(copies, 40),
    )
)


# ---- dealing


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


def test_random_dealing_may_put_copies_into_one_group() -> None:
    groups = Dealing(shuffle="random", fan_in=None).deal(100, Random(0))
    assert len(groups) == 10
    assert any(len(set(group)) < len(group) for group in groups)


@pytest.mark.parametrize(
    ("dealing", "n", "groups", "size"),
    [
        (Dealing(), 4, 2, 4),
        (Dealing(), 40, 6, 14),
        (Dealing(), 100, 10, 20),
        (Dealing(), 101, 11, 20),
        (Dealing(), 1000, 100, 20),
        (Dealing(fan_in=None), 1000, 31, 66),
        (Dealing(groups=7, fan_in=None), 100, 7, 30),
        (Dealing(groups=7), 100, 10, 20),
        (Dealing(groups=200), 100, 100, 2),
        (Dealing(groups=1, copies=1), 15, 1, 15),
        (Dealing(copies=5), 5, 2, 6),
    ],
)
def test_the_number_of_groups_follows_from_the_root_and_the_fan_in(
    dealing: Dealing, n: int, groups: int, size: int
) -> None:
    assert (dealing.count(n), dealing.size(n)) == (groups, size)


@pytest.mark.parametrize("how", [{"copies": 0}, {"groups": 1}, {"groups": 0, "copies": 1}, {"copies": 5, "fan_in": 4}])
def test_copies_that_do_not_fit_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="copies must be at least 1, and at most as many as the groups and as fan_in"):
        Dealing(**how)


def test_the_copies_of_a_lesson_have_other_neighbours() -> None:
    for n in (40, 100, 1000):
        for seed in range(5):
            groups = Dealing(fan_in=None).deal(n, Random(seed))
            together = Counter(pair for group in groups for pair in combinations(sorted(group), 2))
            again = sum(count > 1 for count in together.values())
            # By chance alone a pair meets in two given groups about once in as many as there are groups.
            assert again <= 3 * len(together) / len(groups)


def test_dealing_draws_a_linear_number_of_random_numbers() -> None:
    class Counting(Random):
        drawn = 0

        def random(self) -> float:
            self.drawn += 1
            return super().random()

        def getrandbits(self, k: int) -> int:
            self.drawn += 1
            return super().getrandbits(k)

    def drawn(n: int) -> int:
        rng = Counting(1)
        groups = Dealing().deal(n, rng)
        assert sum(map(len, groups)) == 2 * n
        assert max(map(len, groups)) <= 20
        return rng.drawn

    assert drawn(20_000) <= 12 * drawn(2_000)


# ---- the scan


def scanned(update: UpdateSeam, lessons: Sequence[Lesson], context: Context, run: Run, **how: Any) -> Delta:
    join = how.pop("join", None) or join_by_code(update)
    return asyncio.run(scan(update, Dealing(**how), join)(lessons, context, run))


class Reading:
    """An update that remembers which lessons each of its calls read."""

    def __init__(self, update: UpdateSeam) -> None:
        self.update = update
        self.read: list[list[Lesson]] = []

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        self.read.append(list(lessons))
        return await self.update(lessons, context, run)


def no_model(call: Call) -> str:
    raise AssertionError(f"the model was asked: {call.prompt.user}")


VOTING: Any = [{"e0": "helpful"}, {"e0": "harmful", "e1": "neutral"}, {}]


def voting(n: int, silent: int = 0) -> list[Lesson]:
    telling = [replace(lesson, votes=VOTING[i % 3]) for i, lesson in enumerate(make_lessons(n))]
    return [*telling, *(Lesson(f"s{i}", "", votes=VOTING[i % 3], sources=(f"task:s{i}",)) for i in range(silent))]


@pytest.mark.parametrize("shuffle", ["stratified", "random"])
def test_reflections_are_dealt_whole(shuffle: Any) -> None:
    """Reflections of three, two and one insights: each copy of one has all of them, and the reflection's findings."""
    lessons = []
    for n, first in enumerate(voting(12)):
        first = replace(first, data={"cause": f"cause {n}"})
        more = [replace(first, id=f"{first.id}.{m}", text=f"{first.text} {m}", votes={}, of=first.id) for m in (2, 3)]
        lessons += [first, *more[: 2 - n % 3]]
    update = Reading(append("memories"))
    context = seed_context([("rules", "If a, do b."), ("rules", "If c, do d.")])
    delta = scanned(update, lessons, context, indoors(no_model), shuffle=shuffle, copies=2)
    assert len(update.read) == Dealing().count(12)
    of = {x.id: x.of or x.id for x in lessons}
    members = Counter(of.values())
    held: Counter[str] = Counter()
    for read in update.read:
        for id, count in Counter(of[x.id] for x in read).items():
            copies, left = divmod(count, members[id])
            assert not left
            held[id] += copies
        assert all(x.data["cause"] == f"cause {of[x.id][1:]}" for x in read)
    assert held == dict.fromkeys(members, 2)
    after = context.apply(delta).context
    assert {e.text for e in after.in_section("memories")} == {x.text for x in lessons}
    assert [e.uses for e in after][:2] == [e.uses for e in context.apply(votes(lessons)).context][:2]


def test_the_groups_follow_from_the_place_and_the_seed() -> None:
    def read(run: Run) -> list[list[Lesson]]:
        update = Reading(append("memories"))
        scanned(update, make_lessons(40), Context(), run)
        return update.read

    assert read(indoors(no_model)) == read(indoors(no_model))
    assert read(indoors(no_model)) != read(indoors(no_model, seed=1))
    assert read(indoors(no_model).at("step 1")) != read(indoors(no_model).at("step 2"))


@pytest.mark.parametrize(
    ("how", "counted"),
    [
        ({"groups": 50}, {"groups_lowered"}),
        ({"groups": 2, "fan_in": 4}, {"groups_raised"}),
        ({"copies": 5}, {"copies_lowered"}),
        ({"copies": 5, "shuffle": "random"}, set()),
        ({}, set()),
    ],
)
def test_deviations_from_the_dealing_asked_for_are_counted(how: dict[str, Any], counted: set[str]) -> None:
    run = indoors(no_model)
    scanned(append("memories"), make_lessons(8), Context(), run, **how)
    assert {name for name, count in run.counts.items() if count} == counted


def test_memories_keep_their_data() -> None:
    lessons = [replace(x, data={"answer": x.id}) for x in make_lessons(20)]
    delta = scanned(append("memories"), lessons, Context(), indoors(no_model))
    made = Context().apply(delta).context
    assert sorted((e.text, e.data["answer"]) for e in made) == sorted((x.text, x.id) for x in lessons)


def test_playbooks_rewritten_by_each_group_are_joined_without_losing_a_rule() -> None:
    def respond(call: Call) -> str:
        texts = dict.fromkeys(["If a, do b.", *lessons_read(call)])
        return json.dumps({"entries": [{"section": "rules", "text": text} for text in texts]})

    update = rewrite(Instructions("Write it anew."))
    context = seed_context([("rules", "If a, do b."), ("rules", "If c, do d.")])
    lessons = make_lessons(16)
    for join in (join_by_code(update, threshold=None), join_by_model(update), join_side_by_side):
        delta = scanned(update, lessons, context, indoors(respond), join=join)
        outcome = context.apply(delta)
        assert not outcome.refused
        assert {e.text for e in outcome.context} == {"If a, do b.", *(lesson.text for lesson in lessons)}
        if join is not join_side_by_side:
            assert len(outcome.context) == 17


def test_a_prompt_rewritten_by_every_group_ends_as_one() -> None:
    """As with GEPA's prompt: one entry, which each call changes to take its lessons in."""
    reads: list[int] = []

    async def rewritten(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        reads.append(len(lessons))
        said = {word for lesson in lessons for word in lesson.text.split()}
        sources = tuple(s for lesson in lessons for s in lesson.sources)
        ids = tuple(lesson.id for lesson in lessons)
        return Delta((Update("e0", " ".join(sorted(said)), sources=sources, lessons=ids),))

    context = seed_context([("prompt", "Do it well.")])
    for n, fan_in in ((9, 20), (100, 20), (300, 6)):
        lessons = [Lesson(f"l{i}", f"word{i}", sources=(f"task:t{i}",)) for i in range(n)]
        for join in (join_by_code(rewritten, fan_in), join_by_model(rewritten, fan_in)):
            reads.clear()
            delta = scanned(rewritten, lessons, context, indoors(no_model), join=join, fan_in=fan_in)
            (edit,) = delta.edits
            assert isinstance(edit, Update)
            assert edit.text == " ".join(sorted(lesson.text for lesson in lessons))
            assert set(edit.lessons) == {lesson.id for lesson in lessons}
            assert set(edit.sources) == {s for lesson in lessons for s in lesson.sources}
            assert max(reads) <= fan_in


def test_all_groups_of_a_level_run_concurrently() -> None:
    flying, most = 0, 0

    async def slow(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.01)
        flying -= 1
        return Delta((Add("rules", " ".join(lesson.id for lesson in lessons)),))

    scanned(slow, make_lessons(100), Context(), indoors(client()), join=join_side_by_side)
    assert most == 10
