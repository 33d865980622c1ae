"""Connections to a PostgreSQL database that many processes and machines share.

All spaces of a database share the same tables, in the schema `practicum`. If a connection is lost, for example when the
server restarts, this process tries to reconnect for up to RETRY_SECONDS and repeats the read query that failed.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import os
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, TimeoutError

from practicum.core.errors import RunBusy, StoreAway, StoreError, UsageError
from practicum.core.words import one_line
from practicum.plugins.postgres.driver import psycopg
from practicum.retrieval.search import INDEXES
from practicum.store import migrations, schema
from practicum.store.dialects import ROW_ORDER, TWIN
from practicum.store.migrations import StoreFormat
from practicum.store.spaces import take_token

T = TypeVar("T")

SCHEMA = "practicum"
"""PostgreSQL schema with practicum's tables."""

URL_VARIABLE = "PRACTICUM_STORE"
"""Environment variable with the URL of a database. The URL is the default of `--store`, and the password in the URL is
used for all runs in that database."""

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.75, 1.5, 3.0, 4.5, 4.5)
"""Delay (s) before each retry after a lost connection."""

RETRY_SECONDS = sum(PAUSES)

BUSY_SECONDS = 1.0
"""Time (s) that a writer waits for the lock on a space. The server may need a moment to notice that the process that
held the lock was killed."""

INDEX, FILES = "index", "files"
"""Query parameter of the URL that selects where the index of a run with many entries is stored, and the parameter's
default value."""

CHANNEL = "practicum"
"""Notification channel. The announcement of a change has the MD5 digest of the id of the changed space."""

POOL = 5
"""Number of connections to a database that a process keeps open. If all of these connections are in use, the process
opens up to 2 * POOL more."""

_CONNECT: dict[str, Any] = {
    "connect_timeout": 10, "application_name": "practicum",
    # Detect a dead peer within a minute.
    "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
}  # fmt: skip

_AGAIN = {"57P01", "57P02", "57P03", "53300", "40001", "40P01", "25006"}
"""SQLSTATE codes of temporary errors: the server is stopping, starting, read-only (during a failover) or without a free
connection, or a transaction failed because of a conflict or a deadlock."""


