"""The rows of a run in a file of its own, by SQLite in this process: WAL mode, one writing process at a time.

A write returns once its rows are on the disk (synchronous=FULL).
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from practicum.core.errors import RunBusy, StoreError, UsageError
from practicum.core.files import PRIVATE, ensure_private
from practicum.store import migrations, schema
from practicum.store.folder import DATABASE_FILE, LOCK_FILE
from practicum.store.scope import Transaction, is_empty

RUN_ID = "run"
"""The id of a run in a file of its own."""

BUSY_SECONDS = 10.0
"""How long SQLite waits for another process that holds the file."""

PROBE_SECONDS = 0.3
"""How long a writer waits for the lock, which a reader may hold for a moment to see whether anybody writes."""

SYNCHRONOUS_VARIABLE = "PRACTICUM_SQLITE_SYNCHRONOUS"
"""An environment variable for tests: SQLite's `synchronous` (OFF, NORMAL or FULL) of databases that are opened from
now on. OFF does not wait for the disk, so a power failure may lose or corrupt a run; the default is FULL."""

TOKENS = re.compile(r"\w+|[^\w\s]")
"""The words and signs of an SQL statement."""


class SqliteRun:
    """The file of a run. A writer holds its lock; without one it may be open for reading, or for short writes."""

    index = "files"
    # VACUUM and migrations change SQLite's `schema_version`.
    generation = "(SELECT schema_version FROM pragma_schema_version)"

    def __init__(self, folder: Path, *, writer: bool, read_only: bool, new: bool = False) -> None:
        self.space = RUN_ID
        self.folder = folder
        self._lock = _acquire_lock(folder) if writer else None
        self._watching: PoolProxiedConnection | None = None
        self._watch, self._closed = threading.Lock(), False
        try:
            if writer:
                ensure_private(folder / DATABASE_FILE)
            self.engine = _engine(folder, read_only)
            self._refuse_active()
            if writer:
                # Python's driver begins no transaction for DDL; without one a migration could be applied in part.
                with self.begin(alone=True) as db:
                    migrations.bring_up_to_date(db, schema.FORMAT, str(folder))
                    # A process that was killed while it made a run may have left a file without rows.
                    if new and not is_empty(Transaction(db, RUN_ID)):
                        raise StoreError(
                            "run.exists",
                            f"{folder} already holds a run: continue it with practicum resume {folder}, or give "
                            "another `out`",
                        )
            else:
                with self._errors(), self.engine.connect() as db:
                    migrations.check(db, schema.FORMAT, str(folder))
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise

    def rows(self, query: Any) -> list[Any]:
        with self._errors(), self.engine.connect() as db:
            return list(db.execute(query))

    def write(self, work: Callable[[Connection], None]) -> None:
        with self.engine.begin() as db:
            work(db)

    @contextmanager
    def begin(self, alone: bool = False) -> Iterator[Connection]:
        with self._errors(), self.engine.begin() as db:
            if alone:
                db.execute(text("BEGIN IMMEDIATE"))
            yield db

    def failure(self, error: Exception) -> StoreError:
        return StoreError(
            "store.unwritable",
            f"cannot write to {self.folder}: {getattr(error, 'orig', None) or error} (is the disk full or read-only?); "
            "all earlier writes are safe: make room and resume the run",
        )

    def is_written(self) -> bool:
        if self._lock is not None:
            return False
        try:
            with FileLock(self.folder / LOCK_FILE, mode=PRIVATE, blocking=False):
                return False
        except Timeout:
            return True
        except OSError:  # a folder that this user may not write to
            return False

    def changes(self) -> int:
        # SQLite crashes if a connection is closed while another thread uses it.
        with self._errors(), self._watch:
            if self._closed:
                raise StoreError("space.closed", f"{self.folder} was closed meanwhile")
            if self._watching is None:
                # The number is of one connection.
                self._watching = self.engine.raw_connection()
            (number,) = self._watching.cursor().execute("PRAGMA data_version").fetchone()
            return int(number)

    def scrub(self) -> None:
        with self._errors(), self.engine.connect() as db:
            db.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM"))
            busy = db.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
        if busy:
            raise StoreError(
                "forget.incomplete",
                f"another process is reading {self.folder}: the deleted rows are no longer part of the run, but their "
                "bytes stay in its write-ahead log until no process has the run open",
            )

    def drop_index(self) -> None:
        """A file has none."""

    def remove(self) -> None:
        self.engine.dispose()
        for part in ("", "-wal", "-shm"):
            (self.folder / f"{DATABASE_FILE}{part}").unlink(missing_ok=True)

    def release(self) -> None:
        with self._errors(), self.engine.connect() as db:
            db.execute(text("PRAGMA shrink_memory"))

    def close(self) -> None:
        with self._watch:
            self._closed = True
            if self._watching is not None:
                self._watching.close()
                self._watching = None
        self.engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _refuse_active(self) -> None:
        """Raises StoreError for a database that does something by itself, which those of runs never do."""
        with self._errors(), self.engine.connect() as db:
            migrations.read_number(db, schema.FORMAT, str(self.folder))  # that of another program is not one of ours
            objects = db.execute(text("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master")).all()
        for kind, name, table, rootpage, sql in objects:
            ours = str(table).lower() in schema.metadata.tables
            plain = not ours or sql is None or schema.WORDS.issuperset(TOKENS.findall(str(sql).lower()))
            if kind not in ("table", "index") or not rootpage or not plain:
                raise StoreError(
                    "store.unsafe",
                    f"{self.folder} is not opened: its database has the {kind} {name!r}, which practicum never makes "
                    "and which could change what is read or written; ask for an export of the run (practicum export)",
                )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the database as StoreError."""
        try:
            yield
        except (DatabaseError, UnicodeDecodeError) as error:
            advice, said = "", getattr(error, "orig", error)
            if "malformed" in str(said) or "not a database" in str(said) or isinstance(said, UnicodeDecodeError):
                path = self.folder / DATABASE_FILE
                advice = (
                    f"; the file is damaged: restore it from a copy, or save what can be read with sqlite3 {path} "
                    ".recover | sqlite3 OTHER/run.sqlite"
                )
            raise StoreError(
                "store.damaged" if advice else "store.unreadable",
                f"cannot use the run in {self.folder}: {said}{advice}",
            ) from error


