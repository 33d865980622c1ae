"""The run folder: one SQLite file in WAL mode, one writer thread, one process at a time.

A write resolves when it is on the disk (synchronous=FULL). Writes that wait while another commit is under way share
the next one, so that durability costs one flush for many calls, not one each.
"""

from __future__ import annotations

import asyncio
import fcntl
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NamedTuple

from sqlalchemy import Connection, Engine, Insert, Select, Table, create_engine, event, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from practicum.errors import StoreError
from practicum.store import migrations

FILE = "run.sqlite"
Row = Mapping[str, Any]


class _Write(NamedTuple):
    table: Table
    rows: Sequence[Row]
    done: asyncio.Future[None]


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

    @classmethod
    def create(cls, folder: Path) -> Store:
        """A new run folder; refused where a run is already."""
        if (folder / FILE).exists():
            raise StoreError(f"{folder} holds a run already: resume it with --resume {folder}, or give another --out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the run folder {folder}: {error.strerror}") from error
        return cls._open(folder)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """An existing run folder, to go on with; refused while another process has it open for writing."""
        _must_exist(folder)
        return cls._open(folder)

    @classmethod
    def read(cls, folder: Path) -> Store:
        """An existing run folder, to look at."""
        _must_exist(folder)
        store = cls(folder, _engine(folder), None)
        store._check_format()
        return store

    @classmethod
    def _open(cls, folder: Path) -> Store:
        lock = _locked(folder)
        try:
            store = cls(folder, _engine(folder), lock)
            with store._guarded(), store._engine.begin() as db:
                migrations.migrate(db, str(folder))
        except BaseException:
            lock.close()
            raise
        return store

    def _check_format(self) -> None:
        with self._guarded(), self._engine.connect() as db:
            version = int(db.execute(text("PRAGMA user_version")).scalar_one())
        if version != len(migrations.MIGRATIONS):
            raise StoreError(
                f"{self.folder} has run format {version}, this practicum reads {len(migrations.MIGRATIONS)}: "
                + ("upgrade practicum" if version > len(migrations.MIGRATIONS) else "resume it once to bring it up")
            )

    def rows(self, query: Select[Any]) -> list[Any]:
        """The rows of a query, as tuples with names."""
        with self._guarded(), self._engine.connect() as db:
            return list(db.execute(query))

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert or replace rows; returns once they are on the disk."""
        if self._failure is not None:
            raise self._failure
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="practicum-store", daemon=True)
            self._thread.start()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(_Write(table, rows, done))
        await done

    def change(self, *statements: Any) -> None:
        """Run statements in one transaction, at once: for the small edits made outside a run."""
        with self._guarded(), self._engine.begin() as db:
            for statement in statements:
                db.execute(statement)

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert or replace rows, at once."""
        if rows:
            with self._guarded(), self._engine.begin() as db:
                db.execute(self._insert(table), list(rows))

    def scrub(self) -> None:
        """Overwrite what was deleted: no deleted text stays in the file or in its log."""
        with self._guarded(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            db.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
            db.execute(text("VACUUM"))
            db.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _insert(self, table: Table) -> Insert:
        if table.name not in self._inserts:
            self._inserts[table.name] = table.insert().prefix_with("OR REPLACE")
        return self._inserts[table.name]

    def _work(self) -> None:
        """The writer thread: take all that waits, commit it together, say so."""
        with self._engine.connect() as db:
            open_ = True
            while open_:
                batch = [self._queue.get()]
                while not self._queue.empty():
                    batch.append(self._queue.get())
                writes = [w for w in batch if w is not None]
                open_ = len(writes) == len(batch)
                if writes:
                    _tell(writes, self._commit(db, writes))

    def _commit(self, db: Connection, writes: Sequence[_Write]) -> StoreError | None:
        if self._failure is not None:
            return self._failure
        together: dict[str, tuple[Table, list[Row]]] = {}
        for write in writes:
            together.setdefault(write.table.name, (write.table, []))[1].extend(write.rows)
        try:
            with db.begin():
                for table, rows in together.values():
                    db.execute(self._insert(table), rows)
        except DatabaseError as error:
            self._failure = self._plain(error)
        return self._failure

    def _plain(self, error: DatabaseError) -> StoreError:
        return StoreError(
            f"cannot write to {self.folder}: {error.orig} (is the disk full?); what was written before is safe, "
            "make room and resume"
        )

    def _guarded(self) -> _Guard:
        return _Guard(self.folder)


class _Guard:
    """Turns the database's errors into one clear line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DatabaseError):
            raise StoreError(f"cannot use the run in {self.folder}: {error.orig}") from error


def _tell(writes: Iterable[_Write], failure: StoreError | None) -> None:
    """Wake all waiters of a loop with one call; a loop that is gone needs no word."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for write in writes:
        by_loop.setdefault(write.done.get_loop(), []).append(write.done)
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
    if not (folder / FILE).is_file():
        raise StoreError(f"{folder} is not a run folder: it has no {FILE}")


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


def _engine(folder: Path) -> Engine:
    engine = create_engine(f"sqlite:///{folder / FILE}", poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _settle(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "busy_timeout=10000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine
