"""A run whose contexts are searched by its index."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rows import put
from runs import Words

from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit
from practicum.plugins.index.index import Covers, Index, Part
from practicum.retrieval.search import DEFAULT, EntryPredicate, Retrieval, Retriever
from practicum.retrieval.vectors import Embedder, Vectors
from practicum.session.config import Config, Splits
from practicum.session.records import begin
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.snapshot import read_context, write_snapshot
from practicum.store.versions import Version, version_row


class Run:
    """A run whose contexts are searched by the index, and by comparing all entries."""

    def __init__(
        self, folder: Path, adds: Sequence[Add], url: str | None = None, embedder: Embedder | None = None
    ) -> None:
        store = Store.create(folder, url, secrets.token_hex(8) if url else None)
        seed = replace(Context().apply(Delta(tuple(adds))).context, version=0)
        begin(store, Config(method="none"), Splits(()), seed, "done")
        self._begin(store, embedder or Words())

    @classmethod
    def again(cls, folder: Path) -> Run:
        """An earlier run."""
        run = cls.__new__(cls)
        run._begin(Store.open(folder), Words())
        return run

    def _begin(self, store: Store, embedder: Embedder) -> None:
        self.store, self._embedder = store, embedder
        self.context = read_context(store)
        self.open()

    def open(self, retrieval: Retrieval = DEFAULT) -> None:
        self.retriever = Retriever(Vectors(self._embedder, self.store), 1, retrieval=retrieval)

    def edit(self, edits: Sequence[Edit]) -> None:
        outcome = self.context.apply(Delta(tuple(edits)))
        if outcome.applied:
            new = outcome.context
            version = Version(new.version, self.context.version, 1, new.next_number, outcome.applied)
            put(self.store, schema.versions, [version_row(version)])
            self.context = new

    async def save(self, index: bool = True) -> None:
        indexed = await self.retriever.save(self.context) if index else 0
        self.retriever.saved.settle()
        write_snapshot(self.store, self.context, indexed)
        self.context = read_context(self.store)

    async def matches(self, text: str, where: EntryPredicate, k: int = 4) -> list[tuple[str, float]]:
        search = await self.retriever.nearest(self.context, text, k, where)
        return [(match.entry.id, round(match.similarity, 4)) for match in search.matches]

    async def fresh(self, folder: Path, text: str, where: EntryPredicate) -> list[tuple[str, float]]:
        """The matches in a new index of this context."""
        vectors = Vectors(Words())
        entries = list(self.context)
        covers = Covers(space=self.store.space, embedder="words", first=0, last=0)
        part = Part.of(covers, entries, await vectors([e.embedded_text for e in entries]), np.zeros(0))
        with Store.create(folder) as store:
            begin(store, Config(method="none"), Splits(()), Context(), "done")
            write_snapshot(store, replace(self.context, version=0), len(entries))
            Index(folder, ()).extended([part])
            retriever = Retriever(Vectors(Words(), store), 1)
            search = await retriever.nearest(read_context(store), text, 4, where)
            return [(match.entry.id, round(match.similarity, 4)) for match in search.matches]
