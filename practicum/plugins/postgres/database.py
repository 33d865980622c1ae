"""Connections to a PostgreSQL database that many processes and machines share.

All spaces of a database have their rows in the same tables, in a schema of our own. A connection that is lost, as where
the server restarts, is made again for RETRY_SECONDS, and readers ask again then.
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
"""The PostgreSQL schema with our tables."""

URL_VARIABLE = "PRACTICUM_STORE"
"""An environment variable with the URL of a database: the default of `--store`, and the password of runs there."""

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.75, 1.5, 3.0, 4.5, 4.5)
"""Seconds before each further attempt after a connection was lost."""

RETRY_SECONDS = sum(PAUSES)

BUSY_SECONDS = 1.0
"""How long a writer waits for the lock. The server may need a moment to see that a process was killed."""

INDEX, FILES = "index", "files"
"""In the query of a URL: the kind of index that runs with many entries have, and its default."""

CHANNEL = "practicum"
"""Where writers say which space they changed, by the MD5 digest of its id."""

POOL = 5
"""Connections of a process to a database that stay open; twice as many more are opened at once if needed."""

_CONNECT: dict[str, Any] = {
    "connect_timeout": 10, "application_name": "practicum",
    # A peer that is gone is noticed within a minute.
    "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
}  # fmt: skip

_AGAIN = {"57P01", "57P02", "57P03", "53300", "40001", "40P01", "25006"}
"""Codes of errors that pass: a server that stops, starts, has no place left or is being replaced; a deadlock."""


def parse_url(url: str) -> URL:
    """The URL of a PostgreSQL database. Raises UsageError, without its password, if it is none."""
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        found = None
    if found is None or found.get_backend_name() not in ("postgresql", "postgres") or not found.database:
        raise UsageError("store.invalid_address", "the store must be written postgresql://USER@HOST:PORT/DATABASE")
    if found.query.get(INDEX, FILES) not in INDEXES.names():
        known = ", ".join(f"?{INDEX}={name}" for name in INDEXES.names())
        raise UsageError("store.invalid_address", f"the store's index must be one of {known}; the default is {FILES}")
    return found.set(drivername="postgresql")


def address(url: URL) -> str:
    """What is kept and shown of a URL: no password."""
    plain = {name: value for name, value in url.query.items() if "pass" not in name}
    return URL.create("postgresql", url.username, None, url.host, url.port, url.database, plain).render_as_string()


_KNOWN: dict[str, URL] = {}
"""The URLs with passwords that this process was given, by address."""


def with_password(url: URL) -> URL:
    """The URL with the password that this process was given for it, or that of the environment variable if that names
    the same database, for a connection. Without one, libpq looks into PGPASSWORD and ~/.pgpass."""
    url = url.difference_update_query([INDEX])
    if url.password is not None:
        _KNOWN[address(url)] = url
        return url
    if known := _KNOWN.get(address(url)):
        return known
    if given := os.environ.get(URL_VARIABLE):
        other = parse_url(given)
        if (other.host, other.port or 5432, other.database) == (url.host, url.port or 5432, url.database):
            return other.difference_update_query([INDEX])
    return url


class DatabaseServer:
    """A database that this process is connected to. Its connections are shared by all that is open there."""

    schema = SCHEMA

    def __init__(self, url: URL) -> None:
        self.url = url
        self.name = address(url)
        how = {**_CONNECT, "options": f"-c search_path={SCHEMA}"}
        self.engine = create_engine(
            url.set(drivername="postgresql+psycopg"), connect_args=how, pool_size=POOL, max_overflow=2 * POOL,
            pool_pre_ping=True, hide_parameters=True,
        )  # fmt: skip
        self._listener: _Listener | None = None
        self._lock = threading.Lock()
        self._closed = False
        event.listen(self.engine, "checkin", self._returned)

    def _returned(self, connection: Any, record: object) -> None:
        """A thread gives a connection back. Once the pool is closed, nobody else would close it."""
        if self._closed and connection is not None:
            connection.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors of the database as StoreError."""
        try:
            yield
        except (DBAPIError, psycopg.Error, TimeoutError, UnicodeError) as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> StoreError:
        """What an error of the database means, and what to do."""
        cause = getattr(error, "orig", None) or error
        code, said = getattr(cause, "sqlstate", None), one_line(str(cause), 300)
        if code in ("53100", "53200"):
            advice = "its disk or memory is full; all earlier writes are safe: make room there and go on"
        elif is_lost(error):
            advice = (
                "is the server running, and are address, user and password right? What was done is kept: go on "
                f"when it answers (a password may stand in {URL_VARIABLE} or ~/.pgpass)"
            )
        elif code in ("42501", "3D000", "28P01", "28000"):
            advice = "ask whoever runs the database"
        else:
            advice = "all earlier writes are safe"
        text = f"cannot use {self.name}: {said}; {advice}"
        return StoreAway("store.unreachable", text) if is_lost(error) else StoreError("store.unreadable", text)

    def rows(self, query: Any, waits: bool = True) -> list[Any]:
        """The rows of a query, asked again if the connection is lost and this `waits` for it."""

        def read() -> list[Any]:
            with self.engine.connect() as db:
                return list(db.execute(query))

        with self.errors():
            # The connection may be of a server that was restarted.
            return retried(read, PAUSES if waits else (0.0,))

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction on one of the shared connections."""
        with self.errors(), retried(self.engine.connect) as db, db.begin():
            yield db

    def bring_up_to_date(self, format: StoreFormat) -> None:
        """Make the schema and its tables, or migrate them. Raises StoreError if they are of another format."""
        with self.errors():
            with self.engine.connect() as db:
                if migrations.read_number(db, format, self.name) == format.newest:
                    return
            with self.engine.begin() as db:
                db.execute(select(func.pg_advisory_xact_lock(lock_number(f"{self.schema} format"))))
                db.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"'))
                migrations.bring_up_to_date(db, format, self.name)

    def check_format(self, format: StoreFormat) -> None:
        """Raises StoreError if the schema is not of this format."""
        with self.errors(), self.engine.connect() as db:
            migrations.check(db, format, self.name)

    def changes(self, name: str) -> int:
        """A number that is another one after each change that was announced for this name."""
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
    """The database at a URL, which this process opens once. Raises StoreError if it cannot be reached; nothing is
    tried again for an address that never answered."""
    url = with_password(url)
    # A process that was forked must not use the connections of its parent.
    key = (os.getpid(), url.render_as_string(hide_password=False))
    with _SERVERS_LOCK:
        if (found := _SERVERS.get(key)) is not None:
            return found
        database = DatabaseServer(url)
        with database.errors(), database.engine.connect():
            _SERVERS[key] = database
        return database


def disconnect() -> None:
    """Close all shared connections of this process that are not in use."""
    with _SERVERS_LOCK:
        for database in _SERVERS.values():
            database.close()
        _SERVERS.clear()


atexit.register(disconnect)


def is_lost(error: BaseException) -> bool:
    """Whether an error passes when the server answers again."""
    if isinstance(error, LockHeld):
        return True
    said = getattr(error, "orig", error)
    code = getattr(said, "sqlstate", None)
    if code is None:
        return isinstance(said, psycopg.OperationalError | psycopg.InterfaceError)
    return code in _AGAIN or code.startswith("08")


def retried(work: Callable[[], T], pauses: Sequence[float] = PAUSES) -> T:
    """Do work that may be done twice, again after a pause if the connection is lost."""
    for pause in pauses:
        try:
            return work()
        except (DBAPIError, psycopg.Error, LockHeld) as error:
            if not is_lost(error):
                raise
        time.sleep(pause)
    return work()


def lock_number(name: str) -> int:
    """The number of an advisory lock with this name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def announce(name: str) -> Any:
    """The statement that announces a change under a name, when its transaction is committed."""
    return select(func.pg_notify(CHANNEL, func.md5(name)))


