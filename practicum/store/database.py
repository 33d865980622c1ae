"""The run folder: one SQLite file in WAL mode, one writer thread, one process at a time.

A write resolves when it is on the disk (synchronous=FULL). Writes that wait while another commit is under way share
the next one, so that durability costs one flush for many calls, not one each.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Insert, Select, Table, create_engine, inspect, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import QueuePool

from practicum.core.errors import NotARun, StoreError
from practicum.store import migrations, schema

DATABASE_FILE = "run.sqlite"
INDEX_FILE = "vectors.usearch"
"""Beside it, where there are many vectors: an index of them, which can be made anew."""

BUSY = 10.0
"""Seconds to wait for another process that reads or writes the same file."""

RowValues = Mapping[str, Any]


class _Write(NamedTuple):
    table: Table
    rows: Sequence[RowValues]
    done: asyncio.Future[None] | None


class Store:
    """An open run folder. `read_only` ones may be many, and beside a running one."""

    def __init__(self, folder: Path, engine: Engine, lock: IO[str] | None) -> None:
        self.folder = folder
        self._engine = engine
        self._lock = lock
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._failure: StoreError | None = None
        self._inserts: dict[str, Insert] = {}
        self._thread: threading.Thread | None = None
        self._writer: Connection | None = None

    @classmethod
    def create(cls, folder: Path) -> Store:
        """A new run folder; refused where a run is already."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the run folder {folder}: {error.strerror}") from error
        return cls._open(folder, new=True)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """An existing run folder, to go on with; refused while another process has it open for writing."""
        _must_exist(folder)
        return cls._open(folder, new=False)

    @classmethod
    def read(cls, folder: Path) -> Store:
        """An existing run folder, to look at."""
        _must_exist(folder)
        store = cls(folder, _engine(folder, read_only=True), None)
        store._check_format()
        return store

    @classmethod
    def _open(cls, folder: Path, new: bool) -> Store:
        lock = _locked(folder)
        try:
            if new and (folder / DATABASE_FILE).exists():
                raise StoreError(
                    f"{folder} holds a run already: go on with it: practicum resume {folder}, or give another --out"
                )
            store = cls(folder, _engine(folder), lock)
            with _plainly(folder), store._engine.begin() as db:
                # SQLite's driver opens no transaction for the making of tables; a migration is whole or not at all.
                db.execute(text("BEGIN IMMEDIATE"))
                migrations.migrate(db, str(folder))
        except BaseException:
            lock.close()
            raise
        return store

    def _check_format(self) -> None:
        with _plainly(self.folder), self._engine.connect() as db:
            version = int(db.execute(text("PRAGMA user_version")).scalar_one())
        if not migrations.READABLE <= version <= len(migrations.MIGRATIONS):
            raise StoreError(
                f"{self.folder} has run format {version}, this practicum reads {len(migrations.MIGRATIONS)}: "
                + ("upgrade practicum" if version > len(migrations.MIGRATIONS) else "resume it once to bring it up")
            )

    @property
    def read_only(self) -> bool:
        """Whether it is open to look at alone."""
        return self._lock is None

    def has(self, table: Table) -> bool:
        """Whether it has this table: one of an older format, that is only read, may not."""
        with _plainly(self.folder), self._engine.connect() as db:
            return inspect(db).has_table(table.name)

    def rows(self, query: Select[Any]) -> list[Any]:
        """The rows of a query, as tuples with names."""
        with _plainly(self.folder), self._engine.connect() as db:
            return list(db.execute(query))

    async def write(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows; returns once they are on the disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send(_Write(table, rows, done))
        await done

    def post(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows soon: before anything that is written later, and at the latest on close.

        For what a resume makes anew, and for what only later writes rest on. A failure is raised by whatever is written
        or changed next, and at the latest where the store is left.
        """
        if rows:
            self._send(_Write(table, rows, None))

    async def written(self) -> None:
        """Wait until all that was posted is on the disk."""
        await self.write(schema.runs, [])

    def _must_work(self) -> None:
        """Raises what went wrong with an earlier write, on which this one may rest."""
        if self._failure is not None:
            raise self._failure

    def _send(self, write: _Write) -> None:
        self._must_work()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="practicum-store", daemon=True)
            self._thread.start()
        self._queue.put(write)

    def change(self, *statements: Any) -> None:
        """Run statements in one transaction, at once: for the small edits made outside a run."""
        self._must_work()
        with _plainly(self.folder), self._engine.begin() as db:
            for statement in statements:
                db.execute(statement)

    def change_all(self, statements: Iterable[tuple[Any, Sequence[RowValues]]]) -> None:
        """Run statements, each with the rows it is run for, in one transaction, at once. They may be made one by one,
        so that not all rows are in memory."""
        self._must_work()
        with _plainly(self.folder), self._engine.begin() as db:
            for statement, rows in statements:
                db.execute(statement, rows) if rows else db.execute(statement)

    def put(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows, at once."""
        self._must_work()
        if rows:
            with _plainly(self.folder), self._engine.begin() as db:
                db.execute(self._insert(table), list(rows))

    def scrub(self) -> None:
        """Overwrite what was deleted: no deleted text stays in the file or in its log."""
        with _plainly(self.folder), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            db.execute(text("VACUUM"))
            busy = db.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
        if busy:
            raise StoreError(
                f"another process is reading {self.folder}: what was deleted is gone from the run, but stays in the "
                "bytes of its log until no process has it open"
            )

    def close(self) -> None:
        """Write what is queued, and let go of the folder."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._engine.dispose()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            # What nobody waited for may have failed too.
            self._must_work()

    def _insert(self, table: Table) -> Insert:
        if table.name not in self._inserts:
            self._inserts[table.name] = table.insert().prefix_with("OR REPLACE")
        return self._inserts[table.name]

    def _work(self) -> None:
        """The writer thread: take all that waits, commit it together, say so."""
        open_ = True
        while open_:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            writes = [w for w in batch if w is not None]
            open_ = len(writes) == len(batch)
            if writes:
                _tell(writes, self._commit(writes))
        if self._writer is not None:
            self._writer.close()

    def _commit(self, writes: Sequence[_Write]) -> StoreError | None:
        """Write these rows together. After a first failure nothing is written any more."""
        if self._failure is not None:
            return self._failure
        together: dict[str, tuple[Table, list[RowValues]]] = {}
        for write in writes:
            together.setdefault(write.table.name, (write.table, []))[1].extend(write.rows)
        try:
            if self._writer is None:
                self._writer = self._engine.connect()
            with self._writer.begin():
                for table, rows in ((table, rows) for table, rows in together.values() if rows):
                    self._writer.execute(self._insert(table), rows)
        # Whatever it is, those who wait must hear of it.
        except Exception as error:
            self._failure = StoreError(
                f"cannot write to {self.folder}: {getattr(error, 'orig', None) or error} (is the disk full?); what was "
                "written before is safe, make room and resume"
            )
        return self._failure


@contextmanager
def _plainly(folder: Path) -> Iterator[None]:
    """Turn the database's errors into one clear line."""
    try:
        yield
    except DatabaseError as error:
        raise StoreError(f"cannot use the run in {folder}: {error.orig}") from error


def _tell(writes: Iterable[_Write], failure: StoreError | None) -> None:
    """Wake all waiters of a loop with one call; a loop that is gone needs no word."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for done in (write.done for write in writes):
        if done is not None:
            by_loop.setdefault(done.get_loop(), []).append(done)
    for loop, futures in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, futures, failure)


def _resolve(futures: Iterable[asyncio.Future[None]], failure: StoreError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)


def _must_exist(folder: Path) -> None:
    if not (folder / DATABASE_FILE).is_file():
        raise NotARun(f"{folder} is not a run folder: it has no {DATABASE_FILE}")


def _locked(folder: Path) -> IO[str]:
    """Hold the folder against other processes; the operating system lets go when this one ends, however it ends."""
    try:
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise StoreError(f"cannot write to the run folder {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreError(f"{folder} is in use by another process: wait for it to end, or give another --out") from error
    return lock


def _engine(folder: Path, read_only: bool = False) -> Engine:
    mode = "mode=ro" if read_only else "mode=rwc"
    if read_only and not os.access(folder, os.W_OK) and not (folder / f"{DATABASE_FILE}-wal").exists():
        # SQLite would make a log to read by, and cannot; without one nobody is writing.
        mode += "&immutable=1"
    uri = f"file:{quote(str((folder / DATABASE_FILE).absolute()))}?{mode}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY, check_same_thread=False)
        for pragma in () if read_only else ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    # Connections stay open: each time the last one closes, SQLite writes its log back and deletes it.
    return create_engine("sqlite://", creator=connect, poolclass=QueuePool)
