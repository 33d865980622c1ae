"""Retrieval of the entries of a context that are most similar to a text, in meaning and in words.

Similarity is the cosine of the vectors, the share of the query's words that an entry has (BM25, see `words`), or the
weighted mean of cosine and share; an identical text has similarity 1. The similarity of a turn of a conversation raises
the similarity of the turns before and after this turn. Of entries with equal similarity, the older entry comes first.
Contexts are immutable and share pages, and a search only reads the pages that have changed since the last search. So
the cost of reading depends on the changes and not on the number of entries.

With fewer than `MANY_ENTRIES` matching entries, the result is exact. With more, only candidates are compared: the
entries that have most of the query's words, and the entries that a vector index proposes (see `lists`, and plug-ins of
the entry point group `practicum.indexes`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, get_args

import numpy as np

from practicum.core.context import PAGE, Context, Page
from practicum.core.edits import Entry
from practicum.core.errors import UsageError
from practicum.core.plugins import Group, called
from practicum.core.trust import Trust
from practicum.retrieval.lists import Lists, Rows
from practicum.retrieval.rough import FEWEST, Rough, rough_installed
from practicum.retrieval.vectors import Vectors, products
from practicum.retrieval.words import WordIndex, highest, joined_similarity

EntryPredicate = Callable[[Entry], bool]
"""Function that selects the entries to search. Results are cached by predicate, so pass an equal function in each
search."""

Retrieval = Literal["cosine", "words", "mixed"]
"""Measure of similarity: the cosine of the vectors, the share of the query's words that an entry has, or the weighted
mean of cosine and share."""

WEIGHTS: Mapping[Retrieval, float] = {"cosine": 0.0, "words": 1.0, "mixed": 2 / 3}
"""Weight of the words in the similarity; the rest is the weight of the cosine. For `mixed`, weights from 0.6 to 0.75
are similarly good (docs/results.md)."""

DEFAULT: Retrieval = "mixed"

NEIGHBOUR = 1 / 2
"""Weight with which the similarity of a turn of a conversation raises the similarity of the turns before and after it.
Neighbours are raised because an answer repeats little of its question. Values from 0.4 to 0.6 make little difference
(docs/results.md)."""

ALL = slice(None)

MARGIN = 1e-5
"""Upper bound of the rounding error of a similarity."""

MANY_ENTRIES = 20_000
"""Minimum number of matching entries at which only candidates are compared."""

CANDIDATES = 128
"""Minimum number of candidates that are proposed by vectors, and minimum number that are proposed by words."""

GROWN = 1.25
"""The lists are rebuilt when the number of vectors has grown by this factor."""

COLUMNS = 32
"""Maximum number of predicates whose matching entries are cached, at eight bytes per entry of a context. A network of
four agents uses twenty predicates: one for each agent and kind of step."""

DENSE = 0.25
"""Minimum fraction of matching vectors at which comparing all vectors is faster than copying the matching vectors."""

BLOCK = 32
"""Number of values in a block; the search for the k-th largest value only uses the maximum of each block. The values of
a block are not adjacent, because NumPy takes maxima over several rows faster than over the values of one row."""

PART = 8_192
"""Number of vectors that are copied at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Filter of entries. An entry matches if it is in `section`, has all `tags`, and has the `outcome` and the `trust`
    level. If `section` is None, the entry may be in any section that is not hidden. If `outcome` or `trust` is None,
    any value matches."""

    section: str | None = None
    tags: tuple[str, ...] = ()
    outcome: str | None = None
    trust: Trust | None = None

    def __call__(self, entry: Entry) -> bool:
        if entry.hidden if self.section is None else entry.section != self.section:
            return False
        if self.outcome is not None and entry.data.get("outcome") != self.outcome:
            return False
        if self.trust is not None and entry.trust != self.trust:
            return False
        return all(f"tag:{tag}" in entry.sources for tag in self.tags)


VISIBLE = Filter()
"""Matches every entry that is not hidden."""


@dataclass(frozen=True, slots=True)
class Match:
    """An entry, and the similarity of the entry to the query. A text identical to the query has the maximum similarity,
    1."""

    entry: Entry
    similarity: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The matches, best first. If the result is not `exact`, the same search in another process may return other
    entries."""

    matches: tuple[Match, ...] = ()
    exact: bool = True


