"""How long an epoch takes at each batch size, and from which size on larger ones hardly help.

This is the model behind Combee's dynamic batch size controller (section 3.3, reconstructed). A step with batch size b
takes d(b) seconds, so an epoch of N tasks takes T(b) = N/b · d(b). The power law T(b) = A · b^-alpha is fitted in log
space. Its slope |T'(b)| = A · alpha · b^(-alpha-1) is steepest at the smallest candidate b_min. Chosen is the largest b
whose slope is still tau times that: b* = b_min · tau^(-1/(alpha+1)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt
from typing import Any, NamedTuple

from pydantic import TypeAdapter

MIN_ALPHA = 0.1
"""Smallest credible alpha for which a larger batch is chosen: near 0, b* is large and saves hardly any time."""

PRIOR_NOISE, PRIOR_WEIGHT = 0.15, 2
"""Noise of a step's time that is assumed before measuring (15%), and how many measurements the assumption counts as."""

MIN_OUTLIER_DISTANCE = log(2)
"""Points within a factor of 2 of the curve are never outliers: a model server's ordinary noise reaches that far."""


class Point(NamedTuple):
    """One measured step: the number of tasks it worked on, and the seconds it took."""

    batch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DelayFit:
    """The fitted curve of epoch times, the batch size chosen from it, and the data behind both.

    `why` continues "chosen: 55, because". The curve was fitted to `points`; `outliers` lie too far off it to count, and
    `left_out` counts points without a usable time: zero, negative or not finite. `tasks` is N. `A` is the seconds that
    an epoch would take at batch size 1. `A` and `alpha` are None if fewer than two sizes were measured; the confidence
    interval and `r2` (in log space) are None with only two points.
    """

    chosen: int
    why: str
    points: tuple[Point, ...]
    outliers: tuple[Point, ...]
    left_out: int
    tasks: int
    b_min: int
    max_batch: int
    tau: float
    A: float | None = None
    alpha: float | None = None
    alpha_ci95: tuple[float, float] | None = None
    r2: float | None = None

    def epoch_seconds(self, point: Point) -> float:
        """Seconds of a whole epoch at the pace of this point."""
        return self.tasks / point.batch * point.seconds

    def curve(self, batch: float) -> float:
        """Seconds of an epoch by the fitted law. Raises ValueError if no law was fitted."""
        if self.A is None or self.alpha is None:
            raise ValueError("too few sizes were measured for a curve")
        return float(self.A * batch**-self.alpha)

    def as_json(self) -> dict[str, Any]:
        """The fit as JSON values, for `from_json`."""
        return dict(_FIT.dump_python(self, mode="json"))

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> DelayFit:
        """Read what `as_json` wrote."""
        return _FIT.validate_python(value)


_FIT = TypeAdapter(DelayFit)


def fit_delay(
    points: Sequence[Point], tasks: int, b_min: int = 10, max_batch: int = 100, tau: float = 0.05
) -> DelayFit:
    """Fit the epoch times of `tasks` tasks to measured steps, and choose a batch size in [b_min, max_batch].

    The size never exceeds the number of tasks.

    Raises:
        ValueError: the bounds leave no size to choose, or `tau` is not between 0 and 1.
    """
    at_most = min(max_batch, tasks)
    if not 1 <= b_min <= at_most:
        raise ValueError(f"b_min must lie between 1 and {at_most}, the smaller of max_batch and tasks; it is {b_min}")
    if not 0 < tau < 1:
        raise ValueError(f"tau must lie between 0 and 1; it is {tau}")
    usable = [Point(b, d) for b, d in points if b >= 1 and isfinite(d) and d > 0]
    kept, outliers = _without_outliers(usable)
    left_out = len(points) - len(usable)
    fit = _fit_law(DelayFit(b_min, "", kept, outliers, left_out, tasks, b_min, max_batch, tau))
    chosen, why = _choose(fit)
    return replace(fit, chosen=chosen, why=why)


