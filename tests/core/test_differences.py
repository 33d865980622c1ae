"""Paired tests against reference values. Simulated comparisons are in tests/analysis/test_compare_claims.py."""

from __future__ import annotations

from dataclasses import replace
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from practicum.core.differences import difference, holm, mcnemar, newcombe, verdict
from practicum.core.student import t_quantile, t_tails


def marks(both: int, better: int, worse: int, neither: int) -> tuple[list[list[float]], list[list[float]]]:
    """Scores of two methods that solve these numbers of tasks: both, only one of them, neither."""
    pairs = [(1.0, 1.0)] * both + [(1.0, 0.0)] * better + [(0.0, 1.0)] * worse + [(0.0, 0.0)] * neither
    return [[a] for a, _ in pairs], [[b] for _, b in pairs]


def test_mcnemar_is_the_exact_binomial_test_of_the_tasks_that_differ() -> None:
    for better, worse in ((0, 0), (1, 0), (9, 1), (12, 4), (7, 7), (30, 11)):
        n = better + worse
        tail = sum(comb(n, k) for k in range(min(better, worse) + 1)) / 2**n if n else 1.0
        assert mcnemar(better, worse) == mcnemar(worse, better) == pytest.approx(min(1.0, 2 * tail))


def test_the_interval_of_two_shares_is_newcombes() -> None:
    """Newcombe 1998 (Statistics in Medicine 17, 2635), method 10; the last is Wilson's interval of 0 in 30."""
    for cells, expected in (
        ((36, 12, 2, 0), (0.0569, 0.3404)), ((53, 1, 0, 0), (-0.0495, 0.0977)),
        ((20, 12, 2, 16), (0.0562, 0.3292)), ((0, 0, 0, 30), (-0.1135, 0.1135)),
    ):  # fmt: skip
        assert newcombe(*cells[:3], sum(cells)) == pytest.approx(expected, abs=2e-4)


def test_scores_of_0_and_1_with_one_seed_get_mcnemar_and_others_the_bootstrap() -> None:
    first, second = marks(5, 9, 1, 5)
    result = difference(first, second)
    assert (result.test, result.n, result.better, result.worse) == ("mcnemar", 20, 9, 1)
    assert result.effect == pytest.approx(0.4)
    assert result.p == pytest.approx(2 * 11 / 2**10)
    assert difference([[*a, 1.0] for a in first], [[*b, 1.0] for b in second]).test == "bootstrap"
    assert difference([[0.5], *first[1:]], second).test == "bootstrap"


def test_seeds_are_averaged_within_a_task() -> None:
    """Copies of a run are not evidence about tasks: they change neither the effect nor its interval."""
    rng = np.random.default_rng(5)
    first, second = rng.random((25, 1)), rng.random((25, 1))
    once = difference(first.tolist(), second.tolist())
    copied = difference(np.repeat(first, 4, axis=1).tolist(), np.repeat(second, 2, axis=1).tolist())
    assert copied.effect == pytest.approx(once.effect)
    assert copied.p == once.p
    assert copied.ci95 == pytest.approx(once.ci95)


def test_the_interval_has_width_if_no_task_differs() -> None:
    for scores in ([[0.5]] * 20, [[1.0]] * 20, [[1.0, 0.0]] * 20):
        result = difference(scores, scores)
        assert result.p == 1.0
        assert result.ci95[0] < -0.05 < 0.05 < result.ci95[1]
    for first, second in (([], []), ([[1.0]], []), ([[1.0], []], [[1.0], [0.0]])):
        with pytest.raises(ValueError, match="same tasks"):
            difference(first, second)


scores = st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])] * 4), min_size=1, max_size=30)


