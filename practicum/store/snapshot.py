"""The last context of a run, kept entry by entry beside the log it follows from, so that opening it reads little.

A snapshot is of one version. A context is opened as its pages, each read when it is first looked at, and the edits
that came later, replayed. The log stays the truth: a snapshot that does not lie on the way to the version asked for is
not used, and one that is gone is no loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from sys import intern
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select

from practicum.core.context import PAGE, Context, Page
from practicum.core.edits import Entry
from practicum.core.errors import StoreError, UsageError
from practicum.store import schema
from practicum.store.database import RowValues, Store
from practicum.store.schema import text_hash
from practicum.store.versions import lineage, read_edits

DUE = 10_000
"""Edits to replay from which a new snapshot is worth its writing."""

AHEAD = 64
"""Pages read together where one is read after the other."""

HASHES = 500
"""Hashes named in one query."""


class SnapshotPages:
    """The entries of a snapshot, on the disk. Raises StoreError where they are asked for after it was replaced.

    `indexed` is how many vectors the index beside it had, which knew them all; 0 where there was none.
    """

    def __init__(self, store: Store, run_id: str, version: int, indexed: int) -> None:
        self.store = store
        self.indexed = indexed
        self.version = version
        self._run_id = run_id
        self._ahead: dict[int, dict[int, Entry]] = {}
        self._last = -2

    def page(self, index: int) -> dict[int, Entry]:
        """The entries of one page by number."""
        if index not in self._ahead:
            count = AHEAD if index == self._last + 1 else 1
            self._ahead = {at: {} for at in range(index, index + count)}
            table = schema.entries
            its = (table.c.run_id == self._run_id) & (table.c.number >= index * PAGE)
            for entry in self._read(its & (table.c.number < (index + count) * PAGE)):
                self._ahead[entry.number // PAGE][entry.number] = entry
        self._last = index
        return self._ahead.pop(index)

    def with_hashes(self, hashes: list[int]) -> list[Entry]:
        """The entries whose embedded text has one of these hashes."""
        table = schema.entries
        # No plain equality, or SQLite would look at all entries of the run in place of the few with these hashes.
        mine = table.c.run_id.concat("") == self._run_id
        some = (hashes[start : start + HASHES] for start in range(0, len(hashes), HASHES))
        return [entry for each in some for entry in self._read(mine & table.c.hash.in_(each))]

    def _read(self, which: ColumnElement[bool]) -> list[Entry]:
        entries, snapshots = schema.entries, schema.snapshots
        same = (snapshots.c.run_id == self._run_id) & (snapshots.c.version == self.version)
        # One query, so that what is read is of that very version.
        query = select(entries.c.number, entries.c.data).select_from(snapshots.outerjoin(entries, which)).where(same)
        rows = self.store.rows(query)
        if not rows:
            raise StoreError(f"{self.store.folder} was changed while it was being read: do it once more")
        return [_entry(row.number, row.data) for row in rows if row.number is not None]


def read_context(store: Store, run_id: str, version: int | None = None) -> Context:
    """The context at a version (the last where None), read as far as it is looked at."""
    table = schema.versions
    heads = {
        row.version: row
        for row in store.rows(
            select(table.c.version, table.c.parent, table.c.next_number).where(table.c.run_id == run_id)
        )
    }
    if not heads:
        return Context()
    wanted = max(heads) if version is None else version
    if wanted not in heads:
        raise UsageError(f"there is no version {wanted}: this run has 0 to {max(heads)}")
    way = lineage({number: row.parent for number, row in heads.items()}, wanted)
    context = _opened(store, run_id, way)
    later = way[way.index(context.version) + 1 :] if context.pages else way
    for number in later:
        context = context.replay(read_edits(store, run_id, number), number)
    return replace(context, next_number=max(context.next_number, heads[wanted].next_number))


def _opened(store: Store, run_id: str, way: list[int]) -> Context:
    """The snapshot, where it lies on the way; else an empty context."""
    table = schema.snapshots
    if not store.has_table(table):
        return Context()
    for row in store.rows(select(table).where(table.c.run_id == run_id)):
        if row.version in way:
            stored = SnapshotPages(store, run_id, row.version, row.indexed)
            pages = tuple(Page.stored(stored, index) for index in range(-(-row.next_number // PAGE)))
            return Context(pages, row.version, row.next_number, row.size)
    return Context()


def snapshot_due(store: Store, run_id: str) -> bool:
    """Whether opening the last version would replay many edits."""
    versions, snapshots = schema.versions, schema.snapshots
    known = store.rows(select(snapshots.c.version).where(snapshots.c.run_id == run_id))
    length = func.json_array_length(versions.c.applied)
    query = select(versions.c.version, versions.c.parent, length).where(versions.c.run_id == run_id)
    rows = store.rows(query.where(versions.c.version > known[0].version) if known else query)
    if known and any(row.parent is not None and row.parent < known[0].version for row in rows):
        # A rollback to before it: it may be of no use any more.
        rows = store.rows(query)
    return bool(sum(row[2] for row in rows) >= DUE)


def write_snapshot(store: Store, run_id: str, context: Context, indexed: int = 0) -> None:
    """Keep a context that is in the log. Only what changed since the snapshot it was opened from is written."""
    table, snapshots = schema.entries, schema.snapshots
    known = store.rows(select(snapshots.c.version).where(snapshots.c.run_id == run_id))
    version = known[0].version if known else None
    changed = [i for i, page in enumerate(context.pages) if not _is_there(page, store, version)]
    mine = table.c.run_id == run_id

    def statements() -> Iterator[tuple[Any, list[RowValues]]]:
        if len(changed) == len(context.pages):
            yield delete(table).where(mine), []
        for index in changed:
            page = context.pages[index]
            if len(changed) < len(context.pages):
                first = index * PAGE
                yield delete(table).where(mine, table.c.number >= first, table.c.number < first + PAGE), []
            if page.entries:
                yield table.insert(), [_row(run_id, entry) for entry in page.entries.values()]
        row = {"run_id": run_id, "version": context.version, "next_number": context.next_number}
        yield invalidate_snapshot(run_id), []
        yield snapshots.insert(), [{**row, "size": context.size, "indexed": indexed}]

    store.execute_all(statements())


def invalidate_snapshot(run_id: str) -> Any:
    """The statement by which a run's snapshot counts no more, to come before what makes it untrue."""
    return delete(schema.snapshots).where(schema.snapshots.c.run_id == run_id)


def delete_snapshot(run_id: str) -> list[Any]:
    """The statements that take a run's snapshot away with all its words."""
    return [invalidate_snapshot(run_id), delete(schema.entries).where(schema.entries.c.run_id == run_id)]


def _is_there(page: Page, store: Store, version: int | None) -> bool:
    origin = page.origin
    return isinstance(origin, SnapshotPages) and origin.version == version and origin.store.folder == store.folder


def _row(run_id: str, e: Entry) -> RowValues:
    said = [e.section, e.text, e.key, dict(e.data), e.helpful, e.harmful, e.uses, e.born, e.changed, e.sources]
    data = json.dumps(said, ensure_ascii=False)
    return {"run_id": run_id, "number": e.number, "hash": text_hash(e.embedded_text), "data": data}


def _entry(number: int, data: str) -> Entry:
    section, text, key, more, helpful, harmful, uses, born, changed, sources = json.loads(data)
    # Names that all entries share are kept once.
    section, more = intern(section), {intern(name): value for name, value in more.items()}
    return Entry(
        f"e{number}", section, text, key, more, helpful, harmful, uses, born, changed, tuple(sources)
    )  # fmt: skip