def _without_outliers(points: Sequence[Point]) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Split the points into those to fit and the outliers.

    One slow step at the largest size (a rate limit, a hanging task) turns a least squares line around. With four sizes
    it also turns a soft_l1 fit and the Theil-Sen line, since half of all slopes are wrong. Siegel's repeated medians
    (1982) withstand it but are imprecise. So they only find the outliers, and least squares are fitted to the rest
    (reweighting after Rousseeuw and Leroy, 1987).
    """
    import numpy as np

    # Among three points there is no telling which one is off.
    if len(points) < 4 or len({p.batch for p in points}) < 2:
        return tuple(points), ()
    x, y = np.log([p.batch for p in points]), np.log([p.seconds for p in points])
    slopes = [np.median((y[apart] - y[i]) / (x[apart] - x[i])) for i in range(len(x)) for apart in [x != x[i]]]
    slope = np.median(slopes)
    distance = np.abs(y - np.median(y - slope * x) - slope * x)
    # 1.4826 times the median distance is one standard deviation if the noise is normal.
    near = distance <= max(MIN_OUTLIER_DISTANCE, 3 * 1.4826 * float(np.median(distance)))
    kept = tuple(p for p, is_near in zip(points, near, strict=True) if is_near)
    if len({p.batch for p in kept}) < 2:
        return tuple(points), ()
    return kept, tuple(p for p, is_near in zip(points, near, strict=True) if not is_near)


def _fit_law(fit: DelayFit) -> DelayFit:
    """Fit least squares in log space. There is no law for a single size, nor if A would be too large for a float.

    With three or four points, an interval from their scatter alone is far too wide, or empty if they happen to lie on
    a line. So the variance is shrunk towards the prior noise (Smyth, 2004).
    """
    import numpy as np

    from practicum.core.student import t_quantile

    points = fit.points
    if len({p.batch for p in points}) < 2:
        return fit
    x = np.log([p.batch for p in points])
    y = np.log([p.seconds for p in points]) - x + log(fit.tasks)
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy / (dx @ dx))
    intercept = float(y.mean() - slope * x.mean())
    if abs(intercept) > 700:
        return fit
    alpha = -slope
    fit = replace(fit, A=exp(intercept), alpha=alpha)
    if len(points) == 2:
        return fit
    freedom = len(points) - 2 + PRIOR_WEIGHT
    scatter = float(((y - intercept - slope * x) ** 2).sum()) + PRIOR_WEIGHT * PRIOR_NOISE**2
    error = sqrt(scatter / freedom / float(dx @ dx))
    half = t_quantile(0.975, freedom) * error
    r2 = min(1.0, slope * float(dx @ dy) / spread) if (spread := float(dy @ dy)) else 0.0
    return replace(fit, alpha_ci95=(alpha - half, alpha + half), r2=r2)


def _choose(fit: DelayFit) -> tuple[int, str]:
    """The batch size to choose, and the reason."""
    sizes, at_most, b_min = sorted({p.batch for p in fit.points}), min(fit.max_batch, fit.tasks), fit.b_min
    if not sizes:
        return b_min, "no iteration was measured"
    if len(sizes) == 1:
        return max(b_min, min(sizes[0], at_most)), f"only batches of {sizes[0]} were measured"
    if fit.alpha is None:
        return b_min, "the measured times follow no power law"
    low, high = fit.alpha_ci95 or (fit.alpha, fit.alpha)
    if low <= MIN_ALPHA:
        interval = f", {low:z.2f} to {high:z.2f}" if fit.alpha_ci95 else ""
        return b_min, f"larger batches do not clearly shorten an epoch (alpha {fit.alpha:z.2f}{interval})"
    best = b_min * fit.tau ** (-1 / (fit.alpha + 1))
    # Any two points lie on a line, so a line through two sizes says nothing about larger ones.
    limit = min(at_most, sizes[-1]) if len(sizes) == 2 else at_most
    gain = f"{100 * fit.tau:.3g}% of what it saves at {b_min}"
    if best < limit + 0.5:
        return max(b_min, min(round(best), limit)), f"beyond it one more task in a batch saves less than {gain}"
    bound = f"only {sizes[0]} and {sizes[1]} were measured" if limit < at_most else f"{at_most} is the most allowed"
    return max(b_min, limit), f"{bound}; one more task would still save more than {gain}"
