"""Vectors in lists, so that a search only compares the vectors in the lists nearest to the query: an inverted file
(Sivic and Zisserman 2003).

Each vector is stored with 8 bits per number in the list of its nearest centre. There are some hundreds or thousands of
centres, computed by k-means. A search reads the lists, beginning with the list whose centre is most similar to the
query, until it has compared enough vectors that match the filter. If few vectors match the filter, the search compares
all matching vectors, so a filter does not reduce recall. A list is one contiguous piece of memory or of a mapped file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from practicum.retrieval.rough import rough_products, rounded

SCANNED = 65_536
"""Number of matching vectors that a search aims to compare. It compares at least half of this number, unless fewer
vectors match."""

SPARSE = 0.3
"""A search also compares all matching vectors, instead of reading the nearest lists, if their number is at most this
fraction of the geometric mean of SCANNED and the number of all vectors. Reading the nearest lists would then take
longer."""

LISTS = 1.3
"""Number of lists, as a multiple of the square root of the number of vectors, rounded to a power of two."""

SAMPLE, ROUNDS = 64, 5
"""Number of vectors per centre in the sample for k-means, and number of rounds of k-means. More rounds barely change
the results."""

AT_ONCE = 8_192
"""Number of vectors that are read at a time."""

ALL = slice(None)

Read = Callable[[np.ndarray], np.ndarray]
"""Function that returns the vectors of some rows, shape (n, d), float32."""


@dataclass(frozen=True)
class Rows:
    """Rows that match a filter, as a mask of shape (n,). A place is a position in the lists, counted over all lists in
    order."""

    mask: np.ndarray
    _cache: dict[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def count(self) -> int:
        return int(np.count_nonzero(self.mask))

    @cached_property
    def _all(self) -> np.ndarray:
        return np.flatnonzero(self.mask)

    def rows(self) -> np.ndarray:
        """Return all matching rows, ascending."""
        return self._all

    def of(self, rows: np.ndarray) -> np.ndarray:
        """For each of these rows, return whether the row matches."""
        matches: np.ndarray = self.mask[rows]
        return matches

    def places(self, place_of: np.ndarray) -> np.ndarray:
        """Return the places of the matching rows in the lists, ascending. `place_of` holds the place of each row. The
        result is computed once."""
        if "places" not in self._cache:
            self._cache["places"] = np.sort(place_of[self._all])
        return self._cache["places"]

    def placed(self, order: np.ndarray) -> np.ndarray:
        """Return, for each place in the lists, whether its row matches. `order` holds the row at each place. The result
        is computed once."""
        if "placed" not in self._cache:
            self._cache["placed"] = self.mask[order]
        return self._cache["placed"]


@dataclass(frozen=True)
class Order:
    """Assignment of vectors to lists: `centres` of shape (l, d), `rows` in the order of their lists, shape (n,), and
    `offsets`, the place in `rows` where each list begins, shape (l + 1,)."""

    centres: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray


def arrange(n: int, read: Read, centres: np.ndarray | None = None, previous: np.ndarray | None = None) -> Order:
    """Assign n vectors to lists. `centres` are the centres of earlier lists; they are used again unless their number is
    too small. `previous` is the number of each row's list among the earlier lists, -1 for new rows."""
    count = 1 << max(0, round(float(np.log2(LISTS * np.sqrt(max(n, 1))))))
    if centres is None or 2 * len(centres) < count:
        centres, previous = _centres(n, count, read), None
    list_of = np.full(n, -1, dtype=np.int32) if previous is None else previous.astype(np.int32)
    missing = np.flatnonzero(list_of < 0)
    for start in range(0, len(missing), AT_ONCE):
        rows = missing[start : start + AT_ONCE]
        list_of[rows] = _nearest(read(rows), centres)
    offsets = np.zeros(len(centres) + 1, dtype=np.int64)
    np.cumsum(np.bincount(list_of, minlength=len(centres)), out=offsets[1:])
    return Order(centres, offsets, np.argsort(list_of, kind="stable").astype(np.int32))


def highest_places(values: np.ndarray, n: int) -> np.ndarray:
    """Return the positions in `values` of the n highest values, or of all values if there are fewer than n. The
    positions are unordered. Of equal values, the first in `values` are taken."""
    if len(values) <= n:
        return np.arange(len(values))
    # `np.argpartition` takes ten times as long, especially if many values are equal.
    least = np.partition(values, len(values) - n)[len(values) - n]
    above = np.flatnonzero(values > least)
    return np.append(above, np.flatnonzero(values == least)[: n - len(above)])


