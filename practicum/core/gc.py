"""How often practicum's own processes (the command line, the benchmarks) collect cyclic garbage.

With many calls in flight there are many young objects that stay alive, and Python walks through them again and again:
a quarter of the CPU of 1,000 attempts at once (`practicum bench speed --only in-flight`). Objects outside cycles, which
are nearly all, are freed at once as ever. A program that uses practicum as a library decides for itself.
"""

from __future__ import annotations

import gc


def collect_rarely() -> None:
    """Collect after 10,000 new objects, less those freed, instead of Python's 700, in this process."""
    gc.set_threshold(10_000)
