"""Backend of `stored.StoredSearch` that keeps the index of a run (`index.Index`) in files."""

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
    """An open index that is stored in files."""

    index: Index

    @property
    def last(self) -> int:
        return self.index.last

    def __len__(self) -> int:
        return len(self.index)

    def changed_after(self, version: int) -> np.ndarray:
        return NONE

    def prints(self, pages: Sequence[int]) -> list[dict[int, int]]:
        numbers = [self.index.numbers_between(page * PAGE, (page + 1) * PAGE) for page in pages]
        return [dict(zip(of_page.tolist(), self.index.prints(of_page).tolist(), strict=True)) for of_page in numbers]

    def without(self, touched: np.ndarray) -> UnchangedFileEntries:
        return UnchangedFileEntries(self.index, touched)


@dataclass(frozen=True)
class UnchangedFileEntries:
    """Entries of an index except the entries whose numbers are in `touched`."""

    index: Index
    touched: np.ndarray
    _rows: OrderedDict[tuple[int, ...] | None, list[Rows | None]] = field(default_factory=OrderedDict)

    @cached_property
    def _dead(self) -> list[np.ndarray | None]:
        """For each part, a mask of its dead rows, shape (n,); None for a part without dead rows. A row is dead if a
        later part hides the row, or if the number of the row's entry is in `touched`."""
        masks = []
        for part, hidden in zip(self.index.parts, self.index.hidden, strict=True):
            rows = part.rows_by_number(self.touched)
            rows = rows[rows >= 0]
            if len(rows):
                hidden = np.zeros(len(part), dtype=bool) if hidden is None else hidden.copy()
                hidden[rows] = True
            masks.append(hidden)
        return masks

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
        counts = np.zeros(len(keys))
        for part, dead, mask in zip(self.index.parts, self._dead_rows, self._dead, strict=True):
            counts += [part.having(key, dead, mask) for key in keys]
        return counts

    def propose(
        self, vector: np.ndarray, query: WordQuery, n: int, keys: tuple[int, ...] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        proposed = [
            (part.numbers[rows], cosines, shares)
            for part, selected in zip(self.index.parts, self._selected(keys), strict=True)
            for rows, cosines, shares in (part.nearest(vector, query, n, selected),)
        ]
        numbers, cosines, shares = map(np.concatenate, zip(*proposed, strict=True))
        return numbers, cosines, shares

    def _selected(self, keys: tuple[int, ...] | None) -> list[Rows | None]:
        """Return, for each part, the rows that are not dead and have all facets in `keys`. If `keys` is None, any
        facets are accepted. The result of a part is None if all rows of the part qualify."""
        if keys not in self._rows:
            by_part = []
            for part, dead in zip(self.index.parts, self._dead, strict=True):
                rows = None if keys is None else part.rows_with(keys)
                if dead is not None:
                    rows = Rows(~dead if rows is None else rows.mask & ~dead)
                by_part.append(rows)
            self._rows[keys] = by_part
            if len(self._rows) > FILTERS:
                self._rows.popitem(last=False)
        self._rows.move_to_end(keys)
        return self._rows[keys]


class IndexFiles:
    """Opens, writes and merges the index files of a folder."""

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
        return self._tidied(await asyncio.to_thread(Index(self._folder, ()).extended, parts))

    async def extend(
        self, index: IndexInFiles, version: int, chunks: AsyncIterator[Chunk], touched: np.ndarray
    ) -> IndexInFiles:
        covers = replace(index.index.parts[-1].covers, first=index.last + 1, last=version)
        parts = [part async for part in _parts(covers, chunks, touched)]
        return self._tidied(await asyncio.to_thread(index.index.extended, parts))

    def settle(self) -> None:
        if self._merging is not None:
            self._merging.join()

    def _tidied(self, index: Index) -> IndexInFiles:
        """Return the open index. Unless a merge is running, first delete the index files in the folder that `index`
        does not use, and start a merge if `index` needs one."""
        if self._merging is None or not self._merging.is_alive():
            remove_index_files(self._folder, [part.covers.name for part in index.parts])
            if count := index.due():
                # The thread is not a daemon, so the process waits for the merge at exit. If the process is killed, the
                # unmerged files remain, and the index stays valid.
                self._merging = threading.Thread(target=index.merge, args=(count,), name="practicum-index")
                self._merging.start()
        return IndexInFiles(index)


async def _parts(covers: Covers, chunks: AsyncIterator[Chunk], touched: np.ndarray) -> AsyncIterator[Part]:
    """Yield a part for each chunk of entries. The first part also has `touched`, the numbers of changed and removed
    entries."""
    first = True
    async for entries, vectors in chunks:
        yield await asyncio.to_thread(Part.of, covers, entries, vectors, touched if first else touched[:0])
        first = False


def open_index(vectors: Vectors, words: WordIndex, weight: float) -> SavedIndex:
    """Return the search of the run that owns `vectors`. The search index is stored in files in the run's folder."""
    assert vectors.store is not None
    return StoredSearch(vectors, words, weight, IndexFiles(vectors.store.files))
