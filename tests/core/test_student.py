"""Student's t distribution, against values of scipy 1.17 (`scipy.special.stdtr` and `stdtrit`)."""

from __future__ import annotations

import pytest

from practicum.core.student import t_quantile, t_tails


@pytest.mark.parametrize(
    ("df", "quantile", "tails"),
    [
        (0.7, 36.611415031588656, 0.3197043626812739),
        (1, 12.706204736174694, 0.24223788318168682),
        (4.5, 2.6589123472044034, 0.059905686502200545),
        (1000, 1.9623390808264083, 0.012578567801090807),
    ],
)
def test_quantiles_and_tails_are_those_of_scipy(df: float, quantile: float, tails: float) -> None:
    """The quantile of 0.975, and the two-sided p-value of 2.5."""
    assert t_quantile(0.975, df) == pytest.approx(quantile, rel=1e-9)
    assert t_tails(2.5, df) == t_tails(-2.5, df) == pytest.approx(tails, rel=1e-9)


def test_tails_far_out_and_near_0_are_those_of_scipy() -> None:
    for t, df, tails in (
        (1e-05, 3, 0.9999926489480612), (0.1, 2.5, 0.9278065440624897), (40.0, 2, 0.0006244146721847406),
        (40.0, 30, 1.3726045194406417e-27), (12.0, 250, 1.6735296226983602e-26), (0.0, 3, 1.0),
    ):  # fmt: skip
        assert t_tails(t, df) == pytest.approx(tails, rel=1e-9)
    assert t_quantile(0.5, 3) == pytest.approx(0, abs=1e-12)
