"""Each primitive shows its effect in a small world whose roles err: on fixed seeds, with a margin.

Nobody in that world looks at settings. What helps is what the primitives put into prompts, or which tasks they bring
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, pstdev
from typing import Any

import pytest
from simulated import Learner, simulated

import practicum

pytestmark = pytest.mark.slow


def runs(seeds: int, settings: dict[str, Any], **world: Any) -> Sequence[Learner]:
    return [simulated(settings, seed=seed, **world) for seed in range(seeds)]


def test_the_world_is_one_in_which_there_is_something_to_gain() -> None:
    """ACE alone learns in it, and loses again what it knew."""
    plain = runs(3, {})
    assert 0.6 < mean(run.final for run in plain) < 0.95
    assert mean(run.misattributed for run in plain) > 0.25
    assert mean(run.reversals for run in plain) > 3


@pytest.mark.slow
def test_replay_mends_more_of_the_failures_it_has_seen() -> None:
    """At the same number of attempts, of which half are given to failures and so not to tasks never seen."""
    world = {"n": 120, "kinds": 36, "steps": 40}
    plain, replayed = (runs(8, {"batch": 3, "replay": share}, **world) for share in (0.0, 0.5))
    assert {sum(len(r.attempts) for r in run.reports) for run in (*plain, *replayed)} == {120}
    assert mean(run.mended for run in replayed) > mean(run.mended for run in plain) + 0.12


def test_groups_lower_errors_of_attribution() -> None:
    """A run that succeeded tells what the one that failed should have gone by."""
    alone, grouped = runs(4, {}), runs(4, {"group": 3})
    assert mean(run.misattributed for run in grouped) < 0.7 * mean(run.misattributed for run in alone)
    assert mean(run.final for run in grouped) > mean(run.final for run in alone)


def test_the_annotated_twin_lowers_them_too() -> None:
    """So does a run that says what it consulted and missed."""
    alone, twins = runs(4, {}), runs(4, {"twin": True})
    assert mean(run.misattributed for run in twins) < 0.5 * mean(run.misattributed for run in alone)


def test_the_state_lowers_oscillation() -> None:
    """A curator that knows how often it was told otherwise does not turn its changes back for one diagnosis."""
    stateless, with_state = runs(4, {}), runs(4, {"state": True})
    assert sum(run.reversals for run in with_state) < 0.3 * sum(run.reversals for run in stateless)
    assert mean(run.final for run in with_state) > mean(run.final for run in stateless)


@pytest.mark.slow
def test_batching_lowers_the_variance_of_what_is_learned() -> None:
    """Several diagnoses side by side filter those that stand alone."""
    world = {"n": 75, "kinds": 5}
    single, batched = runs(20, {"batch": 1}, **world), runs(20, {"batch": 15}, **world)
    assert pstdev(run.final for run in batched) < 0.7 * pstdev(run.final for run in single)
    assert mean(run.final for run in batched) > mean(run.final for run in single)


def test_a_seed_gives_the_same_run() -> None:
    settings = {"group": 2, "twin": True, "heads": True, "state": True, "replay": 0.5, "batch": 2}
    first, again = (simulated(settings, n=12, kinds=4, seed=7) for _ in range(2))
    assert practicum.export(first.reports[-1].context, "json") == practicum.export(again.reports[-1].context, "json")
    assert [r.batch for r in first.reports] == [r.batch for r in again.reports]
