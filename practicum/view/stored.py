"""Read-only spaces, read from their stores, for sites without a service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.session.corrections import LETTER, Correction, read_corrections
from practicum.store.database import Store
from practicum.store.names import LIVE, read_every_name
from practicum.store.snapshot import read_context
from practicum.store.versions import read_parents
from practicum.view.site import ShownSpace


class StoredCorrections:
    """Corrections and notes that are in effect, read from the store."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_number = {e.number: Correction.of(e.number, e) for e in context}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Correction]:
        return iter(self._by_number.values())

    def __contains__(self, number: object) -> bool:
        return number in self._by_number

    def get(self, number: int) -> Correction | None:
        return self._by_number.get(number)

    def entry(self, id: str) -> Entry | None:
        return self._context.get(id) if id.startswith(LETTER) else None


def open_stored(path: Path, name: str) -> ShownSpace:
    """Open a space read-only. Raises NotARun or StoreError if the space cannot be read."""
    return StoredSpace(Store.read(path), name)


class StoredSpace:
    """A space read from its store, for one page."""

    waiting = 0
    rollout: Any = None

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self._contexts: dict[int, Context] = {}

    @cached_property
    def live(self) -> int:
        """Version that agents see; the last version if no version has the name "live"."""
        parents = read_parents(self.store)
        live = read_every_name(self.store).get(LIVE)
        return live if live in parents else max(parents, default=0)

    @cached_property
    def corrections(self) -> StoredCorrections:
        return StoredCorrections(read_corrections(self.store))

    @property
    def newest(self) -> Context | None:
        return None

    def context(self, version: int) -> Context:
        """Return the context at a version. Raises UsageError if the version does not exist."""
        if version not in self._contexts:
            parents = read_parents(self.store)
            self._contexts[version] = read_context(self.store, version) if parents else Context()
        return self._contexts[version]

    def question(self, data: Mapping[str, Any]) -> str:
        return str(data.get("question") or data["query"])
