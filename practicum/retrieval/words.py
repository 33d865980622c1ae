"""An inverted index of the words of texts, scored by BM25 (Robertson and Zaragoza 2009).

Words find what a vector blurs: names, numbers, codes, rare terms. They are compared by their English stems, and words
of grammar are left out, except in a text that has no others. A score is divided by the score of the query's own text,
so that an identical text has 1.

The index is a list of postings (word, text, count) in the order of the words, then of the texts. New texts become a
small list, and small lists of about one size are merged, so that a text is added quickly among a million. The index of
a stored run has postings of its own (see `index`).

SQLite's FTS5 and `tantivy` weigh a word by all that they hold, which would let the order of two entries depend on what
else was ever searched, and `bm25s` cannot add a text; so none of them is used.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np

from practicum.core.shingles import words
from practicum.retrieval.vectors import Vectors

K1, B = 0.9, 0.4
"""BM25: how soon more occurrences of a word add little, and how much less it counts in a long text. These values are
good across collections (Trotman, Puurula and Burgess 2014)."""

LARGE = 2**20
"""Postings from which on a list is not merged any more, which would take memory for both."""

AT_ONCE = 4_096
"""Texts that are added in one go."""

_GRAMMAR = """\
a about above after again against all also am an and any are as at be because been before being below between both but
by can could d did do does doing don down during each few for from further had has have having he her here hers herself
him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of off on once only or
other our ours ourselves out over own re s same she should so some such t than that the their theirs them themselves
then there these they this those through to too under until up us ve very was we were what when where which while who
whom why will with would you your yours yourself yourselves"""
STOP_WORDS = frozenset(_GRAMMAR.split())
"""English words of grammar: articles, pronouns, prepositions, conjunctions, auxiliaries, question words."""


MOST_COUNT = 2**8 - 1
"""Occurrences of a word in a text that are counted."""


@cache
def _stemmer() -> Callable[[str], str]:
    import Stemmer

    # Without its cache, which two threads may not share; `_key` has one.
    stem: Callable[[str], str] = Stemmer.Stemmer("english", 0).stemWord
    return stem


LONGEST_KNOWN = 40
"""Characters of the longest word whose key is remembered."""


@lru_cache(maxsize=2**17)
def _key(word: str) -> int:
    """The key of a word's stem, 63 bits; -1 for a stop word."""
    if word in STOP_WORDS:
        return -1
    return _hashed(_stemmer()(word) if word.isalpha() else word)


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


def word_keys(text: str) -> list[int]:
    """The keys of the words of a text, at least one: without stop words, or of stop words where it has no others, or of
    the text itself where it has no words."""
    # Longer ones are in hardly any text twice, and would fill the memory.
    known, unknown = _key, _key.__wrapped__
    found = words(text)
    keys = (known(word) if len(word) <= LONGEST_KNOWN else unknown(word) for word in found)
    return [key for key in keys if key >= 0] or [_hashed(word) for word in found] or [_hashed(text.strip())]