class SavedIndex(Protocol):
    """Index that is saved with a run, for searches that do not read all entries."""

    async def nearest(
        self, context: Context, text: str, k: int, where: EntryPredicate
    ) -> list[tuple[Entry, float]] | None:
        """Return about k entries most similar to a text, best first, with their exact similarities. None if the context
        has no index, or if too few of the entries that the index proposes match `where`."""

    async def save(self, context: Context) -> int:
        """Save an index of the context, which is the last version of its run. Returns the number of entries in the
        index."""


class IndexKind(Protocol):
    """Factory for the index of a run. `vectors` use the store of the run. `weight` is the weight of the words in a
    similarity."""

    def __call__(self, vectors: Vectors, words: WordIndex, weight: float) -> SavedIndex: ...


INDEXES: Group[IndexKind] = Group("practicum.indexes", "index", called)


class Retriever:
    """Search in contexts by the vectors of their entries, by their words, or by both, depending on `retrieval`: with
    `cosine`, no words are indexed; with `words`, queries are only embedded for a saved index. Raises UsageError for an
    unknown value of `retrieval`.

    With `many` or more matching entries, a search only compares candidates, which lists of vectors (see `lists`) and
    the words propose. In a context of `many` entries that was opened from a snapshot, a search uses the index that was
    saved with the snapshot, and only reads the candidates and the entries that have changed since the snapshot.
    """

    def __init__(self, vectors: Vectors, many: int = MANY_ENTRIES, *, retrieval: Retrieval = DEFAULT) -> None:
        # A stored setting may have any value.
        if retrieval not in get_args(Retrieval):
            raise UsageError(
                "settings.invalid",
                f"retrieval={retrieval!r} is not valid: use one of {', '.join(WEIGHTS)}",
                setting="retrieval",
                valid=[*WEIGHTS],
            )
        self.vectors = vectors
        self.many = many
        self.retrieval = retrieval
        self._weight = WEIGHTS[retrieval]
        self._words = WordIndex(vectors)
        self._columns: OrderedDict[EntryPredicate, _Column] = OrderedDict()
        self._lists = _RowLists(vectors)

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> SearchResult:
        """Return the k matching entries most similar to a text, or all matching entries if there are fewer than k. Of
        entries with equal similarity, the older entry comes first."""
        text = self.vectors.searched(text)
        if k > 0 and len(context) >= self.many:
            unread = None if self.saved is None else await self.saved.nearest(context, text, k, where)
            if unread is not None:
                return SearchResult(tuple(Match(entry, similarity) for entry, similarity in unread), exact=False)
        column = self._column(where)
        await self.vectors.ready(column.texts(context.pages))
        if k < 1 or not column.move(context.pages, self.vectors):
            return SearchResult()
        vector = await self.vectors.query(text) if self._weight < 1 else None
        # While the vectors were awaited, another search may have moved the column to another context. Nothing is
        # awaited between this move and the call of `members`, which reads the arrays of the column, so `members` has
        # the entries of this context.
        column.move(context.pages, self.vectors)
        members, shares = column.members(), None
        if self._weight:
            words = await self._words.cover()
            of_row, mean_length = members.of_row, members.mean_length(words.lengths)
            shares = words.shares(text, of_row, len(members.rows), mean_length)
        query = _Query(vector, shares, self._weight)
        # Similarities by words only are computed for all entries, so the result is exact.
        exact = len(members.rows) < self.many or vector is None
        if exact:
            near = await _all_near(self.vectors, members, query, k)
        else:
            await self._lists.cover()
            near = self._lists.near(members, query, max(CANDIDATES, 4 * k))
        best = _best(members, near, self.vectors, query, k)
        entries = [(context.get(f"{context.letter}{members.numbers[place]}"), similarity) for place, similarity in best]
        matches = tuple(Match(entry, similarity) for entry, similarity in entries if entry is not None)
        return SearchResult(matches, exact)

    async def save(self, context: Context) -> int:
        """Save an index of the context, which is the last version of the run whose store holds the vectors. Returns the
        number of entries in the index; 0 if no index is saved, because the context has few entries."""
        if len(context) < self.many or self.saved is None:
            return 0
        return await self.saved.save(context)

    @cached_property
    def saved(self) -> SavedIndex | None:
        """Saved index of the run whose store the vectors use; None if the vectors use no store."""
        if (store := self.vectors.store) is None:
            return None
        return INDEXES.load(store.database.backend.index)(self.vectors, self._words, self._weight)

    def _column(self, where: EntryPredicate) -> _Column:
        column = self._columns.pop(where, None) or _Column(where)
        self._columns[where] = column
        if len(self._columns) > COLUMNS:
            self._columns.popitem(last=False)
        return column


