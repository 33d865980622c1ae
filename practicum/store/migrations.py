"""Explicit migrations: named functions, applied in order, counted in SQLite's `user_version`.

A function is never changed once released; a new one is appended. A file newer than this list is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError
from practicum.store import schema


def m001_first_tables(db: Connection) -> None:
    """All tables of the first release."""
    schema.metadata.create_all(db)


def m002_snapshots(db: Connection) -> None:
    """The last context entry by entry, beside the log it follows from."""
    schema.metadata.create_all(db, tables=[schema.snapshots, schema.entries])


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (m001_first_tables, m002_snapshots)

READABLE = 1
"""The oldest format that is read as it is: what came later is made from what was there, and done without."""


def migrate(db: Connection, where: str) -> None:
    """Bring an open database up to date, or refuse one that a newer practicum wrote."""
    version = int(db.execute(text("PRAGMA user_version")).scalar_one())
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{where} was written by a newer practicum (format {version}, this one knows {len(MIGRATIONS)}): "
            "upgrade practicum to open it"
        )
    for number, step in enumerate(MIGRATIONS[version:], version + 1):
        step(db)
        db.execute(text(f"PRAGMA user_version = {number}"))
