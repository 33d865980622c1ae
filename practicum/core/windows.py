"""Windows over steps: how many outcomes the window of a rate has, and the first step of each window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

SMALLEST_WINDOW = 20
"""Minimum number of outcomes in a window."""


def window_size(outcomes: int) -> int:
    """Return the number of outcomes in the window of a rate: a twentieth of all, at least `SMALLEST_WINDOW`. Fewer
    outcomes would be too noisy, and more would hide the trend."""
    return max(SMALLEST_WINDOW, outcomes // 20)


def windows(sizes: Sequence[int], least: int) -> Iterator[tuple[int, int]]:
    """Yield, for each step, the first step of its window and the number of outcomes in that window. The window is
    the shortest that ends with the step and has at least `least` outcomes."""
    first = n = 0
    for size in sizes:
        n += size
        while n - sizes[first] >= least:
            n, first = n - sizes[first], first + 1
        yield first, n
