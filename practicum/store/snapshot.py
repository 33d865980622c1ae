"""The last context of a run, stored with one row per entry, so that a long run opens quickly.

To open a context, practicum takes the pages of the snapshot, which are read on first access, and replays the edits that
were made after the snapshot. The log of edits is authoritative: the snapshot is only used if its version is the
requested version or an ancestor of the requested version; otherwise all edits are replayed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from operator import attrgetter
from sys import intern
from typing import Any

from sqlalchemy import ColumnElement, select

from practicum.core.context import MOST_ENTRIES, PAGE, Context, Page
from practicum.core.edits import Entry
from practicum.core.errors import StoreError
from practicum.store import schema
from practicum.store.database import Store, as_stored
from practicum.store.dialects import array_length, unindexed
from practicum.store.schema import text_hash
from practicum.store.scope import RowValues, Transaction
from practicum.store.versions import lineage, read_edits

DUE = 10_000
"""Number of edits after which a new snapshot is due, counted from the last snapshot."""

AHEAD = 64
"""Number of pages that are read together when a context is read in order."""

HASHES = 500
"""Maximum number of hashes or of entry numbers in one query."""


class SnapshotPages:
    """Entries of a stored snapshot. Reading entries raises StoreError after the snapshot was replaced.

    `indexed` is the number of entries in the index that was saved with the snapshot, 0 without an index.
    """

    def __init__(self, store: Store, version: int, indexed: int) -> None:
        self.store = store
        self.indexed = indexed
        self.version = version
        self._ahead: dict[int, dict[int, Entry]] = {}
        self._last = -2

    def page(self, index: int) -> dict[int, Entry]:
        """Return the entries of a page, by the number of the entry."""
        if index not in self._ahead:
            count = AHEAD if index == self._last + 1 else 1
            self._ahead = {i: {} for i in range(index, index + count)}
            table = schema.entries
            start, stop = table.c.number >= index * PAGE, table.c.number < (index + count) * PAGE
            for entry in self._read(self.store.mine(table, start, stop)):
                self._ahead[entry.number // PAGE][entry.number] = entry
        self._last = index
        return self._ahead.pop(index)

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, oldest first."""
        table, number = schema.entries, -1
        while part := self._read(self.store.mine(table, table.c.number > number), AHEAD * PAGE):
            yield from part
            number = part[-1].number

    def with_numbers(self, numbers: list[int]) -> list[Entry]:
        """Return the entries with these numbers."""
        table = schema.entries
        parts = (numbers[start : start + HASHES] for start in range(0, len(numbers), HASHES))
        return [entry for part in parts for entry in self._read(self.store.mine(table, table.c.number.in_(part)))]

    def with_hashes(self, hashes: list[int]) -> list[Entry]:
        """Return the entries whose embedded text has one of these hashes."""
        table = schema.entries
        # Keep SQLite from searching by the primary key, which begins with the space: such a search would read all
        # entries of the space.
        in_space = unindexed(table.c.space) == self.store.space
        parts = (hashes[start : start + HASHES] for start in range(0, len(hashes), HASHES))
        return [entry for part in parts for entry in self._read(in_space & table.c.hash.in_(part))]

    def _read(self, condition: ColumnElement[bool], limit: int | None = None) -> list[Entry]:
        with as_stored(self.store.folder):
            return self._entries(condition, limit)

    def _entries(self, condition: ColumnElement[bool], limit: int | None) -> list[Entry]:
        entries, snapshots = schema.entries, schema.snapshots
        same = self.store.mine(snapshots, snapshots.c.version == self.version)
        # Read the version and the entries with one query, so that all entries are of this version.
        query = select(entries.c.number, entries.c.data).select_from(snapshots.outerjoin(entries, condition))
        rows = self.store.rows(query.where(same).order_by(entries.c.number).limit(limit))
        if not rows:
            raise StoreError(
                "store.changed", f"{self.store.folder} changed while it was being read: run the command again"
            )
        return [_entry(row.number, row.data) for row in rows if row.number is not None]


def read_context(store: Store, version: int | None = None, base: Context | None = None) -> Context:
    """Return the context at a version (None: the last). Its pages are read on first access.

    `base` is a context of the run in memory: if it is an ancestor of the version, only the later edits are read. Raises
    UsageError if the version does not exist.
    """
    table = schema.versions
    columns = store.select(table.c.version, table.c.parent, table.c.next_number)
    heads = {row.version: row for row in store.rows(columns)}
    if not heads:
        return Context()
    if any(not 0 <= row.next_number <= MOST_ENTRIES for row in heads.values()):
        raise StoreError("store.damaged", f"the versions of {store.folder} are damaged: too many entries")
    line = lineage({number: row.parent for number, row in heads.items()}, version)
    context = base if base is not None and base.version in line else _open_snapshot(store, line)
    for number in line[line.index(context.version) + 1 :] if context.pages or context is base else line:
        context = context.replay(read_edits(store, number), number)
    return replace(context, next_number=max(context.next_number, heads[line[-1]].next_number))


