"""Retrieval: the entries of a context whose vectors are most similar to that of a text.

Contexts are immutable and share pages. A search looks only at the pages that the last search did not see, so its work
depends on what changed and not on how much was learned. Similarity is the cosine, and ties go to the older entry. The
result is exact; among many entries it is exact for the candidates that an index proposes (see `index`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from practicum.core.context import PAGE, Context, Page
from practicum.core.counts import Count
from practicum.core.edits import Entry
from practicum.core.trust import Trust
from practicum.retrieval.index import RowIndex, VectorIndex, index_installed
from practicum.retrieval.vectors import Vectors, products, stored_dims
from practicum.store.database import INDEX_FILE
from practicum.store.snapshot import SnapshotPages

EntryPredicate = Callable[[Entry], bool]
"""Which entries are searched. Give an equal object each time: its answers are kept as long as a page is."""

MARGIN = 1e-5
"""More than the rounding error of a similarity."""

MANY_ENTRIES = 100_000
"""Matching entries from which on an index is used."""

CANDIDATES, MAX_CANDIDATES = 32, 2_048
"""Candidates that an index is asked for at least, and at most before all vectors are compared instead."""

FRESH = 1_000
"""If more pages changed since a snapshot, its index is not used."""

COLUMNS = 32
"""Predicates whose answers are kept, at four bytes an entry. A network of four agents has twenty: one for each agent
and kind of step."""

DENSE = 0.25
"""Share of the vectors from which on comparing with all is faster than copying those that match."""

PART = 8_192
"""Vectors that are copied at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Entries of a section (None: of all that are not hidden) with all of these tags, with this outcome and of this
    trust; None: whatever it is."""

    section: str | None = None
    tags: tuple[str, ...] = ()
    outcome: str | None = None
    trust: Trust | None = None

    def __call__(self, entry: Entry) -> bool:
        if entry.hidden if self.section is None else entry.section != self.section:
            return False
        if self.outcome is not None and entry.data.get("outcome") != self.outcome:
            return False
        if self.trust not in (None, entry.trust):
            return False
        return all(f"tag:{tag}" in entry.sources for tag in self.tags)


VISIBLE = Filter()
"""Every entry that is not hidden."""


@dataclass(frozen=True, slots=True)
class Match:
    """An entry, and the cosine of its vector and the query's."""

    entry: Entry
    similarity: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The matches, best first. If the result is not `exact`, another process may find other entries."""

    found: tuple[Match, ...] = ()
    exact: bool = True


class Retriever:
    """Searches contexts by the vectors of their entries.

    With `many` matching entries or more it uses an index, if `usearch` is installed; `counts` notes if it is missing.
    In a context that was opened from a snapshot it uses the index that was saved with the snapshot, and reads only the
    entries found and those that changed since.
    """

    def __init__(self, vectors: Vectors, many: int = MANY_ENTRIES, counts: Counter[str] | None = None) -> None:
        self.vectors = vectors
        self.many = many
        self._counts = Counter() if counts is None else counts
        self._columns: OrderedDict[EntryPredicate, _Column] = OrderedDict()
        file = vectors.folder / INDEX_FILE if vectors.folder else None
        self._index = RowIndex(vectors, file, vectors.trusted) if index_installed() else None
        self._saved: dict[SnapshotPages, VectorIndex | None] = {}

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> SearchResult:
        """The k entries most similar to a text, or fewer if fewer match; ties go to the older entry."""
        if k > 0 and (unread := await self._search_snapshot(context, text, k, where)) is not None:
            return SearchResult(unread, exact=False)
        column = self._column(where)
        await self.vectors.ready(column.texts(context.pages))
        if k < 1 or not column.move(context.pages, self.vectors):
            return SearchResult()
        query = await self.vectors.query(text)
        # While vectors were awaited, another search may have moved the column. From here on nothing is awaited before
        # its arrays are taken.
        column.move(context.pages, self.vectors)
        numbers, rows = column.entries()
        near = None
        if len(rows) >= self.many:
            if self._index is None:
                self._counts[Count.UNINDEXED_SEARCH] = 1
            else:
                near = await _candidates(self._index, rows, query, k)
        exact = near is None
        if near is None:
            near = _all_near(self.vectors, rows, query, k)
        best = _best(numbers[near], rows[near], self.vectors, query, k)
        found = [(context.get(f"e{numbers[near[place]]}"), similarity) for place, similarity in best]
        return SearchResult(tuple(Match(entry, similarity) for entry, similarity in found if entry is not None), exact)

    async def save(self, context: Context) -> int:
        """Save an index with the vectors of all entries of a context. Returns its number of vectors, 0 if none is saved
        because the entries are few or there is no library or folder for it."""
        if self._index is None or self.vectors.folder is None or len(context) < self.many:
            return 0
        unsaved = (page for page in context.pages if self._saved_index(page) is None)
        texts = [e.embedded_text for page in unsaved for e in page.entries.values()]
        await self.vectors.ready(texts)
        await self._index.cover(self.vectors.rows(texts))
        return await self._index.save()

    async def _search_snapshot(
        self, context: Context, text: str, k: int, where: EntryPredicate
    ) -> tuple[Match, ...] | None:
        """The best of what the index of a snapshot finds and of all entries that changed since.

        None if there is no such index, if too much changed, or if too few of the entries it finds match.
        """
        first = next((page for page in context.pages if page.origin is not None), None)
        index = None if first is None else self._saved_index(first)
        fresh = [page for page in context.pages if page.origin is None]
        if first is None or index is None or len(fresh) > FRESH:
            return None
        stored = first.origin
        assert isinstance(stored, SnapshotPages)
        changed = [e for page in fresh for e in page.entries.values() if where(e)]
        query = await self.vectors.query(text)
        n = max(CANDIDATES, 4 * k)
        while n <= MAX_CANDIDATES:
            found = stored.with_hashes([int(each) for each in index.near(query, n)])
            near = [e for e in found if where(e) and context.pages[e.number // PAGE].origin is stored]
            if len(near) >= k or n >= len(index):
                entries = [*near, *changed]
                texts = [e.embedded_text for e in entries]
                await self.vectors.ready(texts)
                numbers = np.array([e.number for e in entries])
                best = _best(numbers, self.vectors.rows(texts), self.vectors, query, k)
                return tuple(Match(entries[place], similarity) for place, similarity in best)
            n *= 4
        return None

    def _saved_index(self, page: Page) -> VectorIndex | None:
        """The index that was saved with the snapshot of this page. Raises StoreError if its vectors are of another
        embedder."""
        stored = page.origin
        if not isinstance(stored, SnapshotPages) or not stored.indexed or self._index is None:
            return None
        if not stored.store.trusted:
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
    """The row of the vector of each entry by its number, -1 if there is no entry or it does not match `where`."""

    def __init__(self, where: EntryPredicate) -> None:
        self.where = where
        self.rows = np.full(0, -1, dtype=np.int32)
        self._pages: tuple[Page, ...] = ()
        self._entries: tuple[np.ndarray, np.ndarray] | None = None

    def texts(self, pages: tuple[Page, ...]) -> list[str]:
        """The texts that must have vectors before the column can be moved to these pages."""
        return [e.embedded_text for index in self._changed(pages) for e in self._matching(pages, index)]

    def move(self, pages: tuple[Page, ...], vectors: Vectors) -> int:
        """Make it the column of these pages. Returns how many entries match."""
        changed = self._changed(pages)
        if len(self.rows) < len(pages) * PAGE:
            room = len(pages) * PAGE * 5 // 4
            self.rows = np.pad(self.rows, (0, room - len(self.rows)), constant_values=-1)
        for index in changed:
            entries = self._matching(pages, index)
            part = self.rows[index * PAGE : (index + 1) * PAGE]
            part[:] = -1
            part[[e.number % PAGE for e in entries]] = vectors.rows(e.embedded_text for e in entries)
        if changed:
            self._entries = None
        self._pages = pages
        return len(self.entries()[0])

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and rows of the matching entries, shape (n,), oldest first. The arrays stay the same until a move."""
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


