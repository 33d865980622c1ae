"""Retrieval: the entries of a context that are most similar to a text, in meaning and in words.

Similarity is the cosine of the vectors, the share of the query's words that an entry has (BM25, see `words`), or the
weighted mean of both; an identical text has 1.
The turns of a conversation help to find their neighbours. Ties go to the older entry. Contexts are immutable and share
pages. A search looks only at the pages that the last search did not see, so its work depends on what changed and not on
how much was learned. The result is exact; among many entries it is exact for the candidates that have most of the words
or that an index of the vectors proposes (see `lists`, and plug-ins of the
entry point group `practicum.indexes`).
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
"""Which entries are searched. Give an equal object each time: its answers are kept as long as a page is."""

Retrieval = Literal["cosine", "words", "mixed"]
"""What similarity is: the cosine of the vectors, the share of the query's words, or the weighted mean of both."""

WEIGHTS: Mapping[Retrieval, float] = {"cosine": 0.0, "words": 1.0, "mixed": 2 / 3}
"""The weight of the words in a similarity; the rest is the weight of the cosine. For `mixed`, weights from 0.6 to 0.75
are about as good (docs/results.md)."""

DEFAULT: Retrieval = "mixed"

NEIGHBOUR = 1 / 2
"""How much a turn of a conversation counts for the turn before and the turn after it: an answer repeats little of its
question. From 0.4 to 0.6 it hardly matters (docs/results.md)."""

ALL = slice(None)

MARGIN = 1e-5
"""More than the rounding error of a similarity."""

MANY_ENTRIES = 20_000
"""Matching entries from which on not all are compared."""

CANDIDATES = 128
"""Candidates with near vectors, and with many words, that are compared at least."""

GROWN = 1.25
"""How many times as many vectors there are when they are put into lists again."""

COLUMNS = 32
"""Predicates whose answers are kept, at four bytes an entry. A network of four agents has twenty: one for each agent
and kind of step."""

DENSE = 0.25
"""Share of the vectors from which on comparing with all is faster than copying those that match."""

BLOCK = 32
"""Values of which the largest stands for all when the k-th largest is looked for. They lie apart, since NumPy compares
rows faster than the values of a row."""

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
        if self.trust is not None and entry.trust != self.trust:
            return False
        return all(f"tag:{tag}" in entry.sources for tag in self.tags)


VISIBLE = Filter()
"""Every entry that is not hidden."""


