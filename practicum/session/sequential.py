"""Sequential tests of the learning service: whether a canary version is worse than the live version, and whether a
stream of scores has fallen. Both tests may decide after every value, and assume only that scores are in [0, 1].

`CanaryTest` is a two-sample test by betting (Shekhar and Ramdas 2023, "Nonparametric two-sample testing by betting";
Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"), for two arms of unequal share:
the scores of the live version and the scores of the canary. A wealth of 1 is bet on the difference between the mean of
some live scores and one canary score. As long as the canary is not worse, the wealth does not grow on average, so by
Ville's inequality the chance that the wealth ever reaches 1/alpha is at most alpha. Scores must be assigned to the arms
at random, independently of each other: if the scores of a session are similar, take their mean as one score. A change
that affects both arms at once does little harm, since scores are compared with scores that arrived at about the same
time.

The choice of compared scores depends only on the order of arrival, never on the values. A canary score is compared with
the older half of the waiting live scores. The other half is left for the next canary score: otherwise many comparisons
would have one or two live scores, and at a canary share of 10% the detection of a fall of 10 points would take a third
more canary scores (measured at the 90% quantile). If no live score waits, the canary score waits, so that no score is
lost.

`Drift` detects a fall of the mean of one stream against its own past, by a CUSUM of such bets (e-CUSUM; Shin, Ramdas
and Rinaldo 2024, "E-detectors"). The baseline of `Drift` is estimated, so the error rate of `Drift` is measured and not
proven: see `bench/canary_bench.py`, which measures both tests.

`kinds` groups tasks into kinds. `CanaryTest` compares the scores of each kind separately, as a stratum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import Any, Literal

import numpy as np

from practicum.methods.blocks.gate import STAKES

THRESHOLD = 1500.0
"""Wealth at which `Drift` alarms. With `SLACK`, at most 5% of steady streams alarm within 1,000 values."""

SLACK = 1.0
"""Number of standard errors of the baseline by which a stream may fall without an alarm."""

DRIFT_STAKES = (0.05, 0.1, 0.2, 0.4)
"""Stakes of `Drift`: the shares of the wealth that bets lose if the value is 1, the largest possible value. Larger
stakes cause false alarms after a few low values."""

LEAST = 25
"""Minimum number of task vectors in a kind: a smaller stratum would use a share of the error rate and decide
nothing."""

ITERATIONS = 30


@dataclass
class Bet:
    """Bet that gains are positive on average. Each gain is in [-1, 1]. The wealth is the mean of the wealths of all
    stakes. When the wealth reaches `goal`, the bet is won permanently."""

    goal: float
    wealth: float = 1.0
    parts: np.ndarray = field(default_factory=lambda: np.ones(len(STAKES)))

    @property
    def won(self) -> bool:
        return self.wealth >= self.goal

    def take(self, gain: float) -> None:
        if not self.won:
            self.parts *= 1 + gain * STAKES
            self.wealth = float(self.parts.sum()) / len(STAKES)


@dataclass
class Arm:
    """Number and sum of an arm's scores, and the scores that wait to be compared, oldest first."""

    count: int = 0
    total: float = 0.0
    waiting: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def take(self, score: float) -> None:
        self.count += 1
        self.total += score
        self.waiting.append(score)

    def as_json(self) -> dict[str, Any]:
        return {"scores": self.count, "mean": self.mean}


@dataclass
class Arms:
    """Scores of both arms, for all tasks or for one kind of task. `worse` is the bet that the canary is worse than the
    live version, and `better` is the bet that the canary is better; `better` is None for one kind of task."""

    worse: Bet
    better: Bet | None = None
    live: Arm = field(default_factory=Arm)
    canary: Arm = field(default_factory=Arm)

    def take(self, canary: bool, score: float) -> None:
        (self.canary if canary else self.live).take(score)
        waiting = self.live.waiting
        if waiting and self.canary.waiting:
            half = (len(waiting) + 1) // 2
            difference = fmean(waiting[:half]) - self.canary.waiting.pop(0)
            del waiting[:half]
            self.worse.take(difference)
            if self.better:
                self.better.take(-difference)

    def as_json(self) -> dict[str, Any]:
        bets = {"e_worse": self.worse.wealth} | ({"e_better": self.better.wealth} if self.better else {})
        return {"live": self.live.as_json(), "canary": self.canary.as_json(), **bets}


class CanaryTest:
    """Test whether a canary is worse or better than the live version, updated by one scored request at a time.

    `strata` is the number of kinds of tasks. If the canary is not worse than the live version, overall and for every
    kind of task, the chance that the test finds the canary worse is at most `alpha`: the test on all tasks uses half of
    `alpha`, and the other half is divided among the strata. Without strata, the test on all tasks uses the whole
    `alpha`. If the canary is not better overall, the chance that the test finds the canary better is at most `alpha`.
    """

    def __init__(self, strata: int = 0, alpha: float = 0.05) -> None:
        self.alpha = alpha
        self.all = Arms(Bet((2 if strata else 1) / alpha), Bet(1 / alpha))
        self.kinds = [Arms(Bet(2 * strata / alpha)) for _ in range(strata)]

    def take(self, canary: bool, score: float, kind: int | None = None) -> None:
        """Count one score in [0, 1], in the order of arrival. Raises ValueError for a score outside [0, 1] or an
        unknown kind."""
        if not 0 <= score <= 1:
            raise ValueError(f"a score must be between 0 and 1, not {score}")
        if kind is not None and not 0 <= kind < len(self.kinds):
            raise ValueError(f"no kind {kind}: there are {len(self.kinds)} kinds, numbered from 0")
        self.all.take(canary, score)
        if kind is not None:
            self.kinds[kind].take(canary, score)

    @property
    def worse(self) -> Literal["all"] | int | None:
        """The tasks for which the canary is worse: "all", the number of a kind, or None if no test has found the canary
        worse."""
        if self.all.worse.won:
            return "all"
        return next((kind for kind, arms in enumerate(self.kinds) if arms.worse.won), None)

    @property
    def better(self) -> bool:
        """Whether the test has found the canary better overall. The canary may still be worse for one kind of task."""
        return self.all.better is not None and self.all.better.won

    def as_json(self) -> dict[str, Any]:
        """Return the evidence in the form stored with the rollout of the version."""
        return {
            "alpha": self.alpha, "worse": self.worse, "better": self.better,
            "all": self.all.as_json(), "kinds": [arms.as_json() for arms in self.kinds],
        }  # fmt: skip


