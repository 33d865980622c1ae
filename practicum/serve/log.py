"""The service's database: one SQLite file, one process, one thread that writes.

Writes that arrive while a transaction is committed share the next one, so thousands a second cost a few flushes. What
somebody waits for is on the disk when the wait ends. What nobody waits for, such as an interaction, is kept in memory
while the disk is full, and written once there is room.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, Select, Table, create_engine, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from practicum.core.errors import StoreError
from practicum.core.files import PRIVATE, PRIVATE_FOLDER, ensure_private
from practicum.serve import tables
from practicum.store.sqlite import synchronous

T = TypeVar("T")

logger = logging.getLogger("practicum.serve")

DATABASE_FILE = "service.sqlite"

UNWRITTEN = 20_000
"""Rows that nobody waits for and that are kept, at most, while they cannot be written."""

WINDOW, AGAIN = 0.05, 1.0
"""Seconds that such rows wait for others to be written with, and until they are tried again."""


@dataclass(frozen=True)
class _Change(Generic[T]):
    """A change in a transaction, and who waits for what it returns."""

    make: Callable[[Connection], T]
    done: Future[T]


@dataclass(frozen=True)
class _Row:
    """A row to insert, for which nobody waits: it is tried again."""

    table: Table
    values: dict[str, Any]


class Log:
    """The open database of a service. Raises StoreError if another process serves from the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost = 0
        """Rows that were given up because the disk was full for too long."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        except OSError as error:
            raise StoreError(f"cannot make the store {folder}: {error.strerror}") from error
        self._lock = FileLock(folder / "lock", mode=PRIVATE, blocking=False, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise StoreError(
                f"another practicum serve uses the store {folder}: stop that one, or give another --store"
            ) from None
        except OSError as error:
            raise StoreError(f"cannot write to the store {folder}: {error.strerror}") from error
        try:
            self._engine = _open(folder)
        except BaseException:
            self._lock.release()
            raise
        self._queue: SimpleQueue[_Change[Any] | None] = SimpleQueue()
        self._closed = self._failed = False
        self._rows: deque[_Row] = deque()
        self._thread = threading.Thread(target=self._loop, name="practicum-log", daemon=True)
        self._thread.start()

    @property
    def unwritten(self) -> int:
        """Rows that wait to be written."""
        return len(self._rows)

    def do(self, change: Callable[[Connection], T]) -> Future[T]:
        """Make a change. The future's result is what it returns, once that is on the disk; what it raises undoes
        nothing of others."""
        done: Future[T] = Future()
        self._queue.put(_Change(change, done))
        return done

    def post(self, table: Table, row: dict[str, Any]) -> None:
        """Insert a row without waiting: soon, and before every change that is asked for later."""
        first = not self._rows
        self._rows.append(_Row(table, row))
        while len(self._rows) > UNWRITTEN:
            self._rows.popleft()
            self.lost += 1
        if first:
            self._queue.put(None)

    def rows(self, query: Select[Any]) -> Sequence[Any]:
        """The rows of a query, as named tuples."""
        try:
            with self._engine.connect() as db:
                return db.execute(query).all()
        except SQLAlchemyError as error:
            raise StoreError(f"cannot read the store {self.folder}: {_said(error)}") from error

    def close(self) -> None:
        """Write what is queued, and release the folder."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._engine.dispose()
        self._lock.release()

    def _loop(self) -> None:
        while not (self._closed and self._queue.empty()):
            changes = [self._next()]
            while not self._queue.empty():
                changes.append(self._queue.get())
            self._commit([change for change in changes if change is not None])

    def _next(self) -> _Change[Any] | None:
        """The next change. Rows alone are written after a moment, so that many share a transaction."""
        change = None
        if not self._rows:
            change = self._queue.get()
        if change is None and not self._closed:
            with suppress(Empty):
                change = self._queue.get(timeout=AGAIN if self._failed else WINDOW)
        return change

    def _commit(self, changes: Sequence[_Change[Any]]) -> None:
        """Write the rows that wait and make these changes, in one transaction, and tell who waits."""
        rows, results = [*self._rows], list[tuple[Any, BaseException | None]]()
        try:
            with self._engine.begin() as db:
                db.execute(text("BEGIN IMMEDIATE"))
                for table, group in groupby(rows, lambda row: row.table):
                    db.execute(table.insert().prefix_with("OR REPLACE"), [row.values for row in group])
                results = [_made(change, db) for change in changes]
        except OperationalError as error:
            # The rows stay, and are tried again.
            self._failed = True
            failure = StoreError(f"cannot write to the store {self.folder}: {_said(error)} (is the disk full?)")
            results = [(None, failure)] * len(changes)
        # Anything else: the thread must go on, and rows that cannot be written must not hold up others.
        except Exception as error:
            logger.exception("%d interactions are lost", len(rows))
            results = [(None, StoreError(f"cannot write to the store {self.folder}: {error}"))] * len(changes)
            self.lost += len(rows)
            self._drop(rows)
        else:
            self._failed = False
            self._drop(rows)
        for change, (result, raised) in zip(changes, results, strict=True):
            if change.done.set_running_or_notify_cancel():
                change.done.set_result(result) if raised is None else change.done.set_exception(raised)

    def _drop(self, rows: Sequence[_Row]) -> None:
        """Forget these rows, the oldest ones; some may have been given up meanwhile."""
        done = set(map(id, rows))
        while self._rows and id(self._rows[0]) in done:
            self._rows.popleft()


def _made(change: _Change[Any], db: Connection) -> tuple[Any, BaseException | None]:
    """What a change returned, or what it raised: one that is refused, such as feedback on something unknown, has
    written nothing and undoes nothing of others."""
    try:
        return change.make(db), None
    except SQLAlchemyError:
        raise
    except Exception as error:
        return None, error


def _open(folder: Path) -> Engine:
    path = folder / DATABASE_FILE
    ensure_private(path)

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
        for pragma in (f"synchronous={synchronous()}", "journal_mode=WAL"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    try:
        with engine.begin() as db:
            db.execute(text("BEGIN IMMEDIATE"))
            version = int(db.execute(text("PRAGMA user_version")).scalar_one())
            if version not in (0, tables.FORMAT):
                raise StoreError(f"the store {folder} has format {version}, this practicum has {tables.FORMAT}")
            if version == 0:
                tables.metadata.create_all(db, checkfirst=False)
                db.execute(text(f"PRAGMA user_version = {tables.FORMAT}"))
    except SQLAlchemyError as error:
        raise StoreError(f"cannot open the store {folder}: {_said(error)}") from error
    return engine


def _said(error: SQLAlchemyError) -> object:
    return getattr(error, "orig", None) or error
