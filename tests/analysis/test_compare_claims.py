"""The claims of a comparison about simulated methods whose difference is certain: false claims, power, and intervals.

A world has tasks of different difficulty, methods that solve different tasks easily, runs of a method that differ, and
noise in each attempt. `PRACTICUM_TEST_TRIALS=2000 pytest tests/analysis/test_compare_claims.py -m slow -s` prints the
table in docs/measure/compare.md.
"""

from __future__ import annotations

import os
from itertools import accumulate, product
from math import comb, sqrt
from statistics import NormalDist

import numpy as np
import pytest
from needs import needs

from practicum.core.differences import difference, verdict
from practicum.core.intervals import method_ci95

TRIALS = int(os.environ.get("PRACTICUM_TEST_TRIALS", "80"))
"""Comparisons in each cell of the grid."""

SURE = 1e-4
"""How rarely a simulation may call a right test wrong; seeds are fixed, so that it gives the same result each time."""

MOST = 0.065
"""The share of equal methods that may be called different: 5%, and 1.5 points for the uncertainty of three runs."""

TASK, METHOD, ATTEMPT = 1.0, 0.5, 0.5
"""Standard deviations of the difficulty of tasks, of the difficulty for one method, and of single attempts, all on the
scale of a normal variable that decides by its sign whether a task is solved."""


def attempts(
    rng: np.random.Generator, trials: int, tasks: int, seeds: int, spread: float, means: tuple[float, float]
) -> list[np.ndarray]:
    """Scores of 0 and 1 of two methods in many comparisons, each of shape (trials, tasks, seeds). Each run is as good
    as its method, plus a normal number with the standard deviation `spread` (a share of all tasks, not points)."""
    difficulty, scale = TASK * rng.normal(size=(trials, tasks, 1)), sqrt(TASK**2 + METHOD**2 + ATTEMPT**2)
    scores = []
    for mean in means:
        quality = np.clip(mean + spread * rng.normal(size=(trials, 1, seeds)), 0.001, 0.999)
        own = METHOD * rng.normal(size=(trials, tasks, 1)) + ATTEMPT * rng.normal(size=(trials, tasks, seeds))
        scores.append((scale * np.vectorize(NormalDist().inv_cdf)(quality) + difficulty + own > 0).astype(float))
    return scores


def claims(first: np.ndarray, second: np.ndarray) -> int:
    """The number of comparisons in which the report would call one method better."""
    differences = [difference(*pair) for pair in zip(first, second, strict=True)]
    return sum(verdict(d, d.p) in ("better", "worse") for d in differences)


def allowed(rate: float, trials: int) -> int:
    """More would be seen once in 10,000 times at this rate."""
    chances = accumulate(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(trials + 1))
    return next(k for k, chance in enumerate(chances) if 1 - chance <= SURE)


def false_claims(trials: int, tasks: int, seeds: int, spread: float) -> int:
    rng = np.random.default_rng([tasks, seeds, round(1000 * spread)])
    return claims(*attempts(rng, trials, tasks, seeds, spread, (0.6, 0.6)))


@pytest.mark.slow
def test_false_claims_and_power_over_the_grid() -> None:
    stats = needs("scipy.stats", "all-tests")
    lines = ["| tasks | seeds | spread of runs | equal: called different | by the tasks only | of 10 points | 20 |"]
    for tasks, seeds, spread in product((48, 300), (3, 5), (0.0, 0.06)):
        wrong = false_claims(TRIALS, tasks, seeds, spread)
        assert wrong <= allowed(MOST, TRIALS), (tasks, seeds, spread)
        equal = attempts(np.random.default_rng(5), TRIALS, tasks, seeds, spread, (0.6, 0.6))
        over_tasks = float((stats.ttest_rel(*(side.mean(axis=2) for side in equal), axis=1).pvalue <= 0.05).mean())
        # A test over the tasks only would claim too much.
        assert over_tasks > 0.06 or not spread
        rng = np.random.default_rng(1)
        right = [claims(*attempts(rng, TRIALS, tasks, seeds, spread, (0.5 + e, 0.5))) for e in (0.1, 0.2)]
        # Certainty about the difference never falls with its size.
        assert wrong < right[0] <= right[1]
        shares = " | ".join(f"{n / TRIALS:.0%}" for n in right)
        lines.append(f"| {tasks} | {seeds} | {100 * spread:.0f} | {wrong / TRIALS:.1%} | {over_tasks:.0%} | {shares} |")
    print("", *lines, sep="\n")


def test_equal_methods_are_rarely_called_different_and_a_large_difference_nearly_always() -> None:
    assert false_claims(60, 48, 3, 0.06) <= allowed(MOST, 60)
    rng = np.random.default_rng(2)
    assert claims(*attempts(rng, 30, 300, 3, 0.0, (0.6, 0.5))) >= 27
    assert claims(*attempts(rng, 30, 300, 5, 0.06, (0.7, 0.5))) >= 27


def test_the_interval_of_a_score_holds_the_score_of_another_world() -> None:
    trials, mean = 80, 0.7
    for tasks, seeds, spread in ((48, 3, 0.0), (100, 5, 0.1)):
        scores, _ = attempts(np.random.default_rng([tasks, seeds]), trials, tasks, seeds, spread, (mean, mean))
        ends = [method_ci95(one.tolist()) for one in scores]
        assert sum(not low <= mean <= high for low, high in ends) <= allowed(MOST, trials)
        assert all(0 <= low <= one.mean() <= high <= 1 for one, (low, high) in zip(scores, ends, strict=True))
    # It has width also if every attempt is alike.
    assert method_ci95([[1.0] * 3] * 40) == (pytest.approx(1 / (1 + 1.96**2 / 40), abs=0.02), 1)
