"""The cost of a comparison: `practicum compare`, and the same runs started by hand at once.

Four methods with two seeds each, on the simulated server, with one limit of calls in flight. Both ways share models and
slots; by hand nothing is checked, kept, tested or reported. They take turns, since the load of a machine changes.

    outside   share of the comparison's time before its first run began and after its last one ended
    beside    wall time of the comparison over that of the runs by hand, minus 1: the median of the pairs
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import simulated_world
from measure import Target, load_average, print_end
from simulated_world import INSTRUCTIONS, LABELS

import practicum
from practicum.analysis.compare.harness import ComparisonWatch
from practicum.analysis.compare.outcome import RunOutcome
from practicum.models.registry import ClientSettings, Models
from practicum.session.learn import learn
from practicum.session.opening import Shared
from practicum.testing import start_process

MOST = 0.02
"""Share of the wall time that the harness may take."""

METHODS = {"none": {}, "episodes": {"batch": 4}, "ace": {"rounds": 0, "batch": 4}, "combee": {"rounds": 0, "batch": 8}}
SEEDS, CONCURRENCY = 2, 8
TASKS = simulated_world.tasks(88)
TRAIN, TEST = TASKS[:24], TASKS[24:]
COMMON = {"instructions": INSTRUCTIONS, "choices": LABELS, "concurrency": CONCURRENCY}


class Clock(ComparisonWatch):
    """When the first run began, and when the last one ended."""

    first = last = 0.0

    def began(self, runs: int) -> None:
        self.first = time.perf_counter()

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        self.last = time.perf_counter()


async def compared(url: str, out: Path) -> tuple[float, float]:
    """Wall time of a comparison, and how much of it was outside of all runs."""
    clock, start = Clock(), time.perf_counter()
    settings = {f"{method}.{name}": value for method, own in METHODS.items() for name, value in own.items()}
    await practicum.compare(
        TRAIN, test=TEST, methods=list(METHODS), settings=settings, seeds=SEEDS, out=out, model=f"{url}#sim",
        watch=clock, **COMMON,
    )  # fmt: skip
    end = time.perf_counter()
    return end - start, clock.first - start + end - clock.last


async def by_hand(url: str, out: Path) -> float:
    """Wall time of the same runs without a comparison around them."""
    start = time.perf_counter()
    models, gate = Models(ClientSettings(CONCURRENCY, log=out)), asyncio.Semaphore(CONCURRENCY)
    shared = Shared(models)

    async def one(method: str, seed: int) -> None:
        async with gate:
            await learn(
                TRAIN, test=TEST, method=method, settings=METHODS[method], seed=seed, out=out / f"{method}-{seed}",
                model=f"{url}#sim", shared=shared, **COMMON,
            )  # fmt: skip

    await asyncio.gather(*(one(method, seed) for seed in range(SEEDS) for method in METHODS))
    await models.close()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="times that both ways are measured (5)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    before = load_average()
    pairs, outside = [], []
    with (
        start_process(simulated_world.SCRIPT, **simulated_world.LATENCIES) as server,
        tempfile.TemporaryDirectory() as name,
    ):
        asyncio.run(by_hand(server.url, Path(name) / "warm"))
        for n in range(options.pairs):
            hand = asyncio.run(by_hand(server.url, Path(name) / f"hand-{n}"))
            wall, out = asyncio.run(compared(server.url, Path(name) / f"compared-{n}"))
            pairs.append((wall, hand))
            outside.append(out / wall)
            print(f"compared {wall:.2f} s, of them {out:.3f} s outside of all runs; by hand {hand:.2f} s", flush=True)
    targets = [
        Target(what="outside of all runs, by the wall time", value=statistics.median(outside), bound=MOST),
        Target(what="beside the same runs by hand", value=statistics.median(w / h - 1 for w, h in pairs), bound=MOST),
    ]
    print_end("compare", {"pairs": pairs, "outside": outside}, targets, before, options.json)


if __name__ == "__main__":
    main()
