"""Search of a run's context with the index that is saved with the run, without reading all entries.

The index covers a snapshot of the context, and proposes entries of the snapshot that match the filter. The best
proposed entries are read and compared exactly with the query. All entries that changed after the snapshot are also
compared exactly; the states that these entries have in the snapshot are ignored. An index is stored in files in the
run's folder (see `files`), or in the database of the run (see `pgvector`).

Exact: filters, changed entries, weights of words, the share of the query's words in a proposed entry, and the
similarity of the results. Inexact: the selection of proposed entries. The index proposes entries with vectors near the
query, and entries with most of the query's rarest words. An entry that has only common words of the query may be
missed.
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
"""Minimum and maximum number of entries that an index proposes by their vectors. The index also proposes the same
number of entries by their words."""

READ = 16
"""A search with a Filter for k results reads the best READ + 2 * k proposed entries, and compares these entries exactly
with the query."""

CHUNK = 32_768
"""Number of entries that are read and embedded at a time to build an index."""

TRIES = 3
"""Maximum number of attempts to search an index that other processes keep changing."""


class IndexMoved(Exception):
    """Another process changed an index after this process opened it. The caller opens the index again."""


class Unchanged(Protocol):
    """Entries of an index that are unchanged in a context."""

    def __len__(self) -> int: ...

    @property
    def words(self) -> float:
        """Total number of words in these entries."""

    def having(self, keys: Sequence[int]) -> np.ndarray:
        """Return, for each key in `keys` (a word or a facet), the number of entries that have this key, shape
        (len(keys),)."""

    def propose(
        self, vector: np.ndarray, query: WordQuery, n: int, keys: tuple[int, ...] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return about n entries near a vector, and n entries with the largest share of a query's words. All returned
        entries have all facets in `keys`; if `keys` is None, any facets are accepted.

        Returns the numbers of the entries, the cosine of each entry's vector with `vector` (may be approximate), and
        the share of the query's words that each entry has.
        """


class StoredIndex(Protocol):
    """An open index of a run, in the state of version `last`. The methods raise IndexMoved if another process has
    changed the index after this process opened it."""

    @property
    def last(self) -> int: ...

    def __len__(self) -> int: ...

    def changed_after(self, version: int) -> np.ndarray:
        """Return the sorted numbers of the entries that were added, changed or removed in the index after a version."""

    def prints(self, pages: Sequence[int]) -> list[dict[int, int]]:
        """Return, for each page number in `pages`, the fingerprints of all entries of the page, by entry number."""

    def without(self, touched: np.ndarray) -> Unchanged:
        """Return the entries of the index except the entries whose numbers are in `touched` (sorted)."""


class IndexStorage(Protocol):
    """Storage of the index of a run. An interrupted operation leaves the previous index unchanged."""

    @property
    def writable(self) -> bool:
        """Whether this process may build an index."""

    def open(self, space: str, embedder: str, version: int) -> StoredIndex | None:
        """Open the index for the snapshot of a version. Return None if no index of this run, version and embedder
        exists."""

    async def build(self, covers: Covers, chunks: AsyncIterator[Chunk]) -> StoredIndex:
        """Build a new index from at least one chunk."""

    async def extend(self, index: Any, version: int, chunks: AsyncIterator[Chunk], touched: np.ndarray) -> StoredIndex:
        """Update an index to a version in which the entries in `chunks` are new or changed. `touched` has the numbers
        of these entries and of removed entries."""

    def settle(self) -> None:
        """Wait for background work to finish."""


