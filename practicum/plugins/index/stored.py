"""Searching a run's context by the index that is saved with it, without reading its entries.

The index proposes entries, exactly those that a filter keeps. What changed since the snapshot is compared in full, and
hides its older state. Of the proposed entries those that are read are compared in full, too. An index lies in files
beside the run (see `files`), or in the database that the run is in (see `pgvector`).

Exact are: the filters, what changed, the weights of words, the share of the words that a proposed entry has, and the
similarity of what is found. Inexact is which entries are proposed: those with vectors near the query, and those with
most of its rarest words; an entry that has its common words alone may be missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np

from practicum.core.context import PAGE, Context, Page
from practicum.core.edits import Entry
from practicum.plugins.index.index import Chunk, Covers, filter_facets, fingerprint
from practicum.retrieval.search import EntryPredicate, Filter
from practicum.retrieval.vectors import Vectors, products
from practicum.retrieval.words import WordIndex, WordQuery, Words, joined_similarity, no_words, word_keys
from practicum.store.snapshot import SnapshotPages, stored_pages

CANDIDATES, MAX_CANDIDATES = 2_048, 32_768
"""Entries that an index proposes by its vectors, and by its words, at least and at most."""

READ = 16
"""Entries that are read and compared in full, beside twice as many as are wanted."""

CHUNK = 32_768
"""Entries that are read and embedded at a time to build an index."""

TRIES = 3
"""How often an index is opened that others change meanwhile."""


class IndexMoved(Exception):
    """Another process changed an index after it was opened. Open it again."""


class Unchanged(Protocol):
    """The entries of an index that a context has, too."""

    def __len__(self) -> int: ...

    @property
    def words(self) -> float:
        """The words of all of them."""

    def having(self, keys: Sequence[int]) -> np.ndarray:
        """How many have each of these words or facets, shape (len(keys),)."""

    def propose(
        self, vector: np.ndarray, query: WordQuery, n: int, keys: tuple[int, ...] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """About n entries near a vector and n with most of a query's words, of those that have all facets `keys`: their
        numbers, their cosines, which may be rough, and the share of the words that each has."""


class StoredIndex(Protocol):
    """The index of a run, open, as it was at the version `last`. An index that others write to raises IndexMoved once
    they did."""

    @property
    def last(self) -> int: ...

    def __len__(self) -> int: ...

    def changed_after(self, version: int) -> np.ndarray:
        """The numbers of the entries that have another state in it than in the snapshot of an earlier version, and
        maybe of more, ascending."""

    def prints(self, pages: Sequence[int]) -> list[dict[int, int]]:
        """The fingerprints of all entries of each of these pages, by number."""

    def without(self, touched: np.ndarray) -> Unchanged:
        """Without the entries with these numbers, ascending."""


class IndexPlace(Protocol):
    """Where the index of a run is kept. What is interrupted leaves the index that was there."""

    @property
    def writable(self) -> bool:
        """Whether this process may build an index."""

    def open(self, space: str, embedder: str, version: int) -> StoredIndex | None:
        """The index for the snapshot of a version; None if there is none, or none that fits it."""

    async def build(self, covers: Covers, chunks: AsyncIterator[Chunk]) -> StoredIndex:
        """Make an index anew; there is at least one chunk."""

    async def extend(self, index: Any, version: int, chunks: AsyncIterator[Chunk], touched: np.ndarray) -> StoredIndex:
        """Bring an index to a version in which the entries in `chunks` are new or changed. `touched` are their numbers
        and those of entries that are gone."""

    def settle(self) -> None:
        """Wait for what is done in the background."""


class StoredSearch:
    """Opens, searches and saves the index of the run that `vectors` have their store from, which is kept at `place`.
    `weight` is that of the words in a similarity."""

    def __init__(self, vectors: Vectors, words: WordIndex, weight: float, place: IndexPlace) -> None:
        self._vectors, self._words, self._weight, self._place = vectors, words, weight, place
        self._opened: tuple[SnapshotPages, StoredIndex | None] | None = None
        self._changes: _Changes | None = None
        self._lock = asyncio.Lock()

    async def nearest(
        self, context: Context, text: str, k: int, where: EntryPredicate
    ) -> list[tuple[Entry, float]] | None:
        """The k entries most similar to a text, best first, with their similarities. The index knows the facets of a
        Filter; every other predicate is asked about the entries that the index proposes.

        None if there is no index, or if too few of the proposed entries match.
        """
        keys = filter_facets(where) if isinstance(where, Filter) else None
        for _ in range(TRIES):
            try:
                return await self._nearest(context, text, k, where, keys)
            except IndexMoved:
                self._opened = None
        return None

    async def _nearest(
        self, context: Context, text: str, k: int, where: EntryPredicate, keys: tuple[int, ...] | None
    ) -> list[tuple[Entry, float]] | None:
        stored = stored_pages(context)
        index = None if stored is None else await self._index(stored)
        if stored is None or index is None:
            return None
        # An index proposes by the vector, too, where only words count.
        vector = await self._vectors.query(text)
        changes = self._changed(context, stored, index)
        rows, matching = await changes.rows(self._vectors), changes.matching(where)
        words = await self._words.cover() if self._weight else no_words()
        query = _query(text, changes, words, rows) if self._weight else WordQuery({}, {}, 1.0)
        best: list[tuple[Entry, float]] = []
        if matching:
            rows = rows[matching]
            shares = words.scores(query)[rows] if self._weight else None
            found = joined_similarity(products(self._vectors.matrix.take(rows), vector), shares, self._weight)
            best = [(changes.entries[matching[i]], float(found[i])) for i in np.argsort(-found, kind="stable")[:k]]
        n = max(CANDIDATES, 4 * k)
        while n <= MAX_CANDIDATES:
            numbers, cosines, shares = changes.rest.propose(vector, query, n, keys)
            likeness = joined_similarity(cosines, shares, self._weight)
            likely = np.argsort(-likeness, kind="stable")[: READ + 2 * k if keys is not None else n // 4]
            entries = {e.number: e for e in _read(context, stored, numbers[likely])}
            near = [(e, share) for i, share in zip(likely, shares[likely].tolist(), strict=True)
                    if (e := entries.get(int(numbers[i]))) is not None and where(e)]  # fmt: skip
            if keys is not None or len(near) >= k or n >= len(index):
                shares = np.array([share for _, share in near])
                texts = [entry.embedded_text for entry, _ in near]
                compared = None if self._weight == 1 else products(await self._vectors(texts), vector)
                exact = joined_similarity(compared, shares, self._weight)
                best += [(entry, float(value)) for (entry, _), value in zip(near, exact, strict=True)]
                return sorted(best, key=lambda item: (-item[1], item[0].number))[:k]
            n *= 4
        return None

    async def save(self, context: Context) -> int:
        """Save an index of a context, the last version of its run. Returns its number of entries."""
        async with self._lock:
            while True:
                try:
                    return len(await self._saved(context))
                except IndexMoved:
                    self._changes = None

    async def _saved(self, context: Context) -> StoredIndex:
        embedder, stored = self._vectors.embedder.name, stored_pages(context)
        space = self._vectors.store.space if self._vectors.store is not None else ""
        index = None if stored is None else self._place.open(space, embedder, stored.version)
        if index is None or stored is None:
            covers = Covers(space=space, embedder=embedder, first=0, last=context.version)
            return await self._place.build(covers, self._chunks(e for p in context.pages for e in p.peek().values()))
        if context.version > index.last:
            changes = self._changed(context, stored, index)
            chunks = self._chunks(changes.entries)
            return await self._place.extend(index, context.version, chunks, changes.touched)
        return index

    def settle(self) -> None:
        """Wait until what is being merged is merged."""
        self._place.settle()

    async def _index(self, stored: SnapshotPages) -> StoredIndex | None:
        """The index of a snapshot, which is made again if it is lost or damaged."""
        if not stored.indexed or not stored.store.trusted or self._vectors.folder != stored.store.files:
            return None
        async with self._lock:
            if self._opened is None or self._opened[0] is not stored:
                name = self._vectors.embedder.name
                index = self._place.open(stored.store.space, name, stored.version)
                if index is None and self._place.writable:
                    covers = Covers(space=stored.store.space, embedder=name, first=0, last=stored.version)
                    index = await self._place.build(covers, self._chunks(stored.entries()))
                self._opened = stored, index
            return self._opened[1]

    async def _chunks(self, entries: Iterable[Entry]) -> AsyncIterator[Chunk]:
        """Entries with their vectors, in parts; one that is empty if there are none."""
        for chunk in _parts(entries):
            yield chunk, await self._vectors.passing([entry.embedded_text for entry in chunk])

    def _changed(self, context: Context, stored: SnapshotPages, index: StoredIndex) -> _Changes:
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
    index: StoredIndex
    by_page: dict[Page, _Changed]
    entries: list[Entry]
    touched: np.ndarray
    rest: Unchanged
    _vectors: list[np.ndarray] = field(default_factory=list)
    _matching: dict[EntryPredicate, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Context, stored: SnapshotPages, index: StoredIndex, before: _Changes | None) -> _Changes:
        known = before.by_page if before is not None and before.index is index else {}
        later = index.changed_after(stored.version).tolist()
        other = {number // PAGE for number in later}
        fresh = [(n, page) for n, page in enumerate(context.pages) if page.origin is not stored or n in other]
        unknown = [(number, page) for number, page in fresh if page not in known]
        prints = index.prints([number for number, _ in unknown])
        new = {page: _changed(page, of_page) for (_, page), of_page in zip(unknown, prints, strict=True)}
        by_page = {page: known[page] if page in known else new[page] for _, page in fresh}
        entries = [entry for changed in by_page.values() for entry in changed.entries]
        numbers = [number for changed in by_page.values() for number in changed.touched]
        # Entries that were added on pages that this context does not have.
        numbers += [number for number in later if number >= PAGE * len(context.pages)]
        touched = np.unique(np.array(numbers, dtype=np.int32))
        return cls(context.pages, index, by_page, entries, touched, index.without(touched))

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


def _changed(page: Page, prints: dict[int, int]) -> _Changed:
    changed = [entry for n, entry in page.entries.items() if prints.get(n) != fingerprint(entry)]
    gone = [n for n in prints if n not in page.entries]
    return _Changed(changed, [*(entry.number for entry in changed), *gone])


def _query(text: str, changes: _Changes, words: Words, rows: np.ndarray) -> WordQuery:
    """The words of a text, weighed among all entries of the context; `rows` are those of what changed."""
    counts = Counter(word_keys(text))
    keys = [*counts]
    having = words.having(keys, np.bincount(rows, minlength=1)) + changes.rest.having(keys)
    n, length = len(rows) + len(changes.rest), float(words.lengths[rows].sum()) + changes.rest.words
    return WordQuery.of(counts, n, having, length / max(n, 1))


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


def _parts(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries in lists of CHUNK; one that is empty if there are none."""
    rest = iter(entries)
    chunk = list(islice(rest, CHUNK))
    yield chunk
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