def _acquire_lock(folder: Path) -> FileLock:
    """The lock against other writers. The operating system releases it however this process ends."""
    # Another thread than this one may close the store.
    lock = FileLock(folder / LOCK_FILE, mode=PRIVATE, thread_local=False)
    try:
        lock.acquire(timeout=PROBE_SECONDS, poll_interval=PROBE_SECONDS / 10)
    except Timeout as error:
        raise RunBusy(
            "store.busy", f"another process is writing to {folder}: wait until it ends, or stop it with Ctrl-C"
        ) from error
    except OSError as error:
        raise StoreError("store.unwritable", f"cannot write to the run folder {folder}: {error.strerror}") from error
    return lock


def synchronous() -> str:
    """SQLite's `synchronous` of databases that are opened from now on."""
    wanted = os.environ.get(SYNCHRONOUS_VARIABLE, "FULL")
    if wanted not in ("OFF", "NORMAL", "FULL"):
        raise UsageError(
            "settings.invalid",
            f"{SYNCHRONOUS_VARIABLE}={wanted!r} is not one of OFF, NORMAL, FULL",
            setting=SYNCHRONOUS_VARIABLE,
        )
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

    return pooled(uri, pragmas)


def pooled(uri: str, pragmas: Sequence[str]) -> Engine:
    """The engine of a file at a URI of SQLite. Each connection begins with the pragmas."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        return connection

    # Connections stay open: each time the last one closes, SQLite merges its log into the file and deletes it.
    return create_engine("sqlite://", creator=connect, poolclass=QueuePool, hide_parameters=True)
