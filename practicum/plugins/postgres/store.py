"""The kind of store `postgresql`: spaces in a PostgreSQL database, which several nodes share.

A change locks its space until it is committed, so two nodes never decide the same twice. It is announced with the
commit, and the other nodes look at the space anew.
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
"""The tables as PostgreSQL has them, by name."""

FORMAT = replace(schema.FORMAT, create=TABLES["spaces"].metadata.create_all)

PGVECTOR = (0, 8)
"""The first version of pgvector that goes on searching until a filter is satisfied."""

DEADLOCK = "40P01"
"""The code of a transaction that waited for another one in a circle."""

_OF_ROWS = ("22", "23", "54")
"""Classes of errors that are about values: data, constraints and limits."""

_STATES = ("42501", "42P01", "3F000")
"""Codes that are of the kind of a wrong statement: no right, no table, no schema."""

indexes = Table(
    "indexes",
    MetaData(),
    Column("space", NAME, primary_key=True),
    Column("table", String, nullable=False, unique=True),  # with the entries
    Column("embedder", NAME, nullable=False),
    Column("dims", Integer, nullable=False),  # of the vectors
    Column("first", BigInteger, nullable=False),  # the version at which it was built
    Column("last", BigInteger, nullable=False),  # the version that it is about
    Column("entries", BigInteger, nullable=False),
    Column("words", BigInteger, nullable=False),  # of all entries
)
"""The indexes of spaces in the database (see `pgvector`). They can be made again, so this table is not part of the
format: it is made with the first of them."""


class PostgresqlBackend:
    """A database with spaces. See `store.backend.Backend`."""

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
            return StoreAway("store.unreachable", f"cannot {doing} {self.name}: all connections are in use")
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
    def alone(self, what: str) -> Iterator[None]:
        """The lock is of a connection: it ends with the node, or with the node's way to the database."""
        number = lock_number(f"{SCHEMA} {what}")
        with ExitStack() as stack:
            with self.server.errors():
                db = stack.enter_context(retried(self.engine.connect))
                # Closed and not given back in the end: the lock would stay with it.
                db.detach()
                db.execute(select(func.pg_advisory_lock(number)))
                db.commit()
            try:
                yield
            finally:
                # The server would do so a moment after it sees that the connection has ended.
                with suppress(SQLAlchemyError):
                    db.execute(select(func.pg_advisory_unlock(number)))

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Several nodes may."""
        yield

    def is_served(self) -> bool:
        """A node may be anywhere."""
        return True

    def sessions(self, seconds: float) -> PostgresqlSessions:
        return PostgresqlSessions(self, seconds)

    def scrub(self) -> None:
        """Give deleted rows' space free to be written over. Bytes may stay in the server's files, log and backups until
        then."""
        with self.server.errors(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            for table in TABLES:
                db.execute(text(f'VACUUM "{table}"'))

    def drop_index(self, db: Connection, space: str) -> None:
        drop_index(db, space)

    def release(self) -> None:
        """The server keeps it."""

    def close(self) -> None:
        """The connections are the process's, and stay open."""


def drop_index(db: Connection, space: str) -> None:
    """Delete the index of a space, if it has one here."""
    if db.execute(select(func.to_regclass(indexes.name))).scalar_one() is None:
        return
    mine = delete(indexes).where(indexes.c.space == space).returning(indexes.c.table)
    for table in db.execute(mine).scalars().all():
        db.execute(text(f'DROP TABLE IF EXISTS "{table}", "{table}_counts"'))


def _check_index(url: URL, server: DatabaseServer) -> None:
    """Raises StoreError if a URL says that indexes are in the database, and it has no pgvector for them."""
    if url.query.get(INDEX) != "pgvector":
        return
    query = "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS there, EXISTS ({}) AS known"
    (found,) = server.rows(text(query.format("SELECT FROM pg_available_extensions WHERE name = 'vector'")))
    if found.there is not None and tuple(map(int, found.there.split(".")[:2])) >= PGVECTOR:
        return
    if found.there is not None:
        wrong, advice = f"has pgvector {found.there}, which is too old", "run ALTER EXTENSION vector UPDATE"
    elif found.known:
        wrong, advice = "has no extension vector", "run CREATE EXTENSION vector"
    else:
        wrong, advice = "is on a server without pgvector", "install pgvector 0.8 and run CREATE EXTENSION vector"
    raise StoreError(
        "store.unsupported",
        f"{server.name} {wrong}: a superuser of that database must {advice}; or leave ?{INDEX}=pgvector out, and the "
        "index is in files",
    )


class Postgresql:
    """See `store.backend.StoreKind`."""

    parse = staticmethod(parse_url)
    address = staticmethod(address)

    def open(self, url: URL, *, create: bool) -> PostgresqlBackend:
        """The database at a URL."""
        return PostgresqlBackend(url, create=create)


STORE = Postgresql()