@dataclass(frozen=True, slots=True)
class Match:
    """An entry, and its similarity to the query, at most 1: that of an identical text."""

    entry: Entry
    similarity: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The matches, best first. If the result is not `exact`, another process may find other entries."""

    found: tuple[Match, ...] = ()
    exact: bool = True


class SavedIndex(Protocol):
    """The index that is saved with a run, by which entries are found without reading all of them."""

    async def nearest(
        self, context: Context, text: str, k: int, where: EntryPredicate
    ) -> list[tuple[Entry, float]] | None:
        """About the k entries most similar to a text, best first, with their exact similarities. None if the context
        has no index, or if too little of what the index proposes matches."""

    async def save(self, context: Context) -> int:
        """Save an index of a context, the last version of its run. Returns its number of entries."""


class IndexKind(Protocol):
    """Makes the index of the run that `vectors` have their store from. `weight` is that of the words in a
    similarity."""

    def __call__(self, vectors: Vectors, words: WordIndex, weight: float) -> SavedIndex: ...


INDEXES: Group[IndexKind] = Group("practicum.indexes", "index", called)


class Retriever:
    """Searches contexts by the vectors of their entries, by their words, or by both, as `retrieval` says: with `cosine`
    no words are indexed, with `words` no query is embedded except for a stored index. Raises UsageError for another
    value.

    With `many` matching entries or more it compares those that lists of vectors (see `lists`) and the words propose. In
    a context of `many` entries that was opened from a snapshot it uses the index that was saved with the snapshot, and
    reads only the entries found and those that changed since.
    """

    def __init__(self, vectors: Vectors, many: int = MANY_ENTRIES, *, retrieval: Retrieval = DEFAULT) -> None:
        # A stored setting may be anything.
        if retrieval not in get_args(Retrieval):
            raise UsageError(
                "settings.invalid",
                f"retrieval={retrieval!r} must be one of {', '.join(WEIGHTS)}",
                setting="retrieval",
                known=[*WEIGHTS],
            )
        self.vectors = vectors
        self.many = many
        self.retrieval = retrieval
        self._weight = WEIGHTS[retrieval]
        self._words = WordIndex(vectors)
        self._columns: OrderedDict[EntryPredicate, _Column] = OrderedDict()
        self._lists = _RowLists(vectors)

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> SearchResult:
        """The k entries most similar to a text, or fewer if fewer match; ties go to the older entry."""
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
        # While vectors were awaited, another search may have moved the column. From here on nothing is awaited before
        # its arrays are taken.
        column.move(context.pages, self.vectors)
        members, shares = column.members(), None
        if self._weight:
            words = await self._words.cover()
            of_row, mean_length = members.of_row, members.mean_length(words.lengths)
            shares = words.shares(text, of_row, len(members.rows), mean_length)
        query = _Query(vector, shares, self._weight)
        # The shares of the words are known of all entries.
        exact = len(members.rows) < self.many or vector is None
        if exact:
            near = await _all_near(self.vectors, members, query, k)
        else:
            await self._lists.cover()
            near = self._lists.near(members, query, max(CANDIDATES, 4 * k))
        best = _best(members, near, self.vectors, query, k)
        found = [(context.get(f"{context.letter}{members.numbers[place]}"), similarity) for place, similarity in best]
        return SearchResult(tuple(Match(entry, similarity) for entry, similarity in found if entry is not None), exact)

    async def save(self, context: Context) -> int:
        """Save an index of a context, the last version of the run that the vectors have their store from. Returns its
        number of entries, 0 if none is saved because they are few."""
        if len(context) < self.many or self.saved is None:
            return 0
        return await self.saved.save(context)

    @cached_property
    def saved(self) -> SavedIndex | None:
        """The index that is saved with the run that the vectors have their store from."""
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
    """The vector of a query, shape (d,); the share of its words that the text of each row has; the weight of these. A
    part without weight is None."""

    vector: np.ndarray | None
    shares: np.ndarray | None
    weight: float

    def cosines(self, vectors: Vectors, rows: np.ndarray) -> np.ndarray | None:
        """The cosines of the vectors of some rows; None if they have no weight."""
        return None if self.vector is None else products(vectors.matrix.take(rows), self.vector)

    def similarity(self, cosines: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
        """The similarity of the texts of some rows, given their cosines."""
        return joined_similarity(cosines, None if self.shares is None else self.shares[rows], self.weight)


class _Members:
    """The entries that a search is about: their numbers, the rows of their texts, and their conversations, 0 for none;
    shape (n,), oldest first. `of_row` is how many have the text of each row."""

    def __init__(
        self, numbers: np.ndarray, rows: np.ndarray, conversations: np.ndarray, earlier: Rough | None = None
    ) -> None:  # fmt: skip
        """`earlier` is what the entries had before a few were added."""
        self.numbers = numbers
        self.rows = rows
        self._conversations = conversations
        self._mean_length: float | None = None
        self._searches = 0
        self._rough: Rough | None = None
        self.earlier = earlier
        self._asked: list[tuple[np.ndarray, asyncio.Future[tuple[np.ndarray, float]]]] = []
        self._listed: Rows | None = None

    def rough(self, vectors: Vectors) -> Rough | None:
        """The vectors with 8 bits, from the second search on; None where they are few, or turns of conversations."""
        self._searches += 1
        pays = self._searches > 1 or self.earlier is not None
        if self._rough is None and pays and len(self.rows) >= FEWEST and rough_installed():
            if self.neighbours is not None:
                return None
            self._rough = self.earlier = Rough.of(self.rows, vectors.matrix.take, self.earlier)
        return self._rough

    async def rough_cosines(self, rough: Rough, query: np.ndarray) -> tuple[np.ndarray, float]:
        """The cosines of `Rough` with one query. Searches that begin in one turn of the event loop share the reading
        of the vectors."""
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._answer, rough)
        self._asked.append((query, found := loop.create_future()))
        answer: tuple[np.ndarray, float] = await found
        return answer

    def _answer(self, rough: Rough) -> None:
        asked, self._asked = self._asked, []
        try:
            cosines, error = rough.cosines(np.stack([query for query, _ in asked]))
        except Exception as failure:
            for _, found in asked:
                found.set_exception(failure)
            return
        for (_, found), own in zip(asked, cosines, strict=True):
            # One who waited may have been cancelled.
            if not found.done():
                found.set_result((own, error))

    def listed(self, known: int) -> Rows:
        """Which of the first rows, so many as are in lists, are those of members."""
        if self._listed is None or len(self._listed.mask) != known:
            mask = np.zeros(known, dtype=bool)
            mask[: len(self.of_row)] = self.of_row[:known] > 0
            self._listed = Rows(mask)
        return self._listed

    @cached_property
    def of_row(self) -> np.ndarray:
        return np.bincount(self.rows).astype(np.int32)

    @cached_property
    def place_of(self) -> np.ndarray | None:
        """The place of each row, -1 for none; None if some have the same text."""
        if len(self.of_row) and self.of_row.max() > 1:
            return None
        places = np.full(len(self.of_row), -1)
        places[self.rows] = np.arange(len(self.rows))
        return places

    def mean_length(self, lengths: np.ndarray) -> float:
        """The mean number of words, given that of each row."""
        if self._mean_length is None:
            self._mean_length = float(lengths[self.rows].mean())
        return self._mean_length

    @cached_property
    def neighbours(self) -> np.ndarray | None:
        """The places of the turns before and after each entry in its conversation, shape (2, n), -1 for none; None if
        no entry is of a conversation."""
        if not self._conversations.any():
            return None
        order = np.argsort(self._conversations, kind="stable")
        of = self._conversations[order]
        after = np.flatnonzero((of[1:] == of[:-1]) & (of[1:] > 0)) + 1
        found = np.full((2, len(order)), -1)
        found[0, order[after]], found[1, order[after - 1]] = order[after - 1], order[after]
        return found

    def with_neighbours(self, places: np.ndarray) -> np.ndarray:
        """These places and those of their neighbours, ascending."""
        if self.neighbours is None:
            return places
        found = np.unique(np.append(places, self.neighbours[:, places]))
        return found[found >= 0]

    def raised(self, similarity: np.ndarray, places: np.ndarray | slice = ALL) -> np.ndarray:
        """The similarities at some places, raised towards 1 by a share of that of the more similar neighbour."""
        own: np.ndarray = similarity[places]
        if self.neighbours is None:
            return own
        higher = np.append(similarity, 0.0)[self.neighbours[:, places]].max(axis=0).clip(min=0)
        found: np.ndarray = own + NEIGHBOUR * higher * (1 - own)
        return found


class _Column:
    """For each entry by its number the row of its vector, -1 if there is no entry or it does not match `where`, and its
    conversation, 0 for none."""

    def __init__(self, where: EntryPredicate) -> None:
        self.where = where
        self.rows = np.full(0, -1, dtype=np.int32)
        self.conversations = np.zeros(0, dtype=np.int32)
        self._known: dict[str, int] = {"": 0}
        self._pages: tuple[Page, ...] = ()
        self._members: _Members | None = None
        self._earlier: Rough | None = None

    def texts(self, pages: tuple[Page, ...]) -> list[str]:
        """The texts that must have vectors before the column can be moved to these pages."""
        return [e.embedded_text for index in self._changed(pages) for e in self._matching(pages, index)]

    def move(self, pages: tuple[Page, ...], vectors: Vectors) -> int:
        """Make it the column of these pages. Returns how many entries match."""
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
            self.conversations[numbers] = [self._known.setdefault(e.conversation, len(self._known)) for e in entries]
        if changed and self._members is not None:
            self._earlier, self._members = self._members.earlier, None
        self._pages = pages
        return len(self.members().rows)

    def members(self) -> _Members:
        """The matching entries. The object stays the same until a move."""
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
    """Lists of the rows of a matrix of vectors. They are made again when the matrix has grown by a quarter; until then
    the rows that are missing are all proposed."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._lists: Lists | None = None
        self._lock = asyncio.Lock()

    async def cover(self) -> None:
        """Make the lists, in another thread, so that calls in flight continue."""
        async with self._lock:
            n, matrix = len(self._vectors.matrix), self._vectors.matrix
            if self._lists is None or n > GROWN * len(self._lists):
                self._lists = await asyncio.to_thread(Lists.of, n, matrix.take)

    def near(self, members: _Members, query: _Query, n: int) -> np.ndarray:
        """Places in `members` of about n rows nearest to a query, and of n that have most of its words."""
        assert self._lists is not None
        assert query.vector is not None
        of_row, known = members.of_row > 0, len(self._lists)
        wanted = np.zeros(len(of_row), dtype=bool)
        wanted[known:] = of_row[known:]
        wanted[self._lists.near(query.vector, n, members.listed(known))] = True
        if query.shares is not None:
            wanted[highest(query.shares[: len(wanted)] * of_row, n)] = True
        return members.with_neighbours(np.flatnonzero(wanted[members.rows]))


