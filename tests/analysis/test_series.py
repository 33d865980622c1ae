"""The arithmetic of metrics against a plain, slow computation, and their pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.analysis.monitor.contexts import ContextChange, context_metrics
from practicum.analysis.monitor.plots import monitor_plots, moving_average
from practicum.analysis.monitor.series import MetricGroup, distribution, windowed_rates
from practicum.core.edits import Entry
from practicum.core.intervals import share_ci95
from practicum.core.windows import SMALLEST_WINDOW, window_size
from practicum.view.read import StepStory


@given(st.lists(st.lists(st.booleans(), max_size=5), max_size=40), st.integers(1, 12))
def test_a_windowed_rate_counts_the_fewest_steps_that_have_enough_outcomes(
    marks: list[list[bool]], window: int
) -> None:
    rates = windowed_rates(marks, window)
    for i in range(len(marks)):
        seen: list[bool] = []
        for step in reversed(marks[: i + 1]):
            if len(seen) >= window:
                break
            seen += step
        assert rates["rate"][i] == (sum(seen) / len(seen) if seen else None)
        assert (rates["low"][i], rates["high"][i]) == (share_ci95(sum(seen), len(seen)) if seen else (None, None))


@given(st.lists(st.none() | st.integers(-9, 9).map(float), min_size=1, max_size=40), st.integers(1, 9))
def test_a_moving_average_is_the_mean_of_the_values_in_its_window(series: list[float | None], window: int) -> None:
    averages = moving_average(np.array(series, dtype=float), window)
    for i, value in enumerate(series):
        inside = [x for x in series[max(0, i - window + 1) : i + 1] if x is not None]
        assert averages[i] == pytest.approx(np.nan if value is None else sum(inside) / len(inside), nan_ok=True)


def test_windows_grow_with_the_run_and_a_distribution_has_mean_median_and_p95() -> None:
    assert [window_size(n) for n in (1, 400, 10_000)] == [SMALLEST_WINDOW, SMALLEST_WINDOW, 500]
    assert distribution([4.0, 1.0, 2.0, 3.0, 5.0]) == {"n": 5, "mean": 3.0, "median": 3.0, "p95": pytest.approx(4.8)}


def unit(seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal(8)
    vector: np.ndarray = (drawn / np.linalg.norm(drawn)).astype(np.float32)
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


def test_drift_is_0_for_equal_and_2_for_opposite_contexts_and_opposite_vectors_have_no_direction() -> None:
    series = content(([], ["1"]), ([], []), (["1"], ["opposite"]))
    assert series["drift"] == [None, pytest.approx(0, abs=1e-6), pytest.approx(2, abs=1e-6)]
    assert series["from_first"] == [pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6), pytest.approx(2, abs=1e-6)]
    series = content(([], ["1"]), ([], ["opposite"]))
    assert series["coherence"] == [pytest.approx(1), pytest.approx(0, abs=1e-6)]
    assert (series["from_first"][1], series["drift"][1]) == (None, None)


def test_subjects_without_values_have_no_picture_and_pictures_need_a_writable_folder(tmp_path: Path) -> None:
    groups = {"success": MetricGroup({"window": 20, "attempts": 9}), "latency": MetricGroup({"components": []})}
    assert monitor_plots(groups, [1], tmp_path, "run") == []
    groups["context"] = MetricGroup({}, {"entries": [0], "tokens": [0]})
    (tmp_path / "file").write_text("")
    for folder, code in ((tmp_path / "file", "file.wrong_kind"), (tmp_path / "file" / "folder", "file.unwritable")):
        with refused(code):
            monitor_plots(groups, [1], folder, "run")
