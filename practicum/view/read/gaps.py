"""Gaps: parts of a page that cannot be read. The page lists them and shows the other parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from practicum.core.errors import PracticumError, StoreError
from practicum.core.words import capitalized
from practicum.store.database import as_stored

T = TypeVar("T")


class Gaps:
    """Parts that cannot be read, grouped by the reason."""

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}

    def add(self, part: str, error: PracticumError) -> None:
        """Record that a part, such as "the versions", cannot be read because of `error`."""
        parts = self._parts.setdefault(str(error), [])
        if part not in parts:
            parts.append(part)

    def read(self, folder: Path, part: str, work: Callable[[], T]) -> T | None:
        """Read a part of the space in a folder. If the part cannot be read, record the part and return None."""
        try:
            with as_stored(folder):
                return work()
        except StoreError as error:
            self.add(part, error)
            return None

    @property
    def sentences(self) -> list[str]:
        """Sentences that list the unreadable parts: one for each reason."""
        return [f"{capitalized(' and '.join([', '.join(parts[:-1]), parts[-1]] if parts[:-1] else parts))} cannot be "
                f"read: {problem}" for problem, parts in self._parts.items()]  # fmt: skip
