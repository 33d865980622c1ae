"""What a benchmark should reach, beside what it did reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Target:
    """A number and its bound, which is the most or, with `at_least`, the least it should be."""

    what: str
    value: float
    bound: float
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "what": self.what,
            "value": round(self.value, 4),
            "at_least" if self.at_least else "at_most": round(self.bound, 4),
            "met": self.met,
            "note": self.note,
        }

    def words(self) -> str:
        """One line."""
        bound = f"at {'least' if self.at_least else 'most'} {self.bound:.4g}"
        said = f"{self.what}: {self.value:.3g} ({bound}): {'ok' if self.met else 'MISSED'}"
        return f"{said}; {self.note}" if self.note else said
