"""The index of a run as files in its folder (see `index`), behind the interface that a search knows (see `stored`)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from practicum.core.context import PAGE
from practicum.plugins.index.index import FILTERS, Chunk, Covers, Index, Part
from practicum.plugins.index.stored import StoredSearch
from practicum.retrieval.lists import Rows
from practicum.retrieval.search import SavedIndex
from practicum.retrieval.vectors import Vectors
from practicum.retrieval.words import WordIndex, WordQuery
from practicum.store.folder import remove_index_files

NONE = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True)
class IndexInFiles:
    """The open files of an index."""

    index: Index

    @property
    def last(self) -> int:
        return self.index.last

    def __len__(self) -> int:
        return len(self.index)

    def changed_after(self, version: int) -> np.ndarray:
        return NONE

    def prints(self, pages: Sequence[int]) -> list[dict[int, int]]:
        known = [self.index.numbers_between(page * PAGE, (page + 1) * PAGE) for page in pages]
        return [dict(zip(some.tolist(), self.index.prints(some).tolist(), strict=True)) for some in known]

    def without(self, touched: np.ndarray) -> UnchangedFileEntries:
        return UnchangedFileEntries(self.index, touched)


@dataclass(frozen=True)
class UnchangedFileEntries:
    """The entries of an index without those whose numbers are `touched`."""

    index: Index
    touched: np.ndarray
    _rows: OrderedDict[tuple[int, ...] | None, list[Rows | None]] = field(default_factory=OrderedDict)

    @cached_property
    def _dead(self) -> list[np.ndarray | None]:
        """The rows of each part that do not count, as a mask of shape (n,); None for none."""
        found = []
        for part, hidden in zip(self.index.parts, self.index.hidden, strict=True):
            rows = part.rows_by_number(self.touched)
            rows = rows[rows >= 0]
            if len(rows):
                hidden = np.zeros(len(part), dtype=bool) if hidden is None else hidden.copy()
                hidden[rows] = True
            found.append(hidden)
        return found

    @cached_property
    def _dead_rows(self) -> list[np.ndarray]:
        none = np.zeros(0, dtype=np.int64)
        return [none if dead is None else np.flatnonzero(dead) for dead in self._dead]

    def __len__(self) -> int:
        return sum(len(part) - len(dead) for part, dead in zip(self.index.parts, self._dead_rows, strict=True))

    @cached_property
    def words(self) -> float:
        parts = zip(self.index.parts, self._dead_rows, strict=True)
        return sum(part.words - float(part.lengths[dead].sum()) for part, dead in parts)

    def having(self, keys: Sequence[int]) -> np.ndarray:
        found = np.zeros(len(keys))
        for part, dead, mask in zip(self.index.parts, self._dead_rows, self._dead, strict=True):
            found += [part.having(key, dead, mask) for key in keys]
        return found

    def propose(
        self, vector: np.ndarray, query: WordQuery, n: int, keys: tuple[int, ...] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = [
            (part.numbers[rows], cosines, shares)
            for part, wanted in zip(self.index.parts, self._wanted(keys), strict=True)
            for rows, cosines, shares in (part.nearest(vector, query, n, wanted),)
        ]
        numbers, cosines, shares = map(np.concatenate, zip(*found, strict=True))
        return numbers, cosines, shares

    def _wanted(self, keys: tuple[int, ...] | None) -> list[Rows | None]:
        """The rows of each part that count and have these facets; None for all."""
        if keys not in self._rows:
            found = []
            for part, dead in zip(self.index.parts, self._dead, strict=True):
                rows = None if keys is None else part.rows_with(keys)
                if dead is not None:
                    rows = Rows(~dead if rows is None else rows.mask & ~dead)
                found.append(rows)
            self._rows[keys] = found
            if len(self._rows) > FILTERS:
                self._rows.popitem(last=False)
        self._rows.move_to_end(keys)
        return self._rows[keys]


class IndexFiles:
    """Opens, writes and merges the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._merging: threading.Thread | None = None

    @property
    def writable(self) -> bool:
        return os.access(self._folder, os.W_OK)

    def open(self, space: str, embedder: str, version: int) -> IndexInFiles | None:
        index = Index.open(self._folder, space, embedder, version)
        return None if index is None else IndexInFiles(index)

    async def build(self, covers: Covers, chunks: AsyncIterator[Chunk]) -> IndexInFiles:
        parts = [await asyncio.to_thread(part.spilled, self._folder) async for part in _parts(covers, chunks, NONE)]
        return self._kept(await asyncio.to_thread(Index(self._folder, ()).extended, parts))

    async def extend(
        self, index: IndexInFiles, version: int, chunks: AsyncIterator[Chunk], touched: np.ndarray
    ) -> IndexInFiles:
        covers = replace(index.index.parts[-1].covers, first=index.last + 1, last=version)
        parts = [part async for part in _parts(covers, chunks, touched)]
        return self._kept(await asyncio.to_thread(index.index.extended, parts))

    def settle(self) -> None:
        if self._merging is not None:
            self._merging.join()

    def _kept(self, index: Index) -> IndexInFiles:
        """The same index, when all files that are not part of it are deleted and a merge has begun if one is due."""
        if self._merging is None or not self._merging.is_alive():
            remove_index_files(self._folder, [part.covers.name for part in index.parts])
            if many := index.due():
                # Not a daemon: a process that ends waits for it. One that is killed leaves the old files.
                self._merging = threading.Thread(target=index.merge, args=(many,), name="practicum-index")
                self._merging.start()
        return IndexInFiles(index)


async def _parts(covers: Covers, chunks: AsyncIterator[Chunk], touched: np.ndarray) -> AsyncIterator[Part]:
    """Some entries as parts, at least one; the first says what was touched."""
    made = False
    async for entries, vectors in chunks:
        yield await asyncio.to_thread(Part.of, covers, entries, vectors, touched[:0] if made else touched)
        made = True


def open_index(vectors: Vectors, words: WordIndex, weight: float) -> SavedIndex:
    """The index of the run that the vectors have their store from, in files of its folder."""
    assert vectors.store is not None
    return StoredSearch(vectors, words, weight, IndexFiles(vectors.store.files))