def parse_url(url: str) -> URL:
    """Parse the URL of a PostgreSQL database. Raise UsageError if the URL is invalid. The message does not contain the
    password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("postgresql", "postgres") or not parsed.database:
        raise UsageError("store.invalid_address", "invalid store URL: write it as postgresql://USER@HOST:PORT/DATABASE")
    if parsed.query.get(INDEX, FILES) not in INDEXES.names():
        names = ", ".join(f"?{INDEX}={name}" for name in INDEXES.names())
        raise UsageError("store.invalid_address", f"unknown index in the store URL: use {names} (default: {FILES})")
    return parsed.set(drivername="postgresql")


def address(url: URL) -> str:
    """Return the URL without its password, for storage and display."""
    plain = {name: value for name, value in url.query.items() if "pass" not in name}
    return URL.create("postgresql", url.username, None, url.host, url.port, url.database, plain).render_as_string()


_WITH_PASSWORD: dict[str, URL] = {}
"""URLs with passwords that were passed to this process, by address."""


def with_password(url: URL) -> URL:
    """Return the URL for a connection, with a password from the first of these URLs that has a password: the URL
    itself; a URL with the same address that was passed to this process before; the URL in PRACTICUM_STORE if it names
    the same database. If none of these URLs has a password, libpq reads PGPASSWORD and ~/.pgpass."""
    url = url.difference_update_query([INDEX])
    if url.password is not None:
        _WITH_PASSWORD[address(url)] = url
        return url
    if previous := _WITH_PASSWORD.get(address(url)):
        return previous
    if default := os.environ.get(URL_VARIABLE):
        other = parse_url(default)
        if (other.host, other.port or 5432, other.database) == (url.host, url.port or 5432, url.database):
            return other.difference_update_query([INDEX])
    return url


class DatabaseServer:
    """A database that this process is connected to. All stores of the database share one connection pool."""

    schema = SCHEMA

    def __init__(self, url: URL) -> None:
        self.url = url
        self.name = address(url)
        options = {**_CONNECT, "options": f"-c search_path={SCHEMA}"}
        self.engine = create_engine(
            url.set(drivername="postgresql+psycopg"), connect_args=options, pool_size=POOL, max_overflow=2 * POOL,
            pool_pre_ping=True, hide_parameters=True,
        )  # fmt: skip
        self._listener: _Listener | None = None
        self._lock = threading.Lock()
        self._closed = False
        event.listen(self.engine, "checkin", self._returned)

    def _returned(self, connection: Any, record: object) -> None:
        """Close a connection that a thread returns to the pool after the pool was closed: the closed pool would not
        close this connection."""
        if self._closed and connection is not None:
            connection.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert database errors into StoreError."""
        try:
            yield
        except (DBAPIError, psycopg.Error, TimeoutError, UnicodeError) as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> StoreError:
        """Convert a database error into a StoreError with advice for the user."""
        cause = getattr(error, "orig", None) or error
        code, message = getattr(cause, "sqlstate", None), one_line(str(cause), 300)
        if code in ("53100", "53200"):
            advice = (
                "the disk or memory of the server is full; all earlier writes are safe: free some space and try again"
            )
        elif is_lost(error):
            advice = (
                "check that the server is running and that address, user and password are right. Finished work is "
                f"stored: try again when the server answers (a password can be set in {URL_VARIABLE} or ~/.pgpass)"
            )
        elif code in ("42501", "3D000", "28P01", "28000"):
            advice = "ask the administrator of the database for access"
        else:
            advice = "all earlier writes are safe"
        text = f"cannot use {self.name}: {message}; {advice}"
        return StoreAway("store.unreachable", text) if is_lost(error) else StoreError("store.unreadable", text)

    def rows(self, query: Any, waits: bool = True) -> list[Any]:
        """Return the rows of a query. If the connection is lost, retry for RETRY_SECONDS if `waits` is true; otherwise
        retry once, without a delay."""

        def read() -> list[Any]:
            with self.engine.connect() as db:
                return list(db.execute(query))

        with self.errors():
            # The pooled connection may be stale because the server was restarted.
            return retried(read, PAUSES if waits else (0.0,))

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction on one of the pooled connections."""
        with self.errors(), retried(self.engine.connect) as db, db.begin():
            yield db

    def bring_up_to_date(self, format: StoreFormat) -> None:
        """Create the schema and its tables, or migrate existing tables to this format. Raise StoreError if the format
        of existing tables is not supported."""
        with self.errors():
            with self.engine.connect() as db:
                if migrations.read_number(db, format, self.name) == format.newest:
                    return
            with self.engine.begin() as db:
                db.execute(select(func.pg_advisory_xact_lock(lock_number(f"{self.schema} format"))))
                db.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"'))
                migrations.bring_up_to_date(db, format, self.name)

    def check_format(self, format: StoreFormat) -> None:
        """Raise StoreError if the schema does not have this format."""
        with self.errors(), self.engine.connect() as db:
            migrations.check(db, format, self.name)

    def changes(self, name: str) -> int:
        """Return a number that changes after each change announced under this name."""
        if self._listener is None:
            with self._lock:
                self._listener = self._listener or _Listener(self.url)
        return self._listener.number(name)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._closed = True
        self.engine.dispose()


_SERVERS: dict[tuple[int, str], DatabaseServer] = {}
_SERVERS_LOCK = threading.Lock()


def connected(url: URL) -> DatabaseServer:
    """Return the database at a URL. This process opens each database once. Raise StoreError, without a retry, if the
    database cannot be reached when it is opened."""
    url = with_password(url)
    # A forked process must not use the connections of its parent process.
    key = (os.getpid(), url.render_as_string(hide_password=False))
    with _SERVERS_LOCK:
        if (open_server := _SERVERS.get(key)) is not None:
            return open_server
        database = DatabaseServer(url)
        with database.errors(), database.engine.connect():
            _SERVERS[key] = database
        return database


def disconnect() -> None:
    """Close all pooled connections of this process that are not in use."""
    with _SERVERS_LOCK:
        for database in _SERVERS.values():
            database.close()
        _SERVERS.clear()


atexit.register(disconnect)


def is_lost(error: BaseException) -> bool:
    """Return whether an error is temporary, so that a retry can succeed when the server answers again."""
    if isinstance(error, LockHeld):
        return True
    cause = getattr(error, "orig", error)
    code = getattr(cause, "sqlstate", None)
    if code is None:
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
    return code in _AGAIN or code.startswith("08")


def retried(work: Callable[[], T], pauses: Sequence[float] = PAUSES) -> T:
    """Run `work` and return its result. While the connection is lost, run `work` again after each of `pauses`. `work`
    must be safe to repeat."""
    for pause in pauses:
        try:
            return work()
        except (DBAPIError, psycopg.Error, LockHeld) as error:
            if not is_lost(error):
                raise
        time.sleep(pause)
    return work()


def lock_number(name: str) -> int:
    """Return the number of the advisory lock with this name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def announce(name: str) -> Any:
    """Return a statement that announces a change under a name. The announcement is sent when the transaction of the
    statement commits."""
    return select(func.pg_notify(CHANNEL, func.md5(name)))


