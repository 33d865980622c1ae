"""The sequential tests take back a worse canary and detect a fall soon, with few false alarms.
bench/canary_bench.py has the error rates over many rollouts."""

from __future__ import annotations

import json
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from canary_bench import ALARM, BETTER, KINDS, WORSE, CanaryCase, CanaryRow, DriftCase, case_rows, draw, quantile
from hypothesis import example, given
from hypothesis import strategies as st

from practicum.serve.watch import Watcher
from practicum.session.sequential import LEAST, THRESHOLD, CanaryTest, Drift, kinds

STRATA = 3
scores = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
takes = st.lists(st.tuples(st.booleans(), scores, st.none() | st.integers(0, STRATA - 1)), max_size=60)


def judged(requests: list[Any], strata: int = STRATA, alpha: float = 0.05) -> CanaryTest:
    test = CanaryTest(strata, alpha)
    for request in requests:
        test.take(*request)
    return test


def rows(case: CanaryCase | DriftCase, rollouts: int, seed: int = 7) -> dict[str, CanaryRow]:
    return {row.event: row for row in case_rows(case, rollouts, np.random.default_rng(seed))}


# The canary


@given(takes)
def test_the_same_scores_give_the_same_plain_evidence_and_no_bet_is_won_before_its_goal(requests: list[Any]) -> None:
    test = judged(requests)
    evidence = test.as_json()
    assert evidence == judged(requests).as_json() == json.loads(json.dumps(evidence, allow_nan=False))
    for canary, name in ((True, "canary"), (False, "live")):
        own = [(score, kind) for arm, score, kind in requests if arm is canary]
        assert evidence["all"][name]["scores"] == len(own)
        assert evidence["all"][name]["mean"] == (pytest.approx(np.mean([s for s, _ in own])) if own else None)
        assert [kind[name]["scores"] for kind in evidence["kinds"]] == [
            sum(kind == n for _, kind in own) for n in range(STRATA)
        ]
    assert min(arms.worse.wealth for arms in (test.all, *test.kinds)) >= 0
    won = [kind for kind, arms in enumerate(test.kinds) if arms.worse.wealth >= arms.worse.goal]
    assert test.worse == ("all" if test.all.worse.wealth >= test.all.worse.goal else won[0] if won else None)


@given(st.floats(0, 1), st.floats(0.05, 0.95), st.integers(0, 2**16))
def test_equal_constant_scores_never_decide(score: float, share: float, seed: int) -> None:
    rng = Random(seed)
    test = judged([(rng.random() < share, score, rng.randrange(STRATA)) for _ in range(300)], alpha=0.9)
    assert test.worse is None
    assert not test.better


@given(st.lists(st.tuples(st.booleans(), scores), max_size=60))
@example([(True, 1.0), (False, 0.0)] * 10 + [(True, 0.0), (False, 1.0)] * 3)
def test_worse_and_better_are_symmetric(requests: list[Any]) -> None:
    # With strata a bet on "worse" would have another goal, and so another end, than one on "better".
    test, mirrored = judged(requests, 0), judged([(canary, 1 - score) for canary, score in requests], 0)
    assert test.all.better is not None
    assert mirrored.all.better is not None
    assert mirrored.all.better.wealth == pytest.approx(test.all.worse.wealth)
    assert mirrored.all.worse.wealth == pytest.approx(test.all.better.wealth)


@given(takes, st.integers(1, 8), st.floats(0, 1))
def test_a_canary_score_gains_nothing_on_average_if_the_arms_are_equal(
    requests: list[Any], block: int, chance: float
) -> None:
    """After any scores, the next comparison of equal arms leaves the expected wealth unchanged."""
    before = judged([(canary, score, None) for canary, score, _ in requests], 0, 1e-12)
    # Then `block` live scores wait, which are 0 or 1 with the same chance as the canary score.
    expected = 0.0
    half = (block + 1) // 2
    for outcome in range(2 ** (half + 1)):
        drawn = [float(outcome >> bit & 1) for bit in range(half + 1)]
        test = judged([(canary, score, None) for canary, score, _ in requests], 0, 1e-12)
        test.all.live.waiting, test.all.canary.waiting = [*drawn[:half], *[0.5] * (block - half)], []
        test.take(True, drawn[half])
        expected += float(np.prod([chance if x else 1 - chance for x in drawn])) * test.all.worse.wealth
    assert expected == pytest.approx(before.all.worse.wealth)


def test_thirty_points_are_detected_within_sixty_scores_of_the_canary() -> None:
    for share, high in ((0.1, 60), (0.5, 110)):
        row = rows(CanaryCase(live=[0.8], canary=[0.5], share=share, within=300), 30)[WORSE]
        assert (quantile(row.scored, 0.5) or inf) <= 60
        assert (quantile(row.scored, 0.9) or inf) <= high
    better = rows(CanaryCase(live=[0.5], canary=[0.8], share=0.5, within=300), 30)[BETTER]
    assert (quantile(better.scored, 0.9) or inf) <= 110


