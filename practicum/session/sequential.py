"""Sequential tests of the learning service: is a canary version worse than the live one, and has a stream of scores
fallen? Both look after every value, and need no model of the scores beyond their range, [0, 1].

`CanaryTest` is a two-sample test by betting (Shekhar and Ramdas 2023, "Nonparametric two-sample testing by betting";
Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"), for arms of unequal share. A
wealth of 1 is bet on the difference of the mean of some live scores and one canary score. As long as the canary is not
worse, the wealth does not grow on average, so by Ville's inequality it ever reaches 1/alpha with a chance of at most
alpha. This needs scores that are assigned to the arms by chance, each apart from the others: if a session has several
scores that are alike, its mean should be taken as one. A change that affects both arms at once does little harm, since
scores are compared with those that came at about the same time.

Which scores are compared depends on the order of their arrival alone, never on their values. A canary score is compared
with the older half of the live scores that wait. The rest is left for the next canary score: with all of them, many
comparisons would have one or two live scores, and at a canary share of 10% a fall of 10 points would take a third more
canary scores (measured at the 90% quantile). A canary score for which no live score waits, waits itself, so that none
is lost.

`Drift` finds a fall of the mean of one stream against its own past, by a CUSUM of such bets (e-CUSUM; Shin, Ramdas and
Rinaldo 2024, "E-detectors"). Its baseline is estimated, so its error is measured and not proven: see
`bench/canary_bench.py`, which measures all of this.

`kinds` finds kinds of tasks, whose scores `CanaryTest` compares separately as strata.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import Any, Literal

import numpy as np

from practicum.methods.blocks.gate import STAKES

THRESHOLD = 1500.0
"""The wealth at which `Drift` alarms. With `SLACK`, at most 5% of steady streams alarm within 1,000 values."""

SLACK = 1.0
"""Standard errors of the baseline by which a stream may fall unnoticed."""

DRIFT_STAKES = (0.05, 0.1, 0.2, 0.4)
"""Shares of the wealth that the largest possible value would lose. Larger ones alarm falsely after a few low values."""

LEAST = 25
"""The fewest vectors of a kind: a smaller stratum would be given a share of the error and decide nothing."""

ITERATIONS = 30


@dataclass
class Bet:
    """A bet that gains are positive on average; they are in [-1, 1]. It is won for good when the wealth, which is
    shared by the stakes, reaches `goal`."""

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
    """The number and the sum of an arm's scores, and those that wait for scores of the other arm, the oldest first."""

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
    """The scores of both arms: all, or those of one kind of task. Of `worse` and `better`, each is a bet that the
    canary is so; nobody asks whether it is better in one kind of task alone."""

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
    """Whether a canary is worse or better than the live version, from one scored request at a time.

    `strata` is the number of kinds of tasks. A canary that is nowhere worse is ever called worse with a chance of at
    most `alpha`: half of it is for the whole, the other half is divided among the strata; without strata, all is for
    the whole. A canary that is not better on the whole is ever called better with a chance of at most `alpha`.
    """

    def __init__(self, strata: int = 0, alpha: float = 0.05) -> None:
        self.alpha = alpha
        self.all = Arms(Bet((2 if strata else 1) / alpha), Bet(1 / alpha))
        self.kinds = [Arms(Bet(2 * strata / alpha)) for _ in range(strata)]

    def take(self, canary: bool, score: float, kind: int | None = None) -> None:
        """Count one more score in [0, 1], in the order of arrival. Raises ValueError for another score or kind."""
        if not 0 <= score <= 1:
            raise ValueError(f"a score must lie between 0 and 1, not be {score}")
        if kind is not None and not 0 <= kind < len(self.kinds):
            raise ValueError(f"no kind {kind}: there are {len(self.kinds)}, counted from 0")
        self.all.take(canary, score)
        if kind is not None:
            self.kinds[kind].take(canary, score)

    @property
    def worse(self) -> Literal["all"] | int | None:
        """Where the canary is worse: on the whole, in this kind of task, or nowhere as far as is known."""
        if self.all.worse.won:
            return "all"
        return next((kind for kind, arms in enumerate(self.kinds) if arms.worse.won), None)

    @property
    def better(self) -> bool:
        """Whether the canary is better on the whole. It may still be worse in one kind of task."""
        return self.all.better is not None and self.all.better.won

    def as_json(self) -> dict[str, Any]:
        """The evidence, as it is stored with the rollout of the version."""
        return {
            "alpha": self.alpha, "worse": self.worse, "better": self.better,
            "all": self.all.as_json(), "kinds": [arms.as_json() for arms in self.kinds],
        }  # fmt: skip


