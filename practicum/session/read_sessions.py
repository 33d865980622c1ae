"""Recorded sessions of a run's training tasks, read by the judge and written back to the run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

from sqlalchemy import and_

from practicum.core.types import Task
from practicum.engine.run import Run
from practicum.engine.sessions import read_session, sessions
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.scope import Transaction
from practicum.tasks.stored import StoredTasks, picked, task_data

SESSIONS_AT_ONCE = 32
"""Number of sessions that are held in memory and read concurrently."""


async def read_sessions(store: Store, tasks: Sequence[Task], run: Run) -> Sequence[Task]:
    """Ask the judge to read the sessions among these training tasks, and replace the tasks of each session in the run
    by its reading (`engine.sessions.read_session`). Return the tasks that are left: `tasks` itself if no session was
    read.

    The tasks of a session are replaced in one transaction. A resume reads only the sessions that are left.
    """
    stored = tasks if isinstance(tasks, StoredTasks) else StoredTasks(store, "train")
    unread, removed, read = sessions(stored), set[int](), False
    while some := list(islice(unread, SESSIONS_AT_ONCE)):
        readings = await run.gather([(session[0].id, partial(read_session, session)) for _, session in some])
        for (first, session), reading in zip(some, readings, strict=True):
            if reading is not None:
                store.change(partial(_replace, session, reading))
                left, read = {task.id for task in reading}, True
                removed |= {index for index, task in enumerate(session, first) if task.id not in left}
    return picked(stored, [n for n in range(len(stored)) if n not in removed]) if read else tasks


def _replace(session: Sequence[Task], reading: Sequence[Task], at: Transaction) -> None:
    table, by_id = schema.tasks, {task.id: task for task in reading}
    for task in session:
        row = and_(table.c.split == "train", table.c.task_id == task.id)
        if task.id in by_id:
            at.run(at.update(table).where(row).values(data=task_data(by_id[task.id])))
        else:
            at.run(at.delete(table).where(row))
