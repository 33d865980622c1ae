"""The one thread that writes to an open database.

Writes that arrive while a transaction is committed share the next one, so thousands a second cost a few flushes. What
somebody waits for is on the disk when the wait ends. Three kinds of writes share a transaction:

- A change is a function of a transaction. What it raises undoes nothing but itself.
- Rows of learning are written in order. Once some of them fail, those that follow fail too, since they may depend on
  them. While a server is away they wait for it a moment, since what they hold was paid for.
- Rows that nobody waits for, such as an interaction, are kept in memory while they cannot be written.
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
"""Rows that nobody waits for and that are kept, at most, while they cannot be written; and bytes of their texts."""

WINDOW, AGAIN = 0.05, 1.0
"""Seconds that such rows wait for others to be written with, and until they are tried again."""

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.75)
"""Seconds before rows of learning are tried again, after a server went away; then the last one again and again."""


class Writing:
    """The right to write what a space learns, and whether that still succeeds."""

    def __init__(self, space: str, lease: Lease) -> None:
        self.space, self.lease = space, lease
        self.failure: StoreError | None = None
        """The first failure of rows, after which nothing more is written."""


@dataclass(frozen=True)
class _Change(Generic[T]):
    """A function of a transaction. It has the `space` for itself, unless that is empty."""

    make: Callable[[Transaction], T]
    space: str
    writing: Writing | None
    done: Future[T]


@dataclass(frozen=True)
class _LearningRows:
    """Rows of learning, which replace those with the same keys."""

    table: Table
    rows: Sequence[dict[str, Any]]
    writing: Writing
    done: Future[None]
    began: float = field(default_factory=time.monotonic)


_Write = _Change[Any] | _LearningRows
_Result = tuple[Any, BaseException | None]


@dataclass(frozen=True)
class _Posted:
    """A row to insert, for which nobody waits: it is tried again."""

    table: Table
    values: dict[str, Any]
    told: bool
    sums: Mapping[str, Any] | None
    size: int


Refused = Callable[[str, str, str], None]
"""Is called, in the thread that writes, with the space, the table and the error of a row that the database refused."""


@dataclass(frozen=True)
class Failing:
    """Writes fail: when the first and the last one failed (monotonic seconds), and why."""

    since: float
    last: float
    error: StoreError


class Writer:
    """Writes to an open database. The thread begins with the first write."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.refused: Refused = lambda space, table, error: None
        """Is called for each row that is given up because of what is in it."""
        self.lost = 0
        """Rows that were given up because they could not be written for too long."""
        self.late = 0
        """Rows that were dropped because their space had been deleted."""
        self.failing: Failing | None = None
        """Set while writes fail for a reason that all of them share, such as a full disk."""
        self.worked = time.monotonic()
        """When something was last written, or could have been."""
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._waiting: list[_LearningRows] = []
        """Rows of learning that wait for a server."""
        self._posted: deque[_Posted] = deque()
        self._bytes = 0
        self._closed = False
        self._changing = threading.Lock()
        """Held while posted rows are added or removed, and while the thread begins."""
        self._thread: threading.Thread | None = None

    @property
    def unwritten(self) -> int:
        """Posted rows that wait to be written."""
        return len(self._posted)

    def do(self, change: Callable[[Transaction], T], space: str = "", writing: Writing | None = None) -> Future[T]:
        """Make a change; of the space with this id, beside nobody else's and so that all nodes hear of it. The future's
        result is what it returns, once that is on the disk. A change of a space that was deleted raises UnknownSpace;
        one of a holder of a lease that was taken over raises RunBusy."""
        done: Future[T] = Future()
        self._put(_Change(change, space, writing, done))
        return done

    def write(self, table: Table, rows: Sequence[dict[str, Any]], writing: Writing) -> Future[None]:
        """Insert or replace rows of learning."""
        done: Future[None] = Future()
        if writing.failure is not None:
            done.set_exception(writing.failure)
        else:
            self._put(_LearningRows(table, rows, writing, done))
        return done

    def post(
        self, space: str, table: Table, row: RowValues, *, told: bool = False, sums: Mapping[str, Any] | None = None
    ) -> None:
        """Insert a row of a space without waiting, unless there is one with its key: soon, and before every change that
        is asked for later. `told`: all nodes hear of it. `sums` are added to `hours` with it. Rows of a space that was
        deleted are dropped."""
        sums = None if sums is None else {**sums, "space": space}
        added = _Posted(table, {**row, "space": space}, told, sums, size_of(row.values()))
        with self._changing:
            first = not self._posted
            self._posted.append(added)
            self._bytes += added.size
            while len(self._posted) > UNWRITTEN or (self._bytes > UNWRITTEN_BYTES and len(self._posted) > 1):
                self._bytes -= self._posted.popleft().size
                self.lost += 1
        if first:
            self._put(None)

    def close(self) -> None:
        """Write what is queued, and end the thread."""
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
        """The next write. Posted rows alone are written after a moment, so that many share a transaction."""
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
        """Write these rows, the oldest ones, and make these changes, in one transaction, and tell who waits. One that
        the database ended for a deadlock is made `again`."""
        writes = self._held(writes)
        try:
            with self.backend.transaction() as db:
                attempt = _Attempt(self.backend, db, posted, writes)
                attempt.make()
        # Any error: the thread must go on, and what cannot be written must not hold up others.
        except Exception as error:
            if again and self.backend.is_deadlock(error):
                self._commit(posted, writes, again=False)
            else:
                self._failed(writes, error)
            return
        self.failing, self.worked = None, time.monotonic()
        self.late += attempt.late
        self._drop(posted)
        for row, why in attempt.refused:
            self.lost += 1
            logger.error("a row of %s is lost: the database refuses what is in it", row.table.name, exc_info=why)
            self.refused(row.values["space"], row.table.name, type(why).__name__)
        _answer(writes, attempt.results)

    def _held(self, writes: Sequence[_Write]) -> Sequence[_Write]:
        """These writes, without those of holders whose lease is lost: they do not hold up the others."""
        for writing in {id(write.writing): write.writing for write in writes}.values():
            if writing is None:
                continue
            try:
                if self.failing or writing.lease.is_lost:
                    writing.lease.renew()
            # Any error: the thread must go on.
            except Exception as error:
                failure = error if isinstance(error, StoreError) else self.backend.failure("write to", error)
                self._give_up([write for write in writes if write.writing is writing], failure)
                writes = [write for write in writes if write.writing is not writing]
        return writes

    def _failed(self, writes: Sequence[_Write], error: Exception) -> None:
        """Nothing could be written. Posted rows stay, and are tried again."""
        now = time.monotonic()
        failure = error if isinstance(error, StoreError) else self.backend.failure("write to", error)
        self.failing = Failing(self.failing.since if self.failing else now, now, failure)
        self._give_up(writes, failure)

    def _give_up(self, writes: Sequence[_Write], failure: StoreError) -> None:
        """Tell who waits for these writes that they failed; but rows of learning wait a moment for a server."""
        now, away, given_up = time.monotonic(), isinstance(failure, StoreAway), list[_Write]()
        for write in writes:
            if away and isinstance(write, _LearningRows) and now - write.began < self.backend.patience:
                self._waiting.append(write)
            else:
                given_up.append(write)
        _answer(given_up, [(None, failure)] * len(given_up))

    def _drop(self, posted: Sequence[_Posted]) -> None:
        """Forget these rows, the oldest ones; some may have been given up meanwhile."""
        done = set(map(id, posted))
        with self._changing:
            while self._posted and id(self._posted[0]) in done:
                self._bytes -= self._posted.popleft().size


