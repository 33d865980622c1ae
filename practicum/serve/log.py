"""The service's database: what it keeps, written by one thread.

Writes that arrive while a transaction is committed share the next one, so thousands a second cost a few flushes. What
somebody waits for is on the disk when the wait ends. What nobody waits for, such as an interaction, is kept in memory
while it cannot be written, and written once it can.

The tables are in a folder of one process (`FolderDatabase`), or in PostgreSQL, which several nodes share
(a plug-in of the entry point group `practicum.stores`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from typing import Any, Generic, Protocol, TypeGuard, TypeVar
from urllib.parse import quote

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, Select, Table, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from practicum.core.errors import RunBusy, StoreError
from practicum.core.files import PRIVATE, ensure_private, make_folder
from practicum.core.words import one_line
from practicum.serve import tables
from practicum.serve.bounded import size_of
from practicum.serve.identities import living
from practicum.serve.names import UnknownSpace
from practicum.store.backend import STORES
from practicum.store.dialects import insert_new
from practicum.store.folder import is_run
from practicum.store.migrations import bring_up_to_date
from practicum.store.sqlite import pooled, synchronous

T = TypeVar("T")

logger = logging.getLogger("practicum.serve")

DATABASE_FILE = "service.sqlite"

UNWRITTEN, UNWRITTEN_BYTES = 20_000, 256 * 2**20
"""Rows that nobody waits for and that are kept, at most, while they cannot be written; and bytes of their texts."""

_OF_ROWS = ("22", "23", "54")
"""Classes of PostgreSQL's errors that are about values: data, constraints and limits."""

WINDOW, AGAIN = 0.05, 1.0
"""Seconds that such rows wait for others to be written with, and until they are tried again."""


class Database(Protocol):
    """Where the tables are."""

    engine: Engine
    shared: bool
    """Whether other nodes write to it too."""

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        """Let nobody else change these spaces until the transaction ends; they are sorted."""

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        """Announce changes to these spaces, with the commit."""

    def changes(self, space: str) -> int:
        """A number that is another one after each announced change, and while those cannot be heard."""

    def now(self, db: Connection) -> float:
        """Seconds since 1970, by the one clock of all nodes."""

    def failure(self, doing: str, error: Exception) -> StoreError:
        """What to tell whoever wanted to read or write."""

    def alone(self, what: str, wait: bool = False) -> Any:
        """A block that one node at a time is in; yields whether this one is. `wait` waits for the others."""

    def has_run(self, space: str, folder: Path) -> bool:
        """Whether there is the run of a space."""

    def connect_run(self, space: str, folder: Path) -> None:
        """Make the folder for a run that another node has made."""

    def begin_run(self, space: str, folder: Path) -> None:
        """Make the folder for a run that is to be created in it."""

    def remove_run(self, space: str, folder: Path) -> None:
        """Remove the run of a space and its folder, whole or half made. Raises StoreError if that cannot be done."""

    def run_names(self) -> list[str]:
        """The spaces whose runs are in the database."""

    def sessions(self, seconds: float) -> Sessions | None:
        """The versions of sessions, which all nodes agree on, for so many seconds after a session was last seen; None
        if there is one node."""

    def close(self) -> None:
        """Release what is held."""


class Sessions(Protocol):
    """The version that each session sees, the same on all nodes."""

    async def claim(self, space: str, session: str, version: int, dead: int | None, late: float) -> int | None:
        """The version of a session, which is this one if no node has shown it any, or a `dead` one; None if that is not
        known within `late` seconds, or if the space was deleted."""

    def close(self) -> None:
        """Release what is held."""


@dataclass(frozen=True)
class _Change(Generic[T]):
    """A change in a transaction, the identity of the space that it changes, and who waits for what it returns."""

    make: Callable[[Connection], T]
    space: str
    done: Future[T]


@dataclass(frozen=True)
class _Row:
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


