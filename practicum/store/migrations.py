"""Formats of stores: creation and migration of tables, the same in SQLite and in PostgreSQL.

A store records the number of its format. In a SQLite file, `user_version` is the number, and `application_id` shows
that practicum created the file. In PostgreSQL, the table `format` of the schema has the number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """Format of the tables of one kind of store.

    `application_id` marks SQLite files of this kind. `create` creates all tables in the newest format. `migrations`
    convert format 1 into 2, 2 into 3, and so on. A migration never changes after its release; new migrations are
    appended.
    """

    application_id: int
    create: Callable[[Connection], None]
    migrations: tuple[Callable[[Connection], None], ...] = ()

    @property
    def newest(self) -> int:
        return 1 + len(self.migrations)


def bring_up_to_date(db: Connection, format: StoreFormat, store: str) -> None:
    """Create the tables of an empty store, or migrate a store to the newest format. The transaction of `db` must
    exclude other writers, and makes the change atomic. `store` is the name of the store in errors.

    Raises StoreError if this version of practicum does not know the format of the store.
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
    """Raise StoreError if a store does not have the newest format."""
    if (number := read_number(db, format, store)) != format.newest:
        raise _other(number, format, store)


def read_number(db: Connection, format: StoreFormat, store: str) -> int:
    """Return the number of a store's format; 0 for a database without tables. Raises StoreError for tables of another
    program or of another kind of store."""
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
            f"{store} has tables of another program or of an earlier version of practicum: open the store with that "
            "program, or use a different folder or database",
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
        empty = f"{store} is empty, because the run was stopped before it wrote anything: start the run again"
        return StoreError("store.unknown_format", empty, format=number, reads=format.newest)
    advice = "open the store with the version of practicum that created it, or start a new store"
    if 0 < number < format.newest:
        advice = "migrate the store with a command that writes to it, such as practicum space resume"
    other = f"{store} has format {number}, but this version of practicum reads format {format.newest}: {advice}"
    return StoreError("store.unknown_format", other, format=number, reads=format.newest)
