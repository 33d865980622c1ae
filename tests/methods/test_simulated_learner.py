"""Each primitive shows its effect in a small world whose roles err: on fixed seeds, with a margin.

The world does not read settings. A primitive helps only by its prompts, or by the tasks that it repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import pytest
from simulated import Learner, simulated

pytestmark = pytest.mark.slow


def runs(seeds: int, settings: dict[str, Any], **world: Any) -> Sequence[Learner]:
    return [simulated(settings, seed=seed, **world) for seed in range(seeds)]


def test_plain_ace_learns_and_forgets_in_the_world() -> None:
    plain = runs(3, {})
    assert 0.6 < mean(run.final for run in plain) < 0.95
    assert mean(run.misattributed for run in plain) > 0.25
    assert mean(run.reversals for run in plain) > 3


def test_replay_mends_more_of_the_failures_it_has_seen() -> None:
    """The number of attempts is the same; half of them go to failures instead of new tasks."""
    world = {"n": 120, "kinds": 36, "steps": 40}
    plain, replayed = (runs(8, {"batch": 3, "replay": share}, **world) for share in (0.0, 0.5))
    assert {sum(len(r.attempts) for r in run.reports) for run in (*plain, *replayed)} == {120}
    assert mean(run.mended for run in replayed) > mean(run.mended for run in plain) + 0.12


def test_groups_lower_errors_of_attribution() -> None:
    """A successful run shows the cause that the failed run missed."""
    alone, grouped = runs(4, {}), runs(4, {"group": 3})
    assert mean(run.misattributed for run in grouped) < 0.7 * mean(run.misattributed for run in alone)
    assert mean(run.final for run in grouped) > mean(run.final for run in alone)


def test_the_annotated_twin_lowers_errors_of_attribution() -> None:
    alone, twins = runs(4, {}), runs(4, {"twin": True})
    assert mean(run.misattributed for run in twins) < 0.5 * mean(run.misattributed for run in alone)


def test_the_state_lowers_oscillation() -> None:
    """A curator that remembers opposite diagnoses does not revert its changes for one diagnosis."""
    stateless, with_state = runs(4, {}), runs(4, {"state": True})
    assert sum(run.reversals for run in with_state) < 0.3 * sum(run.reversals for run in stateless)
    assert mean(run.final for run in with_state) > mean(run.final for run in stateless)
