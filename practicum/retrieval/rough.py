"""Vectors with 8 bits per number.

The speed of a search among many vectors is limited by memory bandwidth. With 8 bits per number, a search reads a
quarter of the bytes of float32 vectors, and `numkong` multiplies 8-bit vectors eight times as fast as NumPy multiplies
float32 vectors. Without `numkong`, NumPy gives the same result, slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

FEWEST = 2_048
"""Minimum number of vectors for which rounding saves time."""

BLOCK = 8_192
"""Number of vectors that are rounded at a time: a million at once would take 4 GB."""


@cache
def rough_installed() -> bool:
    """Return whether `numkong` is installed."""
    return find_spec("numkong") is not None


@dataclass(frozen=True)
class RoughPart:
    """Vectors of some rows with 8 bits per number, packed for `numkong`. `lengths`, shape (n,), are the factors that
    scale the rounded vectors to their original lengths; `error` is the length of the largest rounding error."""

    rows: np.ndarray
    packed: Any
    lengths: np.ndarray
    error: float

    @classmethod
    def of(cls, rows: np.ndarray, vectors: np.ndarray) -> RoughPart:
        """Round vectors of shape (n, d)."""
        import numkong

        codes, scales = rounded(vectors)
        return cls(rows, numkong.dots_pack(codes), scales, _error(vectors, codes, scales))


@dataclass(frozen=True)
class Rough:
    """Vectors of unit length with 8 bits per number, in parts. `lengths` and `error` cover all parts.

    The error of a cosine has a bound, so a search knows all rows that may be among the best. It compares these
    candidates with full precision, so its result is exact.
    """

    parts: tuple[RoughPart, ...]
    lengths: np.ndarray
    error: float

    @classmethod
    def of(cls, rows: np.ndarray, read: Callable[[np.ndarray], np.ndarray], previous: Rough | None = None) -> Rough:
        """Round the vectors of some rows, at least one; `read` returns the vectors of given rows, shape (n, d). The
        parts of `previous` are reused, up to the first part whose rows are not the next rows of `rows`."""
        parts, start = list[RoughPart](), 0
        for part in previous.parts if previous is not None else ():
            if not np.array_equal(part.rows, rows[start : start + len(part.rows)]):
                break
            parts.append(part)
            start += len(part.rows)
        # Round a part again only together with at least the same number of new rows. So there are few parts, and each
        # row is rarely rounded again.
        while parts and len(parts[-1].rows) <= min(len(rows) - start, BLOCK // 2):
            start -= len(parts.pop().rows)
        for first in range(start, len(rows), BLOCK):
            part_rows = rows[first : first + BLOCK]
            parts.append(RoughPart.of(part_rows, read(part_rows)))
        return cls(
            tuple(parts), np.concatenate([part.lengths for part in parts]), max(part.error for part in parts)
        )  # fmt: skip

    def cosines(self, queries: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the cosines of all vectors with query vectors of unit length, shape (m, d), as an array of shape (m,
        n), and the maximum error of these cosines. Reading the vectors takes most of the time, so several queries take
        little longer than one."""
        import numkong

        codes, scales = rounded(queries)
        query_error = _error(queries, codes, scales)
        parts = [np.asarray(numkong.dots_packed(codes, part.packed)) for part in self.parts]
        products = np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")
        products *= self.lengths
        products *= scales[:, None]
        # |ab - a'b'| <= |a - a'| |b| + |a'| |b - b'|, and the rounded form of a vector of unit length has at most the
        # length 1 + its rounding error.
        return products, self.error + (1 + self.error) * query_error


def rounded(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round vectors of shape (n, d) to 8 bits per number. Returns the codes and a scale for each vector, shape (n,).
    The largest number of each vector gets the code 127 or -127, so rounding the product of codes and scale again gives
    the same codes and scale."""
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def rough_products(codes: list[np.ndarray], query: np.ndarray) -> np.ndarray:
    """Return the scalar product of `query` and each row of the arrays `codes`, in the order of the arrays. `query` is a
    vector of whole numbers from -127 to 127, shape (d,); each array has shape (n, d)."""
    if rough_installed():
        import numkong

        packed = numkong.dots_pack(np.ascontiguousarray(query[None], dtype=np.int8))
        parts = [np.asarray(numkong.dots_packed(part, packed))[:, 0] for part in codes if len(part)]
    else:
        parts = [np.einsum("ij,j->i", part.astype(np.float32), query.astype(np.float32)) for part in codes]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, dtype=np.float32)


def _error(vectors: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> float:
    return float(np.linalg.norm(vectors - codes * scales[:, None], axis=1).max())
