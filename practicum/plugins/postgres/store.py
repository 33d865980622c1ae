"""Store backend `postgresql`: spaces in a PostgreSQL database that several nodes share.

A node locks a space from the start of a change until the commit, so that two nodes never change the same space at the
same time. The commit announces the change, and the other nodes reload the space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    func,
    select,
    text,
)
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from practicum.core.errors import StoreAway, StoreError
from practicum.plugins.postgres.database import (
    FILES,
    INDEX,
    RETRY_SECONDS,
    SCHEMA,
    DatabaseServer,
    PostgresqlLease,
    address,
    announce,
    connected,
    lease_number,
    lock_number,
    parse_url,
    retried,
    tables,
)
from practicum.plugins.postgres.sessions import PostgresqlSessions
from practicum.store import schema
from practicum.store.dialects import NAME

TABLES = tables(schema.metadata, numbered=schema.NUMBERED)
"""PostgreSQL versions of the tables of the store, by name."""

FORMAT = replace(schema.FORMAT, create=TABLES["spaces"].metadata.create_all)

PGVECTOR = (0, 8)
"""Minimum version of pgvector: the first version with iterative scans, which continue until enough rows pass the
filter."""

DEADLOCK = "40P01"
"""SQLSTATE code of a deadlock."""

_OF_ROWS = ("22", "23", "54")
"""SQLSTATE classes of errors caused by values: data, constraints and limits."""

_STATES = ("42501", "42P01", "3F000")
"""SQLSTATE codes of errors that affect every statement: no privilege, missing table, missing schema."""

indexes = Table(
    "indexes",
    MetaData(),
    Column("space", NAME, primary_key=True),
    Column("table", String, nullable=False, unique=True),  # the table of the entries
    Column("embedder", NAME, nullable=False),
    Column("dims", Integer, nullable=False),  # dimensions of the vectors
    Column("first", BigInteger, nullable=False),  # version at which the index was built
    Column("last", BigInteger, nullable=False),  # last version that the index covers
    Column("entries", BigInteger, nullable=False),
    Column("words", BigInteger, nullable=False),  # total number of words in the entries
)
"""Table of the search indexes that are stored in the database (see `pgvector`), a row for each space with an index.
Indexes can be rebuilt, so this table is not part of the store format. The table is created with the first index."""


class PostgresqlBackend:
    """Backend for spaces in a PostgreSQL database. See `store.backend.Backend`."""

    shared = True
    patience = RETRY_SECONDS

    def __init__(self, url: URL, *, create: bool) -> None:
        self.server = connected(url)
        self.name = self.server.name
        self.engine = self.server.engine
        self.index = str(url.query.get(INDEX, FILES))
        if create:
            _check_index(url, self.server)
            self.server.bring_up_to_date(FORMAT)
        else:
            self.server.check_format(FORMAT)

    def rows(self, query: Any, waits: bool) -> list[Any]:
        return self.server.rows(query, waits)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self.engine.begin() as db:
            yield db

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        for space in spaces:
            db.execute(select(func.pg_advisory_xact_lock(lock_number(f"change {space}"))))

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        for space in spaces:
            db.execute(announce(space))

    def now(self, db: Connection) -> float:
        return float(db.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def failure(self, doing: str, error: Exception) -> StoreError:
        if isinstance(error, NoConnection):
            return StoreAway(
                "store.unreachable", f"cannot {doing} {self.name}: all connections are in use: try again later"
            )
        return self.server.failure(error)

    def stops_all(self, error: BaseException) -> bool:
        state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
        if isinstance(error, ProgrammingError):
            return state in _STATES
        if isinstance(error, DataError | IntegrityError | NotSupportedError) or state.startswith(_OF_ROWS):
            return False
        return isinstance(error, DBAPIError | NoConnection)

    def is_deadlock(self, error: BaseException) -> bool:
        return getattr(getattr(error, "orig", None), "sqlstate", None) == DEADLOCK

    def changes(self, space: str, *, fresh: bool = True) -> int:
        return self.server.changes(space)

    def lease(self, space: str, files: Path) -> PostgresqlLease:
        return PostgresqlLease(self.server, space)

    def is_leased(self, space: str, files: Path) -> bool:
        number = lease_number(space) % 2**64
        held = text(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = :high "
            "AND objid = :low AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return bool(self.server.rows(held.bindparams(high=number >> 32, low=number % 2**32)))

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold the advisory lock `name` within the block, on a separate connection. The lock also ends when the node
        stops or loses this connection."""
        number = lock_number(f"{SCHEMA} {name}")
        with ExitStack() as stack:
            with self.server.errors():
                db = stack.enter_context(retried(self.engine.connect))
                # A detached connection is closed at the end of the block. Otherwise the connection would return to the
                # pool, and would keep the lock there.
                db.detach()
                db.execute(select(func.pg_advisory_lock(number)))
                db.commit()
            try:
                yield
            finally:
                # Unlock explicitly: otherwise the server keeps the lock until it notices that the connection has ended.
                with suppress(SQLAlchemyError):
                    db.execute(select(func.pg_advisory_unlock(number)))

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Do nothing: several nodes may serve the same database."""
        yield

    def is_served(self) -> bool:
        """Return True, because a node on any machine may serve this database."""
        return True

    def sessions(self, seconds: float) -> PostgresqlSessions:
        return PostgresqlSessions(self, seconds)

    def scrub(self) -> None:
        """Free the disk space of deleted rows for reuse. Deleted data may remain in the server's files, log and backups
        until it is overwritten."""
        with self.server.errors(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            for table in TABLES:
                db.execute(text(f'VACUUM "{table}"'))

    def drop_index(self, db: Connection, space: str) -> None:
        drop_index(db, space)

    def release(self) -> None:
        """Do nothing: this backend has no cache to free."""

    def close(self) -> None:
        """Do nothing: the connections are shared by the whole process and stay open."""


def drop_index(db: Connection, space: str) -> None:
    """Delete the index of a space, if the index is stored in this database."""
    if db.execute(select(func.to_regclass(indexes.name))).scalar_one() is None:
        return
    deleted = delete(indexes).where(indexes.c.space == space).returning(indexes.c.table)
    for table in db.execute(deleted).scalars().all():
        db.execute(text(f'DROP TABLE IF EXISTS "{table}", "{table}_counts"'))


def _check_index(url: URL, server: DatabaseServer) -> None:
    """Raise StoreError if a URL selects indexes in the database but the database has no usable pgvector."""
    if url.query.get(INDEX) != "pgvector":
        return
    query = "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS version, EXISTS ({}) AS available"
    (pgvector,) = server.rows(text(query.format("SELECT FROM pg_available_extensions WHERE name = 'vector'")))
    if pgvector.version is not None and tuple(map(int, pgvector.version.split(".")[:2])) >= PGVECTOR:
        return
    if pgvector.version is not None:
        problem, advice = f"has pgvector {pgvector.version}, which is too old", "run ALTER EXTENSION vector UPDATE"
    elif pgvector.available:
        problem, advice = "does not have the extension vector", "run CREATE EXTENSION vector"
    else:
        problem, advice = "is on a server without pgvector", "install pgvector 0.8 and run CREATE EXTENSION vector"
    raise StoreError(
        "store.unsupported",
        f"{server.name} {problem}: a superuser of that database must {advice}. To store the index in files, remove "
        f"?{INDEX}=pgvector from the URL",
    )


class Postgresql:
    """Kind of store for the URLs of PostgreSQL databases. See `store.backend.StoreKind`."""

    parse = staticmethod(parse_url)
    address = staticmethod(address)

    def open(self, url: URL, *, create: bool) -> PostgresqlBackend:
        """Open the database at a URL."""
        return PostgresqlBackend(url, create=create)


STORE = Postgresql()
