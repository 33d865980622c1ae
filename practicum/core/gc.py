"""How often practicum's own processes collect cyclic garbage; a program that uses it as a library decides for itself.

Calls in flight are young objects that stay alive, which Python would look through again and again: a quarter of the CPU
of 1,000 attempts at once (`bench/speed_bench.py --only in-flight`). So are the classes and functions of what is
imported: a tenth of the start of a command. Objects outside cycles are freed at once as ever.

When the process ends, Python would go through all modules and classes that were ever loaded, which takes half a second
(`bench/start_bench.py`); the system takes the memory back anyhow. What must be closed is closed before.
"""

from __future__ import annotations

import atexit
import gc


def collect_rarely() -> None:
    """Collect after 100,000 new objects, less those freed, instead of Python's 700, and nothing at the end."""
    gc.set_threshold(100_000)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