class LockHeld(Exception):
    """Raised if the lock of a lease is held by another process, or by a connection whose end the server has not noticed
    yet."""


class PostgresqlLease:
    """Exclusive right to write to a space: an advisory lock on a dedicated connection, and the token of the space, a
    number that increases with each new holder. After a lost connection, the holder continues only if it gets the lock
    again and no other process held the lock in between.

    Raises RunBusy if another process has the lease.
    """

    def __init__(self, server: DatabaseServer, space: str) -> None:
        self._server, self._space = server, space
        self._connection: Connection | None = None
        self._closed = False
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with server.errors():
                    self._connection = self._locked()
                break
            except LockHeld:
                if time.monotonic() >= until:
                    raise self._busy("is writing to") from None
            time.sleep(BUSY_SECONDS / 50)
        try:
            with server.errors(), self._connection.begin():
                self.token = take_token(self._connection, space) or 0
        except BaseException:
            self.close()
            raise

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended, as far as this machine knows; False after `close`. Sends nothing to the
        server."""
        if self._closed:
            return False
        if self._connection is None or self._connection.closed or self._connection.invalidated:
            return True
        raw: Any = self._connection.connection.dbapi_connection
        if raw is None or raw.closed:
            # Another thread may have released the lease since the first check above.
            return not self._closed
        # No query is pending, so data to read means that the connection has ended, or that the server sent a notice,
        # which `renew` reads.
        with selectors.DefaultSelector() as selector:
            selector.register(raw.fileno(), selectors.EVENT_READ)
            return bool(selector.select(0))

    def renew(self) -> None:
        """Take the lock again if its connection was lost. Raise RunBusy if another process took the lock in between.
        Raise StoreAway if the server does not answer, or has not noticed yet that the old connection ended."""
        if self._closed:
            # The lease was released by `close`. From then on, a write is accepted if the token is still the newest.
            return
        with self._server.errors():
            if self._connection is not None:
                try:
                    with self._connection.begin():
                        self._connection.execute(select(1))
                    return
                except DBAPIError:
                    self._drop()
            try:
                self._connection = self._locked()
            except LockHeld as error:
                if self._newest() == self.token:
                    raise self._server.failure(error) from None
                raise self._busy("has taken over") from None
            if self._newest() != self.token:
                self.close()
                raise self._busy("has taken over")

    def _newest(self) -> int | None:
        """Return the token of the newest holder of the lease; None if the space was deleted."""
        t = schema.spaces
        with self._server.begin() as db:
            return db.execute(select(t.c.token).where(t.c.space == self._space)).scalar()

    def close(self) -> None:
        """Release the lock."""
        self._closed = True
        if self._connection is not None:
            # Unlock explicitly: otherwise the server keeps the lock until it notices that the connection has ended.
            with suppress(DBAPIError):
                self._connection.execute(select(func.pg_advisory_unlock(lease_number(self._space))))
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(DBAPIError):
                self._connection.close()
            self._connection = None

    def _locked(self) -> Connection:
        """Open a dedicated connection that holds the lock. Raise LockHeld if the lock is taken."""
        connection = self._server.engine.connect()
        try:
            # A detached connection is closed by close(), not returned to the pool, so closing it releases the lock.
            connection.detach()
            with connection.begin():
                got = connection.execute(select(func.pg_try_advisory_lock(lease_number(self._space)))).scalar_one()
            if not got:
                raise LockHeld
            return connection
        except BaseException:
            connection.close()
            raise

    def _busy(self, activity: str) -> RunBusy:
        return RunBusy(
            "store.busy",
            f"another process {activity} this space of {self._server.name}: wait until that process ends, "
            "or stop that process with Ctrl-C; everything that this process wrote before is stored",
        )


def lease_number(space: str) -> int:
    """Return the number of the advisory lock of a space's lease."""
    return lock_number(f"lease {space}")


