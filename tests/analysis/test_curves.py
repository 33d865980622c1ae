"""Training dynamics: the curves of any run against their definitions, and the picture."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from practicum.analysis.dynamics.curves import WINDOWS, curves

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


def noisy(tasks: int = 57, checkpoints: int = 31) -> Solved:
    """A run that gets better and forgets much on the way; of the size of the paper's."""
    rng = np.random.default_rng(0)
    rate = np.linspace(0.3, 0.8, checkpoints)
    return rng.random((tasks, checkpoints)) < rate


@settings(deadline=None)
@given(matrices(), st.integers(1, 30))
def test_the_rates_are_what_the_paper_defines(solved: Solved, window: int) -> None:
    found = curves(solved, [window])
    recency = found.by_window[window]
    tasks = len(solved)
    for k in range(solved.shape[1]):
        recently = [any(row[max(0, k - window + 1) : k + 1]) for row in solved]
        ever = [any(row[: k + 1]) for row in solved]
        assert found.current[k] == sum(row[k] for row in solved) / tasks
        assert recency.recent[k] == sum(recently) / tasks
        assert found.best[k] == sum(ever) / tasks
        assert recency.active[k] == sum(r and not row[k] for r, row in zip(recently, solved, strict=True)) / tasks
        assert recency.stale[k] == sum(e and not r for e, r in zip(ever, recently, strict=True)) / tasks


@settings(deadline=None)
@given(matrices())
def test_a_wider_window_moves_regressions_from_stale_to_active(solved: Solved) -> None:
    windows = [*range(1, 27), None]
    found = curves(solved, windows)
    by = [found.by_window[w] for w in windows]
    for narrow, wide in pairwise(by):
        assert (narrow.active <= wide.active).all()
        assert (narrow.stale >= wide.stale).all()
        assert narrow.mean_instability <= wide.mean_instability
    assert not by[0].active.any()
    assert not by[-1].stale.any()
    assert (by[-1].recent == found.best).all()
    # No run here is longer than the widest window with a number.
    assert (by[-2].recent == by[-1].recent).all()


@settings(deadline=None)
@given(matrices())
def test_active_and_stale_add_up_to_the_gap(solved: Solved) -> None:
    found = curves(solved)
    for recency in found.by_window.values():
        assert (found.current <= recency.recent).all()
        assert (recency.recent <= found.best).all()
        assert recency.active + recency.stale == pytest.approx(found.best - found.current)
    assert (np.diff(found.best) >= 0).all()
    assert ((found.best >= 0) & (found.best <= 1)).all()


@settings(deadline=None)
@given(matrices())
def test_peak_coverage_and_relearning_match_their_definitions(solved: Solved) -> None:
    found = curves(solved)
    assert found.current[found.peak] == found.current.max()
    assert (found.current[: found.peak] < found.current.max()).all()
    full = [k for k in range(solved.shape[1]) if solved[:, : k + 1].any(axis=1).all()]
    assert found.covered == (full[0] if full else None)
    events = [(row, k) for row in solved for k in range(1, len(row)) if row[k - 1] and not row[k]]
    assert found.unlearned == len(events)
    share = sum(row[k:].any() for row, k in events) / len(events) if events else None
    assert found.relearned == share


@settings(deadline=None)
@given(matrices(), st.randoms(use_true_random=False))
def test_the_order_of_the_tasks_does_not_matter(solved: Solved, shuffler: random.Random) -> None:
    mixed = solved[sorted(range(len(solved)), key=lambda _: shuffler.random())]
    one, other = curves(solved), curves(mixed)
    assert (one.current == other.current).all()
    assert all((one.by_window[w].recent == other.by_window[w].recent).all() for w in WINDOWS)
    assert (one.peak, one.covered, one.unlearned) == (other.peak, other.covered, other.unlearned)
    assert one.relearned == other.relearned


def test_a_small_run_counted_by_hand() -> None:
    found = curves(rows("0110", "1000", "0001"), [2, None])
    two, all_ = found.by_window[2], found.by_window[None]
    assert [round(3 * x) for x in found.current] == [1, 1, 1, 1]
    assert [round(3 * x) for x in two.recent] == [1, 2, 1, 2]
    assert [round(3 * x) for x in two.active] == [0, 1, 0, 1]
    assert [round(3 * x) for x in two.stale] == [0, 0, 1, 1]
    assert [round(3 * x) for x in all_.active] == [0, 1, 1, 2]
    assert (found.peak, found.covered) == (0, 3)
    assert (found.unlearned, found.relearned) == (2, 0.0)
    assert two.mean_instability == pytest.approx(2 / 12)
    assert all_.mean_instability == pytest.approx(4 / 12)


def test_relearned_is_the_share_of_events_not_of_tasks() -> None:
    # The first task is lost three times and found again each time but the last; the second once, for good.
    found = curves(rows("10101000", "11110000"))
    assert (found.unlearned, found.relearned) == (4, 0.5)
    assert curves(rows("0011", "1111")).relearned is None


def test_a_run_of_one_checkpoint() -> None:
    found = curves(rows("1", "1"))
    assert (found.peak, found.covered, found.unlearned, found.relearned) == (0, 0, 0, None)
    assert found.by_window[5].mean_instability == 0.0


def test_instability_grows_with_the_window_as_the_papers_numbers_do() -> None:
    # Appendix B, figures 4 to 6, ACE: 15.7, 17.9 and 19.0 points for windows of 5, 10 and all.
    found = curves(noisy())
    five, ten, all_ = (found.by_window[w].mean_instability for w in WINDOWS)
    assert five < ten < all_
    # The peaks it prints are whole tasks of 57.
    assert [f"{n / 57:.1%}" for n in (48, 49, 52, 53)] == ["84.2%", "86.0%", "91.2%", "93.0%"]
