"""Changes to a run after its end: edits by hand, lessons from a query, or another embedder.

Each change is one transaction. A change of entries adds a version, so that `diff`, `forget` and `rollback` treat the
change like any other version. After such a change, a resume begins a new leg (a part of the run with its own start, see
`session.legs`), because the journal no longer leads to the run's last version.
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
from practicum.session.outcomes import Conflict
from practicum.session.records import (
    CHANGED,
    change_run,
    config_columns,
    is_own,
    read_config,
    seconds_spent,
    step_rows,
)
from practicum.session.rollout import (
    PROMOTED,
    TAKEN_BACK,
    Rollout,
    begin_rollout,
    end_rollout,
    is_decided,
    next_number,
    under_way,
)
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.names import EDITED, LIVE, read_names
from practicum.store.schema import text_key
from practicum.store.scope import Transaction
from practicum.store.snapshot import delete_snapshot, read_context, snapshot_due, write_snapshot
from practicum.store.versions import Version, lineage, version_row
from practicum.tasks.stored import task_row

BY_HAND = "edited by hand"

POLL_INTERVAL = 0.02
"""Interval (s) between two checks whether a run is free."""

_QUEUES: dict[Path, deque[object]] = defaultdict(deque)
"""Queues of this process's writers, by the folder of the space. The first writer of a queue writes, the others wait."""


@asynccontextmanager
async def writing(run: Path | Store, wait: float = 0.0) -> AsyncIterator[Store]:
    """Open a run for writing. `run` is the folder of the run, or a store of the run that is open for reading.

    Writers of this process, in any thread, take turns. Waits up to `wait` seconds for a writer in another process.
    Raises RunBusy if that writer has not finished after `wait` seconds.
    """
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
    # The queue is polled, because the previous writer may be in another thread, and so in another event loop.
    while True:
        if my_turn():
            until = time.monotonic() + wait if until is None else until
            # Opened in a thread, because opening waits for the lock. If this task is cancelled during the wait, the run
            # that the thread opens is closed again, even if the event loop ends before the thread does.
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
        await asyncio.sleep(POLL_INTERVAL)