class LockHeld(Exception):
    """The server has not noticed yet that the connection which held the lock is gone."""


class PostgresqlLease:
    """The right to write what a space learns: an advisory lock, which a connection of its own holds, and the token of
    the space, which goes up with each holder. A holder whose connection was lost goes on only if it gets the lock again
    and nobody had it meanwhile.

    Raises RunBusy if somebody else has the lease.
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
        """Whether its connection has ended, as far as this machine was told. To look asks the server nothing."""
        if self._closed:
            return False
        if self._connection is None or self._connection.closed or self._connection.invalidated:
            return True
        raw: Any = self._connection.connection.dbapi_connection
        if raw is None or raw.closed:
            # Another thread may have given it back since.
            return not self._closed
        # Nothing was asked, so what can be read is the end, or a notice that `renew` reads.
        with selectors.DefaultSelector() as waiting:
            waiting.register(raw.fileno(), selectors.EVENT_READ)
            return bool(waiting.select(0))

    def renew(self) -> None:
        """Take the lock again if its connection was lost. Raises RunBusy if somebody else had it meanwhile, StoreAway
        if the server does not answer, or has not noticed yet that the connection is gone."""
        if self._closed:
            # Its token decides alone.
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
        """The token of the last holder; None if the space was deleted."""
        t = schema.spaces
        with self._server.begin() as db:
            return db.execute(select(t.c.token).where(t.c.space == self._space)).scalar()

    def close(self) -> None:
        """Give the lock back."""
        self._closed = True
        if self._connection is not None:
            # The server would do so a moment after it sees that the connection has ended.
            with suppress(DBAPIError):
                self._connection.execute(select(func.pg_advisory_unlock(lease_number(self._space))))
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(DBAPIError):
                self._connection.close()
            self._connection = None

    def _locked(self) -> Connection:
        """A connection of its own that holds the lock."""
        connection = self._server.engine.connect()
        try:
            # Closing it ends it, and with it the lock.
            connection.detach()
            with connection.begin():
                got = connection.execute(select(func.pg_try_advisory_lock(lease_number(self._space)))).scalar_one()
            if not got:
                raise LockHeld
            return connection
        except BaseException:
            connection.close()
            raise

    def _busy(self, what: str) -> RunBusy:
        return RunBusy(
            "store.busy",
            f"another process {what} this space of {self._server.name}: wait until it ends, or stop it with Ctrl-C "
            "where it runs; what this one wrote before is kept",
        )


def lease_number(space: str) -> int:
    """The number of the advisory lock of a space's lease."""
    return lock_number(f"lease {space}")


