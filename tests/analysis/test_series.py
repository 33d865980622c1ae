"""The arithmetic of metrics against a plain, slow computation, and pictures of all metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from practicum.analysis.monitor.contexts import ContextChange, context_metrics
from practicum.analysis.monitor.plots import monitor_plots, moving_average
from practicum.analysis.monitor.series import (
    MetricGroup,
    distribution,
    windowed_rates,
)
from practicum.core.edits import Entry
from practicum.core.intervals import mean_ci95, share_ci95
from practicum.core.windows import SMALLEST_WINDOW, window_size
from practicum.view.read import StepStory


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 60))
def test_the_interval_of_a_share_is_that_of_its_outcomes(right: int, wrong: int) -> None:
    assert share_ci95(right, right + wrong) == pytest.approx(mean_ci95([1.0] * right + [0.0] * wrong))


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=5), max_size=40), st.integers(1, 12))
def test_a_windowed_rate_counts_as_few_steps_as_have_enough_outcomes(marks: list[list[bool]], window: int) -> None:
    found = windowed_rates(marks, window)
    for i in range(len(marks)):
        seen: list[bool] = []
        for step in reversed(marks[: i + 1]):
            if len(seen) >= window:
                break
            seen += step
        assert found["rate"][i] == (sum(seen) / len(seen) if seen else None)
        assert (found["low"][i], found["high"][i]) == (share_ci95(sum(seen), len(seen)) if seen else (None, None))


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-9, 9).map(float), min_size=1, max_size=40), st.integers(1, 9))
def test_a_moving_average_is_the_mean_of_the_values_in_its_window(series: list[float | None], window: int) -> None:
    averages = moving_average(np.array(series, dtype=float), window)
    for i, value in enumerate(series):
        inside = [x for x in series[max(0, i - window + 1) : i + 1] if x is not None]
        assert averages[i] == pytest.approx(np.nan if value is None else sum(inside) / len(inside), nan_ok=True)


def test_windows_grow_with_the_run() -> None:
    assert [window_size(n) for n in (1, 400, 10_000)] == [SMALLEST_WINDOW, SMALLEST_WINDOW, 500]


def test_a_distribution() -> None:
    assert distribution([4.0, 1.0, 2.0, 3.0, 5.0]) == {"n": 5, "mean": 3.0, "median": 3.0, "p95": pytest.approx(4.8)}


def unit(seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal(8)
    vector: np.ndarray = (made / np.linalg.norm(made)).astype(np.float32)
    return vector


VECTORS = {**{str(seed): unit(seed) for seed in range(10)}, "opposite": -unit(1)}


def content(*changes: tuple[list[str], list[str]]) -> dict[str, list[float | None]]:
    """Drift and coherence of versions that each remove and add entries with these texts."""
    entries = [[tuple(Entry("e1", "s", text) for text in texts) for texts in change] for change in changes]
    versions = [ContextChange(i, 0, removed, added) for i, (removed, added) in enumerate(entries)]
    unknown = {"seconds": None, "val": None, "best_of_k": None, "sampled": {}, "evidence": {}}
    records = [
        StepStory(i + 1, 1, (), 0.0, 0, 0, 0, held=0, version=i, entries=0, tokens=0, **unknown)
        for i in range(len(versions))
    ]
    _, group = context_metrics(versions, records, VECTORS)
    return {name: list(values) for name, values in group.by_step.items()}


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.data())
def test_coherence_and_drift_depend_on_the_entries_and_not_on_their_history(
    seeds: list[int], data: st.DataObject
) -> None:
    removed = data.draw(st.lists(st.sampled_from(seeds), unique=True, max_size=len(seeds)))
    left = list(seeds)
    for seed in removed:
        left.remove(seed)
    series = content(([], ["0"]), ([], [*map(str, seeds)]), (["0", *map(str, removed)], []))
    if not left:
        assert (series["coherence"][-1], series["from_first"][-1]) == (None, None)
        return
    vectors = np.stack([unit(seed) for seed in left]).astype(float)
    direction = vectors.mean(axis=0) / np.linalg.norm(vectors.mean(axis=0))
    assert series["coherence"][-1] == pytest.approx(float((vectors @ direction).mean()), abs=1e-6)
    assert series["from_first"][-1] == pytest.approx(1 - float(unit(0) @ direction), abs=1e-5)


def test_the_distance_of_equal_and_of_opposite_contexts() -> None:
    series = content(([], ["1"]), ([], []), (["1"], ["opposite"]))
    assert series["drift"] == [None, pytest.approx(0, abs=1e-6), pytest.approx(2, abs=1e-6)]
    assert series["from_first"] == [pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6), pytest.approx(2, abs=1e-6)]


def test_opposite_vectors_have_no_direction() -> None:
    series = content(([], ["1"]), ([], ["opposite"]))
    assert series["coherence"] == [pytest.approx(1), pytest.approx(0, abs=1e-6)]
    assert (series["from_first"][1], series["drift"][1]) == (None, None)


def parts_of(steps: int) -> dict[str, MetricGroup]:
    """A run in which everything is there."""
    up = [i / steps for i in range(steps)]
    rate = windowed_rates([[i % 3 > 0] for i in range(steps)], 20)
    curve = {"attempt": [*range(1, steps + 1)], "step": [*range(1, steps + 1)], **rate}
    domain = {"attempts": steps, "window": 20, "by_attempt": curve}
    row = {"component": "agent", "stage": "learning", "calls": 3, "failures": 0, "median": 1.0, "p95": 2.0, "share": 1}
    usage = {"input_tokens": 900, "cached_tokens": 500, "output_tokens": 40}
    return {
        "success": MetricGroup({"window": 20}, {**rate, "errors": [i % 7 == 0 for i in range(steps)]}),
        "learning": MetricGroup({"domains": {f"domain {i}": domain for i in range(10)}}),
        "memory": MetricGroup({}, {"successes": [*range(steps)], "failures": [*range(steps)]}),
        "retrieval": MetricGroup({}, {name: [None, *up[1:]] for name in ("best", "similarity", "relied_on")}),
        "context": MetricGroup(
            {},
            {
                "entries": [*range(steps)], "tokens": [9 * i for i in range(steps)], "drift": up, "from_first": up,
                "coherence": up,
            },
        ),
        "contrast": MetricGroup({"by": {"judge": 3, "agreement": 9}}, {"agreement": up}),
        "agent": MetricGroup({}, {"actions": up}),
        "latency": MetricGroup({"components": [row, {**row, "stage": "evaluation"}]},
                        {"step_seconds": [None, *up[1:]], "attempt_seconds": up}),
        "tokens": MetricGroup({"learning": {"tasks": 9, "by_role": {"agent": usage, "judge": usage}}},
                       {"tokens": up, "agent": [None, *up[1:]], "judge": [None, *up[1:]]}),
    }  # fmt: skip


def test_subjects_without_values_have_no_picture(tmp_path: Path) -> None:
    whole = parts_of(9)
    bare = {
        "success": MetricGroup({"window": 20, "attempts": 9}),
        "context": MetricGroup({}, {"entries": [0], "tokens": [0]}),
        "latency": MetricGroup({"components": []}),
    }
    assert [file.stem for file in monitor_plots(bare, [1], tmp_path, "run")] == ["context"]
    one = {**bare, "learning": MetricGroup({"domains": {"all": whole["learning"].numbers["domains"]["domain 0"]}})}
    assert [file.stem for file in monitor_plots(one, [1], tmp_path, "run")] == ["context"]


def test_pictures_need_a_folder_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused("file.wrong_kind"):
        monitor_plots(parts_of(3), [1, 2, 3], tmp_path / "file", "run")
    with refused("file.unwritable"):
        monitor_plots(parts_of(3), [1, 2, 3], tmp_path / "file" / "folder", "run")