class _Listener:
    """Thread with a dedicated connection that counts the changes announced for each name."""

    def __init__(self, url: URL) -> None:
        plain = url.set(drivername="postgresql")
        self._dsn = plain.render_as_string(hide_password=False)
        self._counts: Counter[str] = Counter()
        self._gaps = itertools.count(1)
        self._gap = 0
        self._listening = False
        self._closed = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._listen, name="practicum-listener", daemon=True)
        self._thread.start()

    def number(self, name: str) -> int:
        """Return a number that changes after each change announced under this name. While the thread is not connected,
        the number changes at every call, because the thread may miss announcements."""
        if not self._listening:
            self._gap = next(self._gaps)
        return (self._gap << 40) + self._counts[hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()]

    def close(self) -> None:
        self._closed.set()
        connection = self._connection
        if connection is not None:
            # The thread blocks on the socket. Only closing the socket wakes it.
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _listen(self) -> None:
        pause = PAUSES[0]
        while not self._closed.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, **_CONNECT) as connection:
                    self._connection = connection
                    if self._closed.is_set():
                        return
                    connection.execute(f"LISTEN {CHANNEL}")
                    # Announcements before this moment may have been missed, so change the numbers of all names.
                    self._gap = next(self._gaps)
                    self._listening, pause = True, PAUSES[0]
                    for notice in connection.notifies():
                        self._counts[notice.payload] += 1
            except (psycopg.Error, OSError):
                self._listening = False
                self._closed.wait(pause)
                pause = min(2 * pause, 5.0)


def tables(metadata: MetaData, numbered: Sequence[Table] = ()) -> dict[str, Table]:
    """Return the PostgreSQL versions of the SQLite tables, by name. The space is added as the first column of each
    index, except of unique indexes, whose columns are unchanged. Tables in `numbered` get a column that numbers the
    rows in the order of writing, and an index on the space and this column."""
    twins, target = {}, MetaData()
    for table in metadata.sorted_tables:
        columns: list[Any] = [column._copy() for column in table.columns]
        for column in columns:
            # Integers in SQLite have 64 bits.
            column.type = BigInteger() if isinstance(column.type, Integer) else column.type
        indexes = [(str(index.name), [c.name for c in index.columns]) for index in table.indexes]
        # Omit indexes on the space only: the index on the space and the order of writing (below) serves the same
        # queries.
        indexes = [(name, names) for name, names in indexes if names != ["space"]]
        if table in numbered:
            columns.append(Column(ROW_ORDER, BigInteger, Identity(), nullable=False))
            indexes.append((f"{table.name}_by_row", [ROW_ORDER]))
        twin = twins[table.name] = table.info[TWIN] = Table(table.name, target, *columns)
        unique = {str(index.name) for index in table.indexes if index.unique}
        for name, names in indexes:
            listed = names if name in unique else [*dict.fromkeys(["space", *names])]
            Index(name, *(twin.c[each] for each in listed), unique=name in unique)
    return twins
