"""What a comparison claims of simulated methods whose difference is known: false claims, power, and intervals.

A world has tasks of different difficulty, methods that find different tasks easy, runs of a method that differ, and
noise in each attempt. `pytest tests/analysis/test_compare_claims.py -m slow -s` prints the table in docs/compare.md.
"""

from __future__ import annotations

from itertools import product
from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from needs import needs

from practicum.core.differences import difference, verdict
from practicum.core.intervals import method_ci95

SURE = 1e-4
"""How rarely a simulation may call a right test wrong; seeds are fixed, so that it says the same each time."""

MOST = 0.065
"""The share of equal methods that may be called different: 5%, and 1.5 points for what three runs cannot tell."""

TASK, METHOD, ATTEMPT = 1.0, 0.5, 0.5
"""Standard deviations of the difficulty of tasks, of what is difficult for one method alone, and of single attempts,
all on the scale of a normal variable that decides by its sign whether a task is solved."""


def attempts(
    rng: np.random.Generator, trials: int, tasks: int, seeds: int, spread: float, means: tuple[float, float],
    attempt: float = ATTEMPT, spread_of_second: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Scores of 0 and 1 of two methods in many comparisons, each of shape (trials, tasks, seeds). Each run is as good
    as its method, plus a normal number with the standard deviation `spread` (a share of all tasks, not points)."""
    difficulty = TASK * rng.normal(size=(trials, tasks, 1))
    scale = sqrt(TASK**2 + METHOD**2 + attempt**2)
    found = []
    for mean, sd in zip(means, (spread, spread if spread_of_second is None else spread_of_second), strict=True):
        quality = np.clip(mean + sd * rng.normal(size=(trials, 1, seeds)), 0.001, 0.999)
        own = METHOD * rng.normal(size=(trials, tasks, 1)) + attempt * rng.normal(size=(trials, tasks, seeds))
        found.append((scale * np.vectorize(NormalDist().inv_cdf)(quality) + difficulty + own > 0).astype(float))
    return found[0], found[1]


def claims(ours: np.ndarray, theirs: np.ndarray) -> int:
    """The number of comparisons in which the report would call one method better."""
    found = [difference(*pair) for pair in zip(ours, theirs, strict=True)]
    return sum(verdict(d, d.p) in ("better", "worse") for d in found)


def allowed(rate: float, trials: int) -> int:
    """More would be seen once in 10,000 times at this rate."""
    return int(needs("scipy.stats", "all-tests").binom.isf(SURE, trials, rate))


def false_claims(trials: int, tasks: int, seeds: int, spread: float, **how: float) -> int:
    rng = np.random.default_rng([tasks, seeds, round(1000 * spread)])
    return claims(*attempts(rng, trials, tasks, seeds, spread, (0.6, 0.6), **how))


@pytest.mark.parametrize(("tasks", "seeds"), [(48, 3), (300, 3), (100, 5)])
@pytest.mark.parametrize("spread", [0.0, 0.06, 0.1])
@pytest.mark.slow
def test_equal_methods_are_called_different_in_at_most_one_of_twenty_comparisons(
    tasks: int, seeds: int, spread: float
) -> None:
    assert false_claims(400, tasks, seeds, spread) <= allowed(MOST, 400)


WORLDS: dict[str, dict[str, float]] = {
    "as above": {},
    "noisy attempts": {"attempt": 1.5},
    "runs of one method alone differ": {"spread_of_second": 0.0},
    "both": {"attempt": 1.5, "spread_of_second": 0.0},
}


@pytest.mark.slow
def test_false_claims_and_power_over_the_whole_grid() -> None:
    """2,000 comparisons in each cell: a rate is known to about one point."""
    stats, trials = needs("scipy.stats", "all-tests"), 2000
    lines = [
        "| tasks | seeds | spread of runs | equal: called different | by the tasks alone | of 5 points | 10 | 20 |"
    ]
    for tasks, seeds, spread in product((48, 100, 300), (3, 5), (0.0, 0.06, 0.1)):
        wrong = false_claims(trials, tasks, seeds, spread)
        assert wrong <= allowed(MOST, trials), (tasks, seeds, spread)
        equal = attempts(np.random.default_rng(5), trials, tasks, seeds, spread, (0.6, 0.6))
        over_tasks = float((stats.ttest_rel(*(side.mean(axis=2) for side in equal), axis=1).pvalue <= 0.05).mean())
        # What this analysis is for: the tasks alone are not enough.
        assert over_tasks > 0.1 or not spread
        rng = np.random.default_rng(1)
        found = [claims(*attempts(rng, trials, tasks, seeds, spread, (0.5 + e, 0.5))) for e in (0.05, 0.1, 0.2)]
        # Certainty about the difference never falls with its size.
        assert wrong < found[0] < found[1] <= found[2]
        shares = " | ".join(f"{n / trials:.0%}" for n in found)
        lines.append(f"| {tasks} | {seeds} | {100 * spread:.0f} | {wrong / trials:.1%} | {over_tasks:.0%} | {shares} |")
    print("", *lines, sep="\n")


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_the_share_of_false_claims_holds_in_other_worlds_and_between_the_spreads(world: str) -> None:
    trials, worst = 2000, 0
    for tasks, seeds, spread in product((20, 300), (3, 5), (0.0, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15)):
        wrong = false_claims(trials, tasks, seeds, spread, **WORLDS[world])
        assert wrong <= allowed(MOST, trials), (tasks, seeds, spread)
        worst = max(worst, wrong)
    print(f"\n{world}: at most {worst / trials:.1%}")


def test_a_large_difference_is_found_with_five_seeds_or_without_a_spread_of_runs() -> None:
    rng = np.random.default_rng(2)
    assert claims(*attempts(rng, 100, 300, 3, 0.0, (0.6, 0.5))) >= 90
    assert claims(*attempts(rng, 100, 300, 5, 0.06, (0.7, 0.5))) >= 90


@pytest.mark.parametrize("seeds", [1, 2])
def test_of_fewer_than_three_runs_nothing_is_claimed_about_the_methods(seeds: int) -> None:
    ours, theirs = attempts(np.random.default_rng(3), 20, 60, seeds, 0.0, (0.9, 0.2))
    found = [difference(*pair) for pair in zip(ours, theirs, strict=True)]
    assert {verdict(d, d.p) for d in found} == {"runs higher"}
    assert {verdict(d, d.p) for d in map(difference, theirs, ours)} == {"runs lower"}


def test_a_run_that_came_out_well_by_chance_is_no_better_method() -> None:
    """Three runs on 300 tasks: over the tasks alone the difference is certain, over runs it is not."""
    rng = np.random.default_rng(4)
    chances = np.array([[0.5, 0.6, 0.7]])
    ours, theirs = ((rng.random((300, 3)) < chance).astype(float) for chance in (chances + 0.1, chances))
    over_tasks = difference(ours.mean(axis=1, keepdims=True), theirs.mean(axis=1, keepdims=True))
    assert verdict(over_tasks, over_tasks.p) == "runs higher"
    both = difference(ours, theirs)
    assert verdict(both, both.p) == "unclear"
    assert both.ci95[0] < over_tasks.ci95[0]


@pytest.mark.parametrize(("tasks", "seeds", "spread"), [(48, 3, 0.0), (300, 3, 0.06), (100, 5, 0.1)])
def test_the_interval_of_a_methods_score_holds_the_score_of_another_world(
    tasks: int, seeds: int, spread: float
) -> None:
    trials, mean = 400, 0.7
    scores, _ = attempts(np.random.default_rng([tasks, seeds]), trials, tasks, seeds, spread, (mean, mean))
    ends = [method_ci95(one.tolist()) for one in scores]
    assert sum(not low <= mean <= high for low, high in ends) <= allowed(MOST, trials)
    for one, (low, high) in zip(scores, ends, strict=True):
        assert 0 <= low <= one.mean() <= high <= 1


def test_the_interval_of_a_methods_score_has_width_where_every_attempt_is_alike() -> None:
    low, high = method_ci95([[1.0] * 3] * 40)
    assert high == 1
    assert low == pytest.approx(1 / (1 + 1.96**2 / 40), abs=0.02)
