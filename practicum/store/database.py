"""The database of a run: one SQLite file in WAL mode, one writer thread, one writing process at a time.

A write returns once its rows are on the disk (synchronous=FULL). Writes that arrive during a commit share the next one,
so many calls in flight cost one flush and not one each.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from urllib.parse import quote

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, Insert, Select, Table, TextClause, create_engine, select, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from practicum.core.errors import NotARun, RunBusy, StoreError, UsageError
from practicum.core.files import PRIVATE, PRIVATE_FOLDER, ensure_private
from practicum.core.words import error_line, one_line
from practicum.store import migrations, schema
from practicum.store.flight import FLIGHT_FILE, Flight, left_in_flight
from practicum.store.schema import IN_FLIGHT

DATABASE_FILE = "run.sqlite"
LOCK_FILE = "lock"
INDEX_FILES = "index.*"
"""The index of the run's entries, if it has many. It can be made again from the database."""

OLD_INDEX_FILES = ("vectors.usearch", "words.postings")
"""The files of an index that an earlier version of practicum made. They are not read any more."""

FILES = (
    DATABASE_FILE, *(f"{DATABASE_FILE}-{part}" for part in ("wal", "shm", "journal")), LOCK_FILE,
    "llama.log",
)  # fmt: skip
"""The files that are opened in a run folder, beside those of the index."""

BUSY_SECONDS = 10.0
"""How long SQLite waits for another process that holds the file."""

PROBE_SECONDS = 0.3
"""How long a writer waits for the lock, which a reader may hold for a moment to see whether anybody writes."""

SYNCHRONOUS_VARIABLE = "PRACTICUM_SQLITE_SYNCHRONOUS"
"""An environment variable for tests: SQLite's `synchronous` (OFF, NORMAL or FULL) of databases that are opened from
now on. OFF does not wait for the disk, so a power failure may lose or corrupt a run; the default is FULL."""

RowValues = Mapping[str, Any]


class _Write(NamedTuple):
    table: Table
    rows: Sequence[RowValues]
    done: asyncio.Future[None] | None


