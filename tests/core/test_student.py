"""Student's t distribution, against values of scipy 1.17 (`scipy.special.stdtr` and `stdtrit`)."""

from __future__ import annotations

import pytest

from practicum.core.student import t_quantile, t_tails


@pytest.mark.parametrize(
    ("df", "quantile", "tails"),
    [
        (0.7, 36.611415031588656, 0.3197043626812739),
        (1, 12.706204736174694, 0.24223788318168682),
        (2, 4.302652729749462, 0.12961172022151082),
        (3, 3.1824463052837078, 0.08770664700806556),
        (4.5, 2.6589123472044034, 0.059905686502200545),
        (10, 2.228138851986274, 0.03144684423660882),
        (47, 2.0117405137297655, 0.015966868057577865),
        (1000, 1.9623390808264083, 0.012578567801090807),
    ],
)
def test_quantiles_and_tails_are_those_of_scipy(df: float, quantile: float, tails: float) -> None:
    """The quantile of 0.975, and the two-sided p-value of 2.5."""
    assert t_quantile(0.975, df) == pytest.approx(quantile, rel=1e-9)
    assert t_tails(2.5, df) == t_tails(-2.5, df) == pytest.approx(tails, rel=1e-9)


@pytest.mark.parametrize(
    ("t", "df", "tails"),
    [
        (1e-05, 3, 0.9999926489480612),
        (0.1, 2.5, 0.9278065440624897),
        (40.0, 2, 0.0006244146721847406),
        (40.0, 30, 1.3726045194406417e-27),
        (300.0, 5, 7.809907457922212e-12),
        (12.0, 250, 1.6735296226983602e-26),
    ],
)
def test_tails_far_out_and_near_0_are_those_of_scipy(t: float, df: float, tails: float) -> None:
    assert t_tails(t, df) == pytest.approx(tails, rel=1e-9)


def test_half_of_the_values_lie_below_0() -> None:
    assert t_quantile(0.5, 3) == pytest.approx(0, abs=1e-12)
    assert t_tails(0.0, 3) == 1.0
