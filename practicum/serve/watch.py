"""Drift detection for a space: falling scores, new kinds of requests, and entries that match requests less well.

A separate `sequential.Drift` detects each kind of drift, as a fall in a stream of values in [0, 1]. An alarm is logged,
stored as a row, and posted to a webhook if one is configured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from practicum.session.sequential import Drift, kinds

DRIFTS = ("outcomes", "inputs", "retrieval")
"""Kinds of alarms that this module raises."""

REFERENCE = 200
"""Number of requests from which the reference kinds are computed: the first requests, and the first requests after an
alarm about new kinds."""


@dataclass(frozen=True)
class Alarm:
    """Message to the operator. `kind` is one of DRIFTS, `rollout`, `learning`, `store`, `review` or `erasure`."""

    space: str
    kind: str
    text: str


@dataclass
class Watcher:
    """Drift detection for a space, with one stream for each kind of drift."""

    space: str
    _streams: dict[str, Drift] = field(default_factory=dict)
    _first: list[np.ndarray] = field(default_factory=list)
    _kinds: np.ndarray | None = None

    def outcome(self, score: float) -> Alarm | None:
        """Add the score of a request. Return an alarm if the mean score of the requests has fallen, else None."""
        return self._take("outcomes", score, "outcomes got worse")

    def request(self, vector: np.ndarray, best: float | None) -> list[Alarm]:
        """Add the vector of a request, and `best`, the similarity of the request to its best entry (None: no entry was
        looked up). Return an alarm for each kind of drift that was detected."""
        alarms = [] if best is None else [self._take("retrieval", best, "the best entries match requests less well")]
        if self._kinds is None:
            self._first.append(vector)
            if len(self._first) == REFERENCE:
                self._kinds, self._first = kinds(np.stack(self._first)), []
        elif len(self._kinds):
            similarity = float((self._kinds @ vector).max())
            alarm = self._take("inputs", similarity, "requests are of new kinds")
            if alarm is not None:
                self._kinds = None
            alarms.append(alarm)
        return [alarm for alarm in alarms if alarm is not None]

    def _take(self, kind: str, value: float, text: str) -> Alarm | None:
        stream = self._streams.setdefault(kind, Drift())
        mean = stream.mean
        if not stream.take(min(max(value, 0.0), 1.0)) or mean is None:
            return None
        return Alarm(self.space, kind, f"{text} (average so far: {mean:.2f} of 1)")
