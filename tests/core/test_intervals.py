"""Intervals: their laws, and that they hold the true mean about as often as they say."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.core.intervals import mean_ci95, repeated_ci95, share_ci95

values = st.lists(st.floats(0, 1), min_size=1, max_size=30)
marks = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=200)


@settings(max_examples=examples(15))
@given(values | marks, st.randoms(use_true_random=False))
def test_the_interval_holds_the_mean_within_the_scale_in_any_order(
    sample: list[float], shuffler: random.Random
) -> None:
    low, high = mean_ci95(sample)
    assert 0 <= low <= fmean(sample) <= high <= 1
    assert low < high
    mixed = list(sample)
    shuffler.shuffle(mixed)
    assert mean_ci95(mixed) == (low, high)
    right = sample.count(1.0)
    if right + sample.count(0.0) == len(sample):
        assert share_ci95(right, len(sample)) == pytest.approx((low, high))
    # The task is the unit: repeats that agree add nothing.
    assert repeated_ci95([[value] * 5 for value in sample]) == pytest.approx((low, high))


def test_the_interval_is_wilsons_for_marks_and_narrower_for_values_between() -> None:
    # Wilson intervals by scipy 1.17: binomtest(right, n).proportion_ci(method="wilson")
    for right, n, low, high in (
        (0, 1, 0.0, 0.793451), (1, 1, 0.206549, 1.0), (0, 10, 0.0, 0.277533), (90, 100, 0.825634, 0.944771),
    ):  # fmt: skip
        assert mean_ci95([1.0] * right + [0.0] * (n - right)) == pytest.approx((low, high), abs=1e-6)
    # The normal interval: 0.5 -+ 1.96 * 0.2930 / sqrt(101)
    sample = [i / 100 for i in range(101)]
    assert mean_ci95(sample) == pytest.approx((0.443, 0.557), abs=0.004)
    assert mean_ci95(sample) == mean_ci95(sample)
