"""Curves of the training dynamics. They show whether tasks stay solved, and are computed from the tasks solved at each
checkpoint.

The gap between the tasks ever solved and the tasks solved now has two parts: tasks that were solved within a window of
recent checkpoints but not now (active instability), and tasks that were solved only before the window (stale
regressions). A wider window counts more tasks as recently solved, so with a wider window, active instability can only
grow and stale regressions can only shrink. The numbers in the paper agree with this (active instability of 15.7, 17.9
and 19.0 points for windows of 5, 10 and all checkpoints); the text of the paper's appendix states the opposite. (RCL,
section 4.4 and appendix B.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rates = npt.NDArray[np.float64]
"""Shares of the tasks, from 0 to 1, one per checkpoint."""

Window = int | None
"""Number of checkpoints that count as recent, including the present checkpoint. None: all checkpoints so far."""

WINDOWS: tuple[Window, ...] = (5, 10, None)
"""Windows that the paper uses."""


@dataclass(frozen=True, eq=False)
class Recency:
    """Rates that depend on a window. `recent`: rate of tasks solved within the window. `active`: rate of tasks solved
    within the window but not now. `stale`: rate of tasks solved only before the window."""

    recent: Rates
    active: Rates
    stale: Rates

    @property
    def mean_instability(self) -> float:
        """Mean of `active` over the checkpoints."""
        return float(self.active.mean())


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves of a run.

    `current`: rate of tasks solved at a checkpoint. `best`: rate of tasks solved at any checkpoint so far. `peak`:
    index of the first checkpoint with the highest current rate. `covered`: index of the first checkpoint at which every
    task was solved at least once; None if some task was never solved. `unlearned`: how many times a task was solved at
    a checkpoint but not at the next checkpoint. `relearned`: share of these times after which the task was solved
    again; None if `unlearned` is 0.
    """

    current: Rates
    best: Rates
    by_window: Mapping[Window, Recency]
    peak: int
    covered: int | None
    unlearned: int
    relearned: float | None


def curves(solved: npt.NDArray[np.bool_], windows: Sequence[Window] = WINDOWS) -> Curves:
    """Compute the curves of a run from `solved`, of shape (tasks, checkpoints), in linear time for each window.

    Raises ValueError for an array without tasks or checkpoints or of another shape, and for a window below 1."""
    if solved.ndim != 2 or not solved.size:
        raise ValueError(
            f"expected an array of shape (tasks, checkpoints) with at least one of each, not {solved.shape}"
        )
    if any(window is not None and window < 1 for window in windows):
        raise ValueError("a window must be at least 1 checkpoint")
    tasks, order = len(solved), np.arange(solved.shape[1])
    # The last checkpoint at which each task was solved.
    last = np.maximum.accumulate(np.where(solved, order, -1), axis=1)
    ever = last >= 0
    now, best = solved.sum(axis=0), ever.sum(axis=0)
    by_window = {}
    for window in windows:
        recent = (ever if window is None else ever & (order - last < window)).sum(axis=0)
        # Subtract integers before the division, so that rounding does not change the order of the rates.
        by_window[window] = Recency(recent / tasks, (recent - now) / tasks, (best - recent) / tasks)
    lost = solved[:, :-1] & ~solved[:, 1:]
    regained = lost & (last[:, -1:] > order[:-1])
    unlearned = int(lost.sum())
    return Curves(
        current=now / tasks,
        best=best / tasks,
        by_window=by_window,
        peak=int(now.argmax()),
        covered=int((best == tasks).argmax()) if best[-1] == tasks else None,
        unlearned=unlearned,
        relearned=int(regained.sum()) / unlearned if unlearned else None,
    )
