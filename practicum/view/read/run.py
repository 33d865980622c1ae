"""Reader of a stored run: configuration, state, steps, contexts, and rows of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Table, func

from practicum.core.context import Context
from practicum.core.types import Task, Usage
from practicum.session.config import Config
from practicum.session.records import read_config, run_summary, seconds_spent
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.store.journal import Journal
from practicum.store.snapshot import read_context
from practicum.store.versions import EDITS, lineage, read_parents
from practicum.tasks.stored import TASK
from practicum.view.read.gaps import Gaps
from practicum.view.read.parts import (
    STEP,
    RunStory,
    StepStory,
)

T = TypeVar("T")

CACHED = 16
"""Maximum number of cached contexts, and of cached steps with their attempts."""

BLOCK = 256
"""Number of rows that are read at once."""


class StoredRun:
    """Reader of a run, which may still be running. The last contexts are cached.

    `gaps`: the record of parts that cannot be read. With `gaps`, an unreadable part is recorded and left out. Without
    `gaps`, an unreadable part raises StoreError."""

    def __init__(self, store: Store, gaps: Gaps | None = None) -> None:
        self.store, self._gaps = store, gaps
        self.folder = store.folder
        self.journal = Journal(store)
        self._contexts: dict[int, Context] = {}

    def part(self, name: str, work: Callable[[], T]) -> T | None:
        """Read a part of the run. If the part cannot be read, record it in `gaps` and return None, or raise StoreError
        if `gaps` is None."""
        return work() if self._gaps is None else self._gaps.read(self.folder, name, work)

    @cached_property
    def config(self) -> Config:
        """Configuration of the run."""
        return read_config(self.store)[0]

    @property
    def info(self) -> RunStory:
        """Summary of the run, read now."""
        config, state = read_config(self.store)
        tasks, summary = schema.tasks, self.part("the versions", lambda: run_summary(self.store))
        summary = summary or {"scores": {}, "counts": {}, "steps": 0, "versions": 0}
        by_split = self.store.select(tasks.c.split, func.count()).group_by(tasks.c.split)
        by_role = self.journal.by_role()
        return RunStory(
            folder=self.folder,
            method=config.method,
            model=config.model or "",
            state=state,
            config=config.model_dump(mode="json"),
            scores=summary["scores"],
            counts=summary["counts"],
            usage=sum(by_role.values(), Usage()),
            by_role=by_role,
            seconds=seconds_spent(self.store),
            steps=summary["steps"],
            versions=summary["versions"],
            tasks={row.split: row[1] for row in self.store.rows(by_split)},
        )

    def task(self, id: str) -> Task | None:
        """Return the task with this id, from any split; None if no task has this id."""
        table = schema.tasks
        rows = self.store.rows(self.store.select(table.c.data).where(table.c.task_id == id).limit(1))
        return TASK.validate_json(rows[0].data) if rows else None

    def steps(self) -> list[StepStory]:
        table = schema.steps
        rows = self.store.rows(self.store.select(table.c.step, table.c.data).order_by(table.c.step))
        return [_step(row) for row in rows]

    def steps_at(self, numbers: Sequence[int]) -> list[StepStory]:
        """Return the steps with these numbers, in the order of the numbers passed."""
        t = schema.steps
        rows = self.store.rows(self.store.select(t.c.step, t.c.data).where(t.c.step.in_(numbers)))
        steps = {row.step: _step(row) for row in rows}
        return [steps[number] for number in numbers if number in steps]

    def context(self, version: int | None = None) -> Context:
        """Return the context at a version (None: the last). Raises UsageError if the version does not exist."""
        parents = read_parents(self.store)
        if not parents:
            return Context()
        line = lineage(parents, version)
        cached = next((number for number in reversed(line) if number in self._contexts), None)
        if cached is None:
            context = read_context(self.store, line[-1])
        else:
            context, table, missing = self._contexts[cached], schema.versions, line[line.index(cached) + 1 :]
            for start in range(0, len(missing), BLOCK):
                block = {*missing[start : start + BLOCK]}
                between = table.c.version.between(min(block), max(block))
                query = self.store.select(table.c.version, table.c.applied).where(between)
                for row in self.store.rows(query.order_by(table.c.version)):
                    if row.version in block:
                        context = context.replay(EDITS.validate_json(row.applied), row.version)
        keep(self._contexts, line[-1], context)
        return context

    def rows(self, table: Table, *columns: Any, where: Sequence[ColumnElement[bool]] = ()) -> Iterator[Any]:
        """Yield rows in the order in which they were stored, a block at a time."""
        order, last, block = _order(table), -1, BLOCK // 8
        while True:
            query = self.store.select(order.label("number"), *columns).where(order > last, *where)
            rows = self.store.rows(query.order_by(order).limit(block))
            yield from rows
            if len(rows) < block:
                return
            last, block = rows[-1].number, BLOCK

    def of_step(self, table: Table, step: int, *columns: Any) -> list[Any]:
        """Return the rows of a step, in the order in which they were stored."""
        return self.store.rows(self.store.select(*columns).where(table.c.step == step).order_by(_order(table)))

    @property
    def without_barrier(self) -> bool:
        """Whether the run learned without a barrier. In such a run, each attempt saw the newest context at its start,
        and the version of this context is not stored."""
        return bool(self.config.settings.get("asynchronous"))

    def version_before(self, step: int) -> int | None:
        table = schema.versions
        earlier = self.store.select(func.max(table.c.version)).where(table.c.step < step)
        ((version,),) = self.store.rows(earlier)
        return 0 if version is None and read_parents(self.store) else version


def _step(row: Any) -> StepStory:
    return STEP.validate_python({**from_json(row.data), "step": row.step})


def _order(table: Table) -> ColumnElement[int]:
    """Return the column that sorts the rows of a table in the order in which they were stored. Versions are stored in
    the order of their numbers."""
    return table.c.version if table is schema.versions else ROW


def keep(cache: dict[int, Any], key: int, value: Any) -> None:
    """Add a value to a cache as the newest value, and drop the oldest values beyond CACHED."""
    cache.pop(key, None)
    cache[key] = value
    while len(cache) > CACHED:
        del cache[next(iter(cache))]


def below(table: Table, first: str, stop: str) -> ColumnElement[bool]:
    """Return the condition that the place of a row is in the range from `first` to before `stop`. The condition uses
    the index of places."""
    return (table.c.place >= first) & (table.c.place < stop)


def under(table: Table, place: str) -> ColumnElement[bool]:
    """Return the condition that the place of a row is below `place`."""
    return below(table, f"{place}/", f"{place}0")
