"""Postings on disk: for each key (such as a word, a tag or a section), the rows that have the key, and how many times
each row has it.

A posting packs a row and a count into one number, so that a search for a key reads one contiguous piece of the file.
Rows are sorted, so that looking up a few rows among many postings is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from practicum.retrieval.words import MOST_COUNT

COUNT_BITS = 8
"""Number of bits of a posting for the count, which is at most `MOST_COUNT`. The other 24 bits are the row."""

SLICE = 2**21
"""Approximate number of postings that `merged` holds in memory at a time."""


@dataclass(frozen=True)
class Postings:
    """Postings of all keys. `keys` is sorted, shape (u,). The postings of key i are `packed[starts[i]:starts[i +
    1]]`."""

    keys: np.ndarray
    starts: np.ndarray
    packed: np.ndarray

    @classmethod
    def count(cls, keys_of_rows: Sequence[Sequence[int]]) -> Postings:
        """Build the postings of rows 0 to n - 1 from the keys of each row."""
        keys = np.fromiter(chain.from_iterable(keys_of_rows), dtype=np.int64)
        rows = np.repeat(np.arange(len(keys_of_rows), dtype=np.uint32), [len(each) for each in keys_of_rows])
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        first = np.flatnonzero(new)
        counts = np.minimum(np.diff(first, append=len(keys)), MOST_COUNT).astype(np.uint32)
        unique, starts = np.unique(keys[first], return_index=True)
        return cls(unique, np.append(starts, len(first)), rows[first] << COUNT_BITS | counts)

    def of(self, key: int) -> np.ndarray:
        """Return the postings of a key, sorted by row."""
        at = int(np.searchsorted(self.keys, key))
        if at == len(self.keys) or self.keys[at] != key:
            return self.packed[:0]
        postings: np.ndarray = self.packed[int(self.starts[at]) : int(self.starts[at + 1])]
        return postings


def rows_of(packed: np.ndarray) -> np.ndarray:
    rows: np.ndarray = packed >> COUNT_BITS
    return rows


def counts_of(packed: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return, for each row in `rows`, its count in `packed`, the postings of one key; 0 for a row without the key."""
    if not len(packed):
        return np.zeros(len(rows), dtype=np.uint32)
    targets = rows.astype(np.uint32) << COUNT_BITS
    at = np.minimum(np.searchsorted(packed, targets), len(packed) - 1)
    nearest = packed[at]
    counts: np.ndarray = np.where(nearest >> COUNT_BITS == rows, nearest & MOST_COUNT, 0)
    return counts


def merged(
    parts: Sequence[tuple[Postings, np.ndarray]], write: Callable[[np.ndarray], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Merge postings and return the keys and starts of the result.

    `parts` pairs each postings object with an array that has the new row of each old row, or -1 for an old row to drop.
    `write` is called with the packed postings of some keys at a time, in the order of the keys, so that only these
    postings are in memory.
    """
    total = sum(len(postings.packed) for postings, _ in parts)
    keys, sizes = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for low, high in _ranges(total // SLICE + 1):
        slices = [(postings, numbers, *np.searchsorted(postings.keys, (low, high))) for postings, numbers in parts]
        unique = np.unique(np.concatenate([postings.keys[start:end] for postings, _, start, end in slices]))
        joined = np.sort(np.concatenate([_renumbered(unique, *each) for each in slices]))
        key = (joined >> np.uint64(32)).astype(np.int64)
        write(joined.astype(np.uint32))
        size = np.bincount(key, minlength=len(unique))
        keys.append(unique[size > 0])
        sizes.append(size[size > 0])
    starts = np.append(0, np.cumsum(np.concatenate(sizes)))
    return np.concatenate(keys), starts


def _ranges(number: int) -> Iterator[tuple[int, int]]:
    """Divide all possible keys into `number` equal ranges, and yield the ranges. Keys are hashes of 63 bits, so each
    range has about the same number of keys."""
    bounds = [2**63 * i // number for i in range(number)] + [2**63 - 1]
    yield from pairwise(bounds)


def _renumbered(unique: np.ndarray, postings: Postings, numbers: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the postings of the keys `postings.keys[start:end]`, without dropped rows. `numbers` has the new row of
    each old row, -1 for a dropped row. Each returned posting is one number with three parts: the position of the key in
    `unique`, the new row, and the count."""
    packed = postings.packed[int(postings.starts[start]) : int(postings.starts[end])]
    sizes = np.diff(postings.starts[start : end + 1])
    key = np.repeat(np.searchsorted(unique, postings.keys[start:end]).astype(np.uint64), sizes)
    rows = numbers[packed >> COUNT_BITS]
    alive = rows >= 0
    low = rows[alive].astype(np.uint64) << np.uint64(COUNT_BITS) | (packed[alive] & MOST_COUNT)
    renumbered: np.ndarray = key[alive] << np.uint64(32) | low
    return renumbered
