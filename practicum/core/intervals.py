"""95% confidence intervals of a mean score in [0, 1].

Scores of 0 and 1 get Wilson's interval (1927), which stays inside [0, 1] and has a width above 0 even at 0% and 100%.
Other scores get the percentile bootstrap (Efron 1979), seeded. The BCa bootstrap is more precise for skewed scores but
undefined for some small samples; with fewer than ten values, the intervals of both bootstraps are somewhat too narrow.
If all scores are equal, resampling gives no spread, so Wilson's formula is used with the mean of the scores. The
formula is for scores of 0 and 1, which vary more than any other scores in [0, 1] with the same mean. So the interval is
conservative.

These intervals cover the variation between tasks. `crossed_variance` and `method_ci95` also cover the variation between
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

MIN_SEEDS = 3
"""Minimum number of runs for a claim about a method. With fewer runs, a claim is only about the runs that were made."""

_RESAMPLES = 9_999
_SEED = 20_260_131
_CELLS_AT_ONCE = 1_000_000

_ROUNDING = 1e-24
"""Variances below this are rounding errors."""


def mean_ci95(values: Sequence[float]) -> tuple[float, float]:
    """Return the low and high end of the 95% interval of the mean of values in [0, 1].

    The interval includes the mean and does not depend on the order of the values. Raises ValueError for no values or a
    value out of range.
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
    """Return the 95% interval of the proportion `hits / n`, in constant time. Raises ValueError unless 0 <= hits <= n
    and n > 0."""
    if not 0 <= hits <= n or not n:
        raise ValueError(f"{hits} of {n} is not a share")
    low, high = _wilson(hits / n, n)
    return max(0.0, min(low, hits / n)), min(1.0, max(high, hits / n))


def total_ci95(total: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of the mean `total / n` of n scores in [0, 1], in constant time.

    The interval includes the mean. It is Wilson's interval of a proportion, with the total rounded to a whole number of
    right answers. For scores other than 0 and 1, this interval is wider than necessary. Raises ValueError for n < 1.
    """
    total = min(max(total, 0.0), n)
    low, high = share_ci95(round(total), n)
    return min(low, total / n), max(high, total / n)


def repeated_ci95(scores_by_task: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 95% interval of the mean over tasks that were attempted several times, given one sequence of scores
    per task.

    Repeated attempts at a task are not evidence about other tasks, so each task counts as one value, its mean score.
    The result is the interval of the mean of these values. Raises ValueError as `mean_ci95` does, and for a task
    without a score.
    """
    if not all(scores_by_task):
        raise ValueError("each task needs at least one score")
    return mean_ci95([fmean(scores) for scores in scores_by_task])


def method_ci95(scores_by_task: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 95% interval of a method's mean score. It covers the variation between tasks and, with three or more
    runs, also between runs. `scores_by_task` has, for each task, the scores in [0, 1] of all runs, in the same order of
    runs. With fewer than three runs, the result is the interval that `repeated_ci95` returns.

    With three or more runs, the result is Wilson's interval with Student's t and an effective sample size: the number
    of tasks at which the mean of independent scores of 0 and 1 would have the same variance as the method's mean score
    (as in cluster sampling; Korn and Graubard 1998). Raises ValueError as `repeated_ci95` does.
    """
    if not scores_by_task or len(scores_by_task[0]) < MIN_SEEDS:
        return repeated_ci95(scores_by_task)
    import numpy as np

    from practicum.core.student import t_quantile

    scores = np.asarray(scores_by_task, dtype=float)
    mean = float(scores.mean())
    variance, df = crossed_variance(scores.mean(axis=1), scores)
    n = mean * (1 - mean) / variance if variance > _ROUNDING else len(scores)
    low, high = _wilson(mean, n, t_quantile(0.975, df))
    return max(0.0, min(low, mean)), min(1.0, max(high, mean))


def crossed_variance(by_task: np.ndarray, *methods: np.ndarray) -> tuple[float, float]:
    """Return the variance of the mean of `by_task`, and the degrees of freedom of this variance, with tasks and runs
    both random.

    `methods` are the scores of one or two methods, each of shape (tasks, runs) with two or more runs; `by_task` has,
    for each task, the method's mean over its runs, or the difference between the two methods' means. Every run attempts
    every task and belongs to one method: a two-way layout of random effects with runs nested in methods (Searle,
    Casella and McCulloch 1992, chapter 4). The returned variance is the variance over tasks plus, for each method, the
    part of the variance between its runs that exceeds the noise of single attempts.

    The degrees of freedom are the harmonic mean of the degrees for tasks and the degrees for runs (Welch 1938),
    weighted by the fractions of the variance that are due to tasks and to runs. Satterthwaite (1946) squares these
    weights. With squared weights, up to 8% of comparisons of equal methods report a difference (measured in
    docs/measure/compare.md), because three runs give a poor estimate of the variance between runs.
    """
    import numpy as np

    n = len(by_task)
    if n < 2:
        return 0.0, 1.0
    tasks, runs, beyond, inverse = float(by_task.var(ddof=1)) / n, 0.0, 0.0, 0.0
    for scores in methods:
        of_run, k = scores.mean(axis=0), scores.shape[1]
        rest = scores - of_run - scores.mean(axis=1, keepdims=True) + of_run.mean()
        noise = float(np.square(rest).sum()) / ((n - 1) * (k - 1)) / (n * k)
        between = float(of_run.var(ddof=1)) / k
        excess = max(between - noise, 0.0)
        runs, beyond, inverse = runs + between, beyond + excess, inverse + excess**2 / (k - 1)
    if tasks + runs < _ROUNDING:
        return 0.0, n - 1.0
    df = beyond**2 / inverse if inverse else min(scores.shape[1] for scores in methods) - 1
    share = runs / (tasks + runs)
    return tasks + beyond, 1 / ((1 - share) / (n - 1) + share / df)


def _wilson(mean: float, n: float, z: float = NormalDist().inv_cdf(0.975)) -> tuple[float, float]:
    shrink = 1 + z * z / n
    centre = (mean + z * z / (2 * n)) / shrink
    half = z * sqrt(mean * (1 - mean) / n + z * z / (4 * n * n)) / shrink
    return centre - half, centre + half


def resamples(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield 9,999 samples of n from n values, drawn with replacement and a fixed seed, in parts of shape (m, n).

    All samples at once would take 80 kB per value.
    """
    import numpy as np

    rng = np.random.default_rng(_SEED)
    rows = max(1, _CELLS_AT_ONCE // len(values))
    for done in range(0, _RESAMPLES, rows):
        yield rng.choice(values, (min(rows, _RESAMPLES - done), len(values)))
