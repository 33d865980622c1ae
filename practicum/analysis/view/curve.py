"""The learning curve of a run, ready to be drawn: lines in a square of 100 by 100, with its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from practicum.analysis.monitor.series import window_size, windows
from practicum.core.intervals import share_ci95
from practicum.session.story import StepStory

MOST_POINTS = 400

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """Scores against the training tasks tried, up to `tasks` of them. `line` is the mean over the last `window` tasks
    or more and `band` its 95% interval, `validated` are scores on the validation tasks. Points lie in 0 to 100, from
    the left and from above."""

    tasks: int
    window: int
    line: str
    band: str
    validated: Sequence[Point]


def curve(steps: Sequence[StepStory]) -> Curve | None:
    """The learning curve of these steps; None for fewer than two with a score."""
    tried, total, scored = 0, 0, []
    for step in steps:
        tried += len(step.tasks)
        if step.tasks and step.score is not None:
            total += len(step.tasks)
            scored.append((tried, len(step.tasks), step.score))
    if len(scored) < 2:
        return None
    window, every = window_size(total), -(-len(scored) // MOST_POINTS)
    means: list[Point] = []
    lows: list[Point] = []
    highs: list[Point] = []
    totals = [0.0, *accumulate(size * score for _, size, score in scored)]
    for i, (first, n) in enumerate(windows([size for _, size, _ in scored], window)):
        if i % every == 0 or i == len(scored) - 1:
            at, points = scored[i][0], totals[i + 1] - totals[first]
            # Wilson's interval at the rounded number of right answers; for scores between 0 and 1 it is too wide.
            low, high = share_ci95(min(max(round(points), 0), n), n)
            x, mean = 100 * at / tried, min(max(points / n, 0.0), 1.0)
            means.append((x, 100 - 100 * mean))
            lows.append((x, 100 - 100 * min(low, mean)))
            highs.append((x, 100 - 100 * max(high, mean)))
    validated, tried_then = [], 0
    for step in steps:
        tried_then += len(step.tasks)
        if step.val is not None:
            validated.append((round(100 * tried_then / tried, 2), round(100 - 100 * step.val, 2)))
    return Curve(tried, window, _path(means), _path([*lows, *reversed(highs)]), validated)


def _path(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