class _Attempt:
    """One transaction: what became of each write, and the rows that the database refused."""

    def __init__(self, backend: Backend, db: Connection, posted: Sequence[_Posted], writes: Sequence[_Write]) -> None:
        self.backend, self.db, self.posted, self.writes = backend, db, posted, writes
        self.results: list[_Result] = []
        self.refused: list[tuple[_Posted, Exception]] = []
        self.late = 0
        self._told = set[str]()
        self._added: list[Mapping[str, Any]] = []
        self._failed: dict[Writing, StoreError] = {}
        """What the database refused of a space's learning, on which later rows may depend."""

    def make(self) -> None:
        """Write everything. Raises what stops all writes."""
        changed = sorted({write.space for write in self.writes if isinstance(write, _Change) and write.space})
        self.backend.begin(self.db, changed)
        named = {row.values["space"] for row in self.posted} | {_space(write) for write in self.writes}
        self._known = known_spaces(self.db, named - {""})
        self._insert([row for row in self.posted if self._lives(row.values["space"])])
        self.late = sum(not self._lives(row.values["space"]) for row in self.posted)
        for together, group in groupby(self.writes, lambda write: isinstance(write, _LearningRows)):
            if together:
                self._write([write for write in group if isinstance(write, _LearningRows)])
            else:
                self.results += [self._made(write) for write in group if isinstance(write, _Change)]
        add_to_hours(self.db, self._added)
        self.backend.end(self.db, sorted(self._told))

    def _lives(self, space: str) -> bool:
        return space in self._known and self._known[space][0] == "live"

    def _insert(self, rows: Sequence[_Posted]) -> None:
        """Insert posted rows together; if the database refuses that, one by one."""
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
        self._told |= {row.values["space"] for row in rows if row.told}

    def _write(self, writes: Sequence[_LearningRows]) -> None:
        """Write rows of learning together; if the database refuses that, one write after the other."""
        good = [write for write in writes if self._problem(write) is None]
        by_table: dict[str, tuple[Table, list[dict[str, Any]]]] = {}
        for write in good:
            by_table.setdefault(write.table.name, (write.table, []))[1].extend(write.rows)

        def put(at: Transaction) -> None:
            for table, rows in by_table.values():
                at.shows |= table in SHOWS
                if rows:
                    self.db.execute(upsert(table, self.db.dialect.name), rows)

        _, refused = self._nested(put, {write.writing.space for write in good})
        if refused is None or len(good) == 1:
            self.results += [(None, self._problem(write) or refused) for write in writes]
            if refused is not None:
                self._failed |= {write.writing: _as_store_error(refused) for write in good}
            return
        for write in writes:
            self._write([write])

    def _made(self, change: _Change[Any]) -> _Result:
        """What a change returned, or what it raised."""
        if (problem := self._problem(change)) is not None:
            return None, problem
        return self._nested(change.make, {change.space} - {""}, change.space)

    def _nested(self, make: Callable[[Transaction], Any], shown: set[str], space: str = "") -> _Result:
        """Make something of a `space` in a transaction of its own within this one. All nodes hear of the spaces in
        `shown`, if it changes what they show."""
        at = Transaction(self.db, space, self.backend.now)
        try:
            with self.db.begin_nested():
                made = make(at)
        except SQLAlchemyError as error:
            if self.backend.stops_all(error) or self.backend.is_deadlock(error):
                raise
            said = one_line(str(getattr(error, "orig", None) or error), 300)
            return None, StoreError("store.unwritable", f"cannot write this to {self.backend.name}: {said}")
        except Exception as error:
            return None, error
        self._added += at.added
        self._told |= shown if at.shows else set()
        return made, None

    def _problem(self, write: _Write) -> Exception | None:
        """Why a write cannot be made; None if it can be tried."""
        space, writing = _space(write), write.writing
        if writing is None:
            return None if not space or self._lives(space) else UnknownSpace("space.unknown", "this space was deleted")
        known = self._known.get(space)
        if known is None:
            return UnknownSpace("space.unknown", "this space was deleted")
        if known[1] != writing.lease.token:
            return RunBusy(
                "store.busy", f"another process has taken over what this one wrote to {self.backend.name}: what this "
                "one wrote before is kept",
            )  # fmt: skip
        return (self._failed.get(writing) or writing.failure) if isinstance(write, _LearningRows) else None


def known_spaces(db: Connection, spaces: Iterable[str]) -> dict[str, tuple[str, int]]:
    """The states and the tokens of those of these spaces that there are. They stay so until the transaction ends."""
    if not (wanted := sorted({*spaces})):
        return {}
    t = schema.spaces
    query = select(t.c.space, t.c.state, t.c.token).where(t.c.space.in_(wanted)).order_by(t.c.space)
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
