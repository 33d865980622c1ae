"""Retrieval: the entries of a context whose vectors are most similar to that of a text.

Contexts are immutable and share the pages they have in common, so a search looks again at those pages only that are
not the ones it saw last: the work between two searches goes with what changed, not with how much was learned.
Similarity is the cosine, with ties to the older entry: exact, or among many entries exact for the candidates that an
index names (see `index`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from practicum.core.context import PAGE, Context, Origin, Page
from practicum.core.counts import Count
from practicum.core.edits import Entry
from practicum.retrieval.index import RowIndex, VectorIndex, index_installed
from practicum.retrieval.vectors import Vectors, stored_dims
from practicum.store.database import INDEX_FILE
from practicum.store.snapshot import SnapshotPages

EntryPredicate = Callable[[Entry], bool]
"""Which entries are searched. Give an equal object each time: what it says is kept for as long as a page is."""

MARGIN = 1e-5
"""More than what rounding can move a similarity by."""

MANY = 100_000
"""Entries that match from which an index is asked."""

CANDIDATES, MOST = 32, 2_048
"""Vectors an index is asked for at least, and at most before all are compared instead."""

FRESH = 1_000
"""Pages that changed since a snapshot up to which it is searched without being read."""

NO_INDEX = Count.UNINDEXED_SEARCH
"""What is counted, once, where there is none."""

COLUMNS = 32
"""Filters whose answers are kept, four bytes an entry each: a network of four agents has twenty, one for each agent and
kind of step."""

DENSE = 0.25
"""Share of all vectors from which it is faster to compare with all of them than to pick out those that count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Entries of a section (where None, of all that are not hidden), with all of these tags, with this outcome."""

    section: str | None = None
    tags: tuple[str, ...] = ()
    outcome: str | None = None

    def __call__(self, entry: Entry) -> bool:
        if entry.hidden if self.section is None else entry.section != self.section:
            return False
        if self.outcome is not None and entry.data.get("outcome") != self.outcome:
            return False
        return all(f"tag:{tag}" in entry.sources for tag in self.tags)


VISIBLE = Filter()
"""Every entry that is not hidden."""


@dataclass(frozen=True, slots=True)
class Match:
    """An entry and the cosine of its vector with that of what was asked for."""

    entry: Entry
    similarity: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found, best first. Where it is not `exact`, another process may find other entries."""

    found: tuple[Match, ...] = ()
    exact: bool = True


