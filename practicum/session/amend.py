"""Changing what a run learned after its end: by hand, by what a query taught, or by another embedder.

Each change is one more version, written as a whole or not at all, so that `diff`, `forget` and `rollback` treat it
like any other. After it a resume begins a new leg, because the contexts no longer follow from the journal.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Column, func

from practicum.core.context import ApplyResult, Context
from practicum.core.edits import Applied, Delta
from practicum.core.errors import RunBusy, UsageError
from practicum.core.types import Task
from practicum.engine.loop import StepReport
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import CHUNK, Embedder, Vectors
from practicum.session.records import (
    CHANGED,
    change_run,
    config_columns,
    is_own,
    read_config,
    seconds_spent,
    step_rows,
)
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.schema import text_key
from practicum.store.scope import Transaction
from practicum.store.snapshot import delete_snapshot, read_context, snapshot_due, write_snapshot
from practicum.store.versions import Version, lineage, version_row
from practicum.tasks.stored import task_row

ASK_AGAIN = 0.02
"""Seconds between two looks at whether a run is free."""

_QUEUES: dict[Path, deque[object]] = defaultdict(deque)
"""Waiting writers in this process by the folder of the space, first in first out. The first one writes."""


@asynccontextmanager
async def writing(run: Path | Store, wait: float = 0.0) -> AsyncIterator[Store]:
    """A run, or a space that is open for reading, open for writing. Work of this process, in any thread, is done one
    after the other; for another process it waits up to `wait` seconds. Raises RunBusy if that is still writing then."""
    queue, me = _QUEUES[_real(run)], object()
    queue.append(me)
    try:
        with await _opened(run, lambda: queue[0] is me, wait) as store:
            yield store
    finally:
        queue.remove(me)


def _real(run: Path | Store) -> Path:
    return run.files.resolve() if isinstance(run, Store) else run.resolve()


async def _opened(run: Path | Store, my_turn: Callable[[], bool], wait: float) -> Store:
    until: float | None = None
    # Polled, because the one before may be in another thread, and so in another event loop.
    while True:
        if my_turn():
            until = time.monotonic() + wait if until is None else until
            # In a thread, because it waits for the lock. Whoever is cancelled meanwhile leaves the run closed, even if
            # the event loop ends before the thread does.
            thread = ThreadPoolExecutor(1, "practicum-open")
            opening = thread.submit(run.leased if isinstance(run, Store) else partial(Store.open, run))
            thread.shutdown(wait=False)
            try:
                return await asyncio.wrap_future(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_close_opened)
                raise
            except RunBusy:
                if time.monotonic() >= until:
                    raise
        await asyncio.sleep(ASK_AGAIN)


def _close_opened(opening: Future[Store]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def require_ended(store: Store) -> None:
    """Raises UsageError for a run that can still be resumed, because a resume would not know of the change."""
    _, state = read_config(store)
    if state != "done" and state not in CHANGED:
        version = _largest(store, schema.versions.c.version)
        raise UsageError(
            "run.unfinished",
            f"{store.folder} has not ended. Before you change what it learned, resume it (practicum resume "
            f"{store.folder}) or end it as it is (practicum rollback {store.folder} {version})",
        )


def apply_edits(store: Store, edits: Callable[[Context], Delta]) -> ApplyResult:
    """Apply edits made by hand to the last version. Raises UsageError for a run that can still be resumed."""
    require_ended(store)
    before = read_context(store)
    outcome = before.apply(edits(before))
    if outcome.applied:
        store.change(lambda at: add_version(at, before, outcome.context, outcome.applied, "edited"))
    return outcome


def add_version(at: Transaction, before: Context, after: Context, applied: Sequence[Applied], state: str) -> None:
    """Add a version to a run that does not learn now, whose state is this one from then on."""
    at.put(schema.versions, _version_row(before, after, _largest(at, schema.versions.c.step), applied))
    change_run(at, learning=state)


def roll_back(store: Store, version: int) -> int:
    """Make an earlier version the last one again, as a new version; returns its number. Raises UsageError if there is
    no such version."""
    table = schema.versions
    columns = store.select(table.c.version, table.c.parent, table.c.step, table.c.next_number)
    rows = store.rows(columns.order_by(table.c.version))
    lineage({row.version: row.parent for row in rows}, version)
    last = rows[-1]
    made = Version(last.version + 1, version, last.step, last.next_number, ())

    def change(at: Transaction) -> None:
        at.put(schema.versions, version_row(made))
        change_run(at, learning="rolled back")

    store.change(change)
    return made.version


def next_step(store: Store) -> int:
    """The number of a step that is added to a run."""
    return 1 + max(_largest(store, schema.steps.c.step), _largest(store, schema.versions.c.step))


def task_id(store: Store, step: int) -> str:
    """An id for the query of a step, which no task of the run has."""
    table = schema.tasks
    id = f"asked-{step}"
    while store.rows(store.select(table.c.task_id).where(table.c.task_id == id).limit(1)):
        id += "'"
    return id


def add_steps(
    at: Transaction, tasks: Sequence[Task], before: Context, reports: Sequence[StepReport], seconds: float
) -> None:
    """Add steps on these tasks to a run that has ended. They began with the context `before` and took so many
    seconds."""
    position = _largest(at, schema.tasks.c.position) + 1
    at.put(schema.tasks, *(task_row(task, "train", n) for n, task in enumerate(tasks, position)))
    for report in reports:
        for table, rows in step_rows(report).items():
            at.put(table, *rows)
        if report.context.version != before.version:
            at.put(schema.versions, _version_row(before, report.context, report.step, report.applied))
        before = report.context
    change_run(at, learning="asked", seconds=seconds_spent(at) + seconds)


async def save_snapshot(store: Store, context: Context, retriever: Retriever) -> None:
    """Save what makes the next opening of a run fast, if that pays. `context` is the last version of its log."""
    # What was marked as foreign on reading is not what the log says.
    if store.trusted and snapshot_due(store):
        # The index is written first, so that a snapshot never waits for one.
        indexed = await retriever.save(context) if retriever.vectors.folder == store.files else 0
        write_snapshot(store, context, indexed)


async def replace_embedder(store: Store, embedder: Embedder) -> int:
    """Embed the entries of a run's last version with another embedder, or with one that changed under its name; the run
    keeps that embedder. Returns the number of embedded texts.

    Nothing is changed before all texts are embedded. A run that has not ended and that retrieves what it shows cannot
    be resumed after this, because its journal depends on the old vectors.
    """
    config, _ = read_config(store)
    own = is_own(store, config)
    context = read_context(store)
    vectors = Vectors(embedder)
    await vectors.ready(entry.embedded_text for entry in context)
    store.remove_index()
    config = config.model_copy(update={"embedder": embedder.name})

    def change(at: Transaction) -> None:
        at.run(at.delete(schema.vectors))
        for start in range(0, len(vectors.texts), CHUNK):
            texts = vectors.texts[start : start + CHUNK]
            found = zip(texts, vectors.matrix.take(vectors.rows(texts)), strict=True)
            rows = ({"embedder": embedder.name, "key": text_key(t), "vector": v.tobytes()} for t, v in found)
            at.insert(schema.vectors, *rows)
        delete_snapshot(at)
        columns = config_columns(config)
        change_run(at, **(columns if own else {**columns, "mark": ""}))

    store.change(change)
    await save_snapshot(store, read_context(store), Retriever(Vectors(embedder, store)))
    return vectors.made


def _version_row(before: Context, after: Context, step: int, applied: Sequence[Applied]) -> dict[str, Any]:
    return version_row(Version(after.version, before.version, step, after.next_number, tuple(applied)))


def _largest(store: Store | Transaction, column: Column[int]) -> int:
    """The largest number in a column; 0 if there is none."""
    rows = store.rows(store.select(func.max(column)))
    return rows[0][0] or 0
