"""Rollout: a candidate version is shown to a share of the sessions, until outcomes decide whether the candidate becomes
live.

The candidate is taken back as soon as a sequential test finds the candidate worse than the live version, overall or for
one kind of request. The candidate is promoted when the test finds the candidate better, or when the planned number of
scored requests is reached without a difference (see `sequential`).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from sqlalchemy import Table, func, or_

from practicum.core.words import quantity
from practicum.session.sequential import CanaryTest, kind_of, kinds
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.scope import Transaction

CANARY, DROPPED = "canary", "dropped"
PROMOTED: Final = "promoted"
TAKEN_BACK: Final = "taken back"
"""States of a rollout. canary: a share of the sessions sees the version. dropped: the replay gate found the version
worse on held-out requests. promoted: the version became live. taken back: the canary's test or a person stopped the
rollout."""

BY_HAND = "was made live by hand"
"""Last words of the text of an alarm about a rollback."""

KINDS_FROM = 1_000
"""Maximum number of requests that kinds of requests are computed from. The newest requests are used."""


@dataclass(frozen=True)
class RolloutDecision:
    """Decision on a candidate version, with its reason."""

    state: Literal["promoted", "taken back"]
    reason: str


def ended_text(version: int, state: str, reason: str) -> str:
    """Return the end of a rollout as text, such as `version 4 is live: not worse in 200 scored requests`."""
    done = {PROMOTED: "is live", TAKEN_BACK: "was taken back", DROPPED: "was dropped"}[state]
    return f"version {version} {done}: {reason}"


@dataclass
class Rollout:
    """Rollout of a candidate version, with the sessions whose scores were counted.

    `base` is the version that the candidate is compared with, and `length` the maximum number of scored requests that
    are shown the candidate.
    """

    number: int
    version: int
    base: int
    share: float
    length: int
    alpha: float
    centroids: np.ndarray
    began: float = field(default_factory=time.time)
    gate: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.test = CanaryTest(len(self.centroids), self.alpha)
        self.sessions = set[str]()
        self.seen = 0
        """Sequence number of the last outcome that was counted."""
        self.decided = False

    @classmethod
    def begin(
        cls, number: int, version: int, base: int, share: float, length: int, vectors: np.ndarray, gate: dict[str, Any]
    ) -> Rollout:
        """Return a new rollout, with kinds of requests from the vectors of earlier requests."""
        return cls(number, version, base, share, length, 0.05, kinds(vectors[-KINDS_FROM:]), gate=gate)

    @classmethod
    def by_hand(cls, number: int, version: int, base: int) -> Rollout:
        """Return the rollout of a version that a person created by hand. The version becomes live without a test."""
        return cls.begin(number, version, base, 0.0, 0, np.zeros((0, 1)), {"gate": "not run"})

    @classmethod
    def stored(cls, row: Any) -> Rollout:
        """Return the rollout that a row stores."""
        data = json.loads(row.data)
        centroids = np.array(data["centroids"] or np.zeros((0, 1)), dtype=float)
        return cls(
            row.number, row.version, row.base, data["share"], data["length"], data["alpha"], centroids,
            data["began"], data["gate"],
        )  # fmt: skip

    def kind_of(self, vector: np.ndarray) -> int | None:
        """Return the kind of a request; None if there were too few requests to compute kinds."""
        return kind_of(self.centroids, vector) if len(self.centroids) else None

    def take(self, version: int, score: float, kind: int | None, session: str) -> RolloutDecision | None:
        """Count the score of a request that was shown this version. Return a decision on the candidate, or None if no
        decision is possible yet.

        Only the first score of a session counts: further scores of a session are not independent. If ten scores per
        session counted, one in five candidates that are as good as the live version would be taken back.
        """
        if session in self.sessions:
            return None
        self.sessions.add(session)
        self.test.take(version == self.version, score, kind)
        whole = self.test.all
        canary, live = whole.canary, whole.live
        means = " against ".join(f"{100 * (arm.mean or 0):.0f}% of {arm.count}" for arm in (canary, live))
        if (worse := self.test.worse) is not None:
            where = "worse" if worse == "all" else f"worse for requests of kind {worse}"
            return RolloutDecision(TAKEN_BACK, f"{where} ({means} overall)")
        if self.test.better:
            return RolloutDecision(PROMOTED, f"better ({means})")
        if canary.count >= self.length:
            return RolloutDecision(PROMOTED, f"not worse in {quantity(canary.count, 'scored request')} ({means})")
        return None

    def row(self, state: str = CANARY, reason: str = "") -> dict[str, Any]:
        """Return the rollout as a row of the store."""
        data = {
            "share": self.share, "length": self.length, "alpha": self.alpha, "began": self.began, "gate": self.gate,
            "reason": reason, "ended": None if state == CANARY else time.time(), "test": self.test.as_json(),
            "centroids": np.round(self.centroids, 5).tolist(),
        }  # fmt: skip
        return {
            "number": self.number, "version": self.version, "base": self.base, "state": state,
            "data": json.dumps(data),
        }  # fmt: skip


def next_number(at: Transaction, table: Table) -> int:
    """Return the next row number of a table in a space."""
    return int(at.first(at.select(func.max(table.c.number)))[0] or 0) + 1


def begin_rollout(at: Transaction, row: dict[str, Any]) -> bool:
    """Write the row of a new rollout, or of a version that was dropped before its rollout.

    Returns False if another rollout is in progress, or if the version has had a rollout already.
    """
    t = schema.rollouts
    other = or_(t.c.state == CANARY, t.c.version == row["version"], t.c.number == row["number"])
    if at.first(at.select(t.c.number).where(other).limit(1)) is not None:
        return False
    at.insert(t, row)
    return True


def end_rollout(at: Transaction, row: dict[str, Any]) -> bool:
    """Write the end of a rollout. Return False if another process ended the rollout first."""
    t = schema.rollouts
    mine = at.update(t).where(t.c.number == row["number"], t.c.state == CANARY)
    return bool(at.run(mine.values(state=row["state"], data=row["data"])))


def is_decided(store: Store | Transaction, version: int) -> bool:
    """Return whether a version has a rollout: in progress, promoted, taken back or dropped."""
    r = schema.rollouts
    return bool(store.rows(store.select(r.c.number).where(r.c.version == version).limit(1)))


def under_way(store: Store | Transaction) -> Any:
    """Return the row of the rollout in progress, or None."""
    r = schema.rollouts
    return next(iter(store.rows(store.select(r).where(r.c.state == CANARY))), None)
