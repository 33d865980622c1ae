"""Vectors in lists, of which a search compares those around the query: an inverted file (Sivic and Zisserman 2003).

Each vector lies, with 8 bits a number, in the list of the nearest of some hundreds or thousands of centres, which
k-means finds. A search goes through the lists in the order of their centres until it has compared enough vectors that
it may find; where few may be found, it compares exactly these. So a filter costs no recall. A list is read from one
piece of the memory, or of a file that is mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from practicum.retrieval.rough import rough_products, rounded

SCANNED = 65_536
"""Vectors that a search compares at least, if there are as many that it may find."""

SPARSE = 0.3
"""A search compares all that is wanted if it is at most this share of the geometric mean of SCANNED and of the number
of vectors: to go through lists for it takes longer."""

LISTS = 1.3
"""Lists, as a multiple of the square root of the number of vectors, up to a power of two."""

SAMPLE, ROUNDS = 64, 5
"""Vectors for each centre that k-means is given, and its rounds. More rounds hardly change what is found."""

AT_ONCE = 8_192
"""Vectors that are read at a time."""

ALL = slice(None)

Read = Callable[[np.ndarray], np.ndarray]
"""The vectors of some rows, shape (n, d), float32."""


@dataclass(frozen=True)
class Rows:
    """Rows that a search may find, by a mask of shape (n,)."""

    mask: np.ndarray
    _kept: dict[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def count(self) -> int:
        return int(np.count_nonzero(self.mask))

    @cached_property
    def _all(self) -> np.ndarray:
        return np.flatnonzero(self.mask)

    def rows(self) -> np.ndarray:
        """All of them, ascending."""
        return self._all

    def of(self, rows: np.ndarray) -> np.ndarray:
        """For each of these rows whether it is one of them."""
        found: np.ndarray = self.mask[rows]
        return found

    def places(self, of: np.ndarray) -> np.ndarray:
        """Their places, ascending, given that of each row. Made once."""
        if "places" not in self._kept:
            self._kept["places"] = np.sort(of[self._all])
        return self._kept["places"]

    def placed(self, order: np.ndarray) -> np.ndarray:
        """For all rows in this order whether each is one of them. Made once."""
        if "placed" not in self._kept:
            self._kept["placed"] = self.mask[order]
        return self._kept["placed"]


@dataclass(frozen=True)
class Order:
    """In which list each vector lies: `centres` of shape (l, d), `offsets` of the lists, shape (l + 1,), and `rows`,
    list by list, shape (n,)."""

    centres: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray


def arrange(n: int, read: Read, centres: np.ndarray | None = None, known: np.ndarray | None = None) -> Order:
    """Lists of n vectors. `centres` are those of earlier lists, which are kept unless too few, and `known` is the list
    of each row there, -1 if it was in none."""
    number = 1 << max(0, round(float(np.log2(LISTS * np.sqrt(max(n, 1))))))
    if centres is None or 2 * len(centres) < number:
        centres, known = _centres(n, number, read), None
    of = np.full(n, -1, dtype=np.int32) if known is None else known.astype(np.int32)
    missing = np.flatnonzero(of < 0)
    for start in range(0, len(missing), AT_ONCE):
        rows = missing[start : start + AT_ONCE]
        of[rows] = _nearest(read(rows), centres)
    offsets = np.zeros(len(centres) + 1, dtype=np.int64)
    np.cumsum(np.bincount(of, minlength=len(centres)), out=offsets[1:])
    return Order(centres, offsets, np.argsort(of, kind="stable").astype(np.int32))


def highest_places(values: np.ndarray, n: int) -> np.ndarray:
    """The places of the n highest values, or of all if there are fewer, in no order; of equal values the first."""
    if len(values) <= n:
        return np.arange(len(values))
    # `np.argpartition` takes ten times as long, above all where many values are equal.
    least = np.partition(values, len(values) - n)[len(values) - n]
    above = np.flatnonzero(values > least)
    return np.append(above, np.flatnonzero(values == least)[: n - len(above)])


def _centres(n: int, number: int, read: Read) -> np.ndarray:
    """Centres of unit length, by k-means over a sample that depends on n alone."""
    rng = np.random.default_rng(n)
    sample = read(np.sort(rng.choice(n, min(n, SAMPLE * number), replace=False)))
    centres = sample[rng.choice(len(sample), min(number, len(sample)), replace=False)]
    for _ in range(ROUNDS if number > 1 else 0):
        of = np.concatenate([_nearest(sample[at : at + AT_ONCE], centres) for at in range(0, len(sample), AT_ONCE)])
        order = np.argsort(of, kind="stable")
        some, starts = np.unique(of[order], return_index=True)
        means = np.add.reduceat(sample[order], starts, axis=0)
        centres[some] = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return centres


def _nearest(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    found: np.ndarray = (vectors @ centres.T).argmax(axis=1)
    return found


@dataclass(frozen=True)
class Lists:
    """Vectors of unit length: `codes` of shape (n, d) and `scales` of shape (n,), list by list."""

    order: Order
    codes: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, n: int, read: Read) -> Lists:
        """Of n vectors, in memory."""
        order = arrange(n, read)
        codes = np.empty((n, order.centres.shape[1]), dtype=np.int8)
        scales = np.empty(n, dtype=np.float32)
        for start in range(0, n, AT_ONCE):
            here = slice(start, start + AT_ONCE)
            codes[here], scales[here] = rounded(read(order.rows[here]))
        return cls(order, codes, scales)

    @classmethod
    def flat(cls, vectors: np.ndarray) -> Lists:
        """Vectors of shape (n, d) in one list."""
        n, dims = vectors.shape
        order = Order(np.zeros((1, dims), dtype=np.float32), np.array([0, n]), np.arange(n, dtype=np.int32))
        return cls(order, *rounded(vectors))

    def __len__(self) -> int:
        return len(self.scales)

    @cached_property
    def _places(self) -> np.ndarray:
        """The place of each row."""
        places = np.empty(len(self), dtype=np.int32)
        places[self.order.rows] = np.arange(len(self), dtype=np.int32)
        return places

    def list_of(self, rows: np.ndarray) -> np.ndarray:
        """The list of each of these rows."""
        found: np.ndarray = np.searchsorted(self.order.offsets, self._places[rows], side="right") - 1
        return found

    def read(self, rows: np.ndarray) -> np.ndarray:
        """These vectors, as they were rounded."""
        places = self._places[rows]
        vectors: np.ndarray = self.codes.take(places, axis=0) * self.scales[places, None]
        return vectors

    def near(self, query: np.ndarray, n: int, wanted: Rows | None = None) -> np.ndarray:
        """About n rows nearest to a vector of unit length, of those that are wanted, in no order."""
        if wanted is not None and wanted.count <= max(SCANNED, SPARSE * (SCANNED * len(self)) ** 0.5):
            places = wanted.places(self._places)
            products = rough_products([self.codes.take(places, axis=0)], rounded(query[None])[0][0])
        else:
            places, products = self._scan(query, wanted)
        rows: np.ndarray = self.order.rows[places[highest_places(products * self.scales[places], n)]]
        return rows

    def _scan(self, query: np.ndarray, wanted: Rows | None) -> tuple[np.ndarray, np.ndarray]:
        """The places of the wanted vectors in the lists around a vector, and their products."""
        code, offsets = rounded(query[None])[0][0], self.order.offsets
        # Not "@", whose threads wait for each other (see `products`).
        lists = np.argsort(-np.einsum("ij,j->i", self.order.centres, query))
        ends = np.cumsum((offsets[1:] - offsets[:-1])[lists])
        places, products, seen, done = list[np.ndarray](), list[np.ndarray](), 0, 0
        target = SCANNED if wanted is None else SCANNED * len(self) // wanted.count
        placed = None if wanted is None else wanted.placed(self.order.rows)
        dense = wanted is None or 2 * wanted.count > len(self)
        while done < len(lists) and seen < SCANNED // 2:
            until = min(int(np.searchsorted(ends, target)) + 1, len(lists))
            spans = [slice(int(offsets[i]), int(offsets[i + 1])) for i in lists[done:until]]
            here = np.concatenate([np.arange(span.start, span.stop, dtype=np.int32) for span in spans])
            kept = ALL if placed is None else np.concatenate([placed[span] for span in spans])
            if dense:
                found = rough_products([self.codes[span] for span in spans], code)[kept]
            else:
                found = rough_products([self.codes.take(here[kept], axis=0)], code)
            here = here[kept]
            places.append(here)
            products.append(found)
            seen, done, target = seen + len(here), until, 2 * target
        return np.concatenate(places), np.concatenate(products)
