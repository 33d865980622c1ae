"""The rows of a run in a PostgreSQL database (see `practicum.plugins.postgres.database`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    func,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL

from practicum.core.errors import NotARun, StoreError
from practicum.plugins.postgres.database import (
    CHANNEL,
    FILES,
    INDEX,
    Database,
    Lease,
    announce,
    connected,
    leases,
    lock_number,
    row_lock,
    tables,
)
from practicum.store import schema
from practicum.store.dialects import NAME, insert_new
from practicum.store.scope import Transaction, is_empty

TABLES = tables(schema.metadata, numbered=schema.NUMBERED)
"""The tables of all runs, by name."""

WATCHED = ("versions", "names", "runs", "snapshots")
"""The tables whose changes are announced."""


PGVECTOR = (0, 8)
"""The first version of pgvector that goes on searching until a filter is satisfied."""


def _create_tables(db: Connection) -> None:
    TABLES["runs"].metadata.create_all(db, checkfirst=False)
    leases.metadata.create_all(db, checkfirst=False)
    # A trigger sees every change, whoever makes it. Equal notices of one transaction are sent once.
    db.execute(
        text(
            "CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"PERFORM pg_notify('{CHANNEL}', md5(COALESCE(NEW.space, OLD.space))); RETURN NULL; END $$"
        )
    )
    for table in WATCHED:
        row = f'CREATE TRIGGER announced AFTER INSERT OR UPDATE OR DELETE ON "{table}"'
        db.execute(text(f"{row} FOR EACH ROW EXECUTE FUNCTION announce()"))


FORMAT = replace(schema.FORMAT, create=_create_tables)

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
"""The indexes of runs in the database (see `pgvector`). They can be made again, so this table is not part of the
format: it is made with the first of them."""


def names(url: URL) -> list[str]:
    """The runs of a database."""
    database = connected(url)
    database.check_format(FORMAT)
    return [row.space for row in database.rows(select(leases.c.space).order_by(leases.c.space))]


def reserve(url: URL, name: str) -> bool:
    """Take a name for a new run, or that of a run without rows, which a killed process left. Returns False if the name
    is taken."""
    database = connected(url)
    _check_index(url, database)
    database.bring_up_to_date(FORMAT)
    # A name may be used again. Random numbers keep writers and indexes of the run that had it before apart.
    values = {"space": name, "token": secrets.randbits(40), "rewritten": secrets.randbits(40)}
    row = insert_new(leases, "postgresql").values(values).returning(leases.c.space)
    with database.begin() as db:
        return db.execute(row).first() is not None or is_empty(Transaction(db, name))


def _check_index(url: URL, database: Database) -> None:
    """Raises StoreError if a URL says that indexes are in the database, and it has no pgvector for them."""
    if url.query.get(INDEX) != "pgvector":
        return
    query = "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS there, EXISTS ({}) AS known"
    (found,) = database.rows(text(query.format("SELECT FROM pg_available_extensions WHERE name = 'vector'")))
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
        f"{database.name} {wrong}: a superuser of that database must {advice}; or leave ?{INDEX}=pgvector out, and the "
        "index is in files",
    )


def drop_index(db: Connection, space: str) -> None:
    """Delete the index of a run, if it has one here."""
    if db.execute(select(func.to_regclass(indexes.name))).scalar_one() is None:
        return
    mine = delete(indexes).where(indexes.c.space == space).returning(indexes.c.table)
    for table in db.execute(mine).scalars().all():
        db.execute(text(f'DROP TABLE IF EXISTS "{table}", "{table}_counts"'))


class PostgresqlRun:
    """One run of a database. A writer holds its lease."""

    generation = "(SELECT rewritten FROM leases WHERE space = :space)"

    def __init__(self, url: URL, space: str, *, writer: bool, read_only: bool) -> None:
        self.space = space
        self.database: Database = connected(url)
        self.engine: Engine = self.database.engine
        self.index = str(url.query.get(INDEX, FILES))
        _check_index(url, self.database)
        if read_only:
            self.database.check_format(FORMAT)
        else:
            self.database.bring_up_to_date(FORMAT)
        if not self.rows(select(leases.c.token).where(leases.c.space == space)):
            raise self._missing()
        self._lease = Lease(self.database, space) if writer else None

    def _missing(self) -> NotARun:
        return NotARun("run.not_found", f"{self.database.name} holds no run named {self.space}")

    def rows(self, query: Any) -> list[Any]:
        return self.database.rows(query)

    def write(self, work: Callable[[Connection], None]) -> None:
        assert self._lease is not None, "only a writer has rows to write later"
        self._lease.write(work)

    @contextmanager
    def begin(self, alone: bool = False) -> Iterator[Connection]:
        if self._lease is not None:
            with self.database.errors(), self._lease.begin(alone) as db:
                yield db
        else:
            with self.database.begin() as db:
                if db.execute(row_lock(self.space, alone)).first() is None:
                    raise self._missing()
                yield db

    def failure(self, error: Exception) -> StoreError:
        return self.database.failure(error)

    def is_written(self) -> bool:
        if self._lease is not None:
            return False
        number = lock_number(f"lease {self.space}") % 2**64
        held = text(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = :high "
            "AND objid = :low AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return bool(self.rows(held.bindparams(high=number >> 32, low=number % 2**32)))

    def changes(self) -> int:
        return self.database.changes(self.space)

    def scrub(self) -> None:
        """Give deleted rows' space free to be written over, and tell who reads that the run is another one. Bytes may
        stay in the server's files, log and backups until then."""
        with self.begin() as db:
            db.execute(update(leases).where(leases.c.space == self.space).values(rewritten=leases.c.rewritten + 1))
            db.execute(announce(self.space))
        with self.database.errors(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            for table in TABLES:
                db.execute(text(f'VACUUM "{table}"'))

    def sizes(self) -> dict[str, int]:
        """The number of rows of each table that holds any."""
        count = select(func.count())
        found = {
            name: self.rows(count.select_from(table).where(table.c.space == self.space))[0][0]
            for name, table in TABLES.items()
        }
        return {name: rows for name, rows in found.items() if rows}

    def drop_index(self) -> None:
        with self.begin() as db:
            drop_index(db, self.space)

    def remove(self) -> None:
        with self.begin(alone=True) as db:
            drop_index(db, self.space)
            for table in (*TABLES.values(), leases):
                db.execute(delete(table).where(table.c.space == self.space))

    def release(self) -> None:
        """The server keeps it."""

    def close(self) -> None:
        if self._lease is not None:
            self._lease.close()
