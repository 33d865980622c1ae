"""An inverted index of the words of texts, scored by BM25 (Robertson and Zaragoza 2009).

Words find what a vector blurs: names, numbers, codes, rare terms. They are compared by their English stems, and words
of grammar are left out. The index is a list of postings (word, text, count) in the order of the words, then of the
texts. New texts become a small list, and small lists of about one size are merged, so that a text is added quickly
among a million. The index of a stored run has postings of its own (see `index`).

SQLite's FTS5 and `tantivy` weigh a word by all that they hold, which would let the order of two entries depend on what
else was ever searched, and `bm25s` cannot add a text; so none of them is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from itertools import chain

import numpy as np

from practicum.core.shingles import words
from practicum.retrieval.vectors import Vectors

K1, B = 0.9, 0.4
"""BM25: how soon more occurrences of a word add little, and how much less it counts in a long text. These values are
good across collections (Trotman, Puurula and Burgess 2014)."""

MOST_COUNT = 2**16 - 1
"""Occurrences of a word in a text that are counted."""

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


@cache
def _stemmer() -> Callable[[str], str]:
    import snowballstemmer

    stem: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    return stem


LONGEST_KNOWN = 40
"""Characters of the longest word whose key is remembered."""


@lru_cache(maxsize=2**17)
def _key(word: str) -> int:
    """The key of a word's stem, 63 bits; -1 for a stop word."""
    if word in STOP_WORDS:
        return -1
    stem = _stemmer()(word) if word.isalpha() else word
    return int.from_bytes(blake2b(stem.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


def word_keys(text: str) -> list[int]:
    """The keys of the words of a text, without stop words."""
    # Longer ones are in hardly any text twice, and would fill the memory.
    known, unknown = _key, _key.__wrapped__
    keys = (known(word) if len(word) <= LONGEST_KNOWN else unknown(word) for word in words(text))
    return [key for key in keys if key >= 0]


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
        counts = np.minimum(np.diff(starts, append=len(keys)), MOST_COUNT).astype(np.uint16)
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

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that have any of these words, and how often; one word after the other, with the place of the word
        among `keys`."""
        starts, ends = np.searchsorted(self.keys, (keys, keys + 1))
        spans = [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        which = np.repeat(np.arange(len(keys)), ends - starts)
        return _joined([self.rows[span] for span in spans]), _joined([self.counts[span] for span in spans]), which


@dataclass(frozen=True)
class WordQuery:
    """The words of a query by key, each with its weight among the texts that are searched: the rarer, the higher. These
    texts have `mean_length` words on average."""

    weights: Mapping[int, float]
    mean_length: float

    @classmethod
    def of(cls, keys: Sequence[int], n: int, having: np.ndarray, mean_length: float) -> WordQuery:
        """A query among n texts, of which `having` have each of its words, shape (len(keys),)."""
        weights = np.log1p((n - having + 0.5) / (having + 0.5))
        return cls(dict(zip(keys, weights.tolist(), strict=True)), mean_length)

    @cached_property
    def total(self) -> float:
        return sum(self.weights.values()) or 1.0

    def part(self, key: int, counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """How much of the query texts of these lengths have by one word, which they have `counts` times."""
        return self.weights[key] / self.total * self.saturated(counts, lengths)

    def saturated(self, counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """By which share a word counts that is `counts` times in texts of these lengths."""
        found: np.ndarray = counts / (counts + K1 * (1 - B + B * (lengths / (self.mean_length or 1.0))))
        return found


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

    def weigh(self, text: str, members: np.ndarray, mean_length: float) -> WordQuery:
        """A query among entries of this mean length. `members` is how many of them have the text of each row."""
        keys = [*dict.fromkeys(word_keys(text))]
        return WordQuery.of(keys, int(members.sum()), self.having(keys, members), mean_length)

    def having(self, keys: Sequence[int], members: np.ndarray) -> np.ndarray:
        """How many entries have each of these words. `members` is how many have the text of each row."""
        rows, _, which = self._find(keys)
        there = rows < len(members)
        found: np.ndarray = np.bincount(which[there], members[rows[there]], len(keys))
        return found

    def scores(self, query: WordQuery) -> np.ndarray:
        """How much of a query each text has, shape (n,), from 0 to below 1: the BM25 score, as a share of that of a
        text that has every word endlessly often."""
        rows, counts, which = self._find([*query.weights])
        weights = np.fromiter(query.weights.values(), dtype=float)
        each = weights[which] * query.saturated(counts, self.lengths[rows])
        found: np.ndarray = np.bincount(rows, each, len(self)) / query.total
        return found

    def _find(self, keys: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that have any of these words, how often, and the place of the word among `keys`. All words are
        looked up at once, because a lookup costs more than what it finds."""
        wanted = np.array(keys, dtype=np.int64)
        rows, counts, which = zip(*(part.find(wanted) for part in self.parts or (_Postings.count((), 0),)), strict=True)
        return _joined(rows), _joined(counts), _joined(which)


def joined_similarity(cosines: np.ndarray, shares: np.ndarray, weight: float) -> np.ndarray:
    """The similarity of texts to a query, by the cosines of their vectors and the shares of its words that they have,
    which have this weight."""
    found: np.ndarray = (1 - weight) * cosines + weight * shares
    return found


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)


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