class Log:
    """The open database of a service. `refused` is called for each row that is given up because of what is in it."""

    def __init__(self, database: Database, refused: Refused = lambda space, table, error: None) -> None:
        self.database, self._refused = database, refused
        self.lost = 0
        """Rows that were given up because they could not be written for too long."""
        self.late = 0
        """Rows that were dropped because their space had been deleted."""
        self._queue: SimpleQueue[_Change[Any] | None] = SimpleQueue()
        self._closed = False
        self.failing: Failing | None = None
        """Set while writes fail for a reason that all of them share, such as a full disk."""
        self.worked = time.monotonic()
        """When something was last written, or could have been."""
        self._rows: deque[_Row] = deque()
        self._bytes = 0
        self._changing = threading.Lock()
        """Held while rows are added or removed."""
        self._thread = threading.Thread(target=self._loop, name="practicum-log", daemon=True)
        self._thread.start()

    @property
    def unwritten(self) -> int:
        """Rows that wait to be written."""
        return len(self._rows)

    def do(self, change: Callable[[Connection], T], space: str = "") -> Future[T]:
        """Make a change; of the space with this identity, beside nobody else's and so that all nodes hear of it. The
        future's result is what it returns, once that is on the disk; what it raises undoes nothing of others. A change
        of a space that is not live raises UnknownSpace."""
        done: Future[T] = Future()
        self._queue.put(_Change(change, space, done))
        return done

    def post(
        self, table: Table, row: dict[str, Any], *, told: bool = False, sums: Mapping[str, Any] | None = None
    ) -> None:  # fmt: skip
        """Insert a row of a space without waiting, unless there is one with its key: soon, and before every change that
        is asked for later. `told`: all nodes hear of it. `sums` are added to `hours` with it. Rows of a space that is
        not live are dropped."""
        added = _Row(table, row, told, sums, size_of(row.values()))
        with self._changing:
            first = not self._rows
            self._rows.append(added)
            self._bytes += added.size
            while len(self._rows) > UNWRITTEN or (self._bytes > UNWRITTEN_BYTES and len(self._rows) > 1):
                self._bytes -= self._rows.popleft().size
                self.lost += 1
        if first:
            self._queue.put(None)

    def rows(self, query: Select[Any]) -> Sequence[Any]:
        """The rows of a query, as named tuples."""
        try:
            with self.database.engine.connect() as db:
                return db.execute(query).all()
        except SQLAlchemyError as error:
            raise self.database.failure("read", error) from error

    def close(self) -> None:
        """Write what is queued, and release the database."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self.database.close()

    def _loop(self) -> None:
        while not (self._closed and self._queue.empty()):
            changes = [self._next()]
            while not self._queue.empty():
                changes.append(self._queue.get())
            self._commit([*self._rows], [change for change in changes if change is not None])

    def _next(self) -> _Change[Any] | None:
        """The next change. Rows alone are written after a moment, so that many share a transaction."""
        change = None
        if not self._rows:
            change = self._queue.get()
        if change is None and not self._closed:
            with suppress(Empty):
                change = self._queue.get(timeout=AGAIN if self.failing else WINDOW)
        return change

    def _commit(self, rows: Sequence[_Row], changes: Sequence[_Change[Any]], *, again: bool = True) -> None:
        """Write these rows, the oldest ones, and make these changes, in one transaction, and tell who waits. One that
        the database ended for a deadlock is made `again`."""
        results = list[tuple[Any, BaseException | None]]()
        spaces = sorted({change.space for change in changes if change.space})
        try:
            with self.database.engine.begin() as db:
                self.database.begin(db, spaces)
                live = living(db, {*spaces, *(row.values["space"] for row in rows)})
                kept = [row for row in rows if row.values["space"] in live]
                for table, group in groupby(kept, lambda row: row.table):
                    db.execute(insert_new(table, db.dialect.name), [row.values for row in group])
                db.info["hours"] = [row.sums for row in kept if row.sums is not None]
                results = [_made(change, db, live) for change in changes]
                tables.add_to_hours(db, db.info.pop("hours"))
                self.database.end(db, sorted({*spaces, *(row.values["space"] for row in kept if row.told)}))
        # Any error: the thread must go on, and what cannot be written must not hold up others, nor take them along.
        except Exception as error:
            if again and getattr(getattr(error, "orig", None), "sqlstate", None) == DEADLOCK:
                self._commit(rows, changes, again=False)
                return
            if _stops_all(error):
                # The rows stay, and are tried again.
                failure, now = self.database.failure("write to", error), time.monotonic()
                self.failing = Failing(self.failing.since if self.failing else now, now, failure)
                self._answer(changes, [(None, failure)] * len(changes))
                return
            if len(rows) + len(changes) > 1:
                some, few = (len(rows) + 1) // 2, 0 if rows else len(changes) // 2
                self._commit(rows[:some], changes[:few])
                # While the database is away, the later rows stay behind the earlier ones.
                self._commit([] if self.failing else rows[some:], changes[few:])
                return
            said = one_line(str(getattr(error, "orig", None) or error), 300)
            results = [
                (None, StoreError("store.unwritable", f"what the service keeps cannot be written: {said}"))
            ] * len(changes)
            self._give_up(rows, error)
        else:
            self.failing, self.worked = None, time.monotonic()
            self.late += len(rows) - len(kept)
            self._drop(rows)
        self._answer(changes, results)

    def _answer(self, changes: Sequence[_Change[Any]], results: Sequence[tuple[Any, BaseException | None]]) -> None:
        """Set the results of changes, or their errors."""
        for change, (result, raised) in zip(changes, results, strict=True):
            if change.done.set_running_or_notify_cancel():
                change.done.set_result(result) if raised is None else change.done.set_exception(raised)

    def _give_up(self, rows: Sequence[_Row], error: Exception) -> None:
        """Drop rows that the database refuses because of what is in them."""
        self._drop(rows)
        self.lost += len(rows)
        for row in rows:
            logger.error("a row of %s is lost: the database refuses what is in it", row.table.name, exc_info=error)
            self._refused(row.values["space"], row.table.name, type(error).__name__)

    def _drop(self, rows: Sequence[_Row]) -> None:
        """Forget these rows, the oldest ones; some may have been given up meanwhile."""
        done = set(map(id, rows))
        with self._changing:
            while self._rows and id(self._rows[0]) in done:
                self._bytes -= self._rows.popleft().size


DEADLOCK = "40P01"
"""The code of PostgreSQL for a transaction that waited for another one in a circle."""

_STATES = ("42501", "42P01", "3F000")
"""Codes of PostgreSQL that are of the kind of a wrong statement: no right, no table, no schema."""


def _stops_all(error: Exception) -> TypeGuard[SQLAlchemyError]:
    """Whether no other write would succeed either: the database is away, full, read-only or damaged, or the role has
    lost its rights. Otherwise the error is of what was written."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    if isinstance(error, ProgrammingError):
        return state in _STATES
    if isinstance(error, DataError | IntegrityError | NotSupportedError) or state.startswith(_OF_ROWS):
        return False
    return isinstance(error, DBAPIError | NoConnection)


