"""The rows of a run in a PostgreSQL database (see `practicum.store.postgresql`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from practicum.store import schema
from practicum.store.dialects import NAME, insert_new
from practicum.store.postgresql import (
    CHANNEL,
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

TABLES = tables(schema.metadata, numbered=schema.NUMBERED)
"""The tables of all runs, by name."""

WATCHED = ("versions", "names", "runs", "snapshots")
"""The tables whose changes are announced."""


PGVECTOR = (0, 8)
"""The first version of pgvector that goes on searching until a filter is satisfied."""


def p001_tables(db: Connection) -> None:
    """All tables."""
    TABLES["runs"].metadata.create_all(db, checkfirst=False)
    leases.metadata.create_all(db, checkfirst=False)
    # A trigger sees every change, whoever makes it. Equal notices of one transaction are sent once.
    db.execute(
        text(
            "CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"PERFORM pg_notify('{CHANNEL}', md5(COALESCE(NEW.run_id, OLD.run_id))); RETURN NULL; END $$"
        )
    )
    for table in WATCHED:
        row = f'CREATE TRIGGER announced AFTER INSERT OR UPDATE OR DELETE ON "{table}"'
        db.execute(text(f"{row} FOR EACH ROW EXECUTE FUNCTION announce()"))


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (p001_tables,)
"""What is applied to a database, in order. A function never changes once it is released; a new one is appended."""


indexes = Table(
    "indexes",
    MetaData(),
    Column("run_id", NAME, primary_key=True),
    Column("table", String, nullable=False, unique=True),  # with the entries
    Column("embedder", NAME, nullable=False),
    Column("dims", Integer, nullable=False),  # of the vectors
    Column("first", BigInteger, nullable=False),  # the version at which it was built
    Column("last", BigInteger, nullable=False),  # the version that it is about
    Column("entries", BigInteger, nullable=False),
    Column("words", BigInteger, nullable=False),  # of all entries
)
"""The indexes of runs in the database (`practicum.retrieval.pgvector`). They can be made again, so this table is not
part of the format: it is made with the first of them."""


def names(url: URL) -> list[str]:
    """The runs of a database."""
    database = connected(url)
    database.check_format(len(MIGRATIONS))
    return [row.run_id for row in database.rows(select(leases.c.run_id).order_by(leases.c.run_id))]


def reserve(url: URL, name: str) -> bool:
    """Take a name for a new run, or that of a run without rows, which a killed process left. Returns False if the name
    is taken."""
    database = connected(url)
    _index_database(url, database)
    database.bring_up_to_date(MIGRATIONS)
    # A name may be used again. Random numbers keep writers and indexes of the run that had it before apart.
    values = {"run_id": name, "token": secrets.randbits(40), "rewritten": secrets.randbits(40)}
    row = insert_new(leases, "postgresql").values(values).returning(leases.c.run_id)
    with database.begin() as db:
        return db.execute(row).first() is not None or schema.is_empty(db, name)


def _index_database(url: URL, database: Database) -> Database | None:
    """The database, if a URL says that indexes are in it. Raises StoreError if it has no pgvector that could do so."""
    if url.query.get(INDEX) != "pgvector":
        return None
    query = "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS there, EXISTS ({}) AS known"
    (found,) = database.rows(text(query.format("SELECT FROM pg_available_extensions WHERE name = 'vector'")))
    if found.there is not None and tuple(map(int, found.there.split(".")[:2])) >= PGVECTOR:
        return database
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


def drop_index(db: Connection, run_id: str) -> None:
    """Delete the index of a run, if it has one here."""
    if db.execute(select(func.to_regclass(indexes.name))).scalar_one() is None:
        return
    mine = delete(indexes).where(indexes.c.run_id == run_id).returning(indexes.c.table)
    for table in db.execute(mine).scalars().all():
        db.execute(text(f'DROP TABLE IF EXISTS "{table}", "{table}_counts"'))


class PostgresqlRun:
    """One run of a database. A writer holds its lease."""

    generation = "(SELECT rewritten FROM leases WHERE run_id = :run)"

    def __init__(self, url: URL, run_id: str, *, writer: bool, read_only: bool) -> None:
        self.run_id = run_id
        self._database: Database = connected(url)
        self.engine: Engine = self._database.engine
        self.pgvector = _index_database(url, self._database)
        if read_only:
            self._database.check_format(len(MIGRATIONS))
        else:
            self._database.bring_up_to_date(MIGRATIONS)
        if not self.rows(select(leases.c.token).where(leases.c.run_id == run_id)):
            raise self._missing()
        self._lease = Lease(self._database, run_id) if writer else None

    def _missing(self) -> NotARun:
        return NotARun("run.not_found", f"{self._database.name} holds no run named {self.run_id}")

    def rows(self, query: Any) -> list[Any]:
        return self._database.rows(query)

    def write(self, work: Callable[[Connection], None]) -> None:
        assert self._lease is not None, "only a writer has rows to write later"
        self._lease.write(work)

    @contextmanager
    def begin(self, alone: bool = False) -> Iterator[Connection]:
        if self._lease is not None:
            with self._database.errors(), self._lease.begin(alone) as db:
                yield db
        else:
            with self._database.begin() as db:
                if db.execute(row_lock(self.run_id, alone)).first() is None:
                    raise self._missing()
                yield db

    def failure(self, error: Exception) -> StoreError:
        return self._database.failure(error)

    def is_written(self) -> bool:
        if self._lease is not None:
            return False
        number = lock_number(f"lease {self.run_id}") % 2**64
        held = text(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = :high "
            "AND objid = :low AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return bool(self.rows(held.bindparams(high=number >> 32, low=number % 2**32)))

    def changes(self) -> int:
        return self._database.changes(self.run_id)

    def scrub(self) -> None:
        """Give deleted rows' space free to be written over, and tell who reads that the run is another one. Bytes may
        stay in the server's files, log and backups until then."""
        with self.begin() as db:
            db.execute(update(leases).where(leases.c.run_id == self.run_id).values(rewritten=leases.c.rewritten + 1))
            db.execute(announce(self.run_id))
        with self._database.errors(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            for table in TABLES:
                db.execute(text(f'VACUUM "{table}"'))

    def sizes(self) -> dict[str, int]:
        """The number of rows of each table that holds any."""
        count = select(func.count())
        found = {
            name: self.rows(count.select_from(table).where(table.c.run_id == self.run_id))[0][0]
            for name, table in TABLES.items()
        }
        return {name: rows for name, rows in found.items() if rows}

    def drop_index(self) -> None:
        with self.begin() as db:
            drop_index(db, self.run_id)

    def remove(self) -> None:
        with self.begin(alone=True) as db:
            drop_index(db, self.run_id)
            for table in (*TABLES.values(), leases):
                db.execute(delete(table).where(table.c.run_id == self.run_id))

    def release(self) -> None:
        """The server keeps it."""

    def close(self) -> None:
        if self._lease is not None:
            self._lease.close()