@dataclass
class Drift:
    """Whether the mean of a stream of values in [0, 1] has fallen.

    The first `reference` values make a baseline. Then a wealth of 1 is bet that values are below it; it starts again at
    1 whenever it is less. Until then, values are suspect; then they join the baseline, which so becomes sharper while
    nothing has happened. After an alarm everything begins anew, with a new baseline.
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
        """The mean of the baseline."""
        return self.total / self.count if self.count else None

    @property
    def wealth(self) -> float:
        return sum(self.parts) / len(self.parts)

    @property
    def bar(self) -> float:
        """The mean below which a stream has fallen: the baseline's, less `SLACK` standard errors."""
        mean = self.total / self.count
        # Even 200 equal values do not prove that all will be equal, so no variance is taken to be below 1 / count.
        variance = max(self.squares / self.count - mean * mean, 0.0) + 1 / self.count
        return max(mean - SLACK * sqrt(variance / self.count), 0.0)

    def take(self, value: float) -> bool:
        """Count one more value, and say whether it raises the alarm. Raises ValueError if it is not in [0, 1]."""
        if not 0 <= value <= 1:
            raise ValueError(f"a value must lie between 0 and 1, not be {value}")
        self.suspect.append(value)
        if self.count >= self.reference:
            bar = self.bar
            # The gain is at least -1, so no stake can lose more than itself.
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
        for known in self.suspect:
            self.count += 1
            self.total += known
            self.squares += known * known
        self.suspect.clear()
        return False

    def as_json(self) -> dict[str, Any]:
        """The evidence, as it is stored with an alarm or shown beside the stream."""
        recent = fmean(self.suspect) if self.suspect else None
        return {
            "alarms": self.alarms, "baseline": {"values": self.count, "mean": self.mean},
            "suspect": {"values": len(self.suspect), "mean": recent}, "wealth": self.wealth,
        }  # fmt: skip


def kinds(vectors: np.ndarray, most: int = 8, seed: int = 0) -> np.ndarray:
    """The centroids of kinds of tasks, of shape (kinds, d), found by spherical k-means among the tasks' unit vectors,
    of shape (n, d). There are `most` of them at most, each of 25 tasks or more, and none for fewer tasks.

    k-means++ chooses the first centroids (Arthur and Vassilvitskii 2007).
    """
    vectors, rng = np.asarray(vectors, dtype=float), np.random.default_rng(seed)
    centroids = vectors[:0]
    for _ in range(min(most, len(vectors) // LEAST)):
        nearest = (vectors @ centroids.T).max(axis=1) if len(centroids) else np.zeros(len(vectors))
        distances = np.maximum(1 - nearest, 0)
        if (total := float(distances.sum())) < 1e-6 * len(vectors):
            # All vectors are equal to a centroid, but for rounding.
            break
        chosen = rng.choice(len(vectors), p=distances / total)
        centroids = np.vstack([centroids, vectors[chosen]])
    for _ in range(ITERATIONS if len(centroids) else 0):
        own = (vectors @ centroids.T).argmax(axis=1)
        sizes = np.bincount(own, minlength=len(centroids))
        if sizes.min() < LEAST:
            # One at a time, since its vectors may make another one large enough.
            centroids = np.delete(centroids, sizes.argmin(), axis=0)
            continue
        sums = np.stack([vectors[own == kind].sum(axis=0) for kind in range(len(centroids))])
        centroids = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    return centroids


def kind_of(centroids: np.ndarray, vector: np.ndarray) -> int:
    """The kind of a task: the centroid nearest to its unit vector. Raises ValueError if there is none."""
    return int((centroids @ vector).argmax())
