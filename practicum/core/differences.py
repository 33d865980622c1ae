"""The difference of two methods on the same tasks, with its confidence interval and p-value.

A method that learns comes out differently each time it is run. So a difference of two runs is no difference of two
methods, however many tasks they are tried on: where runs differ by 6 points, three seeds of equal methods on 300 tasks
look different in 45% of comparisons, if only the tasks are taken as random (docs/compare.md). With three runs or more
of both methods, tasks and runs are both random (`core.intervals.crossed_variance`), and the test is a paired t test
with that variance.

With fewer runs nothing can be said about the methods, and the difference is one of these runs. Then the task is the
unit, and scores are averaged within a task first. Scores of 0 and 1 get McNemar's exact test (1947) and Newcombe's
interval (1998, method 10), which has width also if no task differs. Other scores get the paired, studentised bootstrap
(bootstrap-t; Efron and Tibshirani 1993, chapter 12), seeded. The percentile bootstrap calls too much significant with
few tasks: in four simulated worlds of ten tasks up to 10% instead of 5%, against up to 4% here.

Several comparisons with one baseline are corrected by Holm's method (1979).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, fsum, inf, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from practicum.core.intervals import MIN_SEEDS, crossed_variance, resamples, share_ci95

MIN_TASKS = 10
"""With fewer tasks no difference is claimed."""

ALPHA = 0.05
"""The level of significance."""

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Difference:
    """One method's scores minus another's.

    `effect` is the mean difference, from -1 to 1, `ci95` its 95% interval, and `p` the p-value of no difference by
    `test`, on `n` tasks. `seeds` is the number of runs of the method with the fewer runs: with `MIN_SEEDS` and more,
    interval and p-value are about methods (`test` is "crossed"), with fewer about these runs. `better` and `worse`
    count the tasks on which the first method scored higher or lower.
    """

    effect: float
    ci95: tuple[float, float]
    p: float
    test: Literal["mcnemar", "bootstrap", "crossed"]
    n: int
    seeds: int
    better: int
    worse: int


def difference(ours: ArrayLike, theirs: ArrayLike) -> Difference:
    """Compare two methods by their scores in [0, 1], of shape (tasks, runs): the same tasks in the same order, and for
    each task one score per run, the runs in the same order for every task. The numbers of runs may differ.

    Raises ValueError for no tasks, unequal numbers of tasks, or a task without the score of a run.
    """
    first, second = _scores(ours), _scores(theirs)
    if len(first) != len(second):
        raise ValueError(UNPAIRED)
    seeds, single = min(first.shape[1], second.shape[1]), first.shape[1] == second.shape[1] == 1
    # Rounding errors, as of means of thirds, are no difference.
    d = np.round(first.mean(axis=1) - second.mean(axis=1), 12)
    better, worse = int((d > 0).sum()), int((d < 0).sum())
    test: Literal["mcnemar", "bootstrap", "crossed"]
    if seeds >= MIN_SEEDS:
        test, (ci95, p) = "crossed", _crossed_t(d, first, second)
    elif single and np.isin(first, (0.0, 1.0)).all() and np.isin(second, (0.0, 1.0)).all():
        both = int((first * second).sum())
        test, ci95, p = "mcnemar", newcombe(both, better, worse, len(d)), mcnemar(better, worse)
    else:
        test, (ci95, p) = "bootstrap", _bootstrap_t(d)
    effect = float(d.mean())
    ci95 = (max(-1.0, min(ci95[0], effect)), min(1.0, max(ci95[1], effect)))
    return Difference(effect, ci95, p, test, len(d), seeds, better, worse)


UNPAIRED = "paired scores need the same tasks on both sides, each with the score of every run"


def _scores(values: ArrayLike) -> np.ndarray:
    """Scores of shape (tasks, runs)."""
    try:
        scores = np.asarray(values, dtype=float)
    except ValueError as error:
        raise ValueError(UNPAIRED) from error
    if scores.ndim != 2 or not scores.size:
        raise ValueError(UNPAIRED)
    return scores


def mcnemar(better: int, worse: int) -> float:
    """The exact two-sided p-value of the hypothesis that a task that differs goes either way equally often."""
    n = better + worse
    as_extreme: int = 2 * sum(comb(n, k) for k in range(min(better, worse) + 1))
    return min(1.0, as_extreme / (1 << n))


def newcombe(both: int, better: int, worse: int, n: int) -> tuple[float, float]:
    """The 95% interval of the difference of two paired shares, given how many of `n` tasks `both` methods
    solved, only the first (`better`), and only the second (`worse`): Wilson's intervals, with their correlation."""
    ours, theirs = (both + better) / n, (both + worse) / n
    low_o, high_o = share_ci95(both + better, n)
    low_t, high_t = share_ci95(both + worse, n)
    neither = n - both - better - worse
    cross = float(both * neither - better * worse)
    if cross > 0:
        cross = max(cross - n / 2, 0.0)  # Newcombe's continuity correction
    margins = (both + better) * (worse + neither) * (both + worse) * (better + neither)
    phi = cross / sqrt(margins) if margins else 0.0

    def reach(a: float, b: float) -> float:
        return sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))

    effect = ours - theirs
    return effect - reach(ours - low_o, high_t - theirs), effect + reach(high_o - ours, theirs - low_t)


