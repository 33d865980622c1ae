"""The delay curve: the laws of its choice, and too few measurements."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.methods.blocks.sample import DelayFit, Point, fit_delay

CANDIDATES = (10, 20, 40, 80)


def simulated(seed: int, sizes: Sequence[int], alpha: float, A: float = 3_000.0, noise: float = 0.1) -> list[Point]:
    """Iterations on 1,000 tasks whose epochs follow A · b^-alpha but for the noise."""
    rng = random.Random(seed)
    return [Point(b, A * b**-alpha * b / 1_000 * rng.lognormvariate(0, noise)) for b in sizes]


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
    with pytest.raises(ValueError, match="at least two batch sizes"):
        fit.curve(10)


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