class Retriever:
    """Searches contexts by the vectors of their entries' `embedded` texts; each text is embedded once.

    `many` is the number of matching entries from which an index is asked, if there is one; `counts` hears of what a
    user should know. A context that was opened from a snapshot is searched by the index that was saved with it: what
    is found is read, and what changed since; nothing else.
    """

    def __init__(self, vectors: Vectors, many: int = MANY, counts: Counter[str] | None = None) -> None:
        self.vectors = vectors
        self.many = many
        self._counts = Counter() if counts is None else counts
        self._columns: OrderedDict[EntryPredicate, _Column] = OrderedDict()
        file = vectors.folder / INDEX_FILE if vectors.folder else None
        self._index = RowIndex(vectors, file) if index_installed() else None
        self._saved: dict[SnapshotPages, VectorIndex | None] = {}

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> SearchResult:
        """The k entries most similar to a text, ties to the older; fewer where fewer match, and none where none do."""
        if k > 0 and (unread := await self._unread(context, text, k, where)) is not None:
            return SearchResult(unread, exact=False)
        column = self._column(where)
        await self.vectors.ready(column.texts(context.pages))
        if k < 1 or not column.moved(context.pages, self.vectors):
            return SearchResult()
        await self.vectors.ready([text])
        query = self.vectors.matrix.take(self.vectors.rows([text]))[0]
        # While vectors were made, another search may have moved the column: it is moved in one go with its use.
        column.moved(context.pages, self.vectors)
        numbers, rows = column.entries()
        near = None
        if len(rows) >= self.many:
            if self._index is None:
                self._counts[NO_INDEX] = 1
            else:
                near = await _candidates(self._index, rows, query, k)
        exact = near is None
        if near is None:
            near = _all_near(self.vectors, rows, query, k)
        best = _best(numbers[near], rows[near], self.vectors, query, k)
        found = [(context.get(f"e{numbers[near[place]]}"), similarity) for place, similarity in best]
        return SearchResult(tuple(Match(entry, similarity) for entry, similarity in found if entry is not None), exact)

    async def save(self, context: Context) -> int:
        """Write an index beside the vectors that knows every entry of a context; returns how many vectors it has, 0
        where none is written because the entries are few, or there is no library or folder for it."""
        if self._index is None or self.vectors.folder is None or len(context) < self.many:
            return 0
        texts = [
            e.embedded_text for page in context.pages if self._index_of(page) is None for e in page.entries.values()
        ]
        await self.vectors.ready(texts)
        await self._index.cover(self.vectors.rows(texts))
        return await self._index.save()

    async def _unread(self, context: Context, text: str, k: int, where: EntryPredicate) -> tuple[Match, ...] | None:
        """What the index of a snapshot finds among the entries that did not change since, and all that did; None where
        there is no such index, too much changed, or too few of those it finds match."""
        first = next((page for page in context.pages if page.origin is not None), None)
        index = self._index_of(first) if first is not None else None
        fresh = [page for page in context.pages if page.origin is None]
        if first is None or index is None or len(fresh) > FRESH:
            return None
        changed = [e for page in fresh for e in page.entries.values() if where(e)]
        await self.vectors.ready([text])
        query = self.vectors.matrix.take(self.vectors.rows([text]))[0]
        n = max(CANDIDATES, 4 * k)
        while n <= MOST:
            near = _read(context, first.origin, index.near(query, n), where)
            if len(near) >= k or n >= len(index):
                entries = [*near, *changed]
                await self.vectors.ready(e.embedded_text for e in entries)
                rows = self.vectors.rows(e.embedded_text for e in entries)
                best = _best(np.array([e.number for e in entries]), rows, self.vectors, query, k)
                return tuple(Match(entries[place], similarity) for place, similarity in best)
            n *= 4
        return None

    def _index_of(self, page: Page) -> VectorIndex | None:
        """The index that was saved with the snapshot this page is of. Raises StoreError where it is of vectors of
        another embedder."""
        stored = page.origin
        if not isinstance(stored, SnapshotPages) or not stored.indexed or self._index is None:
            return None
        if stored not in self._saved:
            dims = stored_dims(stored.store, self.vectors.embedder.name)
            index = VectorIndex.open(stored.store.folder / INDEX_FILE, dims, view=True)
            self._saved[stored] = index if index is not None and len(index) >= stored.indexed else None
        return self._saved[stored]

    def _column(self, where: EntryPredicate) -> _Column:
        column = self._columns.pop(where, None) or _Column(where)
        self._columns[where] = column
        if len(self._columns) > COLUMNS:
            self._columns.popitem(last=False)
        return column


