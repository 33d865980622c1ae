"""Arithmetic of a run's metrics: windowed rates, means and distributions.

All functions take linear time, so that a run of many thousand steps can be monitored while it is running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from practicum.core.intervals import share_ci95
from practicum.core.windows import windows

Series = Sequence[float | None]
"""One value per step. None: the step has no value; this differs from the value 0."""


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics of one subject. `numbers`: JSON values about the whole run. `by_step`: name → series over all steps."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    by_step: Mapping[str, Series] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the numbers, and the series under "by_step" if present."""
        return {**self.numbers, **({"by_step": dict(self.by_step)} if self.by_step else {})}


def windowed_rates(outcomes: Sequence[Sequence[bool]], window: int) -> dict[str, list[float | None]]:
    """Return, for each step, the share of true outcomes in the window of steps that ends with this step, with a 95%
    interval, as the series `rate`, `low` and `high`. `window`: minimum number of outcomes in a window."""
    series: dict[str, list[float | None]] = {"rate": [], "low": [], "high": []}
    totals = [0, *accumulate(map(sum, outcomes))]
    for end, (first, n) in enumerate(windows([*map(len, outcomes)], window), 1):
        hits = totals[end] - totals[first]
        low, high = share_ci95(hits, n) if n else (None, None)
        for name, value in (("rate", hits / n if n else None), ("low", low), ("high", high)):
            series[name].append(value)
    return series


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of `values`; None if `values` is empty."""
    return sum(values) / len(values) if values else None


def rate(outcomes: Sequence[bool], name: str = "rate") -> dict[str, float | list[float]]:
    """Return the share of true outcomes under the key `name`, and its 95% interval under `ci95`. `outcomes` must not be
    empty."""
    hits, n = sum(outcomes), len(outcomes)
    return {name: hits / n, "ci95": list(share_ci95(hits, n))}


def distribution(values: Sequence[float]) -> dict[str, float | int]:
    """Return the number of values, their mean, their median and their 95th percentile. `values` must not be empty."""
    median, p95 = np.quantile(values, (0.5, 0.95))
    return {"n": len(values), "mean": float(np.mean(values)), "median": float(median), "p95": float(p95)}