def _close_opened(opening: Future[Store]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def require_ended(store: Store) -> None:
    """Raise UsageError for a run that can still be resumed, because a resume would not include a change that is made
    now."""
    _, state = read_config(store)
    if state != "done" and state not in CHANGED:
        version = _largest(store, schema.versions.c.version)
        raise UsageError(
            "run.unfinished",
            f"{store.folder} has not ended. Before you change its entries, resume the run (practicum space resume "
            f"{store.folder}) or end the run at its last version (practicum space rollback {store.folder} {version})",
        )


def restore_live_version(store: Store, *, on_untried: bool = False) -> None:
    """Roll a served space back to its live version, if a later version was dropped or taken back.

    After the rollback, edits by hand apply to the version that agents see. Raises Conflict while a version is in a
    canary, and, unless `on_untried` is set, while the last version waits for a canary.
    """
    live = read_names(store).get(LIVE)
    if (tried := under_way(store)) is not None:
        raise Conflict(
            "rollout.pending",
            f"version {tried.version} is in a canary: make this version live, or take this version back, before you "
            "change the playbook",
        )
    last = _largest(store, schema.versions.c.version)
    if live is None or live == last:
        return
    if is_decided(store, last):
        roll_back(store, live, by_hand=False)
    elif not on_untried:
        raise Conflict(
            "rollout.pending",
            f"version {last} waits for a canary: make this version live (practicum space name RUN live {last}), or go "
            f"back to the live version (practicum space rollback RUN {live}), before you change the playbook",
        )


def apply_edits(store: Store, edits: Callable[[Context], Delta], *, on_untried: bool = False) -> ApplyResult:
    """Apply edits made by hand to the last version, and store the result as a new version. `edits` returns the edits
    for the last version. A served space shows the new version at once.

    Raises UsageError for a run that can still be resumed, and Conflict as `restore_live_version` does.
    """
    require_ended(store)
    restore_live_version(store, on_untried=on_untried)
    before = read_context(store)
    outcome = before.apply(edits(before))
    if outcome.applied:

        def change(at: Transaction) -> None:
            add_version(at, before, outcome.context, outcome.applied, "edited")
            show_by_hand(at, outcome.context.version, BY_HAND)

        store.change(change)
    return outcome


def show_by_hand(at: Transaction, version: int, reason: str) -> None:
    """Make a version live for all sessions of a served space, because a person created the version by hand. No session
    stays on an earlier version."""
    if show_at_once(at, version, reason):
        at.put(schema.names, {"name": EDITED, "version": version})


def show_at_once(at: Transaction, version: int, reason: str = "") -> bool:
    """Make a version of a served space live for all requests. Return whether the space is served.

    A `reason` means that a person created the version. The rollout is then recorded, so that no canary tries the
    version after a rollback.
    """
    n = schema.names
    if (live := at.first(at.select(n.c.version).where(n.c.name == LIVE))) is None:
        return False
    at.put(n, {"name": LIVE, "version": version})
    if reason:
        rollout = Rollout.by_hand(next_number(at, schema.rollouts), version, live.version)
        begin_rollout(at, rollout.row(PROMOTED, reason))
    return True


def add_version(at: Transaction, before: Context, after: Context, applied: Sequence[Applied], state: str) -> None:
    """Add a version to a run that is not learning, and set the run's learning state to `state`."""
    at.put(schema.versions, _version_row(before, after, _largest(at, schema.versions.c.step), applied))
    change_run(at, learning=state)


def roll_back(store: Store, version: int, *, by_hand: bool = True) -> int:
    """Add a new version with the context of the earlier version `version`. Return the number of the new version.

    A served space shows the new version at once. With `by_hand`, a person asked for the rollback: a version in a canary
    is taken back. Without `by_hand`, `version` is the live version, and a later version was dropped or taken back.
    Raises UsageError for an unknown version.
    """
    table = schema.versions
    columns = store.select(table.c.version, table.c.parent, table.c.step, table.c.next_number)
    rows = store.rows(columns.order_by(table.c.version))
    lineage({row.version: row.parent for row in rows}, version)
    last = rows[-1]
    rolled_back = Version(last.version + 1, version, last.step, last.next_number, ())

    def change(at: Transaction) -> None:
        at.put(schema.versions, version_row(rolled_back))
        change_run(at, learning="rolled back")
        if by_hand and (tried := under_way(at)) is not None:
            end_rollout(at, Rollout.stored(tried).row(TAKEN_BACK, "by hand"))
        if by_hand:
            show_by_hand(at, rolled_back.version, f"as version {version}, by hand")
        else:
            show_at_once(at, rolled_back.version)

    store.change(change)
    return rolled_back.version


def next_step(store: Store) -> int:
    """Return the number of the next step to add to a run: one more than the last step of the run."""
    return 1 + max(_largest(store, schema.steps.c.step), _largest(store, schema.versions.c.step))


def task_id(store: Store, step: int) -> str:
    """Return an id for the query of a step. No task of the run has this id."""
    table = schema.tasks
    id = f"asked-{step}"
    while store.rows(store.select(table.c.task_id).where(table.c.task_id == id).limit(1)):
        id += "'"
    return id


def add_steps(
    at: Transaction, tasks: Sequence[Task], before: Context, reports: Sequence[StepReport], seconds: float
) -> None:
    """Add finished steps, and the tasks of these steps, to a run that has ended.

    The steps began with the context `before` and took `seconds`.
    """
    position = _largest(at, schema.tasks.c.position) + 1
    at.put(schema.tasks, *(task_row(task, "train", n) for n, task in enumerate(tasks, position)))
    for report in reports:
        for table, rows in step_rows(report).items():
            at.put(table, *rows)
        if report.context.version != before.version:
            at.put(schema.versions, _version_row(before, report.context, report.step, report.applied))
        before = report.context
    change_run(at, learning="learned on", seconds=seconds_spent(at) + seconds)


async def save_snapshot(store: Store, context: Context, retriever: Retriever) -> None:
    """Save the snapshot and index that make the next opening of a run fast, if a new snapshot is due.

    `context` is the last version of the run.
    """
    # In an untrusted run, entries are marked as foreign on reading. The marked entries differ from the stored versions,
    # so no snapshot is saved.
    if store.trusted and snapshot_due(store):
        # The index is written first, so that a snapshot never refers to a missing index.
        indexed = await retriever.save(context) if retriever.vectors.folder == store.files else 0
        write_snapshot(store, context, indexed)


async def replace_embedder(store: Store, embedder: Embedder) -> int:
    """Embed the entries of a run's last version with another embedder, or with a changed embedder of the same name.

    After the change the run uses the new embedder. Returns the number of embedded texts.

    All texts are embedded before anything changes. An unfinished run whose method retrieves entries cannot be resumed
    after the change, because the run's journal depends on the old vectors.
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
            pairs = zip(texts, vectors.matrix.take(vectors.rows(texts)), strict=True)
            rows = ({"embedder": embedder.name, "key": text_key(t), "vector": v.tobytes()} for t, v in pairs)
            at.insert(schema.vectors, *rows)
        delete_snapshot(at)
        columns = config_columns(config)
        change_run(at, **(columns if own else {**columns, "mark": ""}))

    store.change(change)
    await save_snapshot(store, read_context(store), Retriever(Vectors(embedder, store)))
    return vectors.embedded


def _version_row(before: Context, after: Context, step: int, applied: Sequence[Applied]) -> dict[str, Any]:
    return version_row(Version(after.version, before.version, step, after.next_number, tuple(applied)))


def _largest(store: Store | Transaction, column: Column[int]) -> int:
    """Return the largest number in a column, or 0 for an empty column."""
    rows = store.rows(store.select(func.max(column)))
    return rows[0][0] or 0
