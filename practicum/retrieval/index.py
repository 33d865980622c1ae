"""An index of vectors that finds most of the nearest without comparing all: a graph walked towards the query.

(HNSW: Malkov and Yashunin, 2016; here `usearch`.) A vector goes by a hash of its text, so the index is a cache that
holds for any version of any context: what is alive, the context says. It knows vectors by 8 bits a number and gives
candidates, to be compared in full by those who ask. With these settings 1 in 100 of the true nearest is missed at
most on clustered vectors (`practicum bench store`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from practicum.retrieval.vectors import Vectors
from practicum.store.schema import text_hash

CONNECTIVITY = 16
"""Neighbours a vector keeps."""

PLACING, FINDING = 128, 256
"""Vectors looked at to place one, and at least those looked at to find some."""

BULK = 10_000
"""Vectors from which they are added by all processors at once. Fewer go in one by one, so that the same vectors in
the same order give the same graph."""

TOGETHER = 16_384
"""Vectors added at a time."""

CAST = 8_192
"""Vectors made smaller at a time."""


def text_hashes(texts: Iterable[str]) -> np.ndarray:
    """Shape (n,), uint64."""
    return np.fromiter(map(text_hash, texts), dtype=np.uint64)


def index_installed() -> bool:
    """Whether `usearch` is there."""
    return find_spec("usearch") is not None


class VectorIndex:
    """Vectors of unit length, by hash. One that is opened as a `view` stays on the disk and cannot be added to."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    @classmethod
    def new(cls, dims: int) -> VectorIndex:
        from usearch.index import Index as Graph

        graph = Graph(
            ndim=dims,
            metric="cos",
            dtype="i8",
            connectivity=CONNECTIVITY,
            expansion_add=PLACING,
            expansion_search=FINDING,
        )
        return cls(graph)

    @classmethod
    def open(cls, path: Path, dims: int, view: bool) -> VectorIndex | None:
        """What `save` wrote; None where it is not there, or of other vectors, or no such file at all."""
        from usearch.index import Index as Graph

        try:
            graph = Graph.restore(str(path), view=view, expansion_add=PLACING, expansion_search=FINDING)
        except (ValueError, RuntimeError):
            return None
        return cls(graph) if graph is not None and graph.ndim == dims else None

    def __len__(self) -> int:
        return len(self._graph)

    def lacks(self, hashes: np.ndarray) -> np.ndarray:
        """Of each hash whether it is unknown, shape (n,)."""
        return ~np.asarray(self._graph.contains(hashes), dtype=bool)

    def add(self, hashes: np.ndarray, vectors: np.ndarray) -> None:
        """Vectors of shape (n, d), each hash once and none that is known."""
        self._graph.add(hashes, quantized(vectors), threads=1 if len(hashes) < BULK else 0, copy=True)

    def near(self, query: np.ndarray, n: int) -> np.ndarray:
        """The hashes of about n nearest, shape (n,)."""
        hashes: np.ndarray = self._graph.search(quantized(query[None])[0], min(n, len(self))).keys
        return hashes

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        part = path.with_name(f"{path.name}.part")
        self._graph.save(str(part))
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)


def quantized(vectors: np.ndarray) -> np.ndarray:
    """Vectors as 8 bits a number, each scaled to use them all, which changes no angle but for rounding."""
    cast = np.empty(vectors.shape, dtype=np.int8)
    for start in range(0, len(vectors), CAST):
        part = vectors[start : start + CAST]
        np.rint(
            part * (127 / np.abs(part).max(axis=1, keepdims=True)), out=cast[start : start + CAST], casting="unsafe"
        )
    return cast


class RowIndex:
    """An index over rows of a matrix of vectors, grown as they are asked for."""

    def __init__(self, vectors: Vectors, file: Path | None = None) -> None:
        """`file` is where it is saved, and holds what an earlier sitting saved, if it did."""
        self._vectors = vectors
        self._file = file
        self._index: VectorIndex | None = None
        self._known = np.zeros(0, dtype=bool)
        # In the order of the hashes, so that the row of one is quickly found.
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._rows = np.zeros(0, dtype=np.int32)
        self._covered = np.zeros(0, dtype=np.int32)
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._hashes)

    async def cover(self, rows: np.ndarray) -> None:
        """See to it that these rows can be found. They are added on another thread, so that calls in flight go on.

        An array that was the last one to be covered is not looked at again.
        """
        async with self._lock:
            if rows is self._covered:
                return
            matrix = self._vectors.matrix
            self._known = np.pad(self._known, (0, len(matrix) - len(self._known)))
            fresh = np.unique(rows[~self._known[rows]])
            for start in range(0, len(fresh), TOGETHER):
                await self._add(fresh[start : start + TOGETHER])
            self._covered = rows

    async def near(self, query: np.ndarray, n: int) -> np.ndarray:
        """About the n rows nearest to a vector, of those that were ever covered, in no order."""
        async with self._lock:
            hashes = self._opened().near(query, n)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        found: np.ndarray = self._rows[at[self._hashes[at] == hashes]]
        return found

    async def save(self) -> int:
        """Write the index to its file, whole or not at all; returns how many vectors it has."""
        assert self._file is not None
        async with self._lock:
            await asyncio.to_thread(self._opened().save, self._file)
            return len(self._opened())

    async def _add(self, rows: np.ndarray) -> None:
        index = self._opened()
        hashes, first = np.unique(text_hashes(self._vectors.texts[row] for row in rows), return_index=True)
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
            found = VectorIndex.open(self._file, dims, view=False) if self._file is not None else None
            self._index = found or VectorIndex.new(dims)
        return self._index