class Store:
    """An open run folder. Any number of processes may have it open read-only, also while one writes to it."""

    def __init__(self, folder: Path, engine: Engine, lock: FileLock | None, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self.trusted = True
        """Whether its index may be opened. A library reads it that a crafted file can crash."""
        self._engine = engine
        self._lock = lock
        self.flight = Flight()
        self._watching: PoolProxiedConnection | None = None
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._failure: StoreError | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def create(cls, folder: Path) -> Store:
        """Make a new run folder. Raises StoreError if it holds a run already or cannot be made."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        except OSError as error:
            raise StoreError(f"cannot make the run folder {folder}: {error.strerror}") from error
        return cls._open(folder, new=True)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open an existing run folder for writing and bring its format up to date.

        Raises NotARun if it holds no run, RunBusy if it is open for writing elsewhere.
        """
        _must_exist(folder)
        return cls._open(folder, new=False)

    @classmethod
    def read(cls, folder: Path) -> Store:
        """Open an existing run folder read-only.

        Raises NotARun if it holds no run, StoreError if this version does not read its format.
        """
        _must_exist(folder)
        store = cls(folder, _engine(folder, read_only=True), None, read_only=True)
        store._refuse_active()
        version, newest = store._format(), len(migrations.MIGRATIONS)
        if version != newest:
            advice = "upgrade practicum" if version > newest else f"bring it up to date: practicum resume {folder}"
            raise StoreError(f"{folder} has run format {version}, this practicum reads {newest}: {advice}")
        return store

    @classmethod
    def beside(cls, folder: Path) -> Store:
        """Open an existing run folder for short writes to tables that a run itself never writes, also while another
        process has it open for writing.

        Raises NotARun if it holds no run, StoreError if it cannot be written to.
        """
        _must_exist(folder)
        store = cls(folder, _engine(folder), None)
        store._refuse_active()
        if store._format() < len(migrations.MIGRATIONS):
            store.close()
            cls.open(folder).close()
            store = cls(folder, _engine(folder), None)
        return store

    @classmethod
    def _open(cls, folder: Path, new: bool) -> Store:
        refuse_links(folder)
        lock = _acquire_lock(folder)
        try:
            if new and (folder / DATABASE_FILE).exists():
                raise StoreError(
                    f"{folder} already holds a run: continue it with practicum resume {folder}, or give another `out`"
                )
            ensure_private(folder / DATABASE_FILE)
            store = cls(folder, _engine(folder), lock)
            store._refuse_active()
            with _database_errors(folder), as_stored(folder), store._engine.begin() as db:
                # Python's driver begins no transaction for DDL; without one a migration could be applied in part.
                db.execute(text("BEGIN IMMEDIATE"))
                migrations.migrate(db, str(folder))
                _book_left_in_flight(db, folder)
            (folder / FLIGHT_FILE).unlink(missing_ok=True)
        except BaseException:
            lock.release()
            raise
        store.flight = Flight(folder)
        return store

    @property
    def is_written(self) -> bool:
        """Whether another process has it open for writing."""
        if self._lock is not None:
            return False
        try:
            with FileLock(self.folder / LOCK_FILE, mode=PRIVATE, blocking=False):
                return False
        except Timeout:
            return True
        except OSError:  # a folder that this user may not write to
            return False

    def _refuse_active(self) -> None:
        """Raises StoreError for a database that does something by itself, which those of runs never do."""
        with _database_errors(self.folder), self._engine.connect() as db:
            objects = db.execute(text("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master")).all()
        for kind, name, table, rootpage, sql in objects:
            ours = str(table).lower() in schema.metadata.tables
            plain = not ours or sql is None or schema.WORDS.issuperset(TOKENS.findall(str(sql).lower()))
            if kind not in ("table", "index") or not rootpage or not plain:
                raise StoreError(
                    f"{self.folder} is not opened: its database has the {kind} {name!r}, which practicum never makes "
                    "and which could change what is read or written; ask for an export of the run (practicum export)"
                )

    def _format(self) -> int:
        with _database_errors(self.folder), self._engine.connect() as db:
            return int(db.execute(text("PRAGMA user_version")).scalar_one())

    def changes(self) -> int:
        """A number that is another one after each write by somebody else, for some microseconds' work."""
        with _database_errors(self.folder):
            if self._watching is None:
                # The number is of one connection.
                self._watching = self._engine.raw_connection()
            (number,) = self._watching.cursor().execute("PRAGMA data_version").fetchone()
            return int(number)

    def rows(self, query: Select[Any] | TextClause) -> list[Any]:
        """The rows of a query, as named tuples."""
        with _database_errors(self.folder), self._engine.connect() as db:
            return list(db.execute(query))

    async def write(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows, and return once they are on the disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(_Write(table, rows, done))
        await done

    def post(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows without waiting: they are written before any later write, at the latest on close.

        For rows that a resume can make again, and for rows that only later writes depend on. An error is raised by the
        next write, at the latest by the end of the store's `with` block.
        """
        if rows:
            self._enqueue(_Write(table, rows, None))

    async def flush(self) -> None:
        """Wait until all posted rows are on the disk."""
        await self.write(schema.runs, [])

    def _raise_failure(self) -> None:
        """Raise the error of an earlier write, on which what is written now may depend."""
        if self._failure is not None:
            raise self._failure

    def _enqueue(self, write: _Write) -> None:
        self._raise_failure()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_loop, name="practicum-store", daemon=True)
            self._thread.start()
        self._queue.put(write)

    def execute(self, *statements: Any) -> None:
        """Run statements at once, in one transaction, for edits outside a run."""
        self.execute_all((statement, ()) for statement in statements)

    def execute_all(self, statements: Iterable[tuple[Any, Sequence[RowValues]]]) -> None:
        """Run statements at once, each with its rows, in one transaction. A generator keeps memory small."""
        self._raise_failure()
        with _database_errors(self.folder), self._engine.begin() as db:
            for statement, rows in statements:
                db.execute(statement, rows) if rows else db.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction beside which nobody writes."""
        with _database_errors(self.folder), self._engine.begin() as db:
            db.execute(text("BEGIN IMMEDIATE"))
            yield db

    def put(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows at once."""
        self.execute_all([(_insert_or_replace(table), list(rows))] if rows else [])

    def copy_to(self, folder: Path) -> None:
        """Copy the database into another folder, which is made; consistent, whoever writes to it meanwhile."""
        folder.mkdir(parents=True, mode=PRIVATE_FOLDER)
        ensure_private(folder / DATABASE_FILE)
        with _database_errors(self.folder), self._engine.connect() as db:
            db.execution_options(isolation_level="AUTOCOMMIT")
            db.execute(text("VACUUM INTO :path"), {"path": str(folder / DATABASE_FILE)})

    def scrub(self) -> None:
        """Overwrite deleted rows, so that no deleted text stays in the database file or its write-ahead log.

        Raises StoreError if another process reads the run and so keeps the log from being truncated.
        """
        with _database_errors(self.folder), self._engine.connect() as db:
            db.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM"))
            busy = db.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
        if busy:
            raise StoreError(
                f"another process is reading {self.folder}: the deleted rows are no longer part of the run, but their "
                "bytes stay in its write-ahead log until no process has the run open"
            )

    def close(self) -> None:
        """Write what is queued and release the folder."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        if self._watching is not None:
            self._watching.close()
            self._watching = None
        self.flight.close()
        self._engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self.close()
        if self.read_only and error is not None:
            with as_stored(self.folder):
                raise error
        if kind is None:
            # Nobody waited for the rows that were posted.
            self._raise_failure()

    def _write_loop(self) -> None:
        """The writer thread: take all waiting writes, commit them together, wake their callers."""
        running = True
        while running:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            writes = [write for write in batch if write is not None]
            running = len(writes) == len(batch)
            if writes:
                _wake_callers(writes, self._commit(writes))

    def _commit(self, writes: Sequence[_Write]) -> StoreError | None:
        """Write these rows in one transaction. After the first failure nothing more is written."""
        if self._failure is not None:
            return self._failure
        by_table: dict[str, tuple[Table, list[RowValues]]] = {}
        for write in writes:
            by_table.setdefault(write.table.name, (write.table, []))[1].extend(write.rows)
        try:
            with self._engine.begin() as db:
                for table, rows in by_table.values():
                    if rows:
                        db.execute(_insert_or_replace(table), rows)
        # Any exception: the callers wait for an outcome, and nobody sees what this thread raises.
        except Exception as error:
            self._failure = StoreError(
                f"cannot write to {self.folder}: {getattr(error, 'orig', None) or error} (is the disk full?); all "
                "earlier writes are safe: make room and resume the run"
            )
        return self._failure


def _book_left_in_flight(db: Connection, folder: Path) -> None:
    """Move what an earlier process had in flight when it was killed into the journal, as calls that are spent."""

    def paid() -> Iterable[tuple[str, str, str]]:
        t = schema.journal.c
        for row in db.execute(select(t.run_id, t.place, t.digest).where(t.ok == 1, t.calls > 0)):
            yield row[0], row[1], row[2]

    rows = [
        {
            "run_id": sent.run_id, "place": f"{IN_FLIGHT} {sent.id}", "role": IN_FLIGHT, "digest": "", "ok": 1,
            "answer": json.dumps(["", False]), "seconds": 0.0, "sources": "[]",
            **{name: getattr(sent.usage, name) for name in schema.USAGE},
        }
        for sent in left_in_flight(folder, paid)
    ]  # fmt: skip
    if rows:
        # The same again, should this process be killed before the file is gone.
        db.execute(_insert_or_replace(schema.journal), rows)


@cache
def _insert_or_replace(table: Table) -> Insert:
    return table.insert().prefix_with("OR REPLACE")


@contextmanager
def _database_errors(folder: Path) -> Iterator[None]:
    """Raise errors of the database as StoreError."""
    try:
        yield
    except (DatabaseError, UnicodeDecodeError) as error:
        advice, said = "", getattr(error, "orig", error)
        if "malformed" in str(said) or "not a database" in str(said) or isinstance(said, UnicodeDecodeError):
            path = folder / DATABASE_FILE
            advice = (
                f"; the file is damaged: restore it from a copy, or save what can be read with sqlite3 {path} .recover "
                "| sqlite3 OTHER/run.sqlite"
            )
        raise StoreError(f"cannot use the run in {folder}: {said}{advice}") from error


DAMAGED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError, AssertionError)
"""What code raises that reads rows with other values than it expects."""


@contextmanager
def as_stored(folder: Path) -> Iterator[None]:
    """Raise what comes of rows that are not as practicum writes them as StoreError."""
    try:
        yield
    except DAMAGED as error:
        raise StoreError(
            f"{folder} holds something that practicum does not write ({one_line(error_line(error), 200)}): restore it "
            "from a copy; if nobody changed it, this is a bug in practicum (--debug shows where)"
        ) from error


def _wake_callers(writes: Iterable[_Write], failure: StoreError | None) -> None:
    """Resolve the futures of each event loop with one call; a closed loop has no callers left."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for write in writes:
        if write.done is not None:
            by_loop.setdefault(write.done.get_loop(), []).append(write.done)
    for loop, futures in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, futures, failure)


def _resolve(futures: Iterable[asyncio.Future[None]], failure: StoreError | None) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None) if failure is None else future.set_exception(failure)


TOKENS = re.compile(r"\w+|[^\w\s]")
"""The words and signs of an SQL statement."""

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Ends a journal that names another file."""


def refuse_links(folder: Path) -> None:
    """Raises StoreError if a file that is opened in a run folder is a link, or leads out of the folder otherwise."""
    for path in (*(folder / name for name in FILES), *folder.glob(INDEX_FILES)):
        try:
            kind = path.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(kind):
            what = "a symbolic link" if stat.S_ISLNK(kind) else "no file"
            raise StoreError(
                f"{folder} is not opened: its {path.name} is {what}, which practicum never makes: delete it"
            )
    journal = folder / f"{DATABASE_FILE}-journal"
    # SQLite would delete the file that the journal names.
    raw = journal.read_bytes() if journal.exists() else b""
    if raw.endswith(_SUPER_JOURNAL) and raw != _SUPER_JOURNAL:
        raise StoreError(
            f"{folder} is not opened: its {journal.name} names another file, which practicum never does: delete it"
        )


def _must_exist(folder: Path) -> None:
    if not (folder / DATABASE_FILE).is_file():
        run, _, name = str(folder).rpartition("@")
        if run and (Path(run) / DATABASE_FILE).is_file():
            raise NotARun(f"{folder} is a version, and a whole run is wanted: give {run} (its version is {name})")
        runs = sorted(path.parent for path in folder.glob(f"*/{DATABASE_FILE}"))
        inside = f"; it holds runs, such as {runs[-1]}" if runs else ""
        raise NotARun(f"{folder} is not a run folder: it has no {DATABASE_FILE}{inside}")
    refuse_links(folder)


def _acquire_lock(folder: Path) -> FileLock:
    """The lock against other writers. The operating system releases it however this process ends."""
    # Another thread than this one may close the store.
    lock = FileLock(folder / LOCK_FILE, mode=PRIVATE, thread_local=False)
    try:
        lock.acquire(timeout=PROBE_SECONDS, poll_interval=PROBE_SECONDS / 10)
    except Timeout as error:
        raise RunBusy(f"another process is writing to {folder}: wait until it ends, or stop it with Ctrl-C") from error
    except OSError as error:
        raise StoreError(f"cannot write to the run folder {folder}: {error.strerror}") from error
    return lock


def synchronous() -> str:
    """SQLite's `synchronous` of databases that are opened from now on."""
    wanted = os.environ.get(SYNCHRONOUS_VARIABLE, "FULL")
    if wanted not in ("OFF", "NORMAL", "FULL"):
        raise UsageError(f"{SYNCHRONOUS_VARIABLE}={wanted!r} is not one of OFF, NORMAL, FULL")
    return wanted


def _engine(folder: Path, read_only: bool = False) -> Engine:
    mode = "mode=ro" if read_only else "mode=rwc"
    if read_only and not os.access(folder, os.W_OK) and not (folder / f"{DATABASE_FILE}-wal").exists():
        # To read, SQLite would create a log, which it cannot here. Without a log nobody is writing.
        mode += "&immutable=1"
    uri = f"file:{quote(str((folder / DATABASE_FILE).absolute()))}?{mode}"
    # A run folder may be anybody's: its schema may call nothing, and damaged pages are found when they are read.
    wary = ("trusted_schema=OFF", "cell_size_check=ON")
    # `synchronous` first: the switch to WAL writes too.
    pragmas = wary if read_only else (*wary, f"synchronous={synchronous()}", "journal_mode=WAL", "secure_delete=ON")

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        return connection

    # Connections stay open: each time the last one closes, SQLite merges its log into the file and deletes it.
    return create_engine("sqlite://", creator=connect, poolclass=QueuePool)