@dataclass
class Drift:
    """Detector of a fall of the mean of a stream of values in [0, 1].

    The first `reference` values form a baseline. Then a wealth of 1 is bet that values are below the baseline; the
    wealth is reset to 1 whenever it falls below 1. After the baseline, each value is suspect until the next reset. At a
    reset, all suspect values join the baseline, which becomes more precise while the mean is steady. After an alarm,
    the detector starts again with a new baseline.
    """

    reference: int = 200
    alarms: int = 0
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    suspect: list[float] = field(default_factory=list)
    parts: list[float] = field(default_factory=lambda: [1.0] * len(DRIFT_STAKES))

    @property
    def mean(self) -> float | None:
        """Mean of the baseline."""
        return self.total / self.count if self.count else None

    @property
    def wealth(self) -> float:
        return sum(self.parts) / len(self.parts)

    @property
    def bar(self) -> float:
        """Threshold below which values count as fallen: the mean of the baseline, less `SLACK` standard errors."""
        mean = self.total / self.count
        # Even 200 equal values do not prove that all later values will be equal, so the variance is at least 1 / count.
        variance = max(self.squares / self.count - mean * mean, 0.0) + 1 / self.count
        return max(mean - SLACK * sqrt(variance / self.count), 0.0)

    def take(self, value: float) -> bool:
        """Count one value, and return whether the value raises the alarm. Raises ValueError for a value that is not in
        [0, 1]."""
        if not 0 <= value <= 1:
            raise ValueError(f"a value must be between 0 and 1, not {value}")
        self.suspect.append(value)
        if self.count >= self.reference:
            bar = self.bar
            # The gain is at least -1, so a bet loses at most its stake.
            gain = (bar - value) / (1 - bar)
            self.parts = [part * (1 + stake * gain) for part, stake in zip(self.parts, DRIFT_STAKES, strict=True)]
            if (wealth := self.wealth) >= THRESHOLD:
                self.alarms += 1
                self.count, self.total, self.squares = 0, 0.0, 0.0
                self.suspect.clear()
                self.parts = [1.0] * len(DRIFT_STAKES)
                return True
            if wealth >= 1:
                return False
            self.parts = [1.0] * len(DRIFT_STAKES)
        for past in self.suspect:
            self.count += 1
            self.total += past
            self.squares += past * past
        self.suspect.clear()
        return False

    def as_json(self) -> dict[str, Any]:
        """Return the evidence in the form stored with an alarm and shown with the stream."""
        recent = fmean(self.suspect) if self.suspect else None
        return {
            "alarms": self.alarms, "baseline": {"values": self.count, "mean": self.mean},
            "suspect": {"values": len(self.suspect), "mean": recent}, "wealth": self.wealth,
        }  # fmt: skip


def kinds(vectors: np.ndarray, most: int = 8, seed: int = 0) -> np.ndarray:
    """Return the centroids of kinds of tasks, of shape (kinds, d), by spherical k-means of the tasks' unit vectors, of
    shape (n, d).

    There are at most `most` kinds, each of 25 tasks or more. Fewer than 25 tasks form no kind. k-means++ chooses the
    first centroids (Arthur and Vassilvitskii 2007).
    """
    vectors, rng = np.asarray(vectors, dtype=float), np.random.default_rng(seed)
    centroids = vectors[:0]
    for _ in range(min(most, len(vectors) // LEAST)):
        nearest = (vectors @ centroids.T).max(axis=1) if len(centroids) else np.zeros(len(vectors))
        distances = np.maximum(1 - nearest, 0)
        if (total := float(distances.sum())) < 1e-6 * len(vectors):
            # Each vector equals one of the centroids, up to rounding.
            break
        chosen = rng.choice(len(vectors), p=distances / total)
        centroids = np.vstack([centroids, vectors[chosen]])
    for _ in range(ITERATIONS if len(centroids) else 0):
        own = (vectors @ centroids.T).argmax(axis=1)
        sizes = np.bincount(own, minlength=len(centroids))
        if sizes.min() < LEAST:
            # Remove one kind at a time, since the vectors of a removed kind may make another kind large enough.
            centroids = np.delete(centroids, sizes.argmin(), axis=0)
            continue
        sums = np.stack([vectors[own == kind].sum(axis=0) for kind in range(len(centroids))])
        centroids = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    return centroids


def kind_of(centroids: np.ndarray, vector: np.ndarray) -> int:
    """Return the kind of a task: the index of the centroid that is nearest to the task's unit vector. Raises ValueError
    if `centroids` is empty."""
    return int((centroids @ vector).argmax())
