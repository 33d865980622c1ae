"""Training dynamics: the curves of any run against their definitions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.analysis.dynamics.curves import curves

Solved = npt.NDArray[np.bool_]


@st.composite
def matrices(draw: st.DrawFn) -> Solved:
    """Runs of 1 to 6 tasks and 1 to 25 checkpoints."""
    tasks, checkpoints = draw(st.integers(1, 6)), draw(st.integers(1, 25))
    row = st.lists(st.booleans(), min_size=checkpoints, max_size=checkpoints)
    return np.array(draw(st.lists(row, min_size=tasks, max_size=tasks)), dtype=bool)


def rows(*texts: str) -> Solved:
    """A task a text: 1 where it was solved."""
    return np.array([[mark == "1" for mark in text] for text in texts])


@given(matrices(), st.none() | st.integers(1, 30))
def test_the_rates_match_the_definitions_of_the_paper(solved: Solved, window: int | None) -> None:
    result = curves(solved, [window])
    recency = result.by_window[window]
    tasks = len(solved)
    for k in range(solved.shape[1]):
        recently = [any(row[max(0, k - (window or k + 1) + 1) : k + 1]) for row in solved]
        ever = [any(row[: k + 1]) for row in solved]
        assert result.current[k] == sum(row[k] for row in solved) / tasks
        assert recency.recent[k] == sum(recently) / tasks
        assert result.best[k] == sum(ever) / tasks
        assert recency.active[k] == sum(r and not row[k] for r, row in zip(recently, solved, strict=True)) / tasks
        assert recency.stale[k] == sum(e and not r for e, r in zip(ever, recently, strict=True)) / tasks


@given(matrices())
def test_peak_coverage_and_relearning_match_their_definitions(solved: Solved) -> None:
    result = curves(solved)
    assert result.current[result.peak] == result.current.max()
    assert (result.current[: result.peak] < result.current.max()).all()
    full = [k for k in range(solved.shape[1]) if solved[:, : k + 1].any(axis=1).all()]
    assert result.covered == (full[0] if full else None)
    events = [(row, k) for row in solved for k in range(1, len(row)) if row[k - 1] and not row[k]]
    assert result.unlearned == len(events)
    assert result.relearned == (sum(row[k:].any() for row, k in events) / len(events) if events else None)


def test_a_small_run_counted_by_hand() -> None:
    result = curves(rows("0110", "1000", "0001"), [2, None])
    two, all_ = result.by_window[2], result.by_window[None]
    thirds = {
        "current": result.current, "recent": two.recent, "active": two.active, "stale": two.stale, "all": all_.active,
    }  # fmt: skip
    assert {name: [round(3 * x) for x in curve] for name, curve in thirds.items()} == {
        "current": [1, 1, 1, 1], "recent": [1, 2, 1, 2], "active": [0, 1, 0, 1], "stale": [0, 0, 1, 1],
        "all": [0, 1, 1, 2],
    }  # fmt: skip
    assert (result.peak, result.covered, result.unlearned, result.relearned) == (0, 3, 2, 0.0)
    assert (two.mean_instability, all_.mean_instability) == (pytest.approx(2 / 12), pytest.approx(4 / 12))
    one = curves(rows("1", "1"))
    assert (one.peak, one.covered, one.unlearned, one.relearned) == (0, 0, 0, None)
    assert one.by_window[5].mean_instability == 0.0
