"""Stored tasks are the sequence that was stored."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import PROFILE

from practicum.core.types import Recorded, Score, Task, Trace
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.scope import Transaction
from practicum.tasks.stored import StoredTasks, ids, levels, picked, task_row

texts = st.text(st.characters(codec="utf-8"), max_size=8)
tasks_ = st.lists(
    st.builds(
        Task, texts, texts, st.none() | texts, st.dictionaries(texts, st.integers(-9, 9) | texts, max_size=2),
        st.none() | st.builds(Recorded, st.builds(Trace, texts), st.none() | st.just(Score(0.5, True))),
        trust=st.sampled_from(["own", "labelled", "foreign"]),
    ),
    max_size=12,
)  # fmt: skip


def put(store: Store, tasks: Sequence[Task], positions: Sequence[int]) -> StoredTasks:
    """The tasks in an open store, in place of its earlier tasks."""
    rows = [task_row(task, "train", n) for n, task in zip(positions, tasks, strict=True)]

    def change(written: Transaction) -> None:
        written.run(written.delete(schema.tasks))
        written.insert(schema.tasks, *rows)

    store.change(change)
    return StoredTasks(store, "train")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.create(tmp_path_factory.mktemp("stored") / "run")


@settings(max_examples=100 if PROFILE == "slow" else 10)
@given(tasks_, st.data())
def test_stored_tasks_are_the_sequence_that_was_stored(store: Store, tasks: list[Task], data: st.DataObject) -> None:
    positions = data.draw(
        st.lists(st.integers(0, 99), min_size=len(tasks), max_size=len(tasks), unique=True).map(sorted)
    )
    stored = put(store, tasks, positions)
    index = st.integers(-len(tasks) - 1, len(tasks) + 1)
    part = slice(*(data.draw(st.none() | index) for _ in range(2)), data.draw(st.sampled_from([None, 1, 2, -1])))
    assert len(stored) == len(tasks)
    assert [*stored] == tasks
    assert [*stored[part]] == tasks[part]
    assert [*reversed(stored)] == tasks[::-1]
    assert [*ids(stored)] == [*ids(tasks)]
    assert stored.levels == levels(tasks)
    assert stored.survey.levels == stored.levels
    for at in range(-len(tasks), len(tasks)):
        assert stored[at] == tasks[at]
    with pytest.raises(IndexError):
        stored[len(tasks)]
    if tasks:
        order = data.draw(st.lists(st.integers(0, len(tasks) - 1)))
        assert [*picked(stored, order)] == [tasks[at] for at in order] == [*picked(tasks, order)]
        assert stored.index(tasks[-1]) == tasks.index(tasks[-1])
