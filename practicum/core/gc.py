"""Settings of the garbage collector for practicum's processes; a program that imports practicum keeps its own settings.

Calls in flight are young objects that stay alive, and Python would scan them repeatedly: these scans take a quarter of
the CPU time of 1,000 concurrent attempts (`bench/speed_bench.py --only in-flight`). The classes and functions of
imported modules also stay alive: scanning them takes a tenth of the start time of a command. Objects outside cycles are
still freed immediately.

When the process exits, Python would scan all modules and classes ever loaded, which takes half a second
(`bench/start_bench.py`), although the system frees the memory anyway. All objects that must be closed are closed before
the exit.
"""

from __future__ import annotations

import atexit
import gc


def collect_rarely() -> None:
    """Collect garbage after 100,000 more objects were created than freed, instead of Python's 700, and not at exit."""
    gc.set_threshold(100_000)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
