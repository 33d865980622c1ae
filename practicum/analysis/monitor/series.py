"""What is computed from a run's rows to watch it by: windowed rates, spreads, and how a cloud of vectors moves.

All of it takes time linear in what it is given, so that a run of many thousand steps can be looked at while it works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from practicum.core.intervals import share_ci95

Column = Sequence[float | None]
"""One value a step; None where there is nothing to tell, which is not the same as 0."""

LEAST = 20
"""Marks in the smallest window."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that is watched: `numbers` of the whole run as JSON values, and `by_step` columns of one length."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    by_step: Mapping[str, Column] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Numbers and columns; no columns where there are none."""
        columns = {name: [rounded(x) for x in column] for name, column in self.by_step.items()}
        return {**self.numbers, **({"by_step": columns} if columns else {})}


def rounded(value: float | None) -> float | None:
    """Six digits: what a reader or a picture can use."""
    return value if value is None or isinstance(value, int) else float(f"{value:.6g}")


def window_of(marks: int) -> int:
    """Marks a windowed rate rests on: a twentieth of all, at least LEAST. Fewer say nothing, more hide the course."""
    return max(LEAST, marks // 20)


def rates(marks: Sequence[Sequence[bool]], window: int) -> dict[str, list[float | None]]:
    """For each step the share of marks that are true, with its 95% interval, as columns `rate`, `low`, `high`.

    Counted are the step's own marks and those of as few steps before it as bring `window` together.
    """
    columns: dict[str, list[float | None]] = {"rate": [], "low": [], "high": []}
    first = hits = n = 0
    for step in marks:
        hits, n = hits + sum(step), n + len(step)
        while n - len(marks[first]) >= window:
            hits, n, first = hits - sum(marks[first]), n - len(marks[first]), first + 1
        low, high = share_ci95(hits, n) if n else (None, None)
        for name, value in (("rate", hits / n if n else None), ("low", low), ("high", high)):
            columns[name].append(value)
    return columns


def smooth(column: Column, window: int) -> list[float | None]:
    """The mean of each value and those before it, `window` places in all; None where the value itself is None."""
    made: list[float | None] = []
    total, n = 0.0, 0
    for i, value in enumerate(column):
        old = column[i - window] if i >= window else None
        total += (value or 0.0) - (old or 0.0)
        n += (value is not None) - (old is not None)
        made.append(None if value is None else total / n)
    return made


def mean(values: Sequence[float]) -> float | None:
    """Their mean; None of none."""
    return sum(values) / len(values) if values else None


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """How values lie: their number, mean, median and 95th percentile. Raises ValueError for none."""
    if not values:
        raise ValueError("a spread needs at least one value")
    median, high = np.quantile(values, (0.5, 0.95))
    return {"n": len(values), "mean": float(np.mean(values)), "median": float(median), "p95": float(high)}


Vector = npt.NDArray[np.float64]


class Cloud:
    """Unit vectors that come and go, of which only the sum is kept: a change costs one addition, however many they are.

    The mean similarity of n unit vectors to the direction of their mean m is |m|, since the mean of v·m/|m| over all
    of them is m·m/|m|.
    """

    def __init__(self) -> None:
        self.n = 0
        self._sum: Vector | None = None

    def put(self, vector: npt.NDArray[np.floating[Any]], times: int = 1) -> None:
        """Add a vector of shape (d,) so many times; a negative number takes it out."""
        self.n += times
        moved = times * vector.astype(np.float64)
        self._sum = moved if self._sum is None else self._sum + moved

    @property
    def coherence(self) -> float | None:
        """Mean similarity of the vectors to their mean, in [0, 1]; None of none."""
        if self._sum is None or not self.n:
            return None
        return min(1.0, sqrt(float(self._sum @ self._sum)) / self.n)

    @property
    def direction(self) -> Vector | None:
        """The direction of their mean, of length 1; None where there is none."""
        if self._sum is None or not self.n:
            return None
        length = sqrt(float(self._sum @ self._sum))
        # Opposite vectors leave nothing but rounding.
        return self._sum / length if length > 1e-6 * self.n else None


def distance(one: Vector | None, other: Vector | None) -> float | None:
    """Cosine distance of two directions, in [0, 2]; None where one is missing."""
    if one is None or other is None:
        return None
    return min(2.0, max(0.0, 1.0 - float(one @ other)))