def test_equal_arms_seldom_decide() -> None:
    """At an alpha of 0.3, so that few rollouts show a test that errs too often."""
    wrong, rollouts, rng = [0, 0], 60, np.random.default_rng(3)
    for _ in range(rollouts):
        arms, kind = rng.random(250) < 0.4, rng.integers(STRATA, size=250)
        test = judged([*zip(arms.tolist(), draw(np.full(250, 0.6), False, rng), kind.tolist(), strict=True)], 3, 0.3)
        wrong[0] += test.worse is not None
        wrong[1] += test.better
    # 0.3 and three standard errors. A test without any error would detect nothing.
    assert min(wrong) >= 1
    assert max(wrong) <= rollouts * 0.3 + 3 * (rollouts * 0.3 * 0.7) ** 0.5


@pytest.mark.slow
def test_an_equal_canary_is_taken_back_and_a_steady_stream_raises_the_alarm_in_at_most_the_share_alpha() -> None:
    for mean, graded in ((0.8, False), (0.7, True)):
        equal = [mean] * KINDS
        for row in rows(CanaryCase(live=equal, canary=equal, strata=True, graded=graded), 60).values():
            assert row.ci95[0] <= 0.05
        assert rows(DriftCase(old=mean, new=mean, graded=graded), 150)[ALARM].ci95[0] <= 0.05


# Drift


def fed(values: list[float], reference: int = 200) -> tuple[Drift, list[int]]:
    drift = Drift(reference)
    return drift, [n for n, value in enumerate(values) if drift.take(value)]


@given(st.lists(scores, max_size=80), st.integers(2, 20))
def test_drift_is_deterministic_plain_and_keeps_every_value(values: list[float], reference: int) -> None:
    (drift, alarms), (again, _) = fed(values, reference), fed(values, reference)
    evidence = drift.as_json()
    assert drift == again
    assert evidence == json.loads(json.dumps(evidence, allow_nan=False))
    assert evidence["alarms"] == len(alarms)
    remaining = values[alarms[-1] + 1 :] if alarms else values
    assert evidence["baseline"]["values"] + evidence["suspect"]["values"] == len(remaining)
    assert 0 <= drift.wealth < THRESHOLD


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_stream_that_does_not_fall_raises_no_alarm(value: float, rise: float) -> None:
    values = [value] * 210 + [min(value + rise, 1.0)] * 300
    assert fed(values)[1] == []


def test_a_fall_of_thirty_points_raises_the_alarm_within_sixty_values_and_a_steady_stream_seldom() -> None:
    for old, new, least in ((0.8, 0.5, 0.6), (0.6, 0.3, 0.45)):
        assert rows(DriftCase(old=old, new=new, within=60), 40)[ALARM].share >= least
    assert rows(DriftCase(old=0.8, new=0.8), 30)[ALARM].ci95[0] <= 0.05


# Kinds of tasks


def clouds(sizes: list[int], seed: int) -> np.ndarray:
    """Unit vectors around a random direction for each size."""
    rng, own = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    vectors = rng.normal(size=(len(sizes), 64))[own] + 0.3 * rng.normal(size=(len(own), 64))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@given(st.integers(0, 260), st.integers(1, 8), st.integers(0, 5))
def test_kinds_are_few_enough_for_the_vectors_and_none_is_small(count: int, most: int, seed: int) -> None:
    vectors = clouds([count // 2, count - count // 2], seed)
    centroids = kinds(vectors, most, seed)
    assert centroids.shape[1] == 64
    assert min(count // LEAST, 1) <= len(centroids) <= min(most, count // LEAST)
    if len(centroids):
        assert np.bincount((vectors @ centroids.T).argmax(axis=1), minlength=len(centroids)).min() >= LEAST


# Drift of requests


def direction(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle), 0.0])


def alarms_of(values: list[tuple[float, float | None]]) -> list[str]:
    """The kinds of the alarms of requests, each by the angle of its vector and the similarity of the best entry."""
    watcher, kinds = Watcher("s"), list[str]()
    for angle, best in values:
        kinds += [alarm.kind for alarm in watcher.request(direction(angle), best)]
    return kinds


def test_requests_of_a_new_kind_and_entries_that_fit_less_well_raise_an_alarm() -> None:
    rng = np.random.default_rng(0)
    usual = [(float(rng.choice([0.0, 1.5]) + rng.normal(0, 0.05)), None) for _ in range(1_200)]
    assert alarms_of(usual) == []
    new = [(float(3.0 + rng.normal(0, 0.05)), None) for _ in range(100)]
    assert alarms_of([*usual, *new]) == ["inputs"]
    fitting = [(0.0, float(rng.uniform(0.6, 0.9))) for _ in range(1_000)]
    assert alarms_of(fitting) == []
    assert alarms_of([*fitting, *((0.0, float(rng.uniform(0.1, 0.4))) for _ in range(100))]) == ["retrieval"]


def test_kinds_of_tasks_share_the_error_with_the_test_on_all_tasks() -> None:
    plain, strata = CanaryTest(0, 0.05), CanaryTest(4, 0.05)
    assert (plain.all.worse.goal, strata.all.worse.goal) == (20, 40)
    assert [arms.worse.goal for arms in strata.kinds] == [160] * 4
