"""An index that finds most of the nearest vectors without comparing all: HNSW (Malkov and Yashunin 2016) of `usearch`.

The key of a vector is a hash of its text, so one index serves every version of every context. It holds vectors with 8
bits a number and proposes candidates, which the search compares in full. With these settings it misses at most 1 in 100
of the true nearest of clustered vectors (`practicum bench store`).
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from practicum.core.files import ensure_private
from practicum.retrieval.vectors import Vectors
from practicum.store.schema import text_hash

CONNECTIVITY = 16
"""Neighbours of a vector in the graph."""

SETTINGS: dict[str, Any] = {"expansion_add": 128, "expansion_search": 256}
"""Vectors that are visited to add one, and at least to find some."""

BULK = 10_000
"""From this many on, vectors are added by all processors at once. Fewer are added one by one, so that the same vectors
in the same order give the same graph."""

ADDED_AT_ONCE = 16_384
"""Vectors that are added in one go."""


def index_installed() -> bool:
    """Whether `usearch` is installed."""
    return find_spec("usearch") is not None


class VectorIndex:
    """Vectors of unit length by hash. A `view` stays on the disk and cannot be extended."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    @classmethod
    def new(cls, dims: int) -> VectorIndex:
        from usearch.index import Index as Graph

        return cls(Graph(ndim=dims, metric="cos", dtype="i8", connectivity=CONNECTIVITY, **SETTINGS))

    @classmethod
    def open(cls, path: Path, dims: int, view: bool) -> VectorIndex | None:
        """A saved index; None if the file is missing, damaged, or has other dimensions."""
        from usearch.index import Index as Graph

        try:
            graph = Graph.restore(str(path), view=view, **SETTINGS)
        except (ValueError, RuntimeError):
            return None
        return cls(graph) if graph is not None and graph.ndim == dims else None

    def __len__(self) -> int:
        return len(self._graph)

    def lacks(self, hashes: np.ndarray) -> np.ndarray:
        """For each hash whether it is unknown, shape (n,)."""
        return ~np.asarray(self._graph.contains(hashes), dtype=bool)

    def add(self, hashes: np.ndarray, vectors: np.ndarray) -> None:
        """Add vectors of shape (n, d). Each hash occurs once, and none is in the index."""
        self._graph.add(hashes, _quantized(vectors), threads=1 if len(hashes) < BULK else 0, copy=True)

    def near(self, query: np.ndarray, n: int) -> np.ndarray:
        """The hashes of about n nearest vectors, shape (n,)."""
        hashes: np.ndarray = self._graph.search(_quantized(query[None])[0], min(n, len(self))).keys
        return hashes

    def save(self, path: Path) -> None:
        """Write the index as a whole or not at all."""
        part = path.with_name(f"{path.name}.part")
        ensure_private(part)
        self._graph.save(str(part))
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)


def _quantized(vectors: np.ndarray) -> np.ndarray:
    """Vectors with 8 bits a number. Each is scaled to use all of them, which keeps angles up to rounding."""
    scaled: np.ndarray = np.rint(vectors * (127 / np.abs(vectors).max(axis=1, keepdims=True)))
    return scaled.astype(np.int8)


class RowIndex:
    """An index of rows of a matrix of vectors. Rows are added when they are first searched.

    It is saved to `file`, and starts with what was saved there if that is `trusted`.
    """

    def __init__(self, vectors: Vectors, file: Path | None = None, trusted: bool = True) -> None:
        self._vectors = vectors
        self._file = file
        self._trusted = trusted
        self._index: VectorIndex | None = None
        self._known = np.zeros(0, dtype=bool)
        # Sorted by hash, so that the row of a hash is found quickly.
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._rows = np.zeros(0, dtype=np.int32)
        self._covered = np.zeros(0, dtype=np.int32)
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._hashes)

    async def cover(self, rows: np.ndarray) -> None:
        """Add the rows that are missing, in another thread, so that calls in flight continue.

        If it is the array of the last call, nothing is done.
        """
        async with self._lock:
            if rows is self._covered:
                return
            self._known = np.pad(self._known, (0, len(self._vectors.matrix) - len(self._known)))
            fresh = np.unique(rows[~self._known[rows]])
            for start in range(0, len(fresh), ADDED_AT_ONCE):
                await self._add(fresh[start : start + ADDED_AT_ONCE])
            self._covered = rows

    async def near(self, query: np.ndarray, n: int) -> np.ndarray:
        """About n rows nearest to a vector, of all that were covered, in no order."""
        async with self._lock:
            hashes = self._opened().near(query, n)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        found: np.ndarray = self._rows[at[self._hashes[at] == hashes]]
        return found

    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows that were covered, and the hashes of their texts, shape (n,)."""
        return self._rows, self._hashes

    async def save(self) -> int:
        """Write the index to its file, as a whole or not at all. Returns its number of vectors."""
        assert self._file is not None
        async with self._lock:
            await asyncio.to_thread(self._opened().save, self._file)
            return len(self._opened())

    async def _add(self, rows: np.ndarray) -> None:
        index = self._opened()
        texts = (self._vectors.texts[row] for row in rows)
        hashes, first = np.unique(np.fromiter(map(text_hash, texts), dtype=np.uint64), return_index=True)
        by_hash = rows[first]
        lacking = index.lacks(hashes)
        if lacking.any():
            vectors = self._vectors.matrix.take(by_hash[lacking])
            await asyncio.to_thread(index.add, hashes[lacking], vectors)
        self._known[rows] = True
        at = np.searchsorted(self._hashes, hashes)
        self._hashes = np.insert(self._hashes, at, hashes)
        self._rows = np.insert(self._rows, at, by_hash)

    def _opened(self) -> VectorIndex:
        if self._index is None:
            dims = self._vectors.matrix.dims
            found = VectorIndex.open(self._file, dims, view=False) if self._file is not None and self._trusted else None
            self._index = found or VectorIndex.new(dims)
        return self._index
