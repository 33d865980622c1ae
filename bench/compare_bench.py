"""The cost of a comparison: `practicum compare`, and the same runs started by hand at once.

Four methods run with two seeds each, on the simulated server, with one limit of calls in flight. Both ways share models
and slots. By hand, nothing is checked, stored, tested or reported. The two ways take turns, because the load of a
machine changes.

    outside   share of the comparison's time before its first run began and after its last run ended
    more      wall time of the comparison over the wall time of the runs by hand, minus 1: the median of the pairs
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import simulated_world
from measure import Target, load_average, print_end
from simulated_world import INSTRUCTIONS, LABELS

import practicum
from practicum.analysis.compare.harness import ComparisonWatch
from practicum.analysis.compare.outcome import RunOutcome
from practicum.core.types import Task
from practicum.models.registry import ClientSettings, Models
from practicum.session.learn import learn
from practicum.session.opening import Shared
from practicum.testing import start_process

MOST = 0.02
"""Target: share of the wall time that the harness takes."""

METHODS = {"none": {}, "episodes": {"batch": 4}, "ace": {"rounds": 0, "batch": 4}, "combee": {"rounds": 0, "batch": 8}}
SEEDS, CONCURRENCY = 2, 8
Halves = tuple[Sequence[Task], Sequence[Task]]
"""Tasks to learn from, and tasks to test."""
COMMON = {"instructions": INSTRUCTIONS, "choices": LABELS, "concurrency": CONCURRENCY}


class Clock(ComparisonWatch):
    """Watch that records when the first run began, and when the last run ended."""

    first = last = 0.0

    def began(self, runs: int) -> None:
        self.first = time.perf_counter()

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        self.last = time.perf_counter()


async def compared(url: str, out: Path, halves: Halves) -> tuple[float, float]:
    """Return the wall time of a comparison, and the time before and after all its runs."""
    clock, start = Clock(), time.perf_counter()
    settings = {f"{method}.{name}": value for method, own in METHODS.items() for name, value in own.items()}
    await practicum.compare(
        halves[0], test=halves[1], methods=list(METHODS), settings=settings, seeds=SEEDS, out=out, model=f"{url}#sim",
        watch=clock, **COMMON,
    )  # fmt: skip
    end = time.perf_counter()
    return end - start, clock.first - start + end - clock.last


async def by_hand(url: str, out: Path, halves: Halves) -> float:
    """Return the wall time of the same runs without a comparison."""
    start = time.perf_counter()
    models, gate = Models(ClientSettings(CONCURRENCY, log=out)), asyncio.Semaphore(CONCURRENCY)
    shared = Shared(models)

    async def one(method: str, seed: int) -> None:
        async with gate:
            await learn(
                halves[0], test=halves[1], method=method, settings=METHODS[method], seed=seed,
                out=out / f"{method}-{seed}", model=f"{url}#sim", shared=shared, **COMMON,
            )  # fmt: skip

    await asyncio.gather(*(one(method, seed) for seed in range(SEEDS) for method in METHODS))
    await models.close()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="number of measurements of both ways (5)")
    parser.add_argument("--tasks", type=int, default=88, help="tasks; three of 11 are for learning (88)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    before, tasks = load_average(), simulated_world.tasks(options.tasks)
    halves = tasks[: 3 * len(tasks) // 11], tasks[3 * len(tasks) // 11 :]
    pairs, outside = [], []
    with (
        start_process(simulated_world.SCRIPT, **simulated_world.LATENCIES) as server,
        tempfile.TemporaryDirectory() as name,
    ):
        asyncio.run(by_hand(server.url, Path(name) / "warm", halves))
        for n in range(options.pairs):
            hand = asyncio.run(by_hand(server.url, Path(name) / f"hand-{n}", halves))
            wall, out = asyncio.run(compared(server.url, Path(name) / f"compared-{n}", halves))
            pairs.append((wall, hand))
            outside.append(out / wall)
            print(f"compared {wall:.2f} s, {out:.3f} s of it outside of all runs; by hand {hand:.2f} s", flush=True)
    targets = [
        Target(name="outside of all runs, by the wall time", value=statistics.median(outside), bound=MOST),
        Target(
            name="more than the same runs by hand", value=statistics.median(w / h - 1 for w, h in pairs), bound=MOST
        ),
    ]
    print_end("compare", {"pairs": pairs, "outside": outside}, targets, before, options.json)


if __name__ == "__main__":
    main()
