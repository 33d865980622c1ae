"""The arithmetic of a run's metrics: windowed rates, distributions, and the centroid of a set of vectors.

Everything takes time linear in its input, so that a run of many thousand steps can be watched while it works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from practicum.core.intervals import share_ci95

Series = Sequence[float | None]
"""One value per step; None where there is no value, which is not the same as 0."""

SMALLEST_WINDOW = 20


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics on one subject: `numbers` about the whole run as JSON values, and `by_step` series of equal length."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    by_step: Mapping[str, Series] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The numbers, and the series under "by_step" where there are any."""
        return {**self.numbers, **({"by_step": dict(self.by_step)} if self.by_step else {})}


def window_size(outcomes: int) -> int:
    """How many outcomes a windowed rate rests on: a twentieth of them all, and at least `SMALLEST_WINDOW`. Fewer would
    say nothing, more would hide the trend."""
    return max(SMALLEST_WINDOW, outcomes // 20)


def windowed_rates(outcomes: Sequence[Sequence[bool]], window: int) -> dict[str, list[float | None]]:
    """For each step the share of true outcomes, with its 95% interval, as series `rate`, `low` and `high`.

    A rate counts the outcomes of its own step and of as few steps before it as bring `window` of them together.
    """
    series: dict[str, list[float | None]] = {"rate": [], "low": [], "high": []}
    first = hits = n = 0
    for step in outcomes:
        hits, n = hits + sum(step), n + len(step)
        while n - len(outcomes[first]) >= window:
            hits, n, first = hits - sum(outcomes[first]), n - len(outcomes[first]), first + 1
        low, high = share_ci95(hits, n) if n else (None, None)
        for name, value in (("rate", hits / n if n else None), ("low", low), ("high", high)):
            series[name].append(value)
    return series


def mean(values: Sequence[float]) -> float | None:
    """The mean; None for no values."""
    return sum(values) / len(values) if values else None


def distribution(values: Sequence[float]) -> dict[str, float | int]:
    """The number of values (at least one), their mean, median and 95th percentile."""
    median, p95 = np.quantile(values, (0.5, 0.95))
    return {"n": len(values), "mean": float(np.mean(values)), "median": float(median), "p95": float(p95)}


Vector = npt.NDArray[np.floating[Any]]


class Centroid:
    """The mean of unit vectors that are added and removed. Only their sum is kept, so that a change costs one addition.

    The mean similarity of n unit vectors v to the direction of their mean m is |m|, since the mean of v·m/|m| over all
    of them is m·m/|m|.
    """

    def __init__(self) -> None:
        self.n = 0
        self._sum: Vector = np.zeros(1)

    def add(self, vector: Vector, times: int = 1) -> None:
        """Add a vector of shape (d,) this many times; a negative number removes it."""
        self.n += times
        self._sum = self._sum + times * vector.astype(np.float64)

    @property
    def coherence(self) -> float | None:
        """The mean similarity of the vectors to their mean, in [0, 1]; None without vectors."""
        return min(1.0, float(np.linalg.norm(self._sum)) / self.n) if self.n else None

    @property
    def direction(self) -> Vector | None:
        """The direction of the mean, as a vector of length 1; None where the vectors have none."""
        length = float(np.linalg.norm(self._sum))
        # The sum of opposite vectors is only a rounding error.
        return self._sum / length if self.n and length > 1e-6 * self.n else None


def cosine_distance(a: Vector | None, b: Vector | None) -> float | None:
    """The cosine distance of two directions, in [0, 2]; None where one is missing."""
    return None if a is None or b is None else float(np.clip(1.0 - a @ b, 0.0, 2.0))
