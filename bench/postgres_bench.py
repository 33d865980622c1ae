"""Time of a call if a run's rows are in PostgreSQL, over its time if they are in a file.

Both wait for the disk. Rounds alternate between the two, and the medians count. `journal` writes the rows of calls, 1,
16 or 100 at once. `learn` is ACE in batches of 10 on a server that answers at once.

    python bench/postgres_bench.py postgresql://USER@HOST/DATABASE
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from measure import Target, load_average, print_end
from simulated_world import LABELS, Responder, tasks

import practicum
from practicum.core.types import Prompt, Usage
from practicum.store.database import Store
from practicum.store.journal import Journal, JournalRow
from practicum.testing import ServerOptions, serve

AT_ONCE = (1, 16, 100)
BOUND = 1.5
PAGE = "[e1] (rules) " + "Look at the amount first. " * 250
FILE, DATABASE = "file", "postgresql"


async def journal(store: Store, calls: int, at_once: int, name: str) -> float:
    """Return the time to write the row of a call (ms)."""
    rows, numbers = Journal(store), iter(range(calls))

    async def write() -> None:
        for number in numbers:
            place, prompt = f"{name} {number}/agent", Prompt("Be brief.", f"{name}, question {number}", (PAGE,))
            usage = Usage(1, 900, 0, 120, 0.001)
            row = JournalRow(
                place, "agent", "0" * 32, "An answer. " * 40, usage, 0.5, sources=("task:t",), prompt=prompt
            )
            await rows.write(row)

    began = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(at_once)))
    return (time.perf_counter() - began) / calls * 1000


async def learn(folder: Path, url: str | None, model: str) -> float:
    """Return the time of a run over the number of its calls (ms)."""
    began = time.perf_counter()
    result = await practicum.learn(
        tasks(60), out=folder, store=url, model=model, method="ace", settings={"batch": 10}, choices=LABELS
    )
    return (time.perf_counter() - began) / result.usage.calls * 1000


async def measure(folder: Path, url: str, rounds: int) -> dict[str, dict[str, float]]:
    taken: dict[str, dict[str, list[float]]] = {}
    mark = f"{time.time_ns():x}"
    stores = {FILE: Store.create(folder / "file"), DATABASE: Store.create(folder / f"rows-{mark}", url)}
    try:
        for number in range(-1, rounds):
            for at_once in AT_ONCE:
                for where, store in stores.items():
                    took = await journal(store, 100 * max(1, at_once // 5), at_once, f"{number} {at_once}")
                    if number >= 0:
                        taken.setdefault(f"journal, {at_once} at once", {}).setdefault(where, []).append(took)
    finally:
        for store in stores.values():
            store.close()
    async with serve(ServerOptions(responder=Responder())) as server:
        for number in range(-1, rounds):
            for where in (FILE, DATABASE):
                place = folder / f"{where}-{mark}-{number}"
                took = await learn(place, url if where == DATABASE else None, f"{server.url}#sim")
                if number >= 0:
                    taken.setdefault("learn", {}).setdefault(where, []).append(took)
    return {name: {where: statistics.median(all) for where, all in each.items()} for name, each in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="a PostgreSQL database")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the medians count (5)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="practicum-postgres-") as name:
        medians = asyncio.run(measure(Path(name), options.url, options.rounds))
    for name, ms in medians.items():
        print(f"{name}: {ms[FILE]:.2f} ms a call in a file, {ms[DATABASE]:.2f} in PostgreSQL")
    targets = [
        Target(name=f"{name}: PostgreSQL over a file", value=ms[DATABASE] / ms[FILE], bound=BOUND)
        for name, ms in medians.items()
    ]
    print_end("postgresql", medians, targets, before, options.json)


if __name__ == "__main__":
    main()
