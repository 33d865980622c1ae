"""The acceptance gate errs at most as often as it states."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import PROFILE

from practicum.methods.blocks.gate import Trial

ALPHA = 0.05


def tried(draw: Callable[[], float], tasks: int, alpha: float = ALPHA) -> Trial:
    trial = Trial(alpha)
    for n in range(tasks):
        trial.take(str(n), draw())
    return trial


@given(st.lists(st.floats(-1, 1), max_size=8), st.floats(0, 1))
def test_a_bet_on_a_fair_difference_gains_nothing_on_average(past: list[float], size: float) -> None:
    def after(last: float) -> float:
        trial = Trial(1e-9)
        for difference in (*past, last):
            trial.take("t", difference)
        return trial.wealth[1]

    assert (after(size) + after(-size)) / 2 == pytest.approx(after(0.0))


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize(
    "world",
    [
        lambda rng: float(rng.choice((-1, 1))),
        lambda rng: float(rng.choice((-1, 0, 0, 0, 0, 0, 0, 0, 0, 1))),
        lambda rng: rng.uniform(-1, 1),
        # Rarely much better, mostly a little worse: no difference on average.
        lambda rng: 0.9 if rng.random() < 0.1 else -0.1,
    ],
    ids=["coin", "mostly ties", "uniform", "skewed"],
)
@pytest.mark.slow
def test_the_test_errs_in_at_most_the_share_alpha_of_equal_deltas(
    world: Callable[[Random], float], alpha: float
) -> None:
    rng, runs = Random(7), 1000 if PROFILE == "slow" else 250
    trials = [tried(lambda: world(rng), 120, alpha) for _ in range(runs)]
    assert sum(t.decided and not t.accepted for t in trials) / runs <= alpha
    assert sum(t.decided and t.accepted for t in trials) / runs <= alpha
