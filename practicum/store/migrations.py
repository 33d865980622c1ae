"""Migrations: named functions, applied in order and counted in SQLite's `user_version`.

A function never changes once it is released; a new one is appended. A newer file than this list knows is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError
from practicum.store import schema

_M002_TABLES = (schema.snapshots, schema.entries)


def m001_first_tables(db: Connection) -> None:
    """The tables of the first release."""
    first = [table for table in schema.metadata.sorted_tables if table not in _M002_TABLES]
    schema.metadata.create_all(db, tables=first, checkfirst=False)


def m002_snapshots(db: Connection) -> None:
    """The last context, entry by entry, beside the log of edits that it follows from."""
    schema.metadata.create_all(db, tables=_M002_TABLES, checkfirst=False)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (m001_first_tables, m002_snapshots)

READABLE = 1
"""The oldest format that can be read without a migration: later tables are derived from its own and may be missing."""


def migrate(db: Connection, folder: str) -> None:
    """Bring an open database up to date. Raises StoreError if a newer practicum wrote it."""
    version = int(db.execute(text("PRAGMA user_version")).scalar_one())
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{folder} was written by a newer practicum (format {version}, this one knows {len(MIGRATIONS)}): "
            "upgrade practicum to open it"
        )
    for number, migration in enumerate(MIGRATIONS[version:], version + 1):
        migration(db)
        db.execute(text(f"PRAGMA user_version = {number}"))
