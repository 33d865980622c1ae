"""Fewer lessons before the update: representatives of clusters, and summaries. All votes count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from helpers import client
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors, make_lessons

from practicum.blocks.update.append import append
from practicum.blocks.update.top_k import nearest_to_centers, summarized
from practicum.core.context import seed_context
from practicum.core.edits import Delta
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run

SUM_UP = Instructions("Sum up.")
RULES = seed_context([("rules", "If a, do b."), ("rules", "If c, do d.")])


def ran(update: UpdateSeam, lessons: Sequence[Lesson], run: Run) -> Delta:
    return asyncio.run(update(lessons, RULES, run))


# ---- clusters


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


# ---- summaries


def test_lessons_beyond_the_window_are_shortened_and_counted() -> None:
    run = indoors(client(lambda call: json.dumps({"points": ["a point"]}), window=4096))
    made = ran(summarized(append("rules"), SUM_UP), [replace(x, text=x.text * 400) for x in make_lessons(9)], run)
    assert len(made.edits) == 1
    assert run.counts["shortened_prompts"] == 1
