"""Changing what a run learned after its end: by hand, or by what a query taught.

Each change is one more version, written whole or not at all, so that `diff`, `forget` and `rollback` see it like any
other. The run cannot be resumed then: its contexts are no longer what its journal leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Column, func, select

from practicum.core.context import ApplyResult, Context
from practicum.core.edits import Applied, Delta
from practicum.core.errors import UsageError
from practicum.core.types import Task
from practicum.engine.loop import StepReport
from practicum.session.records import FINAL, RUN, read_run, seconds_spent, step_rows
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.snapshot import read_context
from practicum.store.versions import Version, version_row

_TASK: TypeAdapter[Task] = TypeAdapter(Task)


def must_have_ended(store: Store) -> None:
    """Raises UsageError for a run that can still go on: a resume would know nothing of the change."""
    _, _, state = read_run(store)
    if state != "done" and state not in FINAL:
        raise UsageError(
            f"{store.folder} has not come to its end: before you change what it learned, go on with it (practicum "
            f"resume {store.folder}) or close it as it is (practicum rollback {store.folder} "
            f"{_most(store, schema.versions.c.version)})"
        )


def edited(store: Store, edits: Callable[[Context], Delta]) -> ApplyResult:
    """Apply edits made by hand, given the last version, to it. Raises UsageError for a run that can still go on."""
    must_have_ended(store)
    before = read_context(store, RUN)
    outcome = before.apply(edits(before))
    if outcome.applied:
        made = _version(before, outcome.context, _most(store, schema.versions.c.step), outcome.applied)
        store.execute(_put(schema.versions, [made]), _state(state="edited"))
    return outcome


def next_step(store: Store) -> int:
    """The number of a step that is added to a run."""
    return 1 + max(_most(store, schema.steps.c.step), _most(store, schema.versions.c.step))


def fresh_id(store: Store, step: int) -> str:
    """An id for the task of an added step, which no task of the run has."""
    table = schema.tasks
    known = {row.task_id for row in store.rows(select(table.c.task_id).where(table.c.run_id == RUN))}
    id = f"asked-{step}"
    while id in known:
        id += "'"
    return id


def learned(store: Store, task: Task, before: Context, report: StepReport, seconds: float) -> None:
    """Write down a step that was added to a run which began at the context `before`, and how long it took."""
    statements = [_put(table, rows) for table, rows in step_rows(report).items() if rows]
    statements.append(_put(schema.tasks, [_task_row(store, task)]))
    if report.context.version != before.version:
        statements.append(_put(schema.versions, [_version(before, report.context, report.step, report.applied)]))
    store.execute(*statements, _state(state="asked", seconds=seconds_spent(store) + seconds))


def _version(before: Context, after: Context, step: int, applied: Sequence[Applied]) -> dict[str, Any]:
    return version_row(RUN, Version(after.version, before.version, step, after.next_number, tuple(applied)))


def _task_row(store: Store, task: Task) -> dict[str, Any]:
    position = _most(store, schema.tasks.c.position) + 1
    data = _TASK.dump_json(task).decode()
    return {"run_id": RUN, "split": "train", "position": position, "task_id": task.id, "data": data}


def _most(store: Store, column: Column[int]) -> int:
    """The largest number in a column; 0 where there is none."""
    rows = store.rows(select(func.max(column)).where(column.table.c.run_id == RUN))
    return rows[0][0] or 0


def _put(table: Any, rows: Sequence[dict[str, Any]]) -> Any:
    return table.insert().prefix_with("OR REPLACE").values(list(rows))


def _state(**values: Any) -> Any:
    return schema.runs.update().where(schema.runs.c.run_id == RUN).values(**values)
