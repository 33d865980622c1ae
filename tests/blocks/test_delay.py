"""The delay curve: the timings of the paper, simulated delays with noise and outliers, and too few measurements."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.blocks.sample.delay import DelayFit, Point, fit_delay

CANDIDATES = (10, 20, 40, 80)


def from_epochs(minutes: dict[int, float], tasks: int) -> list[Point]:
    """Iterations that make epochs of so many minutes."""
    return [Point(b, 60 * T * b / tasks) for b, T in minutes.items()]


def simulated(seed: int, sizes: Sequence[int], alpha: float, A: float = 3_000.0, noise: float = 0.1) -> list[Point]:
    """Iterations on 1,000 tasks whose epochs follow A · b^-alpha but for the noise."""
    rng = random.Random(seed)
    return [Point(b, A * b**-alpha * b / 1_000 * rng.lognormvariate(0, noise)) for b in sizes]


@pytest.mark.parametrize(
    ("minutes", "tasks", "alpha", "chosen"),
    # Combee, tables 1 and 2
    [
        ({1: 86, 5: 30, 10: 19, 20: 10, 40: 5}, 90, 0.760, 55),
        ({1: 42.4, 5: 10.2, 10: 5.6, 30: 2.1}, 60, 0.883, 49),
    ],
)
def test_the_timings_of_the_paper(minutes: dict[int, float], tasks: int, alpha: float, chosen: int) -> None:
    fit = fit_delay(from_epochs(minutes, tasks), tasks, b_min=10)
    assert (fit.chosen, fit.outliers) == (chosen, ())
    assert fit.alpha == pytest.approx(alpha, abs=0.001)
    assert fit.r2 is not None
    assert fit.r2 > 0.98
    assert fit.why == "beyond it one more task in a batch saves less than 5% of what it saves at 10"
    assert [round(fit.epoch_seconds(p) / 60, 1) for p in fit.points] == list(minutes.values())


@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_the_law_is_found_under_noise(alpha: float) -> None:
    best = 10 * 0.05 ** (-1 / (alpha + 1))
    held = 0
    for seed in range(30):
        fit = fit_delay(simulated(seed, (*CANDIDATES, *[50] * 8), alpha), 1_000)
        assert fit.alpha == pytest.approx(alpha, abs=0.2)
        assert 1_200 < (fit.A or 0) < 5_000
        assert fit.curve(50) == pytest.approx(3_000 * 50**-alpha, rel=0.12)
        assert fit.chosen == pytest.approx(best, rel=0.25)
        assert fit.alpha_ci95 is not None
        held += fit.alpha_ci95[0] <= alpha <= fit.alpha_ci95[1]
    assert held >= 27


def test_without_noise_the_law_is_exact_and_has_an_interval() -> None:
    fit = fit_delay(simulated(0, CANDIDATES, 0.8, noise=0), 1_000)
    assert (fit.A, fit.alpha, fit.r2) == pytest.approx((3_000, 0.8, 1.0))
    assert fit.alpha_ci95 is not None
    assert 0.1 < fit.alpha_ci95[1] - fit.alpha < 0.3


@pytest.mark.parametrize("factor", [10, 0.1])
@pytest.mark.parametrize("sizes", [CANDIDATES, (*CANDIDATES, 50, 50, 50), (*CANDIDATES, *[53] * 12)], ids=len)
def test_one_outlier_changes_little_wherever_it_is(sizes: Sequence[int], factor: float) -> None:
    for seed in range(5):
        points = simulated(seed, sizes, 0.8)
        chosen = fit_delay(points, 1_000).chosen
        for i, (batch, seconds) in enumerate(points):
            off = Point(batch, seconds * factor)
            fit = fit_delay([*points[:i], off, *points[i + 1 :]], 1_000)
            assert fit.chosen == pytest.approx(chosen, rel=0.3)
            assert fit.outliers == (off,)


def test_no_outlier_is_found_among_three_points_and_the_smallest_size_is_chosen() -> None:
    fit = fit_delay([Point(10, 1), Point(20, 1.1), Point(40, 12)], 1_000)
    assert (fit.chosen, fit.outliers, len(fit.points)) == (10, (), 3)
    assert "do not clearly shorten" in fit.why


@pytest.mark.parametrize("alpha", [-0.3, 0.0, 0.05])
def test_the_smallest_size_is_chosen_if_larger_ones_gain_nothing(alpha: float) -> None:
    for seed in range(20):
        fit = fit_delay(simulated(seed, (*CANDIDATES, *[10] * 5), alpha), 1_000)
        assert fit.chosen == 10
        assert "do not clearly shorten an epoch" in fit.why


def test_no_size_above_the_largest_allowed_is_chosen() -> None:
    points = simulated(0, CANDIDATES, 0.5, noise=0)
    assert fit_delay(points, 1_000).chosen == 74
    fit = fit_delay(points, 1_000, max_batch=60)
    assert (fit.chosen, fit.why) == (
        60, "60 is the most allowed; one more task would still save more than 5% of what it saves at 10"
    )  # fmt: skip
    assert fit_delay(points, 50).chosen == 50
    assert fit_delay(points, 1_000, tau=0.2).chosen == 29


def test_from_two_sizes_none_beyond_the_larger_is_chosen() -> None:
    two = fit_delay([Point(10, 8.0), Point(20, 9.0)], 80)
    assert (two.chosen, two.alpha_ci95, two.r2) == (20, None, None)
    assert two.alpha == pytest.approx(0.83, abs=0.01)
    assert two.why.startswith("only 10 and 20 were measured; ")
    more = fit_delay([Point(10, 8.0), Point(20, 9.0), Point(20, 9.1), Point(10, 8.2)], 80)
    assert (more.chosen, more.alpha_ci95 is not None) == (20, True)
    assert fit_delay([Point(10, 8.0), Point(20, 15.9)], 80).chosen == 10


@pytest.mark.parametrize(
    ("points", "chosen", "why"),
    [
        ([], 10, "no iteration was measured"),
        ([Point(10, 3.0)], 10, "only batches of 10 were measured"),
        ([Point(40, 3.0), Point(40, 3.1)], 40, "only batches of 40 were measured"),
        ([Point(400, 3.0)], 100, "only batches of 400 were measured"),
        ([Point(99, 1e-3), Point(100, 1e3)], 10, "the measured times follow no power law"),
    ],
)
def test_too_few_measurements_for_a_curve(points: list[Point], chosen: int, why: str) -> None:
    fit = fit_delay(points, 1_000)
    assert (fit.chosen, fit.why, fit.alpha) == (chosen, why, None)
    with pytest.raises(ValueError, match="too few sizes"):
        fit.curve(10)


def test_unusable_times_are_left_out_and_counted() -> None:
    good = simulated(0, CANDIDATES, 0.8)
    bad = [Point(10, 0.0), Point(20, -1.0), Point(40, float("nan")), Point(80, float("inf"))]
    fit, plain = fit_delay([*bad, *good], 1_000), fit_delay(good, 1_000)
    assert fit.left_out == 4
    assert (fit.points, fit.alpha, fit.chosen) == (plain.points, plain.alpha, plain.chosen)


def test_invalid_bounds_are_refused() -> None:
    for bounds in ({"tasks": 9}, {"tasks": 90, "max_batch": 5}, {"tasks": 90, "b_min": 0}):
        with pytest.raises(ValueError, match="b_min must lie between"):
            fit_delay([], **bounds)
    for tau in (0.0, 1.0):
        with pytest.raises(ValueError, match="tau must lie"):
            fit_delay([], 90, tau=tau)


measured = st.lists(
    st.builds(Point, st.integers(1, 200), st.floats(1e-6, 1e6) | st.sampled_from([0.0, -1.0, float("nan")])),
    max_size=30,
)


@given(measured, st.integers(1, 20), st.integers(0, 200), st.floats(0.01, 0.9))
def test_the_choice_is_allowed_explained_and_survives_json(
    points: list[Point], b_min: int, room: int, tau: float
) -> None:
    fit = fit_delay(points, 1_000, b_min, b_min + room, tau)
    assert b_min <= fit.chosen <= b_min + room
    assert fit.why
    assert len(fit.points) + len(fit.outliers) + fit.left_out == len(points)
    assert DelayFit.from_json(json.loads(json.dumps(fit.as_json(), allow_nan=False))) == fit


@settings(max_examples=examples(50))
@given(st.integers(0, 1_000), st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_change_the_choice(seed: int, unit: float) -> None:
    points = simulated(seed, (*CANDIDATES, 50, 50), 0.7, noise=0.3)
    other = [Point(p.batch, p.seconds * unit) for p in points]
    assert fit_delay(other, 1_000).chosen == fit_delay(points, 1_000).chosen
