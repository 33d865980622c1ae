"""Searching a run's context by the index that is saved beside it, without reading its entries.

The index proposes entries, exactly those that a filter keeps (see `index`). What changed since the snapshot is compared
in full, and hides its older state. Of the proposed entries those that are read are compared in full, too.

Exact are: the filters, what changed, the weights of words, the share of the words that a proposed entry has, and the
similarity of what is found. Inexact is which entries are proposed: those with the nearest vectors in the lists around
the query, and those with most of its rarest words; an entry that has its common words alone may be missed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from practicum.core.context import PAGE, Context, Page
from practicum.core.edits import Entry
from practicum.retrieval.index import FILTERS, Covers, Index, Part, Rows, fingerprint, remove_index
from practicum.retrieval.vectors import Vectors, products
from practicum.retrieval.words import WordIndex, WordQuery, Words, joined_similarity, word_keys
from practicum.store.snapshot import SnapshotPages, stored_pages

EntryPredicate = Callable[[Entry], bool]

CANDIDATES, MAX_CANDIDATES = 2_048, 32_768
"""Entries that each part proposes by its vectors, and by its words, at least and at most."""

READ = 16
"""Entries that are read and compared in full, beside twice as many as are wanted."""

CHUNK = 32_768
"""Entries that are read and embedded at a time to build an index."""


class StoredSearch:
    """Opens, searches and saves the index of the run that `vectors` have their store from. `weight` is that of the
    words in a similarity."""

    def __init__(self, vectors: Vectors, words: WordIndex, weight: float) -> None:
        self._vectors, self._words, self._weight = vectors, words, weight
        self._opened: tuple[SnapshotPages, Index | None] | None = None
        self._changes: _Changes | None = None
        self._lock = asyncio.Lock()
        self._merging: threading.Thread | None = None

    async def nearest(
        self, context: Context, text: str, k: int, where: EntryPredicate, keys: tuple[int, ...] | None
    ) -> list[tuple[Entry, float]] | None:
        """The k entries most similar to a text, best first, with their similarities. `keys` are the facets that say the
        same as `where`; None if none do: then it is asked about what is proposed.

        None if there is no index, or if too little of what is proposed matches.
        """
        stored = stored_pages(context)
        index = None if stored is None else await self._index(stored)
        if stored is None or index is None:
            return None
        vector = await self._vectors.query(text)
        changes = self._changed(context, stored, index)
        rows, matching = await changes.rows(self._vectors), changes.matching(where)
        words = await self._words.cover()
        query = _query(text, changes, words, rows)
        best: list[tuple[Entry, float]] = []
        if matching:
            rows = rows[matching]
            found = joined_similarity(
                products(self._vectors.matrix.take(rows), vector), words.scores(query)[rows], self._weight
            )
            best = [(changes.entries[matching[i]], float(found[i])) for i in np.argsort(-found, kind="stable")[:k]]
        n = max(CANDIDATES, 4 * k)
        while n <= MAX_CANDIDATES:
            numbers, likeness, shares = _proposed(changes, vector, query, n, keys, self._weight)
            likely = np.argsort(-likeness, kind="stable")[: READ + 2 * k if keys is not None else n // 4]
            entries = {e.number: e for e in _read(context, stored, numbers[likely])}
            near = [(e, share) for i, share in zip(likely, shares[likely].tolist(), strict=True)
                    if (e := entries.get(int(numbers[i]))) is not None and where(e)]  # fmt: skip
            if keys is not None or len(near) >= k or n >= len(index):
                compared = await self._vectors([e.embedded_text for e, _ in near])
                exact = joined_similarity(
                    products(compared, vector), np.array([share for _, share in near]), self._weight
                )
                best += [(entry, float(value)) for (entry, _), value in zip(near, exact, strict=True)]
                return sorted(best, key=lambda item: (-item[1], item[0].number))[:k]
            n *= 4
        return None

    async def save(self, context: Context, run_id: str) -> int:
        """Save an index of a context, the last version of its run. Returns its number of entries."""
        async with self._lock:
            folder, embedder = self._folder, self._vectors.embedder.name
            stored = stored_pages(context)
            index = None if stored is None else Index.open(folder, run_id, embedder, stored.version)
            if index is None or stored is None:
                covers = Covers(run_id=run_id, embedder=embedder, first=0, last=context.version)
                index = await self._build((e for page in context.pages for e in page.peek().values()), covers)
            elif context.version > index.last:
                changes = self._changed(context, stored, index)
                covers = replace(index.parts[-1].covers, first=index.last + 1, last=context.version)
                parts = [part async for part in self._parts(covers, _chunks(changes.entries), changes.touched)]
                index = await asyncio.to_thread(index.extended, parts)
            if self._merging is None or not self._merging.is_alive():
                remove_index(folder, [part.covers.name for part in index.parts])
                if many := index.due():
                    # Not a daemon: a process that ends waits for it. One that is killed leaves the old files.
                    self._merging = threading.Thread(target=index.merge, args=(many,), name="practicum-index")
                    self._merging.start()
            return len(index)

    def settle(self) -> None:
        """Wait until what is being merged is merged."""
        if self._merging is not None:
            self._merging.join()

    @property
    def _folder(self) -> Path:
        assert self._vectors.folder is not None
        return self._vectors.folder

    async def _index(self, stored: SnapshotPages) -> Index | None:
        """The index of a snapshot, which is made again if it is lost or damaged."""
        if not stored.indexed or not stored.store.trusted or self._vectors.folder != stored.store.folder:
            return None
        async with self._lock:
            if self._opened is None or self._opened[0] is not stored:
                name = self._vectors.embedder.name
                index = Index.open(self._folder, stored.run_id, name, stored.version)
                if index is None and os.access(self._folder, os.W_OK):
                    covers = Covers(run_id=stored.run_id, embedder=name, first=0, last=stored.version)
                    index = await self._build(stored.entries(), covers)
                self._opened = stored, index
            return self._opened[1]

    async def _build(self, entries: Iterable[Entry], covers: Covers) -> Index:
        """Write an index anew."""
        made = self._parts(covers, _chunks(entries), np.zeros(0, dtype=np.int32))
        parts = [await asyncio.to_thread(part.spilled, self._folder) async for part in made]
        return await asyncio.to_thread(Index(self._folder, ()).extended, parts)

    async def _parts(
        self, covers: Covers, chunks: Iterable[Sequence[Entry]], touched: np.ndarray
    ) -> AsyncIterator[Part]:
        """Some entries as parts, at least one; the first says what was touched."""
        made = False
        for chunk in chunks:
            vectors = await self._vectors.passing([entry.embedded_text for entry in chunk])
            yield await asyncio.to_thread(Part.of, covers, chunk, vectors, touched[:0] if made else touched)
            made = True

    def _changed(self, context: Context, stored: SnapshotPages, index: Index) -> _Changes:
        if self._changes is None or self._changes.pages is not context.pages or self._changes.index is not index:
            self._changes = _Changes.of(context, stored, index, self._changes)
        return self._changes


@dataclass(frozen=True)
class _Changed:
    """What of a page an index does not know: the entries, and the numbers of those and of what is gone."""

    entries: list[Entry]
    touched: list[int]


@dataclass(frozen=True)
class _Changes:
    """What differs between a context and an index: `entries` are new or have another content, and `touched` are the
    numbers of these and of those that are gone, ascending."""

    pages: tuple[Page, ...]
    index: Index
    by_page: dict[Page, _Changed]
    entries: list[Entry]
    touched: np.ndarray
    _vectors: list[np.ndarray] = field(default_factory=list)
    _matching: dict[EntryPredicate, list[int]] = field(default_factory=dict)
    _rows: OrderedDict[tuple[int, ...] | None, list[Rows | None]] = field(default_factory=OrderedDict)

    @classmethod
    def of(cls, context: Context, stored: SnapshotPages, index: Index, before: _Changes | None) -> _Changes:
        known = before.by_page if before is not None and before.index is index else {}
        fresh = [(number, page) for number, page in enumerate(context.pages) if page.origin is not stored]
        by_page = {page: known.get(page) or _changed(number, page, index) for number, page in fresh}
        entries = [entry for changed in by_page.values() for entry in changed.entries]
        touched = [number for changed in by_page.values() for number in changed.touched]
        return cls(context.pages, index, by_page, entries, np.unique(np.array(touched, dtype=np.int32)))

    def matching(self, where: EntryPredicate) -> list[int]:
        """The places of the changed entries that match."""
        if where not in self._matching:
            self._matching[where] = [place for place, entry in enumerate(self.entries) if where(entry)]
        return self._matching[where]

    async def rows(self, vectors: Vectors) -> np.ndarray:
        """The rows of the vectors of the changed entries."""
        if not self._vectors:
            await vectors.ready(entry.embedded_text for entry in self.entries)
            self._vectors.append(vectors.rows(entry.embedded_text for entry in self.entries))
        return self._vectors[0]

    @cached_property
    def dead(self) -> list[np.ndarray | None]:
        """The rows of each part that are not of this context, as a mask of shape (n,); None for none."""
        found = []
        for part, hidden in zip(self.index.parts, self.index.hidden, strict=True):
            rows = part.rows_by_number(self.touched)
            rows = rows[rows >= 0]
            if len(rows):
                hidden = np.zeros(len(part), dtype=bool) if hidden is None else hidden.copy()
                hidden[rows] = True
            found.append(hidden)
        return found

    @cached_property
    def dead_rows(self) -> list[np.ndarray]:
        none = np.zeros(0, dtype=np.int64)
        return [none if dead is None else np.flatnonzero(dead) for dead in self.dead]

    def wanted(self, keys: tuple[int, ...] | None) -> list[Rows | None]:
        """The rows of each part that are of this context and have these facets; None for all."""
        if keys not in self._rows:
            found = []
            for part, dead in zip(self.index.parts, self.dead, strict=True):
                rows = None if keys is None else part.rows_with(keys)
                if dead is not None:
                    rows = Rows(~dead if rows is None else rows.mask & ~dead)
                found.append(rows)
            self._rows[keys] = found
            if len(self._rows) > FILTERS:
                self._rows.popitem(last=False)
        self._rows.move_to_end(keys)
        return self._rows[keys]


def _changed(number: int, page: Page, index: Index) -> _Changed:
    known = index.numbers_between(number * PAGE, (number + 1) * PAGE)
    prints = dict(zip(known.tolist(), index.prints(known).tolist(), strict=True))
    changed = [entry for n, entry in page.entries.items() if prints.get(n) != fingerprint(entry)]
    gone = [n for n in prints if n not in page.entries]
    return _Changed(changed, [*(entry.number for entry in changed), *gone])


def _query(text: str, changes: _Changes, words: Words, rows: np.ndarray) -> WordQuery:
    """The words of a text, weighed among all entries of the context; `rows` are those of what changed."""
    keys = [*dict.fromkeys(word_keys(text))]
    having = words.having(keys, np.bincount(rows, minlength=1))
    n, length = len(rows), float(words.lengths[rows].sum())
    for part, dead, mask in zip(changes.index.parts, changes.dead_rows, changes.dead, strict=True):
        having = having + [part.having(key, dead, mask) for key in keys]
        n, length = n + len(part) - len(dead), length + part.words - float(part.lengths[dead].sum())
    return WordQuery.of(keys, n, having, length / max(n, 1))


def _proposed(
    changes: _Changes, vector: np.ndarray, query: WordQuery, n: int, keys: tuple[int, ...] | None, weight: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """The numbers of the entries that the parts propose, their similarities, in which the cosines are rough, and the
    share of the words that each has."""
    found = [
        (part.numbers[rows], joined_similarity(cosines, shares, weight), shares)
        for part, wanted in zip(changes.index.parts, changes.wanted(keys), strict=True)
        for rows, cosines, shares in (part.nearest(vector, query, n, wanted),)
    ]
    numbers, likeness, shares = map(np.concatenate, zip(*found, strict=True))
    return numbers, likeness, shares


def _read(context: Context, stored: SnapshotPages, numbers: np.ndarray) -> list[Entry]:
    """The entries of a context with these numbers, without reading more than these."""
    here = [context.pages[number // PAGE] for number in numbers.tolist()]
    unread = [number for number, page in zip(numbers.tolist(), here, strict=True) if page.origin is stored]
    read = [
        page.entries.get(number)
        for number, page in zip(numbers.tolist(), here, strict=True)
        if page.origin is not stored
    ]
    return [*stored.with_numbers(unread), *(entry for entry in read if entry is not None)]


def _chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries in lists of CHUNK; one that is empty if there are none."""
    rest = iter(entries)
    chunk = list(islice(rest, CHUNK))
    yield chunk
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
