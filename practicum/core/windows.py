"""Moving windows of steps over which a rate is computed: their number of outcomes, and the first step of each
window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

SMALLEST_WINDOW = 20
"""Minimum number of outcomes in a window."""


def window_size(outcomes: int) -> int:
    """Return the number of outcomes in the window of a rate: a twentieth of all outcomes, but at least
    `SMALLEST_WINDOW`. A smaller window would be too noisy, and a larger window would hide the trend."""
    return max(SMALLEST_WINDOW, outcomes // 20)


def windows(sizes: Sequence[int], least: int) -> Iterator[tuple[int, int]]:
    """Yield, for each step, the first step of its window and the number of outcomes in that window. `sizes` has the
    number of outcomes of each step. A window ends with its step; it is the shortest window with at least `least`
    outcomes, or has all steps so far."""
    first = n = 0
    for size in sizes:
        n += size
        while n - sizes[first] >= least:
            n, first = n - sizes[first], first + 1
        yield first, n
