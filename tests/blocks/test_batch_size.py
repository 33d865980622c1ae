"""The batch size controller: which sizes it tries and chooses, and that every task comes once an epoch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers import client, make_tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import method, steps
from profiles import examples

from practicum.blocks.sample.batch_size import NEWEST, candidates, controlled
from practicum.blocks.sample.delay import DelayFit
from practicum.core.context import Context
from practicum.core.types import Feedback, Rollout, Trace
from practicum.engine.loop import Batch, StepReport
from practicum.engine.run import Run

Delay = Callable[[int, int], float | None]
"""Seconds of a step, of its number and its batch size; None where it was not measured."""


def flat(step: int, size: int) -> float:
    """A law with alpha = 0.8, for which the best size is 53."""
    return float(size**0.2)


def drive(n: int, delay: Delay = flat, epochs: int = 1, lost: Sequence[int] = (), **how: Any) -> list[Batch]:
    """The batches of a run with these delays; in the steps `lost`, the provider was down."""
    history: list[StepReport] = []
    run = cast(Run, SimpleNamespace(rng=random.Random))
    for step, batch in enumerate(controlled(epochs, **how)(make_tasks(n), history, run), 1):
        gone = Trace("", error="down", lost=True)
        rollouts = [Rollout(t, gone, None, Feedback(None, ""), "") for t in batch.tasks] if step in lost else []
        seconds = delay(step, len(batch.tasks))
        history.append(StepReport(step, batch, tuple(rollouts), (), Context(), (), (), (), seconds))
    return [report.batch for report in history]


def sizes(batches: Sequence[Batch]) -> list[int]:
    return [len(batch.tasks) for batch in batches]


def fit_of(batch: Batch) -> DelayFit:
    return DelayFit.from_json(batch.data["fit"])


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        (0, [1]), (1, [1]), (3, [1]), (8, [2]), (39, [9]), (40, [10]), (79, [10]), (80, [10, 20]),
        (500, [10, 20, 40, 80]), (10_000, [10, 20, 40, 80]),
    ],
)  # fmt: skip
def test_candidate_sizes(tasks: int, found: list[int]) -> None:
    assert candidates(tasks, 10, 100) == found


def test_candidate_sizes_keep_to_the_bounds() -> None:
    assert candidates(500, 10, 5) == [5]
    assert candidates(500, 3, 30) == [3, 6, 12, 24]
    assert candidates(10_000, 10, 1_000) == [10, 20, 40, 80, 160, 320, 640]


def test_sizes_are_tried_once_and_then_the_best_is_kept() -> None:
    batches = drive(500)
    assert sizes(batches) == [10, 20, 40, 80, 53, 53, 53, 53, 53, 53, 32]
    assert [b.data["fit"] is None for b in batches] == [True] * 4 + [False] * 7
    assert [b.data["why"] for b in batches[:2]] == [
        "size 1 of 4 is being tried",
        "size 2 of 4 is being tried",
    ]
    assert [len(fit_of(b).points) for b in batches[4:]] == [4, 5, 6, 7, 8, 9, 10]
    assert fit_of(batches[-1]).why == batches[-1].data["why"]
    assert json.loads(json.dumps(batches[-1].data, allow_nan=False))["size"] == 53


def test_the_next_epoch_keeps_the_size_and_a_short_last_batch_is_not_measured() -> None:
    batches = drive(200, lambda step, size: 1e-3 if size == 17 else flat(step, size), epochs=2)
    assert sizes(batches) == [10, 20, 40, 53, 53, 24, 53, 53, 53, 41]
    assert [b.epoch for b in batches] == [1] * 6 + [2] * 4
    assert {p.batch for b in batches[3:] for p in fit_of(b).points} == {10, 20, 40, 53}


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    st.integers(0, 100), st.integers(1, 2), st.integers(1, 120), st.integers(1, 30), st.floats(0.01, 0.9),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_every_task_once_an_epoch_in_batches_within_bounds(
    n: int, epochs: int, max_batch: int, first: int, tau: float, rng: random.Random
) -> None:
    def erratic(step: int, size: int) -> float | None:
        return rng.choice([None, 0.0, rng.lognormvariate(0, 2), size * rng.lognormvariate(-2, 0.3), 1.0, 1.0])

    batches = drive(n, erratic, epochs, tau=tau, max_batch=max_batch, first=first)
    for epoch in range(1, epochs + 1):
        seen = [task.id for b in batches if b.epoch == epoch for task in b.tasks]
        assert sorted(seen) == sorted(task.id for task in make_tasks(n))
    least = candidates(n, first, max_batch)[0]
    for batch in batches:
        assert least <= batch.data["size"] <= min(max_batch, max(n, 1))
        assert len(batch.tasks) <= batch.data["size"]
        assert batch.data["why"]
    assert all(len(b.tasks) == b.data["size"] for b, after in pairwise(batches) if after.epoch == b.epoch)


def test_tasks_come_in_the_order_of_other_samplers() -> None:
    order = make_tasks(50)
    random.Random("epoch 1").shuffle(order)
    assert [task for batch in drive(50) for task in batch.tasks] == order


@pytest.mark.parametrize(("n", "found"), [(0, []), (1, [1]), (5, [1] * 5), (39, [9, 9, 9, 9, 3])])
def test_few_tasks_have_one_size(n: int, found: list[int]) -> None:
    assert sizes(drive(n)) == found


def test_a_step_that_was_not_measured_is_tried_again() -> None:
    assert sizes(drive(200, lambda step, size: None if step == 2 else flat(step, size)))[:5] == [10, 20, 20, 40, 53]
    assert sizes(drive(200, lost=[2]))[:5] == [10, 20, 20, 40, 53]
    assert sizes(drive(35, lambda step, size: None)) == [8, 8, 8, 8, 3]


def test_a_trial_cut_short_by_the_end_of_an_epoch_is_repeated_in_the_next() -> None:
    found = drive(80, lambda step, size: None if step <= 7 else flat(step, size), epochs=3)
    assert sizes(found)[:11] == [10] * 8 + [20] * 3
    cut = drive(85, lambda step, size: None if step in (2, 3, 4) else flat(step, size), epochs=2)
    assert sizes(cut)[:6] == [10, 20, 20, 20, 15, 20]


def test_the_smallest_size_is_kept_if_larger_ones_gain_nothing() -> None:
    batches = drive(200, lambda step, size: 0.1 * size)
    assert sizes(batches) == [10, 20, 40] + [10] * 13
    assert "do not clearly shorten" in batches[-1].data["why"]


def test_later_iterations_change_the_choice() -> None:
    """A server that is quick at first and later as slow as it is loaded."""
    batches = drive(800, lambda step, size: 1.0 if step <= 4 else 0.05 * size)
    assert batches[4].data["size"] > batches[-1].data["size"]


def test_only_the_newest_measurements_of_a_size_count() -> None:
    batches = drive(400, lambda step, size: 0.1 * size)
    points = fit_of(batches[-1]).points
    assert sum(p.batch == 10 for p in points) == NEWEST
    assert {p.batch for p in points} == {10, 20, 40, 80}


def test_a_resume_decides_the_same(tmp_path: Path) -> None:
    made = method(sample=controlled(1))
    first = steps(tmp_path / "run", client(), made, n=120)
    model = client()
    again = steps(tmp_path / "run", model, made, n=120)
    assert [r.batch for r in again] == [r.batch for r in first]
    assert sizes([r.batch for r in first])[:2] == [10, 20]
    assert len(first[2].batch.data["fit"]["points"]) == 2
    assert not model.calls


def test_invalid_settings_are_refused() -> None:
    for wrong in ({"epochs": 0}, {"max_batch": 0}, {"first": 0}, {"tau": 0.0}, {"tau": 1.0}):
        with pytest.raises(ValueError, match="at least 1"):
            controlled(**{"epochs": 1, **wrong})  # type: ignore[arg-type]
