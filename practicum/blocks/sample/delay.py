"""How long an epoch takes at each batch size, and the size from which on larger ones hardly help.

Combee's dynamic batch size controller (section 3.3, reconstructed). One iteration at batch size b takes d(b) seconds,
an epoch of N tasks T(b) = N/b · d(b). A power law T(b) = A · b^-alpha is fitted in log space. Its slope |T'(b)| =
A · alpha · b^(-alpha-1) is steepest at the smallest candidate b_min; chosen is the largest b where it is still the
fraction tau of that: b* = b_min · tau^(-1/(alpha+1)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, isfinite, log, sqrt
from typing import Any, NamedTuple

MIN_ALPHA = 0.1
"""An alpha that may be as low as this promises no time worth a larger batch: near 0, b* is large and gains nothing."""

NOISE, WORTH = 0.15, 2
"""What is known of the noise before measuring: iterations vary by about 15%; this counts as two measurements."""

OFF = log(2)
"""No point within a factor of 2 of the curve is called an outlier: that much is ordinary noise of a model's server."""

REPRESENTABLE = 700.0
"""Largest |log A| that fits a float."""


class Point(NamedTuple):
    """One real iteration: how many tasks it worked on, and the seconds it took."""

    batch: int
    seconds: float


class _Law(NamedTuple):
    A: float
    alpha: float
    alpha_ci95: tuple[float, float] | None
    r2: float | None