class _Column:
    """For each entry number the row of its vector, -1 where no entry is or `where` leaves it out."""

    def __init__(self, where: EntryPredicate) -> None:
        self.where = where
        self.rows = np.full(0, -1, dtype=np.int32)
        self._pages: tuple[Page, ...] = ()
        self._count = 0
        self._entries: tuple[np.ndarray, np.ndarray] | None = None

    def texts(self, pages: tuple[Page, ...]) -> list[str]:
        """What must have vectors before the column can be moved to these pages."""
        return [e.embedded_text for index in self._changed(pages) for e in self._matching(pages, index)]

    def moved(self, pages: tuple[Page, ...], vectors: Vectors) -> int:
        """Make the column that of these pages; returns how many entries match."""
        changed = self._changed(pages)
        if len(self.rows) < len(pages) * PAGE:
            grown = np.full(len(pages) * PAGE * 5 // 4, -1, dtype=np.int32)
            grown[: len(self.rows)] = self.rows
            self.rows = grown
        for index in changed:
            entries = self._matching(pages, index)
            part = self.rows[index * PAGE : (index + 1) * PAGE]
            self._count += len(entries) - int((part >= 0).sum())
            part[:] = -1
            part[[e.number % PAGE for e in entries]] = vectors.rows(e.embedded_text for e in entries)
        if changed:
            self._entries = None
        self._pages = pages
        return self._count

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and rows of the entries that match, shape (n,), oldest first; the same arrays until it is moved."""
        if self._entries is None:
            numbers = np.flatnonzero(self.rows >= 0)
            self._entries = numbers, self.rows[numbers]
        return self._entries

    def _changed(self, pages: tuple[Page, ...]) -> list[int]:
        old = self._pages
        if pages is old:
            return []
        changed = [i for i, (a, b) in enumerate(zip(pages, old, strict=False)) if a is not b]
        return [*changed, *range(min(len(pages), len(old)), max(len(pages), len(old)))]

    def _matching(self, pages: tuple[Page, ...], index: int) -> list[Entry]:
        return [e for e in pages[index].entries.values() if self.where(e)] if index < len(pages) else []


def _read(context: Context, stored: Origin | None, hashes: np.ndarray, where: EntryPredicate) -> list[Entry]:
    """The entries of a snapshot whose text has one of these hashes and that match, on pages that did not change."""
    assert isinstance(stored, SnapshotPages)
    found = stored.with_hashes([int(each) for each in hashes])
    return [e for e in found if where(e) and context.pages[e.number // PAGE].origin is stored]


async def _candidates(index: RowIndex, rows: np.ndarray, query: np.ndarray, k: int) -> np.ndarray | None:
    """Places in `rows` among which the k nearest are, as far as the index knows; None where it would have to be asked
    for too many, because most of those it finds do not match."""
    await index.cover(rows)
    n = max(CANDIDATES, 4 * k) * max(1, len(index) // len(rows))
    wanted = np.zeros(rows.max() + 1, dtype=bool)
    while n <= MOST:
        found = await index.near(query, n)
        wanted[found[found < len(wanted)]] = True
        near = np.flatnonzero(wanted[rows])
        if len(near) >= k or n >= len(index):
            return near
        n *= 4
    return None


def _all_near(vectors: Vectors, rows: np.ndarray, query: np.ndarray, k: int) -> np.ndarray:
    """Places in `rows` of the k nearest, and of all that are as near but for rounding."""
    if k >= len(rows):
        return np.arange(len(rows))
    rough = _similarities(vectors, rows, query)
    kth = np.partition(rough, len(rough) - k)[len(rough) - k]
    return np.flatnonzero(rough >= kth - MARGIN)


def _similarities(vectors: Vectors, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Of these rows with the query, but for rounding."""
    if len(rows) >= DENSE * len(vectors.matrix):
        products: np.ndarray = vectors.matrix.times(query)[rows]
        return products
    return np.concatenate([vectors.matrix.take(part) @ query for part in _parts(rows)])


def _parts(rows: np.ndarray, size: int = 8_192) -> Sequence[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _best(
    numbers: np.ndarray, rows: np.ndarray, vectors: Vectors, query: np.ndarray, k: int
) -> list[tuple[int, float]]:
    """Places and similarities of the k best of these entries, given by number in the order of birth and by row."""
    distinct, place = np.unique(rows, return_inverse=True)
    # Not "@": that may give equal rows different last digits, by where they stand.
    similarity = np.einsum("ij,j->i", vectors.matrix.take(distinct), query)[place]
    return [(int(i), float(similarity[i])) for i in np.lexsort((numbers, -similarity))[:k]]
