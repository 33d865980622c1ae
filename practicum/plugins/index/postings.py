"""Postings on the disk: for each key (a word, a tag, a section) the rows that have it, and how often.

One number holds a row and a count, so that a search for the rows of a key reads one piece of the file. Rows ascend,
so that a few rows are looked up among many postings quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from practicum.retrieval.words import MOST_COUNT

COUNT_BITS = 8
"""The bits of a count, of which `MOST_COUNT` is the most. There are 24 bits for the row."""

SLICE = 2**21
"""About as many postings are merged at a time."""


@dataclass(frozen=True)
class Postings:
    """`keys` ascend, shape (u,); those of key i are `packed[starts[i]:starts[i + 1]]`."""

    keys: np.ndarray
    starts: np.ndarray
    packed: np.ndarray

    @classmethod
    def count(cls, found: Sequence[Sequence[int]]) -> Postings:
        """The postings of rows 0 to n - 1 by the keys that each has."""
        keys = np.fromiter(chain.from_iterable(found), dtype=np.int64)
        rows = np.repeat(np.arange(len(found), dtype=np.uint32), [len(each) for each in found])
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        first = np.flatnonzero(new)
        counts = np.minimum(np.diff(first, append=len(keys)), MOST_COUNT).astype(np.uint32)
        unique, starts = np.unique(keys[first], return_index=True)
        return cls(unique, np.append(starts, len(first)), rows[first] << COUNT_BITS | counts)

    def of(self, key: int) -> np.ndarray:
        """The postings of a key, ascending."""
        at = int(np.searchsorted(self.keys, key))
        if at == len(self.keys) or self.keys[at] != key:
            return self.packed[:0]
        found: np.ndarray = self.packed[int(self.starts[at]) : int(self.starts[at + 1])]
        return found


def rows_of(packed: np.ndarray) -> np.ndarray:
    rows: np.ndarray = packed >> COUNT_BITS
    return rows


def counts_of(packed: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How often each of some rows has the key of these postings; 0 for a row without it."""
    if not len(packed):
        return np.zeros(len(rows), dtype=np.uint32)
    wanted = rows.astype(np.uint32) << COUNT_BITS
    at = np.minimum(np.searchsorted(packed, wanted), len(packed) - 1)
    found = packed[at]
    counts: np.ndarray = np.where(found >> COUNT_BITS == rows, found & MOST_COUNT, 0)
    return counts


def merged(
    parts: Sequence[tuple[Postings, np.ndarray]], write: Callable[[np.ndarray], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Merge postings, each with the new number of its rows, -1 for a row that is left out. `write` takes the packed
    ones in their order; returns keys and starts. Needs memory for a few keys only."""
    total = sum(len(postings.packed) for postings, _ in parts)
    keys, sizes = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for low, high in _ranges(total // SLICE + 1):
        some = [(postings, numbers, *np.searchsorted(postings.keys, (low, high))) for postings, numbers in parts]
        unique = np.unique(np.concatenate([postings.keys[start:end] for postings, _, start, end in some]))
        joined = np.sort(np.concatenate([_renumbered(unique, *each) for each in some]))
        key = (joined >> np.uint64(32)).astype(np.int64)
        write(joined.astype(np.uint32))
        size = np.bincount(key, minlength=len(unique))
        keys.append(unique[size > 0])
        sizes.append(size[size > 0])
    starts = np.append(0, np.cumsum(np.concatenate(sizes)))
    return np.concatenate(keys), starts


def _ranges(number: int) -> Iterator[tuple[int, int]]:
    """Ranges of keys, which are hashes of 63 bits and so lie evenly."""
    bounds = [2**63 * i // number for i in range(number)] + [2**63 - 1]
    yield from pairwise(bounds)


def _renumbered(unique: np.ndarray, postings: Postings, numbers: np.ndarray, start: int, end: int) -> np.ndarray:
    """The postings of keys from `start` to `end`, each as the place of its key among `unique`, its row and count."""
    packed = postings.packed[int(postings.starts[start]) : int(postings.starts[end])]
    sizes = np.diff(postings.starts[start : end + 1])
    key = np.repeat(np.searchsorted(unique, postings.keys[start:end]).astype(np.uint64), sizes)
    rows = numbers[packed >> COUNT_BITS]
    kept = rows >= 0
    low = rows[kept].astype(np.uint64) << np.uint64(COUNT_BITS) | (packed[kept] & MOST_COUNT)
    renumbered: np.ndarray = key[kept] << np.uint64(32) | low
    return renumbered
