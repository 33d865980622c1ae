"""Spaces in a SQLite file in WAL mode: several processes may read, and one at a time may write.

A write returns once its rows are on disk (synchronous=FULL).
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from practicum.core.errors import RunBusy, StoreError, UsageError
from practicum.core.files import PRIVATE, ensure_private, make_folder
from practicum.store import migrations, schema
from practicum.store.folder import DATABASE_FILE, LOCK_FILE, SERVING_FILE
from practicum.store.spaces import take_token

BUSY_SECONDS = 10.0
"""Time for which SQLite waits for another process that has locked the file (s)."""

PROBE_SECONDS = 0.3
"""Time for which a process that wants to write waits for the lock file (s). Another process may hold the lock for a
moment, while it tests whether the space has a writer."""

SYNCHRONOUS_VARIABLE = "PRACTICUM_SQLITE_SYNCHRONOUS"
"""Environment variable for tests: the `synchronous` mode of SQLite (OFF, NORMAL or FULL) for databases that are opened
later. OFF does not wait for the disk, so a power failure may lose or corrupt a store. Default: FULL."""

TOKENS = re.compile(r"\w+|[^\w\s]")
"""Words and signs of an SQL statement."""


PROGRAM = ("practicum", "practicum.cli.app")
"""Names of practicum in the command line of a process."""


NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP)
"""Errors of a file system without locks, such as some network file systems."""

SERVING = "practicum serve"
"""Name of a serving process in messages."""


class SqliteLease:
    """Lease that is a lock on a file. The operating system releases the lock when this process ends for any reason."""

    def __init__(self, lock: FileLock, token: int) -> None:
        self._lock, self.token = lock, token
        self.is_lost = False

    def renew(self) -> None:
        """Do nothing: a local lock cannot be lost."""

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


class SqliteBackend:
    """Database file in a folder. `create`: whether to create a missing file, and to migrate a file of an earlier
    format."""

    index = "files"
    shared = False
    patience = 0.0

    def __init__(self, folder: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.name = str(folder)
        self.folder = folder
        self._watching: PoolProxiedConnection | None = None
        self._watch, self._closed = threading.Lock(), False
        self._seen, self._newest, self._changed = -1, 0, dict[str, int]()
        self._held, self._free = set[str](), threading.Condition()
        if create:
            ensure_private(folder / DATABASE_FILE)
        if not read_only and _is_without_log(folder / DATABASE_FILE):
            # Open the file read-only first: a database of another program must not be changed, not even to WAL mode.
            self.engine = _engine(folder, read_only=True)
            try:
                self._refuse_active()
            finally:
                self.engine.dispose()
        self.engine = _engine(folder, read_only)
        try:
            self._refuse_active()
            if create:
                # Python's driver begins no transaction for DDL; without a transaction, a migration could be applied in
                # part.
                with self._errors("write to"), self.transaction() as db:
                    migrations.bring_up_to_date(db, schema.FORMAT, self.name)
            else:
                with self._errors(), self.engine.connect() as db:
                    migrations.check(db, schema.FORMAT, self.name)
        except BaseException:
            self.engine.dispose()
            raise

    def rows(self, query: Any, waits: bool) -> list[Any]:
        with self._errors(), self.engine.connect() as db:
            return list(db.execute(query))

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self.engine.begin() as db:
            db.execute(text("BEGIN IMMEDIATE"))
            yield db

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        """Do nothing: the transaction already excludes other writers."""

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        if spaces:
            newest = text("UPDATE spaces SET changed = (SELECT max(changed) + 1 FROM spaces) WHERE space = :space")
            db.execute(newest, [{"space": space} for space in spaces])

    def now(self, db: Connection) -> float:
        return time.time()

    def failure(self, doing: str, error: Exception) -> StoreError:
        reason = getattr(error, "orig", None) or error
        if (doing == "write to" or "readonly database" in str(reason)) and not _is_damage(error):
            return StoreError(
                "store.unwritable",
                f"cannot write to {self.folder}: {reason} (is the disk full or read-only?). Free disk space and "
                "continue; all earlier writes are safe",
            )
        advice = ""
        if _is_damage(error):
            advice = (
                f"; the file is damaged: restore the file from a copy, or save the readable part with: sqlite3 "
                f"{self.folder / DATABASE_FILE} .recover | sqlite3 OTHER/{DATABASE_FILE}"
            )
        code = "store.damaged" if advice else "store.unreadable"
        return StoreError(code, f"cannot read the database in {self.folder}: {reason}{advice}")

    def stops_all(self, error: BaseException) -> bool:
        if isinstance(error, DataError | IntegrityError | NotSupportedError | ProgrammingError):
            return False
        return isinstance(error, DBAPIError | NoConnection)

    def is_deadlock(self, error: BaseException) -> bool:
        return False

    def changes(self, space: str, *, fresh: bool = True) -> int:
        if not fresh:
            return self._changed.get(space, 0)
        # SQLite crashes if a connection is closed while another thread uses it.
        with self._errors(), self._watch:
            if self._closed:
                raise StoreError("space.closed", f"the store {self.folder} is closed")
            if self._watching is None:
                # `data_version` can only be compared with earlier values from the same connection.
                self._watching = self.engine.raw_connection()
            cursor = self._watching.cursor()
            (number,) = cursor.execute("PRAGMA data_version").fetchone()
            if number != self._seen:
                self._seen = int(number)
                query = "SELECT space, changed FROM spaces WHERE changed > ? OR space = ?"
                for id, changed in cursor.execute(query, (self._newest, space)).fetchall():
                    self._changed[id] = changed
                    self._newest = max(self._newest, changed)
            return self._changed.get(space, 0)

    def lease(self, space: str, files: Path) -> SqliteLease:
        lock = self._lock(files / LOCK_FILE, PROBE_SECONDS)
        if lock is None:
            holder = _holder(files / LOCK_FILE)
            ends = "its round of learning" if f"({SERVING})" in holder else "that process"
            raise RunBusy(
                "store.busy", f"{holder} is writing to {files}: wait until {ends} ends, or stop the process with Ctrl-C"
            )
        try:
            with self._errors("write to"), self.transaction() as db:
                token = take_token(db, space)
            return SqliteLease(lock, token or 0)
        except BaseException:
            lock.release()
            raise

    def is_leased(self, space: str, files: Path) -> bool:
        try:
            with FileLock(files / LOCK_FILE, mode=PRIVATE, blocking=False):
                return False
        except Timeout:
            return True
        except OSError:  # the user may not write to the folder, or the folder does not exist
            return False

    def _lock(self, path: Path, wait: float) -> FileLock | None:
        """Take a lock against other processes. Returns None if another process has the lock."""
        try:
            make_folder(path.parent)
            # The thread that releases the lock may differ from the thread that took it.
            lock = FileLock(path, mode=PRIVATE, thread_local=False)
            lock.acquire(timeout=wait, poll_interval=PROBE_SECONDS / 10)
            return lock
        except Timeout:
            return None
        except OSError as error:
            advice = ": a store needs a file system with locks, such as a local disk" if error.errno in NO_LOCKS else ""
            raise StoreError("store.unwritable", f"cannot write to {path.parent}: {error.strerror}{advice}") from error

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        with self._free:
            self._free.wait_for(lambda: name not in self._held)
            self._held.add(name)
        try:
            yield
        finally:
            with self._free:
                self._held.discard(name)
                self._free.notify_all()

    @contextmanager
    def serve(self) -> Iterator[None]:
        lock = self._lock(self.folder / SERVING_FILE, 0)
        if lock is None:
            raise RunBusy(
                "store.busy",
                f"{_holder(self.folder / SERVING_FILE)} already serves the store {self.folder}: stop that process, or "
                "use a different store",
            )
        with lock:
            yield

    def is_served(self) -> bool:
        if not (self.folder / SERVING_FILE).exists():
            return False
        lock = self._lock(self.folder / SERVING_FILE, 0)
        if lock is not None:
            lock.release()
        return lock is None

    def sessions(self, seconds: float) -> None:
        return None

    def scrub(self) -> None:
        """Rewrite the database file without the bytes of deleted rows, and empty its write-ahead log."""
        with self._errors("write to"), self.engine.connect() as db:
            db.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM"))
            busy = db.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
        if busy:
            raise StoreError(
                "forget.incomplete",
                f"another process is reading {self.folder}: the rows are deleted, but their bytes remain in the "
                "write-ahead log until all processes have closed the store",
            )

    def drop_index(self, db: Connection, space: str) -> None:
        """Do nothing: the index is in files."""

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

    def _refuse_active(self) -> None:
        """Raise StoreError for a database with triggers, views or other active objects, which practicum never
        creates."""
        with self._errors(), self.engine.connect() as db:
            migrations.read_number(db, schema.FORMAT, self.name)  # refuses a database of another program
            objects = db.execute(text("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master")).all()
        for kind, name, table, rootpage, sql in objects:
            is_own_table = str(table).lower() in schema.metadata.tables
            plain = not is_own_table or sql is None or schema.WORDS.issuperset(TOKENS.findall(str(sql).lower()))
            if kind not in ("table", "index") or not rootpage or not plain:
                raise StoreError(
                    "store.unsafe",
                    f"{self.folder} was not opened: its database has the {kind} {name!r}, which practicum never "
                    "creates and which could change the data; ask the owner for an export (practicum export)",
                )

    @contextmanager
    def _errors(self, doing: str = "read") -> Iterator[None]:
        """Convert errors of the database into StoreError."""
        try:
            yield
        except (DBAPIError, UnicodeDecodeError, NoConnection, sqlite3.Error) as error:
            raise self.failure(doing, error) from error


def _is_damage(error: BaseException) -> bool:
    message = str(getattr(error, "orig", error))
    return "malformed" in message or "not a database" in message or isinstance(
        getattr(error, "orig", error), UnicodeDecodeError
    )  # fmt: skip


def synchronous() -> str:
    """Return the `synchronous` mode of SQLite for databases that are opened later."""
    mode = os.environ.get(SYNCHRONOUS_VARIABLE, "FULL")
    if mode not in ("OFF", "NORMAL", "FULL"):
        raise UsageError(
            "settings.invalid",
            f"{SYNCHRONOUS_VARIABLE}={mode!r} is not one of OFF, NORMAL, FULL",
            setting=SYNCHRONOUS_VARIABLE,
        )
    return mode


def _is_without_log(path: Path) -> bool:
    """Whether a file is a SQLite database without a write-ahead log. All databases of practicum have such a log."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\1\1"
    except OSError:
        return False