def _open_snapshot(store: Store, line: list[int]) -> Context:
    """Return the context of the snapshot if `line` (the requested version and its ancestors) has the version of the
    snapshot, otherwise an empty context."""
    table = schema.snapshots
    for row in store.rows(store.select(table)):
        if row.version in line and 0 <= row.next_number <= MOST_ENTRIES:
            stored = SnapshotPages(store, row.version, row.indexed)
            pages = tuple(Page.stored(stored, index) for index in range(-(-row.next_number // PAGE)))
            return Context(pages, row.version, row.next_number, row.size)
    return Context()


def stored_pages(context: Context) -> SnapshotPages | None:
    """Return the snapshot that pages of a context were taken from; None if no page is from a snapshot."""
    # This must be fast, because a large context has hundreds of pages, and each search calls this function.
    origin = next(filter(None, map(attrgetter("origin"), context.pages)), None)
    return origin if isinstance(origin, SnapshotPages) else None


def with_texts(context: Context, texts: Collection[str]) -> Iterator[Entry]:
    """Yield the entries of a context whose embedded text is one of `texts`. Other entries of a snapshot are not
    read."""
    if (stored := stored_pages(context)) is not None:
        candidates = stored.with_hashes([*map(text_hash, texts)])
        for entry in candidates:
            if entry.embedded_text in texts and context.pages[entry.number // PAGE].origin is stored:
                yield entry
    for page in context.pages:
        if page.origin is not stored or stored is None:
            yield from (entry for entry in page.entries.values() if entry.embedded_text in texts)


def snapshot_due(store: Store) -> bool:
    """Whether opening the last version would replay at least DUE edits."""
    table, snapshot = schema.versions, _snapshot_version(store)
    length = array_length(table.c.applied)
    query = store.select(table.c.version, table.c.parent, length)
    rows = store.rows(query if snapshot is None else query.where(table.c.version > snapshot))
    if snapshot is not None and any(row.parent is not None and row.parent < snapshot for row in rows):
        # After a rollback to a version before the snapshot, the snapshot may not be usable.
        rows = store.rows(query)
    return bool(sum(row[2] for row in rows) >= DUE)


def write_snapshot(store: Store, context: Context, indexed: int = 0) -> None:
    """Replace the snapshot by a context whose edits are all in the log. Only pages that changed since the last snapshot
    are written. `indexed` is the number of entries in the index of this context."""
    table, snapshot = schema.entries, _snapshot_version(store)

    def unchanged(page: Page) -> bool:
        origin = page.origin
        return isinstance(origin, SnapshotPages) and (origin.version, origin.store.folder) == (snapshot, store.folder)

    changed = [i for i, page in enumerate(context.pages) if not unchanged(page)]

    def change(at: Transaction) -> None:
        if len(changed) == len(context.pages):
            at.run(at.delete(table))
        for index in changed:
            page = context.pages[index]
            if len(changed) < len(context.pages):
                first = index * PAGE
                at.run(at.delete(table).where(table.c.number >= first, table.c.number < first + PAGE))
            at.insert(table, *map(_row, page.entries.values()))
        row = {"version": context.version, "next_number": context.next_number, "size": context.size}
        invalidate_snapshot(at)
        at.insert(schema.snapshots, {**row, "indexed": indexed})

    store.change(change)


def _snapshot_version(store: Store) -> int | None:
    table = schema.snapshots
    rows = store.rows(store.select(table.c.version))
    return rows[0].version if rows else None


def invalidate_snapshot(at: Transaction) -> None:
    """Mark the snapshot as unusable. Must be called before versions in the log are changed or deleted."""
    at.run(at.delete(schema.snapshots))


def delete_snapshot(at: Transaction) -> None:
    """Delete the snapshot and all rows of its entries, including their texts."""
    invalidate_snapshot(at)
    at.run(at.delete(schema.entries))


def entry_values(e: Entry) -> list[Any]:
    """Return an entry as a JSON list, without its number."""
    counts = (e.helpful, e.harmful, e.failing, e.uses)
    return [e.section, e.text, e.key, dict(e.data), *counts, e.born, e.changed, e.sources]


def _row(e: Entry) -> RowValues:
    data = json.dumps(entry_values(e), ensure_ascii=False)
    return {"number": e.number, "hash": text_hash(e.embedded_text), "data": data}


def _entry(number: int, data: str) -> Entry:
    section, text, key, fields, helpful, harmful, failing, uses, born, changed, sources = json.loads(data)
    # Intern names that many entries share, to save memory.
    section, fields = intern(section), {intern(name): value for name, value in fields.items()}
    return Entry(
        f"e{number}", section, text, key, fields, helpful, harmful, uses, born, changed, tuple(sources), failing
    )  # fmt: skip
