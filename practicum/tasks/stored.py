"""The tasks of a run as a sequence that is not held: they are read from the run's table where they are needed.

A slice, a shuffled order and a choice are again such a sequence. It holds eight bytes a task at most.
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

READ = 256
"""Tasks that are read at once."""


def task_row(task: Task, split: str, position: int) -> dict[str, Any]:
    data = TASK.dump_json(task).decode()
    return {"split": split, "position": position, "task_id": task.id, "data": data}


class StoredTasks(Sequence[Task]):
    """The tasks of a split of the run in an open store: all of them, or those at these `positions` of its table, in
    this order. Reading raises StoreError for a task that is damaged, or gone."""

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
        """The tasks at these indices, in this order."""
        return StoredTasks(self._store, self._split, array("q", (self._positions[i] for i in indices)))

    def data(self) -> Iterator[str]:
        """Each task as JSON."""
        return self._column("data")

    def ids(self) -> Iterator[str]:
        """The id of each task."""
        return self._column("task_id")

    @cached_property
    def survey(self) -> Survey:
        """What is known of all these tasks, found in one pass."""
        return Survey.of(self)

    @property
    def levels(self) -> set[Trust]:
        """Whose the tasks of the split are. Unless they were surveyed, the database finds it, without reading each."""
        if "survey" in vars(self):
            return self.survey.levels
        data = schema.tasks.c.data
        # The trust is the last field of a task.
        ends = {level: data.endswith(f'"trust":"{level}"}}', autoescape=True) for level in LEVELS}
        return {
            level
            for level, ends_so in ends.items()
            if self._store.rows(select(data).where(self._mine, ends_so).limit(1))
        }

    def _parsed(self, data: str) -> Task:
        with as_stored(self._store.folder):
            return TASK.validate_json(data)

    def _all(self) -> Sequence[int]:
        """The positions of the split, which has gaps where tasks were forgotten."""
        position = schema.tasks.c.position
        ends = select(*(function(position) for function in (func.min, func.max, func.count)))
        ((first, last, count),) = self._store.rows(ends.where(self._mine))
        if not count:
            return range(0)
        if count == last - first + 1:
            return range(first, last + 1)
        found, block = array("q"), select(position).where(self._mine).order_by(position).limit(READ * READ)
        while rows := self._store.rows(block.where(position > found[-1]) if found else block):
            found.extend(row.position for row in rows)
        return found

    @property
    def _mine(self) -> ColumnElement[bool]:
        table = schema.tasks
        return self._store.mine(table, table.c.split == self._split)

    def _column(self, name: str) -> Iterator[str]:
        for start in range(0, len(self), READ):
            yield from self._values(name, self._positions[start : start + READ])

    def _values(self, name: str, positions: Sequence[int]) -> list[str]:
        """The values of a column at these positions, in their order."""
        table = schema.tasks
        query = select(table.c.position, table.c[name]).where(self._mine, table.c.position.in_([*positions]))
        found: dict[int, str] = {row[0]: row[1] for row in self._store.rows(query)}
        if missing := [position for position in positions if position not in found]:
            raise StoreError(
                "store.changed",
                f"{self._store.folder}: task {missing[0]} of {self._split} was removed while it was used",
            )
        return [found[position] for position in positions]


def picked(tasks: Sequence[Task], indices: Sequence[int]) -> Sequence[Task]:
    """The tasks at these indices, in this order; those of a store are read when they are used."""
    return tasks.picked(indices) if isinstance(tasks, StoredTasks) else [tasks[i] for i in indices]


def ids(tasks: Sequence[Task]) -> Iterator[str]:
    """The id of each task."""
    return tasks.ids() if isinstance(tasks, StoredTasks) else (task.id for task in tasks)


def levels(tasks: Sequence[Task]) -> set[Trust]:
    """Whose the tasks are."""
    return tasks.levels if isinstance(tasks, StoredTasks) else {task.trust for task in tasks}


def survey(tasks: Sequence[Task]) -> Survey:
    """What is known of all the tasks; of stored ones it is found once."""
    return tasks.survey if isinstance(tasks, StoredTasks) else Survey.of(tasks)