def _made(change: _Change[Any], db: Connection, live: Set[str]) -> tuple[Any, BaseException | None]:
    """What a change returned, or what it raised: one that is refused, such as feedback on something unknown, has
    written nothing and undoes nothing of others."""
    if change.space and change.space not in live:
        return None, UnknownSpace("space.unknown", "this space was deleted")
    try:
        return change.make(db), None
    except SQLAlchemyError:
        raise
    except Exception as error:
        return None, error


class FolderDatabase:
    """One SQLite file, of one process. Raises RunBusy if another process serves from the same folder; `beside` that
    one, a command changes what it reads anew."""

    shared = False

    def __init__(self, folder: Path, *, beside: bool = False) -> None:
        self.folder = folder
        self._held, self._free = set[str](), threading.Condition()
        try:
            make_folder(folder)
        except OSError as error:
            raise StoreError("store.unwritable", f"cannot make the store {folder}: {error.strerror}") from error
        self._lock = FileLock(folder / "lock", mode=PRIVATE, blocking=False, thread_local=False)
        if not beside:
            self._take()
        try:
            self.engine = self._open()
        except BaseException:
            self._lock.release()
            raise

    def _take(self) -> None:
        try:
            self._lock.acquire()
        except Timeout:
            raise RunBusy(
                "store.busy",
                f"another practicum serve or practicum mcp uses the store {self.folder}: stop that one, or give "
                "another --store",
            ) from None
        except OSError as error:
            raise StoreError(
                "store.unwritable", f"cannot write to the store {self.folder}: {error.strerror}"
            ) from error

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        # Nobody else writes to the file, but for a command beside the service.
        db.execute(text("BEGIN IMMEDIATE"))

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        pass

    def changes(self, space: str) -> int:
        return 0

    def now(self, db: Connection) -> float:
        return time.time()

    def failure(self, doing: str, error: Exception) -> StoreError:
        full = " (is the disk full or read-only?)" if doing == "write to" else ""
        return StoreError(
            "store.unwritable", f"cannot {doing} the store {self.folder}: {getattr(error, 'orig', None) or error}{full}"
        )

    @contextmanager
    def alone(self, what: str, wait: bool = False) -> Iterator[bool]:
        with self._free:
            mine = self._free.wait_for(lambda: what not in self._held, None if wait else 0)
            self._held |= {what} if mine else set()
        try:
            yield mine
        finally:
            if mine:
                with self._free:
                    self._held.discard(what)
                    self._free.notify_all()

    def has_run(self, space: str, folder: Path) -> bool:
        return is_run(folder)

    def connect_run(self, space: str, folder: Path) -> None:
        """The folder is the run."""

    def begin_run(self, space: str, folder: Path) -> None:
        make_folder(folder.parent)

    def remove_run(self, space: str, folder: Path) -> None:
        try:
            rmtree(folder)
        except FileNotFoundError:
            # Something may be missing that a look at the folder had found.
            rmtree(folder, ignore_errors=True)
        except OSError as error:
            raise StoreError("store.unwritable", f"cannot remove the folder {folder}: {error.strerror}") from error

    def run_names(self) -> list[str]:
        return []

    def sessions(self, seconds: float) -> None:
        return None

    def close(self) -> None:
        self.engine.dispose()
        self._lock.release()

    def _open(self) -> Engine:
        path = self.folder / DATABASE_FILE
        ensure_private(path)
        uri = f"file:{quote(str(path.absolute()))}?mode=rwc"
        engine = pooled(uri, (f"synchronous={synchronous()}", "journal_mode=WAL"))
        try:
            with engine.begin() as db:
                db.execute(text("BEGIN IMMEDIATE"))
                bring_up_to_date(db, tables.FORMAT, f"the store {self.folder}")
        except SQLAlchemyError as error:
            raise self.failure("open", error) from error
        return engine


def open_database(place: Path | URL, *, beside: bool = False) -> Database:
    """What a service keeps in a folder or in a database at a URL. `beside` opens a folder that a service uses at the
    same time. Raises RunBusy if another process serves from the folder, StoreError if it cannot be opened."""
    if isinstance(place, Path):
        return FolderDatabase(place, beside=beside)
    database: Database = STORES.load(place.get_backend_name()).service(place)
    return database
