"""Vectors with 8 bits a number.

A search among many vectors is as slow as the memory that it reads. With 8 bits it reads a quarter, and `numkong`
multiplies them eight times as fast as NumPy multiplies the whole ones. Without `numkong` NumPy does the same, slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

FEWEST = 2_048
"""Vectors from which on it pays."""

BLOCK = 8_192
"""Vectors that are rounded at a time: to round a million at once takes 4 GB."""


@cache
def rough_installed() -> bool:
    """Whether `numkong` is installed."""
    return find_spec("numkong") is not None


@dataclass(frozen=True)
class RoughPart:
    """The vectors of some rows with 8 bits a number, packed for `numkong`. `lengths` makes them as long as they were,
    shape (n,); `error` is the length of the largest part that rounding took."""

    rows: np.ndarray
    packed: Any
    lengths: np.ndarray
    error: float

    @classmethod
    def of(cls, rows: np.ndarray, vectors: np.ndarray) -> RoughPart:
        """Of vectors of shape (n, d)."""
        import numkong

        codes, scales = rounded(vectors)
        return cls(rows, numkong.dots_pack(codes), scales, _error(vectors, codes, scales))


@dataclass(frozen=True)
class Rough:
    """Vectors of unit length with 8 bits a number, part by part. `lengths` and `error` are those of all parts.

    The bound of a cosine's error tells which few may be among the best; those are compared in full, so that the result
    stays exact.
    """

    parts: tuple[RoughPart, ...]
    lengths: np.ndarray
    error: float

    @classmethod
    def of(cls, rows: np.ndarray, read: Callable[[np.ndarray], np.ndarray], known: Rough | None = None) -> Rough:
        """Of the vectors of some rows, at least one; `read` returns those of some, shape (n, d). Parts of a `known` one
        are used again, as far as it begins with the same rows."""
        parts, start = list[RoughPart](), 0
        for part in known.parts if known is not None else ():
            if not np.array_equal(part.rows, rows[start : start + len(part.rows)]):
                break
            parts.append(part)
            start += len(part.rows)
        # A part is rounded again with at least as many that follow it, so that there are few, and each row seldom is.
        while parts and len(parts[-1].rows) <= min(len(rows) - start, BLOCK // 2):
            start -= len(parts.pop().rows)
        for first in range(start, len(rows), BLOCK):
            some = rows[first : first + BLOCK]
            parts.append(RoughPart.of(some, read(some)))
        return cls(
            tuple(parts), np.concatenate([part.lengths for part in parts]), max(part.error for part in parts)
        )  # fmt: skip

    def cosines(self, queries: np.ndarray) -> tuple[np.ndarray, float]:
        """The cosines with vectors of unit length, shape (m, d), as an array of shape (m, n), and how much each is
        wrong at most. Reading the vectors takes most of the time, so many queries take hardly longer than one."""
        import numkong

        codes, scales = rounded(queries)
        own = _error(queries, codes, scales)
        parts = [np.asarray(numkong.dots_packed(codes, part.packed)) for part in self.parts]
        products = np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")
        products *= self.lengths
        products *= scales[:, None]
        # |ab - a'b'| <= |a - a'| |b| + |a'| |b - b'|, and a vector of unit length is rounded to at most 1 + its error.
        return products, self.error + (1 + self.error) * own


def rounded(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of shape (n, d) with 8 bits a number, and by how much each number is to be multiplied, shape (n,). Each
    vector uses all bits; rounding the product again gives the same."""
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def rough_products(codes: list[np.ndarray], query: np.ndarray) -> np.ndarray:
    """The products of rows of 8-bit arrays, one array after the other, with a vector of whole numbers up to 127."""
    if rough_installed():
        import numkong

        packed = numkong.dots_pack(np.ascontiguousarray(query[None], dtype=np.int8))
        parts = [np.asarray(numkong.dots_packed(part, packed))[:, 0] for part in codes if len(part)]
    else:
        parts = [np.einsum("ij,j->i", part.astype(np.float32), query.astype(np.float32)) for part in codes]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, dtype=np.float32)


def _error(vectors: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> float:
    return float(np.linalg.norm(vectors - codes * scales[:, None], axis=1).max())
