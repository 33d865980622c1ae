"""The thread that does all writes to an open database.

Writes that arrive during a commit share the next transaction, so thousands per second need only a few flushes. When the
wait for a write ends, the write is on disk. Three kinds of writes share a transaction:

- A change is a function that is called with the transaction. If the function raises an error, only its own effects are
  rolled back.
- Rows of learning (see `Writer.write`) come from a learner: a process that has the lease of a space. The rows of a
  learner are written in order. After a failure, all later rows of the same learner fail too, because they may depend on
  the failed rows. If a database server cannot be reached, rows of learning wait a moment, because their content was
  paid for.
- Rows without a waiting caller, such as interactions, are kept in memory while they cannot be written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Table, select
from sqlalchemy.exc import SQLAlchemyError

from practicum.core.errors import PracticumError, RunBusy, StoreAway, StoreError
from practicum.core.keeping import size_of
from practicum.core.words import one_line
from practicum.store import schema
from practicum.store.backend import Backend, Lease
from practicum.store.dialects import insert_new, upsert
from practicum.store.scope import SHOWS, RowValues, Transaction
from practicum.store.spaces import UnknownSpace
from practicum.store.sums import add_to_hours

T = TypeVar("T")

logger = logging.getLogger("practicum.store")

UNWRITTEN, UNWRITTEN_BYTES = 20_000, 256 * 2**20
"""Maximum number of rows without a waiting caller that are kept in memory until they can be written, and maximum bytes
of their values. Beyond either maximum, the oldest rows are dropped."""

WINDOW, AGAIN = 0.05, 1.0
"""Time for which rows without a waiting caller are collected into a batch, and time after which they are retried if
writing failed (s)."""

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.75)
"""Pauses before rows of learning are retried after a server became unreachable (s); the last pause is repeated."""


class Writing:
    """Right of a learner to write what a space learns. The lease of the space gives this right."""

    def __init__(self, space: str, lease: Lease) -> None:
        self.space, self.lease = space, lease
        self.failure: StoreError | None = None
        """Error of the first rows of the learner that could not be written, or None. After a failure, no more rows of
        the learner are written."""


@dataclass(frozen=True)
class _Change(Generic[T]):
    """Change: a function that is called with a transaction. The space `space` is locked during the call; if `space` is
    empty, no space is locked."""

    make: Callable[[Transaction], T]
    space: str
    writing: Writing | None
    done: Future[T]


@dataclass(frozen=True)
class _LearningRows:
    """Rows of learning, which replace rows with the same keys."""

    table: Table
    rows: Sequence[dict[str, Any]]
    writing: Writing
    done: Future[None]
    began: float = field(default_factory=time.monotonic)


_Write = _Change[Any] | _LearningRows
_Result = tuple[Any, BaseException | None]


@dataclass(frozen=True)
class _Posted:
    """Row to insert, without a waiting caller. It is retried on failure."""

    table: Table
    values: dict[str, Any]
    announce: bool
    sums: Mapping[str, Any] | None
    size: int


Refused = Callable[[str, str, str], None]
"""Callback for a row that the database refused. Arguments: id of the row's space, name of the row's table, name of the
type of the error. The callback runs in the writer thread."""


@dataclass(frozen=True)
class Failing:
    """State while writes fail: the time of the first and the last failure (monotonic seconds), and the error."""

    since: float
    last: float
    error: StoreError


class Writer:
    """Writer of an open database. The thread starts with the first write."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.refused: Refused = lambda space, table, error: None
        """Callback for each row that is dropped because the database refuses its content."""
        self.lost = 0
        """Number of rows that were dropped because they could not be written for too long."""
        self.late = 0
        """Number of rows that were dropped because their space had been deleted."""
        self.failing: Failing | None = None
        """Set while all writes fail for a common reason, such as a full disk."""
        self.worked = time.monotonic()
        """Time of the last successful transaction (monotonic seconds). Before the first transaction, the time when the
        writer was created."""
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._waiting: list[_LearningRows] = []
        """Rows of learning that wait until a server can be reached again."""
        self._posted: deque[_Posted] = deque()
        self._bytes = 0
        self._closed = False
        self._changing = threading.Lock()
        """Lock that is held while posted rows are added or removed, and while the thread starts."""
        self._thread: threading.Thread | None = None

    @property
    def unwritten(self) -> int:
        """Number of posted rows that are not written yet."""
        return len(self._posted)

    def do(self, change: Callable[[Transaction], T], space: str = "", writing: Writing | None = None) -> Future[T]:
        """Run a change of the space with this id, excluding other writers. If the change affects the content that the
        space shows, announce the change to all nodes. The future completes with the result of the change when the
        change is on disk. The future fails with UnknownSpace if the space was deleted, with RunBusy if another process
        has taken over the lease in `writing`."""
        done: Future[T] = Future()
        self._put(_Change(change, space, writing, done))
        return done

    def write(self, table: Table, rows: Sequence[dict[str, Any]], writing: Writing) -> Future[None]:
        """Insert or replace rows of learning. The future completes when the rows are on disk."""
        done: Future[None] = Future()
        if writing.failure is not None:
            done.set_exception(writing.failure)
        else:
            self._put(_LearningRows(table, rows, writing, done))
        return done

    def post(
        self, space: str, table: Table, row: RowValues, *, announce: bool = False, sums: Mapping[str, Any] | None = None
    ) -> None:
        """Insert a row of a space soon, and before every later change, without waiting. The row is ignored if a row
        with the same keys exists, and dropped if the space was deleted. `announce`: whether to announce a change of the
        space to all nodes. `sums`: numbers to add to the table `hours` in the same transaction."""
        sums = None if sums is None else {**sums, "space": space}
        posted = _Posted(table, {**row, "space": space}, announce, sums, size_of(row.values()))
        with self._changing:
            first = not self._posted
            self._posted.append(posted)
            self._bytes += posted.size
            while len(self._posted) > UNWRITTEN or (self._bytes > UNWRITTEN_BYTES and len(self._posted) > 1):
                self._bytes -= self._posted.popleft().size
                self.lost += 1
        if first:
            self._put(None)

    def close(self) -> None:
        """Write all queued rows, and end the thread."""
        self._closed = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _put(self, write: _Write | None) -> None:
        self._queue.put(write)
        if self._thread is None:
            with self._changing:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(target=self._loop, name="practicum-writer", daemon=True)
                    self._thread.start()

    def _loop(self) -> None:
        while not (self._closed and self._queue.empty() and not self._waiting):
            writes = [self._next()]
            while not self._queue.empty():
                writes.append(self._queue.get())
            waiting, self._waiting = self._waiting, []
            self._commit([*self._posted], [*waiting, *(write for write in writes if write is not None)])

    def _next(self) -> _Write | None:
        """Wait for the next write. If only posted rows are waiting, return after a moment, so that many rows share a
        transaction."""
        write, pause = None, 0.0
        if self._waiting:
            tried = time.monotonic() - self._waiting[0].began
            pause = next((pause for pause in PAUSES if pause > tried), PAUSES[-1])
        elif not self._posted:
            write = self._queue.get()
        if write is None and (pause or (self._posted and not self._closed)):
            with suppress(Empty):
                write = self._queue.get(timeout=pause or (AGAIN if self.failing else WINDOW))
        return write

    def _commit(self, posted: Sequence[_Posted], writes: Sequence[_Write], *, again: bool = True) -> None:
        """Insert the rows `posted` and make the writes in one transaction, and set the results of the writes. `again`:
        whether to retry once if the database ends the transaction because of a deadlock."""
        writes = self._held(writes)
        try:
            with self.backend.transaction() as db:
                batch = _Batch(self.backend, db, posted, writes)
                batch.write()
        # Any error: the thread must continue, and a failing write must not delay others.
        except Exception as error:
            if again and self.backend.is_deadlock(error):
                self._commit(posted, writes, again=False)
            else:
                self._failed(writes, error)
            return
        self.failing, self.worked = None, time.monotonic()
        self.late += batch.late
        self._drop(posted)
        for row, problem in batch.refused:
            self.lost += 1
            logger.error(
                "a row of %s is lost, because the database refuses its content", row.table.name, exc_info=problem
            )
            self.refused(row.values["space"], row.table.name, type(problem).__name__)
        _answer(writes, batch.results)

    def _held(self, writes: Sequence[_Write]) -> Sequence[_Write]:
        """Return the writes whose lease is still held. Set an error as the result of each write whose lease was
        lost."""
        for writing in {id(write.writing): write.writing for write in writes}.values():
            if writing is None:
                continue
            try:
                if self.failing or writing.lease.is_lost:
                    writing.lease.renew()
            # Any error: the thread must continue.
            except Exception as error:
                failure = error if isinstance(error, StoreError) else self.backend.failure("write to", error)
                self._give_up([write for write in writes if write.writing is writing], failure)
                writes = [write for write in writes if write.writing is not writing]
        return writes

    def _failed(self, writes: Sequence[_Write], error: Exception) -> None:
        """Handle a failure of the whole transaction. Posted rows remain, and are retried."""
        now = time.monotonic()
        failure = error if isinstance(error, StoreError) else self.backend.failure("write to", error)
        self.failing = Failing(self.failing.since if self.failing else now, now, failure)
        self._give_up(writes, failure)

    def _give_up(self, writes: Sequence[_Write], failure: StoreError) -> None:
        """Set the failure as the result of these writes. If the server cannot be reached, rows of learning first wait
        for the server, at most for the `patience` of the backend."""
        now, unreachable, failed = time.monotonic(), isinstance(failure, StoreAway), list[_Write]()
        for write in writes:
            if unreachable and isinstance(write, _LearningRows) and now - write.began < self.backend.patience:
                self._waiting.append(write)
            else:
                failed.append(write)
        _answer(failed, [(None, failure)] * len(failed))

    def _drop(self, posted: Sequence[_Posted]) -> None:
        """Remove these rows, which are the oldest, from the posted rows. Some of these rows may already have been
        dropped by `post`, because too many rows were waiting."""
        done = set(map(id, posted))
        with self._changing:
            while self._posted and id(self._posted[0]) in done:
                self._bytes -= self._posted.popleft().size