async def _all_near(vectors: Vectors, members: _Members, query: _Query, k: int) -> np.ndarray:
    """Places in `members` of the k most similar, and of all that are as similar up to rounding."""
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
            # Few entries have a word of the query.
            some = np.flatnonzero(query.shares[: len(place_of)] > 0)
            places = place_of[some]
            there = places >= 0
            similarity[places[there]] += query.weight * query.shares[some[there]]
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
    """At most the k-th largest value, and near it: the k-th largest of the maxima of blocks. To sort all values takes
    ten times as long."""
    blocks = len(values) // BLOCK
    if blocks > 4 * k:
        values = values[: blocks * BLOCK].reshape(BLOCK, blocks).max(axis=0)
    return float(np.partition(values, len(values) - k)[len(values) - k])


def _best(members: _Members, near: np.ndarray, vectors: Vectors, query: _Query, k: int) -> list[tuple[int, float]]:
    """The k best of some places in `members`, with their similarities."""
    places = members.with_neighbours(near)
    rows, row = members.rows[places], np.arange(len(places))
    if members.place_of is None:
        # Equal texts are compared once, since the last digits may differ.
        rows, row = np.unique(rows, return_inverse=True)
    similarity = query.similarity(query.cosines(vectors, rows), rows)[row]
    if members.neighbours is not None:
        of_all = np.zeros(len(members.rows))
        of_all[places] = similarity
        similarity = members.raised(of_all, near)
    return [(int(near[i]), float(similarity[i])) for i in np.lexsort((members.numbers[near], -similarity))[:k]]