@dataclass(frozen=True)
class _Postings:
    """The texts that have a word, and how often: arrays of shape (n,), ordered by `keys`, then by `rows`."""

    keys: np.ndarray
    rows: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def count(cls, found: Sequence[Sequence[int]], first: int) -> _Postings:
        """The postings of texts by the keys of their words. `first` is the row of the first text."""
        keys = np.fromiter(chain.from_iterable(found), dtype=np.int64)
        rows = np.repeat(np.arange(first, first + len(found), dtype=np.int32), [len(each) for each in found])
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        starts = np.flatnonzero(new)
        counts = np.minimum(np.diff(starts, append=len(keys)), MOST_COUNT).astype(np.uint8)
        return cls(keys[starts], rows[starts], counts)

    def and_of(self, later: _Postings) -> _Postings:
        """These, and those of texts with higher rows."""
        # Sorting would take twice the memory.
        places = np.searchsorted(self.keys, later.keys, side="right") + np.arange(len(later))
        own = np.ones(len(self) + len(later), dtype=bool)
        own[places] = False

        def joined(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            both = np.empty(len(own), dtype=ours.dtype)
            both[own], both[places] = ours, theirs
            return both

        return _Postings(
            joined(self.keys, later.keys), joined(self.rows, later.rows), joined(self.counts, later.counts)
        )  # fmt: skip


@dataclass(frozen=True)
class WordQuery:
    """The words of a query by key: how often it has each, and the weight of each among the texts that are searched; the
    rarer, the higher. These texts have `mean_length` words on average."""

    counts: Mapping[int, int]
    weights: Mapping[int, float]
    mean_length: float

    @classmethod
    def of(cls, counts: Mapping[int, int], n: int, having: np.ndarray, mean_length: float) -> WordQuery:
        """A query among n texts, of which `having` have each of its words, shape (len(counts),)."""
        weights = np.log1p((n - having + 0.5) / (having + 0.5))
        return cls(counts, dict(zip(counts, weights.tolist(), strict=True)), mean_length)

    @cached_property
    def total(self) -> float:
        return sum(self.weights.values()) or 1.0

    @cached_property
    def own(self) -> float:
        """The BM25 score that the query's own text would have, divided by `total`."""
        length = sum(self.counts.values())
        each = (self.weights[key] * self.saturated(min(n, MOST_COUNT), length) for key, n in self.counts.items())
        return sum(each) / self.total or 1.0

    def part(self, key: int, counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The BM25 score of texts of these lengths for one word, which they have `counts` times, divided by `total`."""
        score: np.ndarray = self.weights[key] / self.total * self.saturated(counts, lengths)
        return score

    def shares(self, scores: np.ndarray) -> np.ndarray:
        """The shares of the query that texts have, from 0 to 1, by their BM25 scores divided by `total`. The query's
        own text has 1."""
        found: np.ndarray = np.minimum(scores / self.own, 1.0)
        return found

    def saturated(self, counts: Any, lengths: Any) -> Any:
        """By which share a word counts that is `counts` times in a text of this length; numbers or arrays."""
        return counts / (counts + (K1 * (1 - B) + K1 * B / (self.mean_length or 1.0) * lengths))


_NONE = np.zeros(0, dtype=np.int32)

_Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows that have some of the words that were looked up, how often, and the place of the word among them; each of shape
(n,)."""


def _having(found: _Found, members: np.ndarray, n: int) -> np.ndarray:
    rows, _, which = found
    there = rows < len(members)
    having: np.ndarray = np.bincount(which[there], members[rows[there]], n)
    return having


@dataclass(frozen=True)
class Words:
    """The words of texts by row. `lengths` is the number of words of each text, shape (n,)."""

    lengths: np.ndarray
    parts: tuple[_Postings, ...] = ()

    def __len__(self) -> int:
        return len(self.lengths)

    def and_of(self, texts: Sequence[str]) -> Words:
        """These texts, and more after them."""
        found = [word_keys(text) for text in texts]
        parts = (*self.parts, _Postings.count(found, len(self)))
        while len(parts) > 1 and len(parts[-2]) < min(2 * len(parts[-1]), LARGE):
            parts = (*parts[:-2], parts[-2].and_of(parts[-1]))
        return Words(np.append(self.lengths, np.array([len(keys) for keys in found], dtype=np.int32)), parts)

    def shares(self, text: str, members: np.ndarray, n: int, mean_length: float) -> np.ndarray:
        """The share of the words of a query that each text has, shape (n,), from 0 to 1. `members` is how many of the
        `n` entries that are searched have the text of each row; these have `mean_length` words on average."""
        counts = Counter(word_keys(text))
        found = self._find([*counts])
        query = WordQuery.of(counts, n, _having(found, members, len(counts)), mean_length)
        return self._scored(query, found)

    def having(self, keys: Sequence[int], members: np.ndarray) -> np.ndarray:
        """How many entries have each of these words. `members` is how many have the text of each row."""
        return _having(self._find(keys), members, len(keys))

    def scores(self, query: WordQuery) -> np.ndarray:
        """The share of a query that each text has, shape (n,), from 0 to 1."""
        return self._scored(query, self._find([*query.weights]))

    def _scored(self, query: WordQuery, found: _Found) -> np.ndarray:
        rows, counts, which = found
        weights = np.fromiter(query.weights.values(), dtype=float)
        each = weights[which] * query.saturated(counts, self.lengths[rows])
        return query.shares(np.bincount(rows, each, len(self)) / query.total)

    def _find(self, keys: Sequence[int]) -> _Found:
        """The rows that have any of these words, how often, and the place of the word among `keys`. All words are
        looked up at once, because a lookup costs more than what it finds."""
        wanted = np.array(keys, dtype=np.int64)
        rows, counts, which, sizes = [_NONE], [_NONE], list[int](), list[int]()
        for part in self.parts:
            starts, ends = np.searchsorted(part.keys, (wanted, wanted + 1)).tolist()
            for n, (start, end) in enumerate(zip(starts, ends, strict=True)):
                rows.append(part.rows[start:end])
                counts.append(part.counts[start:end])
                which.append(n)
                sizes.append(end - start)
        return np.concatenate(rows), np.concatenate(counts), np.repeat(np.array(which, dtype=int), sizes)


def joined_similarity(cosines: np.ndarray | None, shares: np.ndarray | None, weight: float) -> np.ndarray:
    """The similarity of texts to a query, at most 1, by the cosines of their vectors and the shares of its words that
    they have. `weight` is that of the words. A part without weight may be None."""
    if cosines is None or weight == 1:
        assert shares is not None
        return shares
    found: np.ndarray = (1 - weight) * cosines
    if shares is not None and weight:
        found = found + weight * shares
    # Rounding can make the cosine of equal vectors larger than 1.
    np.minimum(found, 1.0, out=found)
    return found


def no_words() -> Words:
    return Words(np.zeros(0, dtype=np.int32))


class WordIndex:
    """The words of the rows of a matrix of vectors. Rows are added when they are first searched."""

    def __init__(self, vectors: Vectors) -> None:
        self.words = no_words()
        self._vectors = vectors
        self._lock = asyncio.Lock()

    async def cover(self) -> Words:
        """The words of all rows. Many are added in another thread, so that calls in flight continue."""
        async with self._lock:
            while texts := self._vectors.texts[len(self.words) : len(self.words) + AT_ONCE]:
                many = len(texts) == AT_ONCE
                self.words = await asyncio.to_thread(self.words.and_of, texts) if many else self.words.and_of(texts)
            return self.words


def highest(scores: np.ndarray, n: int) -> np.ndarray:
    """The places of the n highest scores above 0, or fewer if fewer are, in no order."""
    found = np.flatnonzero(scores)
    return found if len(found) <= n else found[np.argpartition(scores[found], -n)[-n:]]
