"""A stored run: its configuration, state and steps, its contexts, and how its rows are read."""

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

KEPT = 16
"""Contexts, and steps with their attempts, that stay in memory."""

BLOCK = 256
"""Rows that are read together."""


class StoredRun:
    """A run that is read while it may still be at work. Contexts that were read last stay in memory. With `gaps`,
    parts that cannot be read are added there, and left out."""

    def __init__(self, store: Store, gaps: Gaps | None = None) -> None:
        self.store, self._gaps = store, gaps
        self.folder = store.folder
        self.journal = Journal(store)
        self._contexts: dict[int, Context] = {}

    def part(self, name: str, work: Callable[[], T]) -> T | None:
        """The result of reading a part; None for one that cannot be read. Without gaps it raises StoreError."""
        return work() if self._gaps is None else self._gaps.read(self.folder, name, work)

    @cached_property
    def config(self) -> Config:
        """How the run learns."""
        return read_config(self.store)[0]

    @property
    def info(self) -> RunStory:
        """The run as a whole, at this moment."""
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
        """The task with this id, of any split; None if there is none."""
        table = schema.tasks
        rows = self.store.rows(self.store.select(table.c.data).where(table.c.task_id == id).limit(1))
        return TASK.validate_json(rows[0].data) if rows else None

    def steps(self) -> list[StepStory]:
        table = schema.steps
        rows = self.store.rows(self.store.select(table.c.step, table.c.data).order_by(table.c.step))
        return [_step(row) for row in rows]

    def steps_at(self, numbers: Sequence[int]) -> list[StepStory]:
        """Some steps, in the order of these numbers."""
        t = schema.steps
        rows = self.store.rows(self.store.select(t.c.step, t.c.data).where(t.c.step.in_(numbers)))
        found = {row.step: _step(row) for row in rows}
        return [found[number] for number in numbers if number in found]

    def context(self, version: int | None = None) -> Context:
        """The context at a version (None: the last). Raises UsageError if there is no such version."""
        parents = read_parents(self.store)
        if not parents:
            return Context()
        line = lineage(parents, version)
        known = next((number for number in reversed(line) if number in self._contexts), None)
        if known is None:
            context = read_context(self.store, line[-1])
        else:
            context, table, left = self._contexts[known], schema.versions, line[line.index(known) + 1 :]
            for start in range(0, len(left), BLOCK):
                block = {*left[start : start + BLOCK]}
                between = table.c.version.between(min(block), max(block))
                query = self.store.select(table.c.version, table.c.applied).where(between)
                for row in self.store.rows(query.order_by(table.c.version)):
                    if row.version in block:
                        context = context.replay(EDITS.validate_json(row.applied), row.version)
        keep(self._contexts, line[-1], context)
        return context

    def rows(self, table: Table, *columns: Any, where: Sequence[ColumnElement[bool]] = ()) -> Iterator[Any]:
        """Rows in the order of writing, a block at a time."""
        order, last, block = _order(table), -1, BLOCK // 8
        while True:
            query = self.store.select(order.label("number"), *columns).where(order > last, *where)
            rows = self.store.rows(query.order_by(order).limit(block))
            yield from rows
            if len(rows) < block:
                return
            last, block = rows[-1].number, BLOCK

    def of_step(self, table: Table, step: int, *columns: Any) -> list[Any]:
        """The rows of a step, in the order of writing."""
        return self.store.rows(self.store.select(*columns).where(table.c.step == step).order_by(_order(table)))

    @property
    def without_barrier(self) -> bool:
        """Whether attempts started from whatever context was the newest, which is not stored."""
        return bool(self.config.settings.get("asynchronous"))

    def version_before(self, step: int) -> int | None:
        table = schema.versions
        earlier = self.store.select(func.max(table.c.version)).where(table.c.step < step)
        ((version,),) = self.store.rows(earlier)
        return 0 if version is None and read_parents(self.store) else version


def _step(row: Any) -> StepStory:
    return STEP.validate_python({**from_json(row.data), "step": row.step})


def _order(table: Table) -> ColumnElement[int]:
    """The number of a row in the order of writing. Versions are written in the order of their numbers."""
    return table.c.version if table is schema.versions else ROW


def keep(cache: dict[int, Any], key: int, value: Any) -> None:
    """Keep a value in memory as the newest of KEPT."""
    cache.pop(key, None)
    cache[key] = value
    while len(cache) > KEPT:
        del cache[next(iter(cache))]


def below(table: Table, first: str, stop: str) -> ColumnElement[bool]:
    """The condition that a place lies between two texts, by the index of places."""
    return (table.c.place >= first) & (table.c.place < stop)


def under(table: Table, place: str) -> ColumnElement[bool]:
    """The condition that a place lies under another one."""
    return below(table, f"{place}/", f"{place}0")
