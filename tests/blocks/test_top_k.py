"""Fewer lessons before the update: representatives of clusters, and summaries. All votes count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers import client
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors, make_lessons

from practicum.blocks.update.append import append, votes
from practicum.blocks.update.top_k import nearest_to_centers, summarized, top_k
from practicum.core.context import Context, seed_context
from practicum.core.edits import Delta
from practicum.core.errors import ProviderError
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.models.scripted import Call

SUM_UP = Instructions("Sum up.")
RULES = seed_context([("rules", "If a, do b."), ("rules", "If c, do d.")])


class Reading:
    """An update that appends, and remembers what it read."""

    def __init__(self) -> None:
        self.read: list[list[Lesson]] = []

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        self.read.append(list(lessons))
        return await append("rules")(lessons, context, run)


def ran(update: UpdateSeam, lessons: Sequence[Lesson], run: Run) -> Delta:
    return asyncio.run(update(lessons, RULES, run))


def no_model(call: Call) -> str:
    raise AssertionError("the model was asked")


def about(topics: int, each: int) -> list[Lesson]:
    """Lessons about some topics, a few of each that differ in one word, in turns."""
    said = [f"alpha{t} beta{t} gamma{t} delta{t} word{n}" for n in range(each) for t in range(topics)]
    return [
        Lesson(f"l{i}", text, votes={f"e{i % 2}": "helpful"}, sources=(f"task:t{i}",)) for i, text in enumerate(said)
    ]


def votes_of(delta: Delta) -> list[tuple[int, int]]:
    return [(e.helpful, e.uses) for e in RULES.apply(delta).context][:2]


# ---- clusters


@pytest.mark.parametrize(("n", "k"), [(0, None), (0, 3), (1, None), (1, 1), (3, 3), (3, 7)])
def test_too_few_lessons_to_cluster_are_a_plain_update(n: int, k: int | None) -> None:
    update, run = Reading(), indoors(no_model)
    lessons = [*make_lessons(n, votes={"e0": "helpful"}), Lesson("s", "", votes={"e1": "harmful"})]
    delta = ran(top_k(update, k), lessons, run)
    assert update.read == [lessons]
    assert votes_of(delta) == votes_of(votes(lessons))
    assert run.counts["clusters_lowered"] == (n > 0 and (k or 0) > n)


def several(topics: int, each: int) -> list[Lesson]:
    """Reflections of two insights each."""
    found = []
    for lesson in about(topics, each):
        first = replace(lesson, data={"cause": f"cause of {lesson.id}"})
        found += [first, replace(first, id=f"{lesson.id}.2", text=f"{lesson.text}\nand more", votes={}, of=lesson.id)]
    return found


def test_whole_reflections_are_chosen() -> None:
    update, lessons = Reading(), several(5, 6)
    delta = ran(top_k(update, 5), lessons, indoors(no_model, profile="full"))
    (read,) = update.read
    assert [x.of for x in read[1::2]] == [x.id for x in read[::2]]
    assert len({x.id for x in read}) == 10
    assert all(x.data["cause"] == f"cause of {x.of or x.id}" for x in read)
    assert votes_of(delta) == [(15, 15), (15, 15)]


def test_equal_lessons_give_one_cluster() -> None:
    update = Reading()
    lessons = [replace(x, text="If a, do b.") for x in make_lessons(12)]
    ran(top_k(update, 4), lessons, indoors(no_model))
    assert [[x.text for x in read] for read in update.read] == [["If a, do b."]]


def test_the_same_seed_and_place_give_the_same_clusters() -> None:
    def chosen(run: Run) -> list[str]:
        update = Reading()
        ran(top_k(update, 6), make_lessons(60), run)
        return [x.id for x in update.read[0]]

    assert chosen(indoors(no_model)) == chosen(indoors(no_model))
    others = [chosen(indoors(no_model).at(f"step {n}")) for n in range(4)]
    assert any(other != others[0] for other in others)


def unit(seed: int, n: int, centres: int, spread: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((centres, 16))[rng.integers(0, centres, n)] + spread * rng.standard_normal((n, 16))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 12), st.sampled_from([0.0, 0.01, 0.3]), st.data())
def test_the_chosen_rows_are_distinct_with_one_for_each_cluster(
    seed: int, n: int, centres: int, spread: float, data: st.DataObject
) -> None:
    vectors = unit(seed, n, centres, spread)
    k = data.draw(st.integers(1, n))
    rows = nearest_to_centers(vectors, k, seed)
    assert rows == sorted(set(rows))
    distinct = len(np.unique(vectors, axis=0))
    assert len(rows) == len(np.unique(vectors[rows], axis=0)) <= min(k, distinct)
    if k >= distinct:
        assert len(rows) == distinct
    assert nearest_to_centers(vectors, k, seed) == rows


def test_the_row_nearest_to_the_center_is_chosen() -> None:
    ring = np.array([[1, 0.0], [1, 0.2], [1, -0.2], [-1, 0.3], [-1, 0.0], [-1, -0.3]], dtype=np.float32)
    assert nearest_to_centers(ring, 2, 0) == [0, 4]


# ---- summaries


def summing(points: Sequence[str]) -> tuple[list[Call], Run]:
    calls: list[Call] = []

    def respond(call: Call) -> str:
        calls.append(call)
        return json.dumps({"points": points})

    return calls, indoors(respond)


def test_in_full_the_summary_is_made_of_everything_that_reflections_say_and_may_be_long() -> None:
    """It has as many points as the model writes, which keep their lines."""
    update, lessons = Reading(), several(1, 2)
    points = [f"Point {n}:\n  step()\n{'and so on ' * 60}end" for n in range(40)]
    calls: list[Call] = []

    def respond(call: Call) -> str:
        calls.append(call)
        return json.dumps({"points": points})

    ran(summarized(update, SUM_UP), lessons, indoors(respond, profile="full"))
    ((call,), (read,)) = calls, update.read
    assert call.prompt.user == "\n\n".join(
        f"# Reflection {n + 1}\nRoot cause: cause of l{n}\nEntries used: [e{n}] helpful\n"
        f"- alpha0 beta0 gamma0 delta0 word{n}\n-\n  alpha0 beta0 gamma0 delta0 word{n}\n  and more"
        for n in range(2)
    )
    assert [lesson.text for lesson in read] == points
    assert call.schema is not None
    assert "maxItems" not in json.dumps(call.schema)


def test_lessons_beyond_the_window_are_shortened_and_counted() -> None:
    run = indoors(client(lambda call: json.dumps({"points": ["a point"]}), window=4096))
    made = ran(summarized(append("rules"), SUM_UP), [replace(x, text=x.text * 400) for x in make_lessons(9)], run)
    assert len(made.edits) == 1
    assert run.counts["shortened_prompts"] == 1


@pytest.mark.parametrize("n", [0, 1])
def test_one_lesson_needs_no_summary(n: int) -> None:
    update = Reading()
    lessons = [*make_lessons(n), Lesson("s", "", votes={"e1": "harmful"})]
    delta = ran(summarized(update, SUM_UP), lessons, indoors(no_model))
    assert update.read == [lessons]
    assert votes_of(delta) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("reply", ["nonsense", ProviderError("provider.failed", "down")])
def test_a_failed_summary_loses_the_lessons_but_not_the_votes_and_is_counted(reply: str | Exception) -> None:
    update, run = Reading(), indoors(lambda call: reply)
    delta = ran(summarized(update, SUM_UP), about(2, 3), run)
    assert update.read == []
    assert votes_of(delta) == [(3, 3), (3, 3)]
    assert run.counts["lost_summaries"] == 1


def test_an_empty_summary_is_counted() -> None:
    update = Reading()
    _, run = summing(["", " "])
    delta = ran(summarized(update, SUM_UP), about(2, 3), run)
    assert update.read == [[]]
    assert votes_of(delta) == [(3, 3), (3, 3)]
    assert run.counts["empty_summaries"] == 1
