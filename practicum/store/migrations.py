"""Formats of stores: how tables are made and migrated, the same way in SQLite and in PostgreSQL.

A store keeps the number of its format: SQLite in `user_version`, beside an `application_id` that says what made the
file, PostgreSQL in the table `format` of the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """The tables of one kind of store.

    `application_id` marks its SQLite files, `create` makes all tables as they are now, and `migrations` turn format 1
    into 2, 2 into 3, and so on. A migration never changes once it is released; a new one is appended.
    """

    application_id: int
    create: Callable[[Connection], None]
    migrations: tuple[Callable[[Connection], None], ...] = ()

    @property
    def newest(self) -> int:
        return 1 + len(self.migrations)


def bring_up_to_date(db: Connection, format: StoreFormat, store: str) -> None:
    """Create the tables of an empty store, or apply the migrations that it lacks. The transaction of `db` must exclude
    other writers; it makes this whole or not at all. `store` names the store in errors.

    Raises StoreError for a store of another format.
    """
    number = read_number(db, format, store)
    if number == 0:
        format.create(db)
    elif not 1 <= number <= format.newest:
        raise _other(number, format, store)
    for migration in format.migrations[number - 1 :] if number else ():
        migration(db)
    if number != format.newest:
        _write_number(db, format)


def check(db: Connection, format: StoreFormat, store: str) -> None:
    """Raises StoreError if a store is not of the newest format."""
    if (number := read_number(db, format, store)) != format.newest:
        raise _other(number, format, store)


def read_number(db: Connection, format: StoreFormat, store: str) -> int:
    """The number of a store's format; 0 for a database without tables. Raises StoreError for tables of another program
    or of another kind of store."""
    if db.dialect.name == "sqlite":
        application_id, number = (
            int(db.execute(text(f"PRAGMA {name}")).scalar_one()) for name in ("application_id", "user_version")
        )
        if application_id == format.application_id and number:
            return number
        tables = "SELECT 1 FROM sqlite_master LIMIT 1"
    else:
        if db.execute(text("SELECT to_regclass('format')")).scalar_one() is not None:
            return int(db.execute(text("SELECT max(version) FROM format")).scalar_one() or -1)
        tables = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() LIMIT 1"
    if db.execute(text(tables)).first() is not None:
        raise StoreError(
            "store.unknown_format",
            f"{store} has tables of another program or of an earlier practicum, which this one does not read: open it "
            "with what made it, or start a new one elsewhere",
        )
    return 0


def _write_number(db: Connection, format: StoreFormat) -> None:
    if db.dialect.name == "sqlite":
        db.execute(text(f"PRAGMA application_id = {format.application_id}"))
        db.execute(text(f"PRAGMA user_version = {format.newest}"))
        return
    db.execute(text("CREATE TABLE IF NOT EXISTS format (version integer NOT NULL)"))
    db.execute(text("DELETE FROM format"))
    db.execute(text("INSERT INTO format VALUES (:version)"), {"version": format.newest})


def _other(number: int, format: StoreFormat, store: str) -> StoreError:
    if number == 0:
        empty = f"{store} is empty: the run was stopped before it wrote anything. Start it again"
        return StoreError("store.unknown_format", empty, format=number, reads=format.newest)
    advice = "open it with the practicum that made it, or start a new one elsewhere"
    if 0 < number < format.newest:
        advice = "the next command that writes to it, such as practicum space resume, migrates it"
    other = f"{store} has format {number}, and this practicum reads format {format.newest}: {advice}"
    return StoreError("store.unknown_format", other, format=number, reads=format.newest)
