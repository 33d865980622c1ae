"""Moving windows of steps over which a rate is computed: the number of outcomes in a window, and the first step of each
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
    number of outcomes of each step. The window of a step ends with this step. It is the shortest such window with at
    least `least` outcomes or, if there are fewer outcomes so far, it has all steps so far."""
    first = n = 0
    for size in sizes:
        n += size
        while n - sizes[first] >= least:
            n, first = n - sizes[first], first + 1
        yield first, n
