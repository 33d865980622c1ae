"""Sequences of a run's tasks. Each task is read from the run's database when it is accessed.

Slices, shuffles and selections of a sequence are sequences of the same kind. A sequence takes at most eight bytes of
memory per task.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, func, select

from practicum.core.errors import StoreError
from practicum.core.trust import LEVELS, Trust
from practicum.core.types import Task
from practicum.store import schema
from practicum.store.database import Store, as_stored
from practicum.tasks.survey import Survey

TASK: TypeAdapter[Task] = TypeAdapter(Task)

TASKS_PER_QUERY = 256
"""Maximum number of tasks that one query reads."""


def task_row(task: Task, split: str, position: int) -> dict[str, Any]:
    return {"split": split, "position": position, "task_id": task.id, "data": task_data(task)}


def task_data(task: Task) -> str:
    return TASK.dump_json(task).decode()


class StoredTasks(Sequence[Task]):
    """Tasks of one split of a run, read from an open store: all tasks of the split, or only the tasks at `positions` in
    the table, in the order of `positions`. Reading a damaged or deleted task raises StoreError."""

    def __init__(self, store: Store, split: str, positions: Sequence[int] | None = None) -> None:
        self._store, self._split = store, split
        if positions is None:
            with as_stored(store.folder):
                positions = self._all()
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, at: int) -> Task: ...

    @overload
    def __getitem__(self, at: slice) -> StoredTasks: ...

    def __getitem__(self, at: int | slice) -> Task | StoredTasks:
        if isinstance(at, slice):
            return StoredTasks(self._store, self._split, self._positions[at])
        return self._parsed(*self._values("data", [self._positions[at]]))

    def __iter__(self) -> Iterator[Task]:
        return map(self._parsed, self.data())

    def picked(self, indices: Sequence[int]) -> StoredTasks:
        """Return the tasks at these indices, in this order."""
        return StoredTasks(self._store, self._split, array("q", (self._positions[i] for i in indices)))

    def data(self) -> Iterator[str]:
        """Yield each task as JSON."""
        return self._column("data")

    def ids(self) -> Iterator[str]:
        """Yield the id of each task."""
        return self._column("task_id")

    @cached_property
    def survey(self) -> Survey:
        """Survey of all tasks, computed in one pass."""
        return Survey.of(self)

    @property
    def levels(self) -> set[Trust]:
        """Trust levels of the tasks. If `survey` has not been computed yet, these are the levels of all tasks of the
        split, queried from the database."""
        if "survey" in vars(self):
            return self.survey.levels
        data = schema.tasks.c.data
        # `trust` is the last field of a task's JSON.
        patterns = {level: data.endswith(f'"trust":"{level}"}}', autoescape=True) for level in LEVELS}
        return {
            level
            for level, pattern in patterns.items()
            if self._store.rows(select(data).where(self._mine, pattern).limit(1))
        }

    def _parsed(self, data: str) -> Task:
        with as_stored(self._store.folder):
            return TASK.validate_json(data)

    def _all(self) -> Sequence[int]:
        """Return the positions of all tasks of the split. Tasks that were forgotten leave gaps between the
        positions."""
        position = schema.tasks.c.position
        bounds = select(*(function(position) for function in (func.min, func.max, func.count)))
        ((first, last, count),) = self._store.rows(bounds.where(self._mine))
        if not count:
            return range(0)
        if count == last - first + 1:
            return range(first, last + 1)
        stored, block = (
            array("q"),
            select(position).where(self._mine).order_by(position).limit(TASKS_PER_QUERY * TASKS_PER_QUERY),
        )
        while rows := self._store.rows(block.where(position > stored[-1]) if stored else block):
            stored.extend(row.position for row in rows)
        return stored

    @property
    def _mine(self) -> ColumnElement[bool]:
        table = schema.tasks
        return self._store.mine(table, table.c.split == self._split)

    def _column(self, name: str) -> Iterator[str]:
        for start in range(0, len(self), TASKS_PER_QUERY):
            yield from self._values(name, self._positions[start : start + TASKS_PER_QUERY])

    def _values(self, name: str, positions: Sequence[int]) -> list[str]:
        """Return the values of a column at these positions, in this order."""
        table = schema.tasks
        query = select(table.c.position, table.c[name]).where(self._mine, table.c.position.in_([*positions]))
        by_position: dict[int, str] = {row[0]: row[1] for row in self._store.rows(query)}
        if missing := [position for position in positions if position not in by_position]:
            raise StoreError(
                "store.changed",
                f"{self._store.folder}: task {missing[0]} of the split {self._split!r} was deleted while in use",
            )
        return [by_position[position] for position in positions]


def picked(tasks: Sequence[Task], indices: Sequence[int]) -> Sequence[Task]:
    """Return the tasks at these indices, in this order. Stored tasks are read on access."""
    return tasks.picked(indices) if isinstance(tasks, StoredTasks) else [tasks[i] for i in indices]


def ids(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield the id of each task."""
    return tasks.ids() if isinstance(tasks, StoredTasks) else (task.id for task in tasks)


def levels(tasks: Sequence[Task]) -> set[Trust]:
    """Return the trust levels of the tasks."""
    return tasks.levels if isinstance(tasks, StoredTasks) else {task.trust for task in tasks}


def survey(tasks: Sequence[Task]) -> Survey:
    """Return the survey of the tasks. For stored tasks, the survey is cached."""
    return tasks.survey if isinstance(tasks, StoredTasks) else Survey.of(tasks)
