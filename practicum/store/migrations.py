"""Migrations of a run's file: named functions, applied in order and counted in SQLite's `user_version`.

A function never changes once it is released; a new one is appended. A file of a newer format is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError
from practicum.store import schema


def m002_runs_of_texts_and_vectors(db: Connection) -> None:
    """Texts and vectors belong to a run, as all other rows do."""
    for table in ("texts", "vectors"):
        db.execute(text(f"ALTER TABLE {table} RENAME TO old_{table}"))
    keys = 'run_id VARCHAR NOT NULL, embedder VARCHAR NOT NULL, "key" BLOB NOT NULL, vector BLOB NOT NULL'
    db.execute(text(f'CREATE TABLE vectors ({keys}, PRIMARY KEY (run_id, embedder, "key"))'))
    keys = 'run_id VARCHAR NOT NULL, "key" BLOB NOT NULL, text TEXT NOT NULL'
    db.execute(text(f'CREATE TABLE texts ({keys}, PRIMARY KEY (run_id, "key"))'))
    db.execute(text("INSERT INTO vectors SELECT 'run', embedder, \"key\", vector FROM old_vectors"))
    db.execute(text("INSERT INTO texts SELECT 'run', \"key\", text FROM old_texts"))
    for table in ("texts", "vectors"):
        db.execute(text(f"DROP TABLE old_{table}"))


def m003_index_of_tasks(db: Connection) -> None:
    """A task is found by its id."""
    db.execute(text("CREATE INDEX tasks_by_id ON tasks (run_id, task_id)"))


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (m002_runs_of_texts_and_vectors, m003_index_of_tasks)
"""What follows the first format, in order."""

NEWEST = 1 + len(MIGRATIONS)


def migrate(db: Connection, folder: str) -> None:
    """Bring an open database up to date; an empty one gets the tables as they are now. Raises StoreError if a newer
    practicum wrote it."""
    version = int(db.execute(text("PRAGMA user_version")).scalar_one())
    if version > NEWEST:
        raise StoreError(
            "store.unknown_format",
            f"{folder} was written by a newer practicum (format {version}, this one knows {NEWEST}): "
            "upgrade practicum to open it",
            format=version,
            reads=NEWEST,
        )
    if version == 0:
        schema.metadata.create_all(db, checkfirst=False)
    for migration in MIGRATIONS[version - 1 :] if version else ():
        migration(db)
    if version < NEWEST:
        db.execute(text(f"PRAGMA user_version = {NEWEST}"))