class StoredSearch:
    """Opens, searches and saves the index of the run that owns `vectors`. `storage` stores the index. `weight` is the
    weight of words in a similarity."""

    def __init__(self, vectors: Vectors, words: WordIndex, weight: float, storage: IndexStorage) -> None:
        self._vectors, self._words, self._weight, self._storage = vectors, words, weight, storage
        self._opened: tuple[SnapshotPages, StoredIndex | None] | None = None
        self._changes: _Changes | None = None
        self._lock = asyncio.Lock()

    async def nearest(
        self, context: Context, text: str, k: int, where: EntryPredicate
    ) -> list[tuple[Entry, float]] | None:
        """Return the k entries that match `where` and are most similar to a text, best first, with their similarities.

        If `where` is a Filter, the index proposes only matching entries. Any other predicate is applied to the entries
        that the index proposes. Returns None if the index does not exist, if too few of the proposed entries match
        `where`, or if other processes keep changing the index.
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
        # If `weight` is 1, only words count in the similarity. The index proposes entries by the vector even then.
        vector = await self._vectors.query(text)
        changes = self._changed(context, stored, index)
        rows, matching = await changes.rows(self._vectors), changes.matching(where)
        words = await self._words.cover() if self._weight else no_words()
        query = _query(text, changes, words, rows) if self._weight else WordQuery({}, {}, 1.0)
        best: list[tuple[Entry, float]] = []
        if matching:
            rows = rows[matching]
            shares = words.scores(query)[rows] if self._weight else None
            similarities = joined_similarity(products(self._vectors.matrix.take(rows), vector), shares, self._weight)
            order = np.argsort(-similarities, kind="stable")[:k]
            best = [(changes.entries[matching[i]], float(similarities[i])) for i in order]
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
        """Build or extend the index until the index covers `context`, the last version of the run. Return the number of
        indexed entries."""
        async with self._lock:
            while True:
                try:
                    return len(await self._saved(context))
                except IndexMoved:
                    self._changes = None

    async def _saved(self, context: Context) -> StoredIndex:
        embedder, stored = self._vectors.embedder.name, stored_pages(context)
        space = self._vectors.store.space if self._vectors.store is not None else ""
        index = None if stored is None else self._storage.open(space, embedder, stored.version)
        if index is None or stored is None:
            covers = Covers(space=space, embedder=embedder, first=0, last=context.version)
            return await self._storage.build(covers, self._chunks(e for p in context.pages for e in p.peek().values()))
        if context.version > index.last:
            changes = self._changed(context, stored, index)
            chunks = self._chunks(changes.entries)
            return await self._storage.extend(index, context.version, chunks, changes.touched)
        return index

    def settle(self) -> None:
        """Wait for merges to finish."""
        self._storage.settle()

    async def _index(self, stored: SnapshotPages) -> StoredIndex | None:
        """Return the index of a snapshot. A missing or damaged index is rebuilt if this process may write. Return None
        if the snapshot has no usable index."""
        if not stored.indexed or not stored.store.trusted or self._vectors.folder != stored.store.files:
            return None
        async with self._lock:
            if self._opened is None or self._opened[0] is not stored:
                name = self._vectors.embedder.name
                index = self._storage.open(stored.store.space, name, stored.version)
                if index is None and self._storage.writable:
                    covers = Covers(space=stored.store.space, embedder=name, first=0, last=stored.version)
                    index = await self._storage.build(covers, self._chunks(stored.entries()))
                self._opened = stored, index
            return self._opened[1]

    async def _chunks(self, entries: Iterable[Entry]) -> AsyncIterator[Chunk]:
        """Yield the entries with their vectors in chunks; a single empty chunk if `entries` is empty."""
        for chunk in _parts(entries):
            yield chunk, await self._vectors.passing([entry.embedded_text for entry in chunk])

    def _changed(self, context: Context, stored: SnapshotPages, index: StoredIndex) -> _Changes:
        if self._changes is None or self._changes.pages is not context.pages or self._changes.index is not index:
            self._changes = _Changes.of(context, stored, index, self._changes)
        return self._changes


@dataclass(frozen=True)
class _Changed:
    """Differences between one page and the index: changed entries, and the numbers of changed and removed entries."""

    entries: list[Entry]
    touched: list[int]


@dataclass(frozen=True)
class _Changes:
    """Differences between a context and an index. `entries` has the new and changed entries. `touched` has the sorted
    numbers of `entries` and of removed entries. `rest` has the entries of the index that are unchanged."""

    pages: tuple[Page, ...]
    index: StoredIndex
    by_page: dict[Page, _Changed]
    entries: list[Entry]
    touched: np.ndarray
    rest: Unchanged
    _vectors: list[np.ndarray] = field(default_factory=list)
    _matching: dict[EntryPredicate, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Context, stored: SnapshotPages, index: StoredIndex, previous: _Changes | None) -> _Changes:
        cached = previous.by_page if previous is not None and previous.index is index else {}
        later = index.changed_after(stored.version).tolist()
        other = {number // PAGE for number in later}
        differing = [(n, page) for n, page in enumerate(context.pages) if page.origin is not stored or n in other]
        uncached = [(number, page) for number, page in differing if page not in cached]
        prints = index.prints([number for number, _ in uncached])
        new = {page: _changed(page, of_page) for (_, page), of_page in zip(uncached, prints, strict=True)}
        by_page = {page: cached[page] if page in cached else new[page] for _, page in differing}
        entries = [entry for changed in by_page.values() for entry in changed.entries]
        numbers = [number for changed in by_page.values() for number in changed.touched]
        # Also exclude entries that were added to the index after the snapshot, on pages that this context does not
        # have.
        numbers += [number for number in later if number >= PAGE * len(context.pages)]
        touched = np.unique(np.array(numbers, dtype=np.int32))
        return cls(context.pages, index, by_page, entries, touched, index.without(touched))

    def matching(self, where: EntryPredicate) -> list[int]:
        """Return the positions of the changed entries (in `entries`) for which `where` is true."""
        if where not in self._matching:
            self._matching[where] = [position for position, entry in enumerate(self.entries) if where(entry)]
        return self._matching[where]

    async def rows(self, vectors: Vectors) -> np.ndarray:
        """Return the rows of the changed entries in the matrix of vectors."""
        if not self._vectors:
            await vectors.ready(entry.embedded_text for entry in self.entries)
            self._vectors.append(vectors.rows(entry.embedded_text for entry in self.entries))
        return self._vectors[0]


def _changed(page: Page, prints: dict[int, int]) -> _Changed:
    changed = [entry for n, entry in page.entries.items() if prints.get(n) != fingerprint(entry)]
    removed = [n for n in prints if n not in page.entries]
    return _Changed(changed, [*(entry.number for entry in changed), *removed])


def _query(text: str, changes: _Changes, words: Words, rows: np.ndarray) -> WordQuery:
    """Return the words of a text as a query. Words that few entries of the context have get high weights. `rows` are
    the rows of the changed entries in `words`."""
    counts = Counter(word_keys(text))
    keys = [*counts]
    having = words.having(keys, np.bincount(rows, minlength=1)) + changes.rest.having(keys)
    n, length = len(rows) + len(changes.rest), float(words.lengths[rows].sum()) + changes.rest.words
    return WordQuery.of(counts, n, having, length / max(n, 1))


def _read(context: Context, stored: SnapshotPages, numbers: np.ndarray) -> list[Entry]:
    """Return the entries of a context that have these numbers. Numbers without an entry are skipped. No other entries
    are read from the store."""
    here = [context.pages[number // PAGE] for number in numbers.tolist()]
    unread = [number for number, page in zip(numbers.tolist(), here, strict=True) if page.origin is stored]
    read = [
        page.entries.get(number)
        for number, page in zip(numbers.tolist(), here, strict=True)
        if page.origin is not stored
    ]
    return [*stored.with_numbers(unread), *(entry for entry in read if entry is not None)]


def _parts(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries in lists of CHUNK entries; a single empty list if `entries` is empty."""
    rest = iter(entries)
    chunk = list(islice(rest, CHUNK))
    yield chunk
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
