"""Training dynamics: whether tasks stay solved, from which task was solved at which checkpoint.

The gap between the tasks solved now and those ever solved has two layers: tasks solved a short while ago (active
instability), and tasks whose last success is further back (stale regressions). The window, in checkpoints, says how
far back "a short while" reaches. A wider one counts more tasks as recently solved, so active instability can only grow
with it and stale regressions only shrink: the paper's numbers say so (15.7, 17.9 and 19.0 points for windows of 5, 10
and all), its appendix's prose says the reverse. (RCL, section 4.4 and appendix B.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rates = npt.NDArray[np.float64]
"""Shares of the tasks in [0, 1], one per checkpoint."""

Window = int | None
"""The number of checkpoints that count as recent, the present one included; None for all so far."""

WINDOWS: tuple[Window, ...] = (5, 10, None)
"""The windows of the paper."""


@dataclass(frozen=True, eq=False)
class Recency:
    """The rates that depend on a window: tasks solved within it, those of them not solved now (`active`), and tasks
    only solved before it (`stale`)."""

    recent: Rates
    active: Rates
    stale: Rates

    @property
    def mean_instability(self) -> float:
        """The mean active instability of a checkpoint."""
        return float(self.active.mean())


@dataclass(frozen=True, eq=False)
class Curves:
    """The course of a run. `current` and `best` (solved at any checkpoint so far) do not depend on a window.

    `peak` is the first checkpoint with the highest current rate, `covered` the first by which every task was solved
    once (None if never). `unlearned` counts the times that a task was solved at one checkpoint and not at the next,
    `relearned` is the share of these times after which it was solved again (None if there were none).
    """

    current: Rates
    best: Rates
    by_window: Mapping[Window, Recency]
    peak: int
    covered: int | None
    unlearned: int
    relearned: float | None


def curves(solved: npt.NDArray[np.bool_], windows: Sequence[Window] = WINDOWS) -> Curves:
    """The course of a run from `solved`, of shape (tasks, checkpoints), in time linear in its size for any window.
    Raises ValueError where it has no task, no checkpoint, or another shape, and for a window below 1."""
    if solved.ndim != 2 or not solved.size:
        raise ValueError(f"need a matrix of tasks by checkpoints with at least one of each, not {solved.shape}")
    if any(window is not None and window < 1 for window in windows):
        raise ValueError("a window holds at least the present checkpoint")
    tasks, order = len(solved), np.arange(solved.shape[1])
    # When each task was last solved: all else follows from how long that is ago.
    last = np.maximum.accumulate(np.where(solved, order, -1), axis=1)
    ever = last >= 0
    now, best = solved.sum(axis=0), ever.sum(axis=0)
    by_window = {}
    for window in windows:
        recent = (ever if window is None else ever & (order - last < window)).sum(axis=0)
        # Whole numbers are subtracted before the division, so that the order of the shares is exact.
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
