"""An inverted index of the words of texts, scored by BM25 (Robertson and Zaragoza 2009).

Words find texts that vectors miss, such as texts with names, numbers, codes and rare terms. Words are compared by their
English stems, and function words are ignored, except in a text without other words. The score of a text is divided by
the score that the query's own text would have, so that a text equal to the query has the score 1.

The index is a list of postings (word, text, count), ordered by word, then by text. New texts form a small list, and
small lists of similar size are merged, so that adding a text to a million is fast. The index of a stored run has
separate postings (see `plugins.index`).

Three other indexes are not used: SQLite's FTS5 and `tantivy` weight a word by all texts in the index, so that the order
of two entries would depend on the texts of earlier searches, and `bm25s` cannot add a text to an index.
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
"""BM25: saturation for repeated words, and discount for long texts. These values are good across collections
(Trotman, Puurula and Burgess 2014)."""

LARGE = 2**20
"""A list with at least this number of postings is not merged with the lists after it, to save memory."""

AT_ONCE = 4_096
"""Number of texts that are added at a time."""

_GRAMMAR = """\
a about above after again against all also am an and any are as at be because been before being below between both but
by can could d did do does doing don down during each few for from further had has have having he her here hers herself
him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of off on once only or
other our ours ourselves out over own re s same she should so some such t than that the their theirs them themselves
then there these they this those through to too under until up us ve very was we were what when where which while who
whom why will with would you your yours yourself yourselves"""
STOP_WORDS = frozenset(_GRAMMAR.split())
"""English function words: articles, pronouns, prepositions, conjunctions, auxiliaries, question words."""


MOST_COUNT = 2**8 - 1
"""Maximum counted occurrences of a word in a text."""


@cache
def _stemmer() -> Callable[[str], str]:
    import Stemmer

    # Disable the stemmer's cache, which is not thread-safe; `_key` has a cache.
    stem: Callable[[str], str] = Stemmer.Stemmer("english", 0).stemWord
    return stem


LONGEST_KNOWN = 40
"""Maximum characters of a word whose key is cached."""


@lru_cache(maxsize=2**17)
def _key(word: str) -> int:
    """Return the key of a word's stem, 63 bits; -1 for a stop word."""
    if word in STOP_WORDS:
        return -1
    return _hashed(_stemmer()(word) if word.isalpha() else word)


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


def word_keys(text: str) -> list[int]:
    """Return the keys of the words of a text except stop words. If the text has only stop words, return the keys of
    these stop words. If it has no words, return one key for the whole text."""
    # Words longer than LONGEST_KNOWN rarely occur in two texts, so caching their keys would waste memory.
    cached, uncached = _key, _key.__wrapped__
    all_words = words(text)
    keys = (cached(word) if len(word) <= LONGEST_KNOWN else uncached(word) for word in all_words)
    return [key for key in keys if key >= 0] or [_hashed(word) for word in all_words] or [_hashed(text.strip())]


@dataclass(frozen=True)
class _Postings:
    """Words of texts: the key of the word, the row of the text, and the count of the word in the text; arrays of shape
    (n,), ordered by `keys`, then by `rows`."""

    keys: np.ndarray
    rows: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def count(cls, keys_by_text: Sequence[Sequence[int]], first: int) -> _Postings:
        """Return the postings of texts, given the keys of their words. `first` is the row of the first text."""
        keys = np.fromiter(chain.from_iterable(keys_by_text), dtype=np.int64)
        rows = np.repeat(
            np.arange(first, first + len(keys_by_text), dtype=np.int32), [len(each) for each in keys_by_text]
        )
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        starts = np.flatnonzero(new)
        counts = np.minimum(np.diff(starts, append=len(keys)), MOST_COUNT).astype(np.uint8)
        return cls(keys[starts], rows[starts], counts)

    def and_of(self, later: _Postings) -> _Postings:
        """Return these postings merged with `later`, the postings of texts with higher rows."""
        # Sorting the joined arrays would need twice the memory.
        places = np.searchsorted(self.keys, later.keys, side="right") + np.arange(len(later))
        is_own = np.ones(len(self) + len(later), dtype=bool)
        is_own[places] = False

        def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
            both = np.empty(len(is_own), dtype=first.dtype)
            both[is_own], both[places] = first, second
            return both

        return _Postings(
            joined(self.keys, later.keys), joined(self.rows, later.rows), joined(self.counts, later.counts)
        )  # fmt: skip


