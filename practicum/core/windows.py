"""Windows over steps: how many outcomes a rate rests on, and where each window begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

SMALLEST_WINDOW = 20


def window_size(outcomes: int) -> int:
    """How many outcomes a windowed rate rests on: a twentieth of them all, and at least `SMALLEST_WINDOW`. Fewer would
    say nothing, more would hide the trend."""
    return max(SMALLEST_WINDOW, outcomes // 20)


def windows(sizes: Sequence[int], least: int) -> Iterator[tuple[int, int]]:
    """For each step where its window begins, and how many outcomes that has: those of the step and of as few steps
    before it as bring `least` of them together."""
    first = n = 0
    for size in sizes:
        n += size
        while n - sizes[first] >= least:
            n, first = n - sizes[first], first + 1
        yield first, n
