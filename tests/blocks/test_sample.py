"""Plain orders of the tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from helpers import make_tasks, world
from runs import indoors

from practicum.blocks.sample.batch_size import controlled
from practicum.blocks.sample.orders import ENDLESS, everything, first_steps, nothing, shuffled_epochs
from practicum.blocks.sample.replay import replayed
from practicum.engine.loop import Batch, SampleSeam


def batches(sample: SampleSeam, n: int, seed: int = 0) -> list[Batch]:
    return list(sample(make_tasks(n), [], indoors(world, seed).at("sample")))


def ids(some: Sequence[Batch]) -> list[str]:
    return [task.id for batch in some for task in batch.tasks]


def test_more_epochs_begin_with_the_same_ones() -> None:
    two = ids(batches(shuffled_epochs(2, 3), 10))
    three = ids(batches(shuffled_epochs(3, 3), 10))
    assert three[:20] == two


@pytest.mark.parametrize(
    "order",
    [shuffled_epochs(ENDLESS, 3), replayed(ENDLESS, 3, 0.5), controlled(ENDLESS, first=3)],
    ids=["epochs", "replay", "batch size"],
)
def test_steps_go_on_through_further_epochs_and_end_where_they_are_told(order: SampleSeam) -> None:
    found = batches(first_steps(order, 9), 7)
    assert [b.steps for b in found] == [9] * 9
    assert [b.epoch for b in found] == sorted(b.epoch for b in found)
    assert found[-1].epoch >= 2
    assert batches(first_steps(order, 9), 0) == []
    fewer = batches(first_steps(order, 2), 7)
    assert [ids([b]) for b in fewer] == [ids([b]) for b in found[:2]]


def test_everything_is_one_step_and_nothing_is_none() -> None:
    assert [len(b.tasks) for b in batches(everything, 5)] == [5]
    assert batches(everything, 0) == []
    assert batches(nothing, 5) == []
