"""Wall time of `practicum --help`: what a user waits for before anything can be said. Target 0.3 s."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

TARGET = 0.3


def seconds() -> float:
    """One start of the command line, as the installed command starts it."""
    program = "import sys; from practicum.cli.app import main; sys.argv = ['practicum', '--help']; main()"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="starts; the median counts (10)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    given = parser.parse_args()
    seconds()  # compiles what was not compiled
    found = [seconds() for _ in range(given.times)]
    median, load = statistics.median(found), os.getloadavg()[0]
    print(f"practicum --help: median {median:.3f} s, best {min(found):.3f}, worst {max(found):.3f}")
    print(
        f"target {TARGET} s: {'ok' if median <= TARGET else 'MISSED'}; load average {load:.1f}, {os.cpu_count()} cores"
    )
    if given.json:
        print(json.dumps({"bench": "help", "median_s": round(median, 4), "best_s": round(min(found), 4), "load": load}))


if __name__ == "__main__":
    main()