def _centres(n: int, number: int, read: Read) -> np.ndarray:
    """Return centres of unit length, by k-means over a sample that depends only on n."""
    rng = np.random.default_rng(n)
    sample = read(np.sort(rng.choice(n, min(n, SAMPLE * number), replace=False)))
    centres = sample[rng.choice(len(sample), min(number, len(sample)), replace=False)]
    for _ in range(ROUNDS if number > 1 else 0):
        list_of = np.concatenate(
            [_nearest(sample[at : at + AT_ONCE], centres) for at in range(0, len(sample), AT_ONCE)]
        )
        order = np.argsort(list_of, kind="stable")
        used, starts = np.unique(list_of[order], return_index=True)
        means = np.add.reduceat(sample[order], starts, axis=0)
        centres[used] = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return centres


def _nearest(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    nearest: np.ndarray = (vectors @ centres.T).argmax(axis=1)
    return nearest


@dataclass(frozen=True)
class Lists:
    """Vectors of unit length with 8 bits per number (see `rounded`): `codes` of shape (n, d) and `scales` of shape
    (n,), in the order of the lists."""

    order: Order
    codes: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, n: int, read: Read) -> Lists:
        """Build the lists of n vectors, in memory."""
        order = arrange(n, read)
        codes = np.empty((n, order.centres.shape[1]), dtype=np.int8)
        scales = np.empty(n, dtype=np.float32)
        for start in range(0, n, AT_ONCE):
            part = slice(start, start + AT_ONCE)
            codes[part], scales[part] = rounded(read(order.rows[part]))
        return cls(order, codes, scales)

    @classmethod
    def flat(cls, vectors: np.ndarray) -> Lists:
        """Put vectors of shape (n, d) into one list."""
        n, dims = vectors.shape
        order = Order(np.zeros((1, dims), dtype=np.float32), np.array([0, n]), np.arange(n, dtype=np.int32))
        return cls(order, *rounded(vectors))

    def __len__(self) -> int:
        return len(self.scales)

    @cached_property
    def _places(self) -> np.ndarray:
        """Place of each row: its position in `order.rows`."""
        places = np.empty(len(self), dtype=np.int32)
        places[self.order.rows] = np.arange(len(self), dtype=np.int32)
        return places

    def list_of(self, rows: np.ndarray) -> np.ndarray:
        """Return, for each of these rows, the number of the list that has the row."""
        lists: np.ndarray = np.searchsorted(self.order.offsets, self._places[rows], side="right") - 1
        return lists

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the rounded vectors of these rows."""
        places = self._places[rows]
        vectors: np.ndarray = self.codes.take(places, axis=0) * self.scales[places, None]
        return vectors

    def near(self, query: np.ndarray, n: int, matching: Rows | None = None) -> np.ndarray:
        """Return about n matching rows nearest to a vector of unit length, unordered. If `matching` is None, all rows
        match."""
        if matching is not None and matching.count <= max(SCANNED, SPARSE * (SCANNED * len(self)) ** 0.5):
            places = matching.places(self._places)
            products = rough_products([self.codes.take(places, axis=0)], rounded(query[None])[0][0])
        else:
            places, products = self._scan(query, matching)
        rows: np.ndarray = self.order.rows[places[highest_places(products * self.scales[places], n)]]
        return rows

    def _scan(self, query: np.ndarray, matching: Rows | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the matching vectors in the lists nearest to `query`, and the products of these vectors
        with `query`."""
        code, offsets = rounded(query[None])[0][0], self.order.offsets
        # Not "@", because the threads of BLAS would wait for each other (see `vectors.products`).
        lists = np.argsort(-np.einsum("ij,j->i", self.order.centres, query))
        ends = np.cumsum((offsets[1:] - offsets[:-1])[lists])
        places, products, seen, done = list[np.ndarray](), list[np.ndarray](), 0, 0
        target = SCANNED if matching is None else SCANNED * len(self) // matching.count
        placed = None if matching is None else matching.placed(self.order.rows)
        dense = matching is None or 2 * matching.count > len(self)
        while done < len(lists) and seen < SCANNED // 2:
            end = min(int(np.searchsorted(ends, target)) + 1, len(lists))
            spans = [slice(int(offsets[i]), int(offsets[i + 1])) for i in lists[done:end]]
            part_places = np.concatenate([np.arange(span.start, span.stop, dtype=np.int32) for span in spans])
            selected = ALL if placed is None else np.concatenate([placed[span] for span in spans])
            if dense:
                part = rough_products([self.codes[span] for span in spans], code)[selected]
            else:
                part = rough_products([self.codes.take(part_places[selected], axis=0)], code)
            part_places = part_places[selected]
            places.append(part_places)
            products.append(part)
            seen, done, target = seen + len(part_places), end, 2 * target
        return np.concatenate(places), np.concatenate(products)
