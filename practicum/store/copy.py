"""Copies of a run from a file into a database or back, with verification."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table, func
from sqlalchemy.exc import DBAPIError

from practicum.core.errors import StoreError
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.store.flight import FLIGHT_FILE
from practicum.store.folder import FILES
from practicum.store.scope import Transaction
from practicum.store.snapshot import entry_values, read_context

TABLES = [table for table in schema.metadata.sorted_tables if table is not schema.spaces]

OF_SPACE = ("state", "config", "mark", "learning", "seconds", "result", "numbered")
"""Copied columns of the table `spaces`."""

CHUNK = 500
"""Maximum number of rows of a copy that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a copy: the number of rows by table, the last version, and the number of entries in this version."""

    rows: dict[str, int]
    version: int
    entries: int


def copy_run(source: Store, folder: Path, url: str | None = None, name: str | None = None) -> Copied:
    """Copy a space into a new folder or, with `url`, into a PostgreSQL database (see `Store.create`).

    The copy is read back and compared with the source. If they differ, the copy is removed, and StoreError is raised.
    Caches are not copied, because they can be rebuilt.
    """
    had_folder = folder.exists()
    try:
        with Store.create(folder, url, name) as target:
            try:
                rows = _copied(source, target)
                context = read_context(target)
                if _digest_of_context(source) != _digest_of_context(target):
                    raise StoreError(
                        "store.copy_failed",
                        f"the copy of {source.folder} has a different last context, so the copy was removed: try again",
                    )
            except BaseException:
                target.remove()
                raise
    except BaseException:
        if not had_folder:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    for path in source.files.iterdir():
        if path.is_file() and not path.is_symlink() and path.name not in (*FILES, FLIGHT_FILE):
            shutil.copy2(path, folder / path.name)
    return Copied(rows, context.version, len(context))


def _copied(source: Store, target: Store) -> dict[str, int]:
    """Copy the rows of a space. Returns the number of rows in each table of the copy. Raises StoreError if the rows of
    the copy differ from the rows of the source."""
    with _transaction(source) as read:
        with _transaction(target) as write:
            sent = {table.name: _copy(read, write, table) for table in TABLES}
            (row,) = read.rows(read.select(*(schema.spaces.c[name] for name in OF_SPACE)))
            write.run(write.update(schema.spaces).values(**row._mapping))
        with _transaction(target) as check:
            received = {table.name: _sum(check, table) for table in TABLES}
    if wrong := [table for table in sent if sent[table] != received[table]]:
        raise StoreError(
            "store.copy_failed",
            f"the copy differs from {source.folder} in the rows of {', '.join(wrong)}, so the copy was removed: try "
            "again",
        )
    return {table: rows for table, (rows, _) in sent.items() if rows}


@contextmanager
def _transaction(store: Store) -> Iterator[Transaction]:
    """Open a transaction outside the writer thread, because a copy may have more rows than fit in memory."""
    backend = store.database.backend
    try:
        with backend.transaction() as db:
            backend.begin(db, [store.space])
            yield Transaction(db, store.space, backend.now)
    except DBAPIError as error:
        raise backend.failure("write to", error) from error


def _columns(table: Table) -> list[Any]:
    """Return the columns of a table that are copied. Two columns are not copied, because the target assigns new values:
    the id of the space, and the number of an interaction, which is counted over all spaces."""
    counted = schema.interactions.c.number
    return [column for column in table.c if column.name != "space" and column is not counted]


def _rows(at: Transaction, table: Table) -> Iterator[list[Any]]:
    """Yield the rows of a table in parts, in the order of writing if the table stores this order, otherwise in the
    order of the keys."""
    order: Any = (ROW,) if table in schema.NUMBERED else table.primary_key.columns
    order = (schema.interactions.c.number,) if table is schema.interactions else order
    query = at.select(*_columns(table)).order_by(*order).execution_options(yield_per=CHUNK)
    yield from map(list, at.db.execute(query).partitions())


def _copy(read: Transaction, write: Transaction, table: Table) -> tuple[int, str]:
    return _sum(read, table, lambda part: write.insert(table, *(row._mapping for row in part)))


def _sum(at: Transaction, table: Table, take: Callable[[list[Any]], None] = lambda part: None) -> tuple[int, str]:
    """Return the number and the digest of the rows of a table. The rows are read in parts; `take` is called with each
    part."""
    digest, count = hashlib.sha256(), 0
    for part in _rows(at, table):
        count += len(part)
        for row in part:
            # `repr` gives equal values of different types, such as 1 and 1.0, different texts.
            digest.update(repr(tuple(row)).encode(errors="surrogatepass"))
        take(part)
    return count, digest.hexdigest()


def sizes(store: Store) -> dict[str, int]:
    """Return the number of the space's rows in each table, without tables that have no rows of the space."""
    counts = {table.name: store.rows(store.select(func.count(table.c.space)))[0][0] for table in TABLES}
    return {name: rows for name, rows in counts.items() if rows}


def _digest_of_context(store: Store) -> str:
    digest = hashlib.sha256()
    if store.rows(store.select(schema.versions.c.version).limit(1)):
        context = read_context(store)
        digest.update(repr((context.version, context.next_number)).encode())
        for entry in context:
            digest.update(json.dumps([entry.id, *entry_values(entry)]).encode())
    return digest.hexdigest()