def _crossed_t(d: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> tuple[tuple[float, float], float]:
    """Interval and p-value of the mean difference `d` of two methods, over tasks and runs. The interval excludes 0
    exactly if p is below 0.05."""
    from practicum.core.student import t_quantile, t_tails

    mean = float(d.mean())
    variance, df = crossed_variance(d, ours, theirs)
    if (error := sqrt(variance)) < _ROUNDING:
        return _without_spread(mean, len(d))
    reach = t_quantile(1 - ALPHA / 2, df) * error
    return (mean - reach, mean + reach), t_tails(mean / error, df)


def _without_spread(mean: float, n: int) -> tuple[tuple[float, float], float]:
    """Interval and p-value of n equal differences, which are compatible with a share of about 3 / n other ones."""
    room = 1.0 - 0.05 ** (1.0 / n)
    return (mean - room, mean + room), (1.0 if abs(mean) < _ROUNDING else 2.0 * 0.5**n)


def _bootstrap_t(d: np.ndarray) -> tuple[tuple[float, float], float]:
    """Interval and p-value of the mean of paired differences. The interval excludes 0 exactly if p is below 0.05."""
    mean, n = float(d.mean()), len(d)
    error = float(d.std(ddof=1)) / sqrt(n) if n > 1 else 0.0
    if error < _ROUNDING:
        return _without_spread(mean, n)
    t = _studentised(d)
    p = (1 + int((t >= abs(mean) / error - 1e-9).sum())) / (len(t) + 1)
    # The smallest distance from 0 whose p is below 0.05.
    allowed = int(ALPHA * (len(t) + 1)) - 1
    reach = float(np.partition(t, len(t) - allowed - 1)[len(t) - allowed - 1]) * error
    return (mean - reach, mean + reach), p


def _studentised(d: np.ndarray) -> np.ndarray:
    """|t| of each resample around the mean of the sample; infinite for a resample without spread."""
    # A fixed order and sign, so that neither the order of the tasks nor that of the methods matters. If the mean is 0
    # up to rounding, the values decide the sign.
    ordered = np.sort(np.round(d, 12))
    turned = -ordered[::-1]
    total = round(fsum(ordered), 9)
    sample = ordered if (total, tuple(ordered)) >= (-total, tuple(turned)) else turned
    parts = []
    for x in resamples(sample):
        away, spread = np.abs(x.mean(axis=1) - sample.mean()), x.std(axis=1, ddof=1) / sqrt(len(d))
        flat = spread < _ROUNDING
        parts.append(np.where(flat, np.where(away < _ROUNDING, 0.0, inf), away / np.where(flat, 1.0, spread)))
    return np.concatenate(parts)


def holm(ps: Sequence[float]) -> list[float]:
    """P-values corrected for the number of comparisons (Holm 1979), in the order given."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = largest
    return corrected


Verdict = Literal["better", "worse", "runs higher", "runs lower", "unclear"]


def verdict(difference: Difference, corrected: float) -> Verdict:
    """What may be claimed: "better" or "worse" of a method, "runs higher" or "runs lower" of these runs only, with
    fewer than three of a method. "unclear" with fewer than ten tasks, or if chance explains the corrected p-value."""
    low, high = difference.ci95
    if difference.n < MIN_TASKS or corrected > ALPHA or low <= 0.0 <= high:
        return "unclear"
    if difference.seeds < MIN_SEEDS:
        return "runs higher" if difference.effect > 0 else "runs lower"
    return "better" if difference.effect > 0 else "worse"


@dataclass(frozen=True)
class Claim:
    """A difference among several from one baseline: its p-value corrected for all of them, and what may be claimed."""

    difference: Difference
    corrected: float
    verdict: Verdict


def claims(pairs: Mapping[str, Sequence[tuple[ArrayLike, ArrayLike]]]) -> dict[str, Claim]:
    """What may be claimed of each name: its pairs are the scores of all runs at one task, and those of the baseline. A
    name without pairs is left out. Raises ValueError as `difference` does."""
    found = {name: difference(*map(list, zip(*own, strict=True))) for name, own in pairs.items() if own}
    corrected = holm([one.p for one in found.values()])
    return {name: Claim(one, p, verdict(one, p)) for (name, one), p in zip(found.items(), corrected, strict=True)}
