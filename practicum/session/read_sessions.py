"""Recorded sessions among the tasks of a run, read by the run's judge before learning."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from itertools import islice

from sqlalchemy import and_

from practicum.core.types import Task
from practicum.core.words import quantity
from practicum.engine.run import Run
from practicum.engine.sessions import read_sessions, sessions
from practicum.models.budget import Budget, Need
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.scope import Transaction
from practicum.tasks.stored import StoredTasks, picked, task_data
from practicum.tasks.traces.trace import signals_text

SESSIONS_AT_ONCE = 32
"""Maximum number of sessions that are held in memory and read concurrently. The first group is one session, and each
group is at most as large as all groups before it together."""

RESERVE = 7
"""Reading ends if the limits of the run do not cover this multiple of the usage of reading so far: the next group may
double the usage, and three quarters of the limits are for learning."""

Report = Callable[[str], None]
"""Called with a line about the sessions and the evidence in them."""


async def read_tasks(tasks: Sequence[Task], run: Run, budget: Budget, report: Report) -> list[Task]:
    """Return the tasks; the tasks of each recorded session are replaced by the judge's reading
    (`engine.sessions.read_sessions`). Reading uses at most a quarter of the budget."""
    result, done = list[Task](), 0
    async for first, session, reading in _readings(tasks, run, budget, report):
        result += [*tasks[done:first], *reading]
        done = first + len(session)
    return [*result, *tasks[done:]]


async def read_stored(store: Store, tasks: Sequence[Task], run: Run, budget: Budget, report: Report) -> Sequence[Task]:
    """Do the same with training tasks of a run, in the run's store, and return the remaining tasks. The tasks of a
    session are replaced in one transaction, so a resume reads only the sessions that are left."""
    stored = tasks if isinstance(tasks, StoredTasks) else StoredTasks(store, "train")
    removed, changed = set[int](), False
    async for first, session, reading in _readings(stored, run, budget, report):
        store.change(partial(_replace, session, reading))
        left, changed = {task.id for task in reading}, True
        removed |= {index for index, task in enumerate(session, first) if task.id not in left}
    return picked(stored, [n for n in range(len(stored)) if n not in removed]) if changed else tasks


async def _readings(
    tasks: Iterable[Task], run: Run, budget: Budget, report: Report
) -> AsyncIterator[tuple[int, list[Task], list[Task]]]:
    """Yield each session that the judge reads, with the index of its first task, and the judge's reading."""
    unread = sessions(tasks)
    evidence, asked, number, joined = Counter[str](), 0, 0, 0
    before = Need.of(budget.spent)
    while budget.exceeded_by((Need.of(budget.spent) - before) * RESERVE) is None:
        some = [*islice(unread, min(max(asked, 1), SESSIONS_AT_ONCE))]
        if not some:
            break
        asked += len(some)
        readings = await read_sessions([session for _, session in some], run)
        for (first, session), reading in zip(some, readings, strict=True):
            if reading is not None:
                yield first, session, reading
                evidence.update(sign.signal for task in reading if task.recorded for sign in task.recorded.evidence)
                number, joined = number + 1, joined + len(session) - len(reading)
    if next(unread, None) is not None:
        report("the judge has used its share of the limits: the other sessions are split by rules only")
    if number:
        joins = f" and joined {quantity(joined, 'request')} to the request before" if joined else ""
        report(f"the judge read {quantity(number, 'session')}{joins}; evidence about the outcomes: "
               f"{signals_text(evidence)}")  # fmt: skip


def _replace(session: Sequence[Task], reading: Sequence[Task], at: Transaction) -> None:
    table, by_id = schema.tasks, {task.id: task for task in reading}
    for task in session:
        row = and_(table.c.split == "train", table.c.task_id == task.id)
        if task.id in by_id:
            at.run(at.update(table).where(row).values(data=task_data(by_id[task.id])))
        else:
            at.run(at.delete(table).where(row))
