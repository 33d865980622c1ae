"""Alarms: drift of requests, and of the entries that fit them."""

from __future__ import annotations

import numpy as np

from practicum.serve.watch import Watcher


def direction(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle), 0.0])


def alarms_of(values: list[tuple[float, float | None]]) -> list[str]:
    """The kinds of the alarms of requests, each by the angle of its vector and the similarity of the best entry."""
    watcher, found = Watcher("s"), list[str]()
    for angle, best in values:
        found += [alarm.kind for alarm in watcher.request(direction(angle), best)]
    return found


def test_requests_of_a_new_kind_raise_an_alarm_and_those_of_known_kinds_none() -> None:
    rng = np.random.default_rng(0)
    known = [(float(rng.choice([0.0, 1.5]) + rng.normal(0, 0.05)), None) for _ in range(1_200)]
    assert alarms_of(known) == []
    new = [(float(3.0 + rng.normal(0, 0.05)), None) for _ in range(100)]
    assert alarms_of([*known, *new]) == ["inputs"]


def test_entries_that_fit_less_well_raise_an_alarm() -> None:
    rng = np.random.default_rng(0)
    fitting = [(0.0, float(rng.uniform(0.6, 0.9))) for _ in range(1_000)]
    assert alarms_of(fitting) == []
    assert alarms_of([*fitting, *((0.0, float(rng.uniform(0.1, 0.4))) for _ in range(100))]) == ["retrieval"]