class _Listener:
    """Counts the changes that are announced for each name, on a connection of its own in a thread."""

    def __init__(self, url: URL) -> None:
        plain = url.set(drivername="postgresql")
        self._where = plain.render_as_string(hide_password=False)
        self._counts: Counter[str] = Counter()
        self._gaps = itertools.count(1)
        self._gap = 0
        self._listening = False
        self._closed = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._listen, name="practicum-listener", daemon=True)
        self._thread.start()

    def number(self, name: str) -> int:
        """A number that is another one after each change under this name, and at each call while nobody listens."""
        if not self._listening:
            self._gap = next(self._gaps)
        return (self._gap << 40) + self._counts[hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()]

    def close(self) -> None:
        self._closed.set()
        connection = self._connection
        if connection is not None:
            # The thread waits for the socket, and nothing else wakes it.
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _listen(self) -> None:
        pause = PAUSES[0]
        while not self._closed.is_set():
            try:
                with psycopg.connect(self._where, autocommit=True, **_CONNECT) as connection:
                    self._connection = connection
                    if self._closed.is_set():
                        return
                    connection.execute(f"LISTEN {CHANNEL}")
                    # What was announced before this moment may have been missed.
                    self._gap = next(self._gaps)
                    self._listening, pause = True, PAUSES[0]
                    for notice in connection.notifies():
                        self._counts[notice.payload] += 1
            except (psycopg.Error, OSError):
                self._listening = False
                self._closed.wait(pause)
                pause = min(2 * pause, 5.0)


def tables(metadata: MetaData, numbered: Sequence[Table] = ()) -> dict[str, Table]:
    """The tables of SQLite as PostgreSQL has them, by name: indexes begin with the space unless they are unique, and
    those in `numbered` have a number for the order of writing."""
    made, target = {}, MetaData()
    for table in metadata.sorted_tables:
        columns: list[Any] = [column._copy() for column in table.columns]
        for column in columns:
            # SQLite's have 64 bits.
            column.type = BigInteger() if isinstance(column.type, Integer) else column.type
        indexes = [(str(index.name), [c.name for c in index.columns]) for index in table.indexes]
        # In PostgreSQL the order of writing is a column.
        indexes = [(name, names) for name, names in indexes if names != ["space"]]
        if table in numbered:
            columns.append(Column(ROW_ORDER, BigInteger, Identity(), nullable=False))
            indexes.append((f"{table.name}_by_row", [ROW_ORDER]))
        twin = made[table.name] = table.info[TWIN] = Table(table.name, target, *columns)
        unique = {str(index.name) for index in table.indexes if index.unique}
        for name, names in indexes:
            listed = names if name in unique else [*dict.fromkeys(["space", *names])]
            Index(name, *(twin.c[each] for each in listed), unique=name in unique)
    return made
