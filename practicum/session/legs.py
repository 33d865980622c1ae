"""Legs: parts of a run. The first leg starts from the run's seed. Each other leg starts from a version that does not
follow from the run's journal.

A resume repeats the steps of a run from the run's journal. After a rollback, an edit by hand, further learning, or the
removal of experience, the steps cannot be repeated. The run then continues with a new leg: the same method, on the
tasks that the version has not learned from, under new places of the journal. Undone versions stay in the run's history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from practicum.core.context import Context
from practicum.core.errors import UsageError
from practicum.core.types import Task
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.session.records import change_run
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.store.journal import NOTE_ROLE, Journal, JournalRow
from practicum.store.scope import Transaction
from practicum.store.versions import lineage, read_versions, rebuild
from practicum.tasks.stored import ids, picked


@dataclass(frozen=True)
class Leg:
    """Part of a run: the number of the leg, counted from 1; the context at the start of the leg; the number of the last
    step before the leg; and the training tasks of the leg."""

    number: int
    start: Context
    step: int
    tasks: Sequence[Task]

    def root(self, state: RunState) -> Run:
        """Return the place of all effects of the leg."""
        return Run(state) if self.number == 1 else Run(state).at(f"leg {self.number}")


def last_leg(store: Store, tasks: Sequence[Task]) -> Leg:
    versions, begun = read_versions(store), _begun(store)
    if not begun:
        return Leg(1, rebuild([v for v in versions if v.version == 0]), 0, tasks)
    note, own = begun[-1], {*begun[-1]["tasks"]}
    start = rebuild(versions, note["version"])
    return Leg(len(begun) + 1, start, note["step"], _with_ids(tasks, own.__contains__))


def begin_leg(store: Store, tasks: Sequence[Task]) -> Leg:
    """Begin a leg at the last version, on the tasks that this version has not learned from.

    Raises UsageError if no task is left.
    """
    left, step = tasks_left(store, tasks)
    if not left:
        raise UsageError(
            "run.finished",
            f"{store.folder} has learned from all its tasks: learn from more tasks with practicum learn TASKS "
            f"--seed-playbook {store.folder}",
        )
    leg = Leg(len(_begun(store)) + 2, rebuild(read_versions(store)), step, left)
    note = {"version": leg.start.version, "step": leg.step, "tasks": [*ids(left)]}
    row = JournalRow(f"leg {leg.number}", NOTE_ROLE, NOTE_ROLE, json.dumps(note))
    row_values = Journal(store).row_values(row)

    def change(at: Transaction) -> None:
        at.insert(schema.journal, row_values)
        change_run(at, learning="stopped")

    store.change(change)
    return leg


def tasks_left(store: Store, tasks: Sequence[Task]) -> tuple[Sequence[Task], int]:
    """Return the tasks that the last version has not learned from, and the number of the last step, or 0 if the run has
    no step."""
    versions, table = read_versions(store), schema.steps
    line = {*lineage({v.version: v.parent for v in versions})}
    version_of_step = {v.step: v.version for v in reversed(versions) if v.applied}
    steps = store.rows(store.select(table.c.step, table.c.data).order_by(table.c.step))
    learned: set[str] = set()
    undone: set[str] = set()
    for row in steps:
        is_current = row.step not in version_of_step or version_of_step[row.step] in line
        (learned if is_current else undone).update(json.loads(row.data)["tasks"])
    left = _with_ids(tasks, lambda id: id in undone or id not in learned)
    return left, steps[-1].step if steps else 0


def _with_ids(tasks: Sequence[Task], matches: Callable[[str], bool]) -> Sequence[Task]:
    return picked(tasks, [at for at, id in enumerate(ids(tasks)) if matches(id)])


def is_note(place: str) -> bool:
    """Return whether the row at a place of the journal is the note that `begin_leg` wrote."""
    return place.startswith("leg ") and "/" not in place


def _begun(store: Store) -> list[dict[str, Any]]:
    """Return the notes of all legs except the first."""
    table = schema.journal
    legs = store.select(table.c.answer).where(table.c.place.like("leg %"), table.c.place.not_like("%/%"))
    return [json.loads(row.answer) for row in store.rows(legs.order_by(ROW))]