@dataclass(frozen=True)
class WordQuery:
    """Words of a query by key: their counts in the query, and their weights among the searched texts; rare words have
    high weights. The searched texts have `mean_length` words on average."""

    counts: Mapping[int, int]
    weights: Mapping[int, float]
    mean_length: float

    @classmethod
    def of(cls, counts: Mapping[int, int], n: int, having: np.ndarray, mean_length: float) -> WordQuery:
        """Build a query for a search among n texts. `having` has, for each word in `counts`, the number of these texts
        that have the word, shape (len(counts),)."""
        weights = np.log1p((n - having + 0.5) / (having + 0.5))
        return cls(counts, dict(zip(counts, weights.tolist(), strict=True)), mean_length)

    @cached_property
    def total(self) -> float:
        return sum(self.weights.values()) or 1.0

    @cached_property
    def own(self) -> float:
        """BM25 score of the query's text itself, divided by `total`."""
        length = sum(self.counts.values())
        each = (self.weights[key] * self.saturated(min(n, MOST_COUNT), length) for key, n in self.counts.items())
        return sum(each) / self.total or 1.0

    def part(self, key: int, counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the parts of BM25 scores that one word adds, divided by `total`, for texts of these lengths that
        contain the word `counts` times."""
        score: np.ndarray = self.weights[key] / self.total * self.saturated(counts, lengths)
        return score

    def shares(self, scores: np.ndarray) -> np.ndarray:
        """Return the share of the query in each text, from 0 to 1, given the BM25 scores of the texts divided by
        `total`. A text that equals the query has the share 1."""
        shares: np.ndarray = np.minimum(scores / self.own, 1.0)
        return shares

    def saturated(self, counts: Any, lengths: Any) -> Any:
        """Return the weight, from 0 to 1, of a word that occurs `counts` times in a text of this length, for numbers or
        arrays."""
        return counts / (counts + (K1 * (1 - B) + K1 * B / (self.mean_length or 1.0) * lengths))


_NONE = np.zeros(0, dtype=np.int32)

_Lookup = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Result of a lookup of words. For each pair of a text and a word that it contains: the row of the text, the count of
the word, and the position of the word among the words that were looked up; each of shape (n,)."""


def _having(lookup: _Lookup, members: np.ndarray, n: int) -> np.ndarray:
    rows, _, positions = lookup
    in_range = rows < len(members)
    having: np.ndarray = np.bincount(positions[in_range], members[rows[in_range]], n)
    return having


@dataclass(frozen=True)
class Words:
    """Words of texts by row. `lengths` is the number of words of each text, shape (n,)."""

    lengths: np.ndarray
    parts: tuple[_Postings, ...] = ()

    def __len__(self) -> int:
        return len(self.lengths)

    def and_of(self, texts: Sequence[str]) -> Words:
        """Return the index with more texts appended."""
        keys_by_text = [word_keys(text) for text in texts]
        parts = (*self.parts, _Postings.count(keys_by_text, len(self)))
        while len(parts) > 1 and len(parts[-2]) < min(2 * len(parts[-1]), LARGE):
            parts = (*parts[:-2], parts[-2].and_of(parts[-1]))
        return Words(np.append(self.lengths, np.array([len(keys) for keys in keys_by_text], dtype=np.int32)), parts)

    def shares(self, text: str, members: np.ndarray, n: int, mean_length: float) -> np.ndarray:
        """Return the share of the query's words that each text has, shape (n,), from 0 to 1. `members` has, for each
        row, the number of searched entries with the text of that row. There are `n` searched entries in total, with
        `mean_length` words on average."""
        counts = Counter(word_keys(text))
        lookup = self._find([*counts])
        query = WordQuery.of(counts, n, _having(lookup, members, len(counts)), mean_length)
        return self._scored(query, lookup)

    def having(self, keys: Sequence[int], members: np.ndarray) -> np.ndarray:
        """Return, for each of these words, the number of searched entries that contain it. `members` has, for each row,
        the number of searched entries with the text of that row."""
        return _having(self._find(keys), members, len(keys))

    def scores(self, query: WordQuery) -> np.ndarray:
        """Return the share of the query's words that each text has, shape (n,), from 0 to 1."""
        return self._scored(query, self._find([*query.weights]))

    def _scored(self, query: WordQuery, lookup: _Lookup) -> np.ndarray:
        rows, counts, positions = lookup
        weights = np.fromiter(query.weights.values(), dtype=float)
        each = weights[positions] * query.saturated(counts, self.lengths[rows])
        return query.shares(np.bincount(rows, each, len(self)) / query.total)

    def _find(self, keys: Sequence[int]) -> _Lookup:
        """Return the texts that contain any of these words, as a `_Lookup` with the position of each word in `keys`.
        All words are looked up at once, because one lookup costs more than reading its result."""
        sought = np.array(keys, dtype=np.int64)
        rows, counts, positions, sizes = [_NONE], [_NONE], list[int](), list[int]()
        for part in self.parts:
            starts, ends = np.searchsorted(part.keys, (sought, sought + 1)).tolist()
            for n, (start, end) in enumerate(zip(starts, ends, strict=True)):
                rows.append(part.rows[start:end])
                counts.append(part.counts[start:end])
                positions.append(n)
                sizes.append(end - start)
        return np.concatenate(rows), np.concatenate(counts), np.repeat(np.array(positions, dtype=int), sizes)


def joined_similarity(cosines: np.ndarray | None, shares: np.ndarray | None, weight: float) -> np.ndarray:
    """Return the similarity of texts to a query, at most 1, from the cosines of the texts' vectors with the query and
    the shares of the query's words that the texts have. `weight` is the weight of the words. `cosines` or `shares` may
    be None if its weight is 0."""
    if cosines is None or weight == 1:
        assert shares is not None
        return shares
    similarity: np.ndarray = (1 - weight) * cosines
    if shares is not None and weight:
        similarity = similarity + weight * shares
    # Rounding can make the cosine of equal vectors larger than 1.
    np.minimum(similarity, 1.0, out=similarity)
    return similarity


def no_words() -> Words:
    return Words(np.zeros(0, dtype=np.int32))


class WordIndex:
    """Words of the texts of a matrix of vectors, by row. The next search adds the rows that are new in the matrix."""

    def __init__(self, vectors: Vectors) -> None:
        self.words = no_words()
        self._vectors = vectors
        self._lock = asyncio.Lock()

    async def cover(self) -> Words:
        """Return the words of all rows, after adding new rows. Many rows are added in another thread, so that they do
        not delay calls in flight."""
        async with self._lock:
            while texts := self._vectors.texts[len(self.words) : len(self.words) + AT_ONCE]:
                many = len(texts) == AT_ONCE
                self.words = await asyncio.to_thread(self.words.and_of, texts) if many else self.words.and_of(texts)
            return self.words


def highest(scores: np.ndarray, n: int) -> np.ndarray:
    """Return the positions in `scores` of the n highest scores above 0, or of all scores above 0 if there are fewer
    than n. The positions are unordered."""
    places = np.flatnonzero(scores)
    return places if len(places) <= n else places[np.argpartition(scores[places], -n)[-n:]]