def _engine(folder: Path, read_only: bool) -> Engine:
    mode = "mode=ro" if read_only else "mode=rwc"
    if read_only and not os.access(folder, os.W_OK) and not (folder / f"{DATABASE_FILE}-wal").exists():
        # Even for reading, SQLite would create a log, which is impossible in this folder. The missing log shows that no
        # process is writing, so the file can be opened as immutable.
        mode += "&immutable=1"
    uri = f"file:{quote(str((folder / DATABASE_FILE).absolute()))}?{mode}"
    # A folder may come from an untrusted source: its schema must not call functions, and damaged pages are detected
    # when they are read.
    safe = ("trusted_schema=OFF", "cell_size_check=ON")
    # `synchronous` comes first, because the switch to WAL also writes.
    pragmas = safe if read_only else (*safe, f"synchronous={synchronous()}", "journal_mode=WAL", "secure_delete=ON")

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        return connection

    # Keep connections open: when the last connection closes, SQLite merges the log into the database file and deletes
    # the log.
    return create_engine("sqlite://", creator=connect, poolclass=QueuePool, hide_parameters=True)


def _holder(path: Path) -> str:
    """Describe the process that holds the lock on a file: its id and program, or "another process" if the system does
    not report the process."""
    with suppress(OSError, ValueError, IndexError, StopIteration):
        end = f":{path.stat().st_ino}"
        locks = map(str.split, Path("/proc/locks").read_text().splitlines())
        pid = next(int(words[4]) for words in locks if words[1] == "FLOCK" and words[5].endswith(end))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        names = [Path(word).name for word in command]
        program = next((f"practicum {names[n + 1]}" for n, name in enumerate(names) if name in PROGRAM), names[0])
        return f"process {pid} ({program:.40})"
    return "another process"
