"""How often a process of practicum's own looks for cyclic garbage: the command line's, and the benchmarks'.

With many calls in flight there are many young objects that live on, and Python would walk through them again and again:
a quarter of the CPU of 1,000 attempts at once (`practicum bench speed --only in-flight`). What makes no cycles, which
is nearly all of it, is freed at once as ever. A program that uses practicum as a library decides for itself.
"""

from __future__ import annotations

import gc

YOUNG = 10_000
"""New objects, less those freed, after which the young ones are looked through; Python's own value is 700."""


def collect_rarely() -> None:
    """Look for cyclic garbage less often, in this process."""
    gc.set_threshold(YOUNG)
