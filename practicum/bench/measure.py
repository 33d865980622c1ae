"""Helpers that the benches share: targets, and the load of the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Target:
    """Measured value with its bound. The value should be at most the bound; with `at_least`, at least the bound."""

    name: str
    value: float
    bound: float
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def as_json(self) -> dict[str, Any]:
        bound = "at_least" if self.at_least else "at_most"
        values = {"name": self.name, "value": self.value, bound: self.bound, "met": self.met, "note": self.note}
        return rounded(values)

    def summary(self) -> str:
        bound = f"at {'least' if self.at_least else 'most'} {self.bound:.4g}"
        line = f"{self.name}: {self.value:.3g} ({bound}): {'ok' if self.met else 'MISSED'}"
        return f"{line}; {self.note}" if self.note else line


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Round the floats in a mapping to four decimals, for JSON."""
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def load_average() -> float:
    """Return the load average of this machine over the last minute. Timings under high load are unreliable."""
    return round(os.getloadavg()[0], 2)