@given(scores)
@example(
    [(0.0, 0.0, 0.0, 0.0)] * 3 + [(0.0, 0.0, 0.0, 1.0), (0.5, 0.5, 0.0, 0.9), (0.5, 0.9, 0.0, 0.0)]
    + [(0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.5, 1.0), (0.0, 1.0, 0.0, 0.0)]
)  # fmt: skip
def test_the_interval_holds_the_effect_and_p_goes_with_it(rows: list[tuple[float, float, float, float]]) -> None:
    first, second = [list(r[:2]) for r in rows], [list(r[2:]) for r in rows]
    result = difference(first, second)
    low, high = result.ci95
    assert -1 <= low <= result.effect <= high <= 1
    assert 0 < result.p <= 1
    spread = len({round(sum(a) - sum(b), 9) for a, b in zip(first, second, strict=True)}) > 1
    if spread and abs(result.p - 0.05) > 1e-3 and low > -1 and high < 1:
        assert (result.p < 0.05) == (not low <= 0 <= high)
    turned = difference(second, first)
    assert turned.effect == pytest.approx(-result.effect)
    assert turned.p == result.p
    shuffled = difference(first[::-1], second[::-1])
    assert (shuffled.p, shuffled.ci95) == (result.p, pytest.approx(result.ci95))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_no_correction_and_bonferroni(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(p - 1e-12 <= q <= min(1.0, len(ps) * p) + 1e-12 for p, q in zip(ps, adjusted, strict=True))
    assert [adjusted[i] for i in np.argsort(ps, kind="stable")] == sorted(adjusted)
    # A reference.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_few_tasks_or_an_interval_around_0_are_unclear() -> None:
    clear = difference(*marks(0, 9, 0, 0))
    assert (clear.p < 0.05, verdict(clear, clear.p)) == (True, "unclear")
    enough = difference(*marks(0, 10, 0, 0))
    assert verdict(enough, enough.p) == "runs higher"
    assert verdict(enough, 0.051) == verdict(replace(enough, ci95=(-0.01, 0.9)), enough.p) == "unclear"
    assert verdict(difference(*marks(0, 0, 10, 0)), 0.01) == "runs lower"
    twice, thrice = (difference(*([score * n for score in side] for side in marks(0, 10, 0, 0))) for n in (2, 3))
    assert (verdict(twice, twice.p), twice.seeds) == ("runs higher", 2)
    assert (verdict(thrice, thrice.p), thrice.seeds) == ("better", 3)


def test_with_three_runs_tasks_and_runs_are_random() -> None:
    """By hand: the variance over tasks, and that of the runs beyond the noise of attempts, weighed as documented."""
    first = np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 0], [1, 1, 0]])
    second = np.array([[0.0, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]])
    result = difference(first, second)
    assert (result.test, result.n, result.seeds, result.effect) == ("crossed", 4, 3, pytest.approx(0.5))
    d = first.mean(axis=1) - second.mean(axis=1)
    over_tasks = d.var(ddof=1) / 4
    # Two-way analysis of variance without replication: the mean square of the interaction is the noise.
    squares, runs, excess = [], [], []
    for x in (first, second):
        rest = sum((x[i, j] - x[i].mean() - x[:, j].mean() + x.mean()) ** 2 for i in range(4) for j in range(3)) / 6
        squares.append(rest / 12)
        runs.append(x.mean(axis=0).var(ddof=1) / 3)
        excess.append(max(0.0, runs[-1] - squares[-1]))
    variance = over_tasks + sum(excess)
    assert sum(excess) > 0
    share = sum(runs) / (over_tasks + sum(runs))
    df = 1 / ((1 - share) / 3 + share / (sum(excess) ** 2 / sum(e**2 / 2 for e in excess)))
    assert result.p == pytest.approx(t_tails(0.5 / sqrt(variance), df))
    reach = t_quantile(0.975, df) * sqrt(variance)
    assert result.ci95 == pytest.approx((max(-1, 0.5 - reach), min(1, 0.5 + reach)))


# ---- Student's t distribution, against scipy 1.17 (`scipy.special.stdtr` and `stdtrit`)


def test_quantiles_and_tails_are_those_of_scipy() -> None:
    for df, quantile, tails in (
        (0.7, 36.611415031588656, 0.3197043626812739), (1, 12.706204736174694, 0.24223788318168682),
        (4.5, 2.6589123472044034, 0.059905686502200545), (1000, 1.9623390808264083, 0.012578567801090807),
    ):  # fmt: skip
        assert t_quantile(0.975, df) == pytest.approx(quantile, rel=1e-9)
        assert t_tails(2.5, df) == t_tails(-2.5, df) == pytest.approx(tails, rel=1e-9)
    for t, df, tails in (
        (1e-05, 3, 0.9999926489480612), (0.1, 2.5, 0.9278065440624897), (40.0, 2, 0.0006244146721847406),
        (40.0, 30, 1.3726045194406417e-27), (12.0, 250, 1.6735296226983602e-26), (0.0, 3, 1.0),
    ):  # fmt: skip
        assert t_tails(t, df) == pytest.approx(tails, rel=1e-9)
    assert t_quantile(0.5, 3) == pytest.approx(0, abs=1e-12)
