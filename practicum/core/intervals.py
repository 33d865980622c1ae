"""95% confidence intervals of a mean score in [0, 1].

Scores of 0 and 1 get Wilson's interval (1927), which stays inside [0, 1] and has width also at 0% and 100%. Other
scores get the percentile bootstrap (Efron 1979), seeded. BCa is sharper for skewed scores but undefined for some small
samples; below ten values both are somewhat narrow. If all values are equal the bootstrap has no spread to resample, and
Wilson's formula at that mean is used. No values in [0, 1] with that mean can vary more, so it errs on the wide side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_RESAMPLES = 9_999
_SEED = 20_260_131
_CELLS_AT_ONCE = 1_000_000


def mean_ci95(values: Sequence[float]) -> tuple[float, float]:
    """Low and high end of the 95% interval of the mean of values in [0, 1].

    The mean lies between them, and they do not depend on the order of the values. Raises ValueError for no values or
    a value out of range.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    if not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError("scores must lie between 0 and 1")
    mean = fmean(values)
    if min(values) == max(values) or all(value in (0.0, 1.0) for value in values):
        low, high = _wilson(mean, len(values))
    else:
        import numpy as np

        means = [sample.mean(axis=1) for sample in resamples(np.sort(np.asarray(values, dtype=float)))]
        low, high = map(float, np.quantile(np.concatenate(means), (0.025, 0.975)))
    # Rounding may move an end past the mean or out of [0, 1].
    return max(0.0, min(low, mean)), min(1.0, max(high, mean))


def share_ci95(hits: int, n: int) -> tuple[float, float]:
    """The 95% interval of the share `hits / n`, in constant time. Raises ValueError unless 0 <= hits <= n and n > 0."""
    if not 0 <= hits <= n or not n:
        raise ValueError(f"{hits} of {n} is not a share")
    low, high = _wilson(hits / n, n)
    return max(0.0, min(low, hits / n)), min(1.0, max(high, hits / n))


def repeated_ci95(scores_by_task: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95% interval of the mean over tasks that were each done several times: one sequence of scores per task.

    Repeats of a task are no evidence about other tasks, so the task is the unit: this is the interval of the mean of
    the tasks' means. Raises ValueError as `mean_ci95` does, and for a task without a score.
    """
    if not all(scores_by_task):
        raise ValueError("each task needs at least one score")
    return mean_ci95([fmean(scores) for scores in scores_by_task])


def _wilson(mean: float, n: int) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.975)
    shrink = 1 + z * z / n
    centre = (mean + z * z / (2 * n)) / shrink
    half = z * sqrt(mean * (1 - mean) / n + z * z / (4 * n * n)) / shrink
    return centre - half, centre + half


def resamples(values: np.ndarray) -> Iterator[np.ndarray]:
    """9,999 samples of n from n values, with replacement and seeded, in parts of shape (m, n).

    All of them at once would take 80 kB per value.
    """
    import numpy as np

    rng = np.random.default_rng(_SEED)
    rows = max(1, _CELLS_AT_ONCE // len(values))
    for done in range(0, _RESAMPLES, rows):
        yield rng.choice(values, (min(rows, _RESAMPLES - done), len(values)))
