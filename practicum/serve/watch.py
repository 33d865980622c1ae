"""Watching a space for drift: outcomes that fall, requests of kinds that were not there, entries that fit less well.

Each is a stream of numbers in [0, 1] with the same detector (`sequential.Drift`). An alarm is a line of the log, a row
of the store, and a message to a webhook, if one is configured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from practicum.session.sequential import Drift, kinds

DRIFTS = ("outcomes", "inputs", "retrieval")
"""The kinds of alarms that are raised here."""

REFERENCE = 200
"""Requests from which the known kinds are found."""


@dataclass(frozen=True)
class Alarm:
    """What an operator should look at. `kind` is one of DRIFTS, rollout, learning, store, review or erasure."""

    space: str
    kind: str
    text: str


@dataclass
class Watcher:
    """The streams of a space."""

    space: str
    _streams: dict[str, Drift] = field(default_factory=dict)
    _first: list[np.ndarray] = field(default_factory=list)
    _kinds: np.ndarray | None = None

    def outcome(self, score: float) -> Alarm | None:
        """Watch the score of a request."""
        return self._take("outcomes", score, "outcomes got worse")

    def request(self, vector: np.ndarray, best: float | None) -> list[Alarm]:
        """Watch what a request asks, by its vector, and how similar the best entry is that was found for it."""
        found = [] if best is None else [self._take("retrieval", best, "what is found for requests fits less well")]
        if self._kinds is None:
            self._first.append(vector)
            if len(self._first) == REFERENCE:
                self._kinds, self._first = kinds(np.stack(self._first)), []
        elif len(self._kinds):
            known = float((self._kinds @ vector).max())
            alarm = self._take("inputs", known, "requests are of other kinds than before")
            if alarm is not None:
                self._kinds = None
            found.append(alarm)
        return [alarm for alarm in found if alarm is not None]

    def _take(self, kind: str, value: float, text: str) -> Alarm | None:
        stream = self._streams.setdefault(kind, Drift())
        mean = stream.mean
        if not stream.take(min(max(value, 0.0), 1.0)) or mean is None:
            return None
        return Alarm(self.space, kind, f"{text} (until now {mean:.2f} of 1 on average)")
