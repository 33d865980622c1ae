"""Copying a run between a file and a database, either way, and checking the copy."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from practicum.core.errors import StoreError
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.store.flight import FLIGHT_FILE
from practicum.store.folder import FILES
from practicum.store.scope import Transaction
from practicum.store.snapshot import entry_values, read_context

TABLES = schema.metadata.sorted_tables

CHUNK = 500
"""Rows that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied of a run and found in the copy: the rows of each table, the last version and its entries."""

    rows: dict[str, int]
    version: int
    entries: int


def copy_run(source: Store, folder: Path, url: str | None = None, name: str | None = None) -> Copied:
    """Copy a run into a new folder, or with `url` into a PostgreSQL database; `Store.create` says how.

    Everything is read again from the copy and compared. Raises StoreError, and leaves no copy, if something differs.
    Caches are not copied: they are made anew.
    """
    had_folder = folder.exists()
    with Store.create(folder, url, name) as target:
        try:
            with source.transaction() as read:
                with target.transaction() as write:
                    sent = {table.name: _copy(read, write, table) for table in TABLES}
                with target.transaction() as check:
                    found = {table.name: _sum(check, table) for table in TABLES}
            if wrong := [table for table in sent if sent[table] != found[table]]:
                raise StoreError(
                    "store.copy_failed", f"the copy of {source.folder} differs in {', '.join(wrong)}, so it was removed"
                )
            context = read_context(target)
            if _digest_of_context(source) != _digest_of_context(target):
                raise StoreError(
                    "store.copy_failed", f"the copy of {source.folder} has another last context, so it was removed"
                )
        except BaseException:
            target.remove()
            if not had_folder:
                shutil.rmtree(folder)
            raise
    for path in source.folder.iterdir():
        if path.is_file() and not path.is_symlink() and path.name not in (*FILES, FLIGHT_FILE):
            shutil.copy2(path, folder / path.name)
    return Copied({table: rows for table, (rows, _) in sent.items() if rows}, context.version, len(context))


def _rows(at: Transaction, table: Table) -> Iterator[list[Any]]:
    """The rows of a table in the order of writing, a part at a time."""
    order = (ROW,) if table in schema.NUMBERED else table.primary_key.columns
    query = at.select(table).order_by(*order).execution_options(yield_per=CHUNK)
    yield from map(list, at.db.execute(query).partitions())


def _copy(read: Transaction, write: Transaction, table: Table) -> tuple[int, str]:
    def send(part: list[Any]) -> None:
        write.insert(table, *({**row._mapping, "space": write.space} for row in part))

    return _sum(read, table, send)


def _sum(at: Transaction, table: Table, take: Callable[[list[Any]], None] = lambda part: None) -> tuple[int, str]:
    """The number and the digest of the rows of a table, each part of which is given to `take`."""
    digest, count = hashlib.sha256(), 0
    for part in _rows(at, table):
        count += len(part)
        for row in part:
            # All but the space, which is the first column. The representation of a value tells its type.
            digest.update(repr(tuple(row)[1:]).encode(errors="surrogatepass"))
        take(part)
    return count, digest.hexdigest()


def _digest_of_context(store: Store) -> str:
    digest = hashlib.sha256()
    if store.rows(store.select(schema.versions.c.version).limit(1)):
        context = read_context(store)
        digest.update(repr((context.version, context.next_number)).encode())
        for entry in context:
            digest.update(json.dumps([entry.id, *entry_values(entry)]).encode())
    return digest.hexdigest()
