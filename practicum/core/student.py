"""Two functions of Student's t distribution, for intervals and tests."""

from __future__ import annotations

from math import exp, inf, lgamma, log, log1p, sqrt


def t_tails(t: float, df: float) -> float:
    """Return the probability that a value of Student's distribution is at least as far from 0 as t: the two-sided
    p-value. `df` is above 0 and need not be whole."""
    square = t * t
    # The result is the regularized incomplete beta function at df / (df + t²), computed on the side where the continued
    # fraction of the function converges quickly.
    below, above = df / (df + square), square / (df + square)
    a, b = df / 2, 0.5
    if below == 0.0 or above == 0.0:
        return 1.0 if above == 0.0 else 0.0
    log_below = log(below) if below < 0.5 else log1p(-above)
    log_above = log(above) if above < 0.5 else log1p(-below)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log_below + b * log_above)
    if below < (a + 1) / (a + b + 2):
        return front * _beta_fraction(below, a, b) / a
    return 1.0 - front * _beta_fraction(above, b, a) / b


def t_quantile(p: float, df: float) -> float:
    """Return the value below which a fraction p of Student's distribution lies; 0.5 <= p < 1."""
    tails, low, high = 2 * (1 - p), 0.0, 1.0
    while t_tails(high, df) > tails:
        low, high = high, 2 * high
        if high == inf:
            return inf
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if t_tails(middle, df) > tails else (low, middle)
    return high


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function (Abramowitz and Stegun 1964, 26.5.8), by the
    recurrence of Lentz and Thompson."""
    c = 1.0
    result = d = 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    for m in range(1, 10_000 + int(5 * sqrt(a + b))):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            d = 1.0 / (1.0 + part * d)
            c = 1.0 + part / c
            change = c * d
            result *= change
        if abs(change - 1.0) < 1e-15:
            return result
    raise ArithmeticError(f"the incomplete beta function does not converge at x={x}, a={a}, b={b}")