@dataclass(frozen=True)
class _Query:
    """Parts of a query: its vector, shape (d,), and the share of the query's words that the text of each row has.
    `weight` is the weight of the shares. `vector` or `shares` is None if its weight is 0."""

    vector: np.ndarray | None
    shares: np.ndarray | None
    weight: float

    def cosines(self, vectors: Vectors, rows: np.ndarray) -> np.ndarray | None:
        """Return the cosines of the vectors of some rows with the query; None if cosines have weight 0."""
        return None if self.vector is None else products(vectors.matrix.take(rows), self.vector)

    def similarity(self, cosines: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
        """Return the similarities of the texts of some rows, given their cosines."""
        return joined_similarity(cosines, None if self.shares is None else self.shares[rows], self.weight)


class _Members:
    """Entries that match a predicate: the numbers of the entries, the rows of their texts, and the numbers of their
    conversations (0: no conversation), each of shape (n,), oldest entry first. `of_row` has, for each row, the number
    of matching entries with the text of that row. The place of an entry is its position in these arrays."""

    def __init__(
        self, numbers: np.ndarray, rows: np.ndarray, conversations: np.ndarray, earlier: Rough | None = None
    ) -> None:  # fmt: skip
        """`earlier` are the rounded vectors from before the last change of the entries; parts of them can be reused."""
        self.numbers = numbers
        self.rows = rows
        self._conversations = conversations
        self._mean_length: float | None = None
        self._searches = 0
        self._rough: Rough | None = None
        self.earlier = earlier
        self._requests: list[tuple[np.ndarray, asyncio.Future[tuple[np.ndarray, float]]]] = []
        self._listed: Rows | None = None

    def rough(self, vectors: Vectors) -> Rough | None:
        """Return the vectors with 8 bits per number. Return None if rounding does not pay: for few vectors, for turns
        of conversations, or in the first search if `earlier` is None; also without `numkong`."""
        self._searches += 1
        pays = self._searches > 1 or self.earlier is not None
        if self._rough is None and pays and len(self.rows) >= FEWEST and rough_installed():
            if self.neighbours is not None:
                return None
            self._rough = self.earlier = Rough.of(self.rows, vectors.matrix.take, self.earlier)
        return self._rough

    async def rough_cosines(self, rough: Rough, query: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the cosines of `Rough` with one query. Searches that begin in the same iteration of the event loop
        share one pass over the vectors."""
        loop = asyncio.get_running_loop()
        if not self._requests:
            loop.call_soon(self._answer, rough)
        self._requests.append((query, future := loop.create_future()))
        answer: tuple[np.ndarray, float] = await future
        return answer

    def _answer(self, rough: Rough) -> None:
        requests, self._requests = self._requests, []
        try:
            cosines, error = rough.cosines(np.stack([query for query, _ in requests]))
        except Exception as failure:
            for _, future in requests:
                future.set_exception(failure)
            return
        for (_, future), row in zip(requests, cosines, strict=True):
            # The waiting search may have been cancelled.
            if not future.done():
                future.set_result((row, error))

    def listed(self, count: int) -> Rows:
        """Return which of the first `count` rows have a matching entry. `count` is the number of rows in the lists."""
        if self._listed is None or len(self._listed.mask) != count:
            mask = np.zeros(count, dtype=bool)
            mask[: len(self.of_row)] = self.of_row[:count] > 0
            self._listed = Rows(mask)
        return self._listed

    @cached_property
    def of_row(self) -> np.ndarray:
        return np.bincount(self.rows).astype(np.int32)

    @cached_property
    def place_of(self) -> np.ndarray | None:
        """For each row, the place of the entry with the text of that row, -1 without such an entry; None if several
        entries have the same text."""
        if len(self.of_row) and self.of_row.max() > 1:
            return None
        places = np.full(len(self.of_row), -1)
        places[self.rows] = np.arange(len(self.rows))
        return places

    def mean_length(self, lengths: np.ndarray) -> float:
        """Return the mean number of words of the entries, given the number of words of each row."""
        if self._mean_length is None:
            self._mean_length = float(lengths[self.rows].mean())
        return self._mean_length

    @cached_property
    def neighbours(self) -> np.ndarray | None:
        """For each entry, the places of the turns before and after it in its conversation, shape (2, n), -1 without
        such a turn; None if no entry belongs to a conversation."""
        if not self._conversations.any():
            return None
        order = np.argsort(self._conversations, kind="stable")
        conversations = self._conversations[order]
        after = np.flatnonzero((conversations[1:] == conversations[:-1]) & (conversations[1:] > 0)) + 1
        places = np.full((2, len(order)), -1)
        places[0, order[after]], places[1, order[after - 1]] = order[after - 1], order[after]
        return places

    def with_neighbours(self, places: np.ndarray) -> np.ndarray:
        """Return these places and the places of the turns before and after them, ascending."""
        if self.neighbours is None:
            return places
        extended = np.unique(np.append(places, self.neighbours[:, places]))
        return extended[extended >= 0]

    def raised(self, similarity: np.ndarray, places: np.ndarray | slice = ALL) -> np.ndarray:
        """Return the similarities of the entries at some places. The similarity of a turn of a conversation is raised
        towards 1, by a fraction of the higher similarity of its two neighbours (the turns before and after it)."""
        own_similarity: np.ndarray = similarity[places]
        if self.neighbours is None:
            return own_similarity
        higher = np.append(similarity, 0.0)[self.neighbours[:, places]].max(axis=0).clip(min=0)
        raised: np.ndarray = own_similarity + NEIGHBOUR * higher * (1 - own_similarity)
        return raised


class _Column:
    """Entries of a context that match a predicate, as two arrays by entry number: the row of the entry's vector, -1 if
    no matching entry has this number, and the number of the entry's conversation, 0 without a conversation."""

    def __init__(self, where: EntryPredicate) -> None:
        self.where = where
        self.rows = np.full(0, -1, dtype=np.int32)
        self.conversations = np.zeros(0, dtype=np.int32)
        self._conversations: dict[str, int] = {"": 0}
        self._pages: tuple[Page, ...] = ()
        self._members: _Members | None = None
        self._earlier: Rough | None = None

    def texts(self, pages: tuple[Page, ...]) -> list[str]:
        """Return the texts that must have vectors before the column can be moved to these pages."""
        return [e.embedded_text for index in self._changed(pages) for e in self._matching(pages, index)]

    def move(self, pages: tuple[Page, ...], vectors: Vectors) -> int:
        """Update the column to these pages. Returns the number of matching entries."""
        changed = self._changed(pages)
        if len(self.rows) < len(pages) * PAGE:
            room = len(pages) * PAGE * 5 // 4
            self.rows = np.pad(self.rows, (0, room - len(self.rows)), constant_values=-1)
            self.conversations = np.pad(self.conversations, (0, room - len(self.conversations)))
        for index in changed:
            entries = self._matching(pages, index)
            numbers = [e.number for e in entries]
            self.rows[index * PAGE : (index + 1) * PAGE] = -1
            self.rows[numbers] = vectors.rows(e.embedded_text for e in entries)
            ids = self._conversations
            self.conversations[numbers] = [ids.setdefault(e.conversation, len(ids)) for e in entries]
        if changed and self._members is not None:
            self._earlier, self._members = self._members.earlier, None
        self._pages = pages
        return len(self.members().rows)

    def members(self) -> _Members:
        """Return the matching entries. The object stays the same until the next `move`."""
        if self._members is None:
            numbers = np.flatnonzero(self.rows >= 0)
            self._members = _Members(numbers, self.rows[numbers], self.conversations[numbers], self._earlier)
        return self._members

    def _changed(self, pages: tuple[Page, ...]) -> list[int]:
        old = self._pages
        if pages is old:
            return []
        changed = [i for i, (a, b) in enumerate(zip(pages, old, strict=False)) if a is not b]
        return [*changed, *range(min(len(pages), len(old)), max(len(pages), len(old)))]

    def _matching(self, pages: tuple[Page, ...], index: int) -> list[Entry]:
        return [e for e in pages[index].entries.values() if self.where(e)] if index < len(pages) else []


class _RowLists:
    """Lists of the rows of a matrix of vectors. They are rebuilt when the matrix has grown by a quarter; until then,
    all rows that are newer than the lists are candidates."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._lists: Lists | None = None
        self._lock = asyncio.Lock()

    async def cover(self) -> None:
        """Build the lists if necessary, in another thread, so that calls in flight continue."""
        async with self._lock:
            n, matrix = len(self._vectors.matrix), self._vectors.matrix
            if self._lists is None or n > GROWN * len(self._lists):
                self._lists = await asyncio.to_thread(Lists.of, n, matrix.take)

    def near(self, members: _Members, query: _Query, n: int) -> np.ndarray:
        """Return the places in `members` of the candidates: about n rows nearest to a query, n rows with most of the
        query's words, all rows that are newer than the lists, and the turns before and after all these."""
        assert self._lists is not None
        assert query.vector is not None
        of_row, covered = members.of_row > 0, len(self._lists)
        candidates = np.zeros(len(of_row), dtype=bool)
        candidates[covered:] = of_row[covered:]
        candidates[self._lists.near(query.vector, n, members.listed(covered))] = True
        if query.shares is not None:
            candidates[highest(query.shares[: len(candidates)] * of_row, n)] = True
        return members.with_neighbours(np.flatnonzero(candidates[members.rows]))


async def _all_near(vectors: Vectors, members: _Members, query: _Query, k: int) -> np.ndarray:
    """Return the places in `members` of the k most similar entries, and of all entries that, up to rounding, are as
    similar as the k-th most similar entry."""
    rows = members.rows
    if k >= len(rows):
        return np.arange(len(rows))
    if query.vector is not None and (rough := members.rough(vectors)) is not None:
        similarity, error = await members.rough_cosines(rough, query.vector)
        similarity *= 1 - query.weight
        place_of = members.place_of
        if query.shares is not None and place_of is None:
            similarity += query.weight * query.shares[rows]
        elif query.shares is not None and place_of is not None:
            # Few entries have a word of the query, so only the similarities of these entries are changed.
            with_words = np.flatnonzero(query.shares[: len(place_of)] > 0)
            places = place_of[with_words]
            present = places >= 0
            similarity[places[present]] += query.weight * query.shares[with_words[present]]
        return np.flatnonzero(similarity >= _at_most_kth(similarity, k) - 2 * (1 - query.weight) * error - MARGIN)
    cosines = None
    if query.vector is not None:
        if len(rows) >= DENSE * len(vectors.matrix):
            cosines = vectors.matrix.times(query.vector)[rows]
        else:
            parts = (rows[start : start + PART] for start in range(0, len(rows), PART))
            cosines = np.concatenate([products(vectors.matrix.take(part), query.vector) for part in parts])
    similarity = members.raised(query.similarity(cosines, rows))
    return np.flatnonzero(similarity >= _at_most_kth(similarity, k) - MARGIN)


def _at_most_kth(values: np.ndarray, k: int) -> float:
    """Return a lower bound near the k-th largest value: the k-th largest of the maxima of blocks. Sorting all values
    takes ten times as long."""
    blocks = len(values) // BLOCK
    if blocks > 4 * k:
        values = values[: blocks * BLOCK].reshape(BLOCK, blocks).max(axis=0)
    return float(np.partition(values, len(values) - k)[len(values) - k])


def _best(members: _Members, near: np.ndarray, vectors: Vectors, query: _Query, k: int) -> list[tuple[int, float]]:
    """Return the k places among `near` whose entries are most similar, with their similarities. Places are positions in
    `members`."""
    places = members.with_neighbours(near)
    rows, row = members.rows[places], np.arange(len(places))
    if members.place_of is None:
        # Compare equal texts once, because the last digits of their similarities may differ.
        rows, row = np.unique(rows, return_inverse=True)
    similarity = query.similarity(query.cosines(vectors, rows), rows)[row]
    if members.neighbours is not None:
        of_all = np.zeros(len(members.rows))
        of_all[places] = similarity
        similarity = members.raised(of_all, near)
    return [(int(near[i]), float(similarity[i])) for i in np.lexsort((members.numbers[near], -similarity))[:k]]
