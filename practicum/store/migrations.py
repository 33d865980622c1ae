"""Migrations: named functions, applied in order and counted in SQLite's `user_version`.

A function never changes once it is released; a new one is appended. A file of a newer format is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError
from practicum.store import schema


def m001_first_tables(db: Connection) -> None:
    """The tables of the first release."""
    schema.metadata.create_all(db, checkfirst=False)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (m001_first_tables,)


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