async def _candidates(index: RowIndex, rows: np.ndarray, query: np.ndarray, k: int) -> np.ndarray | None:
    """Places in `rows` that the index proposes for the k nearest; None if most of what it finds does not match, so that
    it would have to propose too many."""
    await index.cover(rows)
    n = max(CANDIDATES, 4 * k) * max(1, len(index) // len(rows))
    wanted = np.zeros(rows.max() + 1, dtype=bool)
    while n <= MAX_CANDIDATES:
        found = await index.near(query, n)
        wanted[found[found < len(wanted)]] = True
        near = np.flatnonzero(wanted[rows])
        if len(near) >= k or n >= len(index):
            return near
        n *= 4
    return None


def _all_near(vectors: Vectors, rows: np.ndarray, query: np.ndarray, k: int) -> np.ndarray:
    """Places in `rows` of the k nearest, and of all that are as near up to rounding."""
    if k >= len(rows):
        return np.arange(len(rows))
    if len(rows) >= DENSE * len(vectors.matrix):
        similarity = vectors.matrix.times(query)[rows]
    else:
        parts = (rows[start : start + PART] for start in range(0, len(rows), PART))
        similarity = np.concatenate([products(vectors.matrix.take(part), query) for part in parts])
    kth = np.partition(similarity, len(rows) - k)[len(rows) - k]
    return np.flatnonzero(similarity >= kth - MARGIN)


def _best(
    numbers: np.ndarray, rows: np.ndarray, vectors: Vectors, query: np.ndarray, k: int
) -> list[tuple[int, float]]:
    """Places and similarities of the k best of some entries, given by their numbers and the rows of their vectors."""
    distinct, place = np.unique(rows, return_inverse=True)
    similarity = products(vectors.matrix.take(distinct), query)[place]
    return [(int(i), float(similarity[i])) for i in np.lexsort((numbers, -similarity))[:k]]
