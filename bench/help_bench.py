"""Wall time of `practicum --help`, usually a user's first command."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from measure import Target, load_average, print_end

SECONDS = 0.3
"""Target for the median."""


def seconds() -> float:
    """Return the wall time (s) of one start of the command line, as the installed command starts it."""
    program = "import sys; from practicum.cli.app import main; sys.argv = ['practicum', '--help']; main()"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="starts; the median counts (10)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    before = load_average()
    seconds()  # The first start compiles the modules and does not count.
    times = sorted(seconds() for _ in range(options.times))
    note = f"best {times[0]:.3f}, worst {times[-1]:.3f}"
    target = Target(name="practicum --help, s", value=statistics.median(times), bound=SECONDS, note=note)
    print_end("help", times, [target], before, options.json)


if __name__ == "__main__":
    main()