class _Batch:
    """One transaction of posted rows and writes. It collects the result of each write, and the posted rows that the
    database refused."""

    def __init__(self, backend: Backend, db: Connection, posted: Sequence[_Posted], writes: Sequence[_Write]) -> None:
        self.backend, self.db, self.posted, self.writes = backend, db, posted, writes
        self.results: list[_Result] = []
        self.refused: list[tuple[_Posted, Exception]] = []
        self.late = 0
        self._announced = set[str]()
        self._added: list[Mapping[str, Any]] = []
        self._failed: dict[Writing, StoreError] = {}
        """Error of the refused rows of each learner. All later rows of this learner fail too, because they may depend
        on the refused rows."""

    def write(self) -> None:
        """Insert the posted rows and make the writes. Raises only errors that affect the whole transaction."""
        changed = sorted({write.space for write in self.writes if isinstance(write, _Change) and write.space})
        self.backend.begin(self.db, changed)
        named = {row.values["space"] for row in self.posted} | {_space(write) for write in self.writes}
        self._spaces = space_states(self.db, named - {""})
        self._insert([row for row in self.posted if self._lives(row.values["space"])])
        self.late = sum(not self._lives(row.values["space"]) for row in self.posted)
        for together, group in groupby(self.writes, lambda write: isinstance(write, _LearningRows)):
            if together:
                self._write([write for write in group if isinstance(write, _LearningRows)])
            else:
                self.results += [self._change(write) for write in group if isinstance(write, _Change)]
        add_to_hours(self.db, self._added)
        self.backend.end(self.db, sorted(self._announced))

    def _lives(self, space: str) -> bool:
        return space in self._spaces and self._spaces[space][0] == "live"

    def _insert(self, rows: Sequence[_Posted]) -> None:
        """Insert posted rows together. If the database refuses a row, insert both halves of the rows separately, down
        to single rows, so that only the refused row is left out."""
        if not rows:
            return
        try:
            with self.db.begin_nested():
                for table, group in groupby(rows, lambda row: row.table):
                    self.db.execute(insert_new(table, self.db.dialect.name), [row.values for row in group])
        except Exception as error:
            if self.backend.stops_all(error) or self.backend.is_deadlock(error):
                raise
            if len(rows) == 1:
                self.refused.append((rows[0], error))
                return
            for start, end in ((0, len(rows) // 2), (len(rows) // 2, len(rows))):
                self._insert(rows[start:end])
            return
        self._added += [row.sums for row in rows if row.sums is not None]
        self._announced |= {row.values["space"] for row in rows if row.announce}

    def _write(self, writes: Sequence[_LearningRows]) -> None:
        """Write rows of learning together. If the database refuses a row, make the writes one after another instead."""
        writable = [write for write in writes if self._problem(write) is None]
        by_table: dict[str, tuple[Table, list[dict[str, Any]]]] = {}
        for write in writable:
            by_table.setdefault(write.table.name, (write.table, []))[1].extend(write.rows)

        def put(at: Transaction) -> None:
            for table, rows in by_table.values():
                at.shows |= table in SHOWS
                if rows:
                    self.db.execute(upsert(table, self.db.dialect.name), rows)

        _, refused = self._nested(put, {write.writing.space for write in writable})
        if refused is None or len(writable) == 1:
            self.results += [(None, self._problem(write) or refused) for write in writes]
            if refused is not None:
                self._failed |= {write.writing: _as_store_error(refused) for write in writable}
            return
        for write in writes:
            self._write([write])

    def _change(self, change: _Change[Any]) -> _Result:
        """Run a change. Returns its result or its error."""
        if (problem := self._problem(change)) is not None:
            return None, problem
        return self._nested(change.make, {change.space} - {""}, change.space)

    def _nested(self, make: Callable[[Transaction], Any], shown: set[str], space: str = "") -> _Result:
        """Run a function on a `space` in a nested transaction, and return its result or its error. If the function
        changes the content that a space shows, announce a change of the spaces in `shown` to all nodes."""
        at = Transaction(self.db, space, self.backend.now)
        try:
            with self.db.begin_nested():
                result = make(at)
        except SQLAlchemyError as error:
            if self.backend.stops_all(error) or self.backend.is_deadlock(error):
                raise
            reason = one_line(str(getattr(error, "orig", None) or error), 300)
            return None, StoreError("store.unwritable", f"cannot write a row to {self.backend.name}: {reason}")
        except Exception as error:
            return None, error
        self._added += at.added
        self._announced |= shown if at.shows else set()
        return result, None

    def _problem(self, write: _Write) -> Exception | None:
        """Return the reason why a write cannot be made; None if the write can be tried."""
        space, writing = _space(write), write.writing
        if writing is None:
            return None if not space or self._lives(space) else UnknownSpace("space.unknown", "this space was deleted")
        state = self._spaces.get(space)
        if state is None:
            return UnknownSpace("space.unknown", "this space was deleted")
        if state[1] != writing.lease.token:
            return RunBusy(
                "store.busy", f"another process has taken over writing to {self.backend.name}; the earlier writes of "
                "this process are stored",
            )  # fmt: skip
        return (self._failed.get(writing) or writing.failure) if isinstance(write, _LearningRows) else None


def space_states(db: Connection, spaces: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return the state and the token of each of these spaces, without spaces that do not exist. The states and tokens
    do not change until the transaction ends."""
    if not (ids := sorted({*spaces})):
        return {}
    t = schema.spaces
    query = select(t.c.space, t.c.state, t.c.token).where(t.c.space.in_(ids)).order_by(t.c.space)
    return {row.space: (row.state, row.token) for row in db.execute(query.with_for_update(read=True, key_share=True))}


def _space(write: _Write) -> str:
    return write.writing.space if write.writing is not None else write.space if isinstance(write, _Change) else ""


def _as_store_error(error: BaseException) -> StoreError:
    if isinstance(error, StoreError):
        return error
    code = error.code if isinstance(error, PracticumError) else "store.unwritable"
    return StoreError(code, f"cannot write to the store: {one_line(str(error), 300)}")


def _answer(writes: Sequence[_Write], results: Sequence[_Result]) -> None:
    """Set the results of writes, or their errors."""
    for write, (result, raised) in zip(writes, results, strict=True):
        if isinstance(write, _LearningRows) and raised is not None:
            raised = _as_store_error(raised)
            write.writing.failure = write.writing.failure or raised
        if write.done.set_running_or_notify_cancel():
            write.done.set_result(result) if raised is None else write.done.set_exception(raised)
