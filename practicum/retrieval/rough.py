"""Cosines of many vectors with one, from 8 bits a number and with a bound of their error.

A search among 20,000 vectors is as slow as the memory that it reads. With 8 bits it reads a quarter, and `numkong`,
which `usearch` brings along, multiplies them eight times as fast as NumPy multiplies the whole ones. The bound tells
which few may be among the best; those are compared in full, so that the result stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

FEWEST = 2_048
"""Vectors from which on it pays."""


@cache
def rough_installed() -> bool:
    """Whether `numkong` is installed."""
    return find_spec("numkong") is not None


@dataclass(frozen=True)
class Rough:
    """Vectors of unit length with 8 bits a number, which `lengths` makes as long as they were, shape (n,); `error` is
    the length of the largest part that rounding took."""

    packed: Any
    lengths: np.ndarray
    error: float

    @classmethod
    def of(cls, vectors: np.ndarray) -> Rough:
        """Of vectors of shape (n, d)."""
        import numkong

        rounded, scales = _rounded(vectors)
        return cls(numkong.dots_pack(rounded), 1 / scales[:, 0], _error(vectors, rounded, scales))

    def cosines(self, query: np.ndarray) -> tuple[np.ndarray, float]:
        """The cosines with a vector of unit length, shape (n,), and how much each is wrong at most."""
        import numkong

        rounded, scale = _rounded(query[None])
        own = _error(query[None], rounded, scale)
        products = np.asarray(numkong.dots_packed(rounded, self.packed))[0].astype(np.float32)
        # |ab - a'b'| <= |a - a'| |b| + |a'| |b - b'|, and a vector of unit length is rounded to at most 1 + its error.
        return products * (self.lengths / scale[0, 0]), self.error + (1 + self.error) * own


def _rounded(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors with 8 bits a number, and the scale of each, so that all bits are used."""
    scales = 127 / np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors * scales).astype(np.int8), scales


def _error(vectors: np.ndarray, rounded: np.ndarray, scales: np.ndarray) -> float:
    return float(np.linalg.norm(vectors - rounded / scales, axis=1).max())
