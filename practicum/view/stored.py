"""A space as pages show it without a service: read from its store."""

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
    """The corrections and notes that are in effect, as they are stored."""

    def __init__(self, held: Context) -> None:
        self._held = held
        self._made = {e.number: Correction.of(e.number, e) for e in held}

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Correction]:
        return iter(self._made.values())

    def __contains__(self, number: object) -> bool:
        return number in self._made

    def get(self, number: int) -> Correction | None:
        return self._made.get(number)

    def entry(self, id: str) -> Entry | None:
        return self._held.get(id) if id.startswith(LETTER) else None


def open_stored(path: Path, name: str) -> ShownSpace:
    """Open a space read-only. Raises NotARun or StoreError if it cannot be read."""
    return StoredSpace(Store.read(path), name)


class StoredSpace:
    """A space that is read from its store, for one page."""

    waiting = 0
    rollout: Any = None

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self._contexts: dict[int, Context] = {}

    @cached_property
    def live(self) -> int:
        """The version that agents see; the last one of a run."""
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
        """The context at a version. Raises UsageError if there is no such version."""
        if version not in self._contexts:
            parents = read_parents(self.store)
            self._contexts[version] = read_context(self.store, version) if parents else Context()
        return self._contexts[version]

    def question(self, data: Mapping[str, Any]) -> str:
        return str(data.get("question") or data["query"])