@dataclass(frozen=True, slots=True)
class DelayFit:
    """The curve of epoch times, the size chosen by it, and what both rest on.

    `A` is how many seconds an epoch would take at batch size 1. The law is None with fewer than two sizes, its interval
    and `r2` (in log space) with only two points.
    """

    chosen: int
    why: str
    """One sentence that goes on from "chosen: 55, because"."""
    points: tuple[Point, ...]
    """What the curve was fitted to."""
    outliers: tuple[Point, ...]
    """Measured, but too far off the others to count."""
    left_out: int
    """Points without a usable time: zero, negative or not finite."""
    tasks: int
    """N, the size of the training set."""
    b_min: int
    max_batch: int
    tau: float
    A: float | None = None
    alpha: float | None = None
    alpha_ci95: tuple[float, float] | None = None
    r2: float | None = None

    def epoch_seconds(self, point: Point) -> float:
        """T of one measured iteration."""
        return self.tasks / point.batch * point.seconds

    def curve(self, batch: float) -> float:
        """T by the law. Raises ValueError where there is none."""
        if self.A is None or self.alpha is None:
            raise ValueError("too few sizes were measured for a curve")
        return float(self.A * batch**-self.alpha)

    def as_json(self) -> dict[str, Any]:
        """As JSON values; `from_json` is the way back."""
        ci = self.alpha_ci95
        lists = {"points": [list(p) for p in self.points], "outliers": [list(p) for p in self.outliers]}
        return {**asdict(self), **lists, "alpha_ci95": None if ci is None else list(ci)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DelayFit:
        """What `as_json` gave."""
        tuples = {name: tuple(Point(*p) for p in value[name]) for name in ("points", "outliers")}
        ci = value["alpha_ci95"]
        return cls(**{**value, **tuples, "alpha_ci95": None if ci is None else tuple(ci)})


def fit_delay(
    points: Sequence[Point], tasks: int, b_min: int = 10, max_batch: int = 100, tau: float = 0.05
) -> DelayFit:
    """Fit the epoch times of `tasks` tasks to measured iterations, and choose a size in [b_min, max_batch].

    `b_min` is the smallest candidate; no size above the number of tasks is chosen either. Raises ValueError for
    bounds that leave no size, and for a tau outside (0, 1).
    """
    at_most = min(max_batch, tasks)
    if not 1 <= b_min <= at_most:
        raise ValueError(f"b_min must lie between 1 and {at_most}, the smaller of max_batch and tasks; it is {b_min}")
    if not 0 < tau < 1:
        raise ValueError(f"tau must lie between 0 and 1; it is {tau}")
    usable = [Point(b, d) for b, d in points if b >= 1 and isfinite(d) and d > 0]
    kept, outliers = _without_outliers(usable)
    sizes = sorted({p.batch for p in kept})
    law = _law(kept, tasks) if len(sizes) > 1 else None
    chosen, why = _choose(law, sizes, b_min, at_most, tau)
    return DelayFit(
        chosen, why, tuple(kept), tuple(outliers), len(points) - len(usable), tasks, b_min, max_batch, tau,
        **(law._asdict() if law else {}),
    )  # fmt: skip


def _without_outliers(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Points to fit, and those far off.

    A slow iteration (a rate limit, a hanging task) at the largest size turns a least squares line round, and with
    four sizes also one with soft_l1 or Theil and Sen's: there half the slopes are wrong. Siegel's repeated medians
    (1982) stand it, but are crude; so they only find who is off, and least squares are fitted to the others (the
    reweighting of Rousseeuw and Leroy 1987).
    """
    import numpy as np
    from scipy.stats import siegelslopes

    # Of three points nobody can say which one is off.
    if len(points) < 4 or len({p.batch for p in points}) < 2:
        return list(points), []
    x, y = np.log([p.batch for p in points]), np.log([p.seconds for p in points])
    line = siegelslopes(y, x)
    off = np.abs(y - line.intercept - line.slope * x)
    # 1.4826 medians are one standard deviation where the noise is normal.
    near = off <= max(OFF, 3 * 1.4826 * float(np.median(off)))
    kept = [p for p, is_near in zip(points, near, strict=True) if is_near]
    if len({p.batch for p in kept}) < 2:
        return list(points), []
    return kept, [p for p, is_near in zip(points, near, strict=True) if not is_near]


def _law(points: Sequence[Point], tasks: int) -> _Law | None:
    """Least squares in log space; None where the sizes are so close that A is no number.

    With three or four points an interval from their scatter alone is either far too wide or, when they happen to
    lie on a line, none at all. So the variance is shrunk towards the noise known beforehand (Smyth 2004).
    """
    import numpy as np
    from scipy.stats import linregress, t

    x = np.log([p.batch for p in points])
    y = np.log([p.seconds for p in points]) - x + log(tasks)
    line = linregress(x, y)
    if abs(line.intercept) > REPRESENTABLE:
        return None
    A, alpha = exp(line.intercept), -float(line.slope)
    if len(points) == 2:
        return _Law(A, alpha, None, None)
    freedom = len(points) - 2 + WORTH
    scatter = float(((y - line.intercept - line.slope * x) ** 2).sum()) + WORTH * NOISE**2
    error = sqrt(scatter / freedom / float(((x - x.mean()) ** 2).sum()))
    half = float(t.ppf(0.975, freedom)) * error
    return _Law(A, alpha, (alpha - half, alpha + half), float(line.rvalue) ** 2)


def _choose(law: _Law | None, sizes: Sequence[int], b_min: int, at_most: int, tau: float) -> tuple[int, str]:
    """The batch size and why; `sizes` are the measured ones in order."""
    if not sizes:
        return b_min, "no iteration was measured"
    if len(sizes) == 1:
        return _within(b_min, sizes[0], at_most), f"only batches of {sizes[0]} were measured"
    if law is None:
        return b_min, "the measured times follow no power law"
    low, high = law.alpha_ci95 or (law.alpha, law.alpha)
    if low <= MIN_ALPHA:
        sure = f", {low:z.2f} to {high:z.2f}" if law.alpha_ci95 else ""
        return b_min, f"larger batches do not clearly shorten an epoch (alpha {law.alpha:z.2f}{sure})"
    best = b_min * tau ** (-1 / (law.alpha + 1))
    # A line through two sizes says nothing of the sizes beyond: any two lie on one.
    limit = min(at_most, sizes[-1]) if len(sizes) == 2 else at_most
    gain = f"{100 * tau:.3g}% of what it saves at {b_min}"
    if best < limit + 0.5:
        return _within(b_min, round(best), limit), f"beyond it one more task in a batch saves less than {gain}"
    bound = f"only {sizes[0]} and {sizes[1]} were measured" if limit < at_most else f"{at_most} is the most allowed"
    return _within(b_min, limit, at_most), f"{bound}; one more task would still save more than {gain}"


def _within(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))
