"""Time to get the context of a query, from a run that stays open and from a run that is opened for each query.

    python bench/space_bench.py [--json]

Runs have 100 and 10,000 entries: `episodes` shows the most similar entries, `ace` all entries, `unified` both. First
nothing else runs during the queries; then ("beside_writer") another process adds a version every 20 ms. Texts are
random words, embedded by wordllama. Each number is from the best of five rounds, for machines that are shared with
other work. "cpu" is the CPU time of the thread that asks. The target is for the 99th percentile of a run that stays
open without a writer.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Target, load_average, print_end

import practicum
from practicum.core.edits import Add, Delta
from practicum.session.config import Config, Splits
from practicum.session.records import begin, create

SIZES = (100, 10_000)
METHODS = {"episodes": "episodes", "ace": "rules", "unified": "rules"}
"""Method → a section that it shows."""
ROUNDS, WARM_QUERIES, COLD_QUERIES = 5, 200, 10
TARGET_MS = 5.0

WRITER = """
import sys, time
from pathlib import Path
from practicum.core.edits import Add, Delta
from practicum.session.amend import apply_edits
from practicum.store.database import Store
with Store.open(Path(sys.argv[1])) as store:
    print("open", flush=True)
    while True:
        apply_edits(store, lambda context: Delta((Add(sys.argv[2], f"new {context.version}", data={"answer": "so"}),)))
        time.sleep(0.02)
"""


def texts(chance: random.Random) -> str:
    """Return about 100 characters of random words."""
    return " ".join("".join(chance.choices("etaoinshrdlucm", k=chance.randint(2, 9))) for _ in range(16))


def create_run(folder: Path, method: str, size: int, chance: random.Random) -> Path:
    """Create a run with `size` entries, and return its folder."""
    section = METHODS[method]
    adds = (Add(section, texts(chance), data={"answer": texts(chance)}) for _ in range(size))
    context = practicum.Context().apply(Delta(tuple(adds))).context
    with create(folder) as store:
        begin(store, Config(method=method), Splits(), context, "done")
    return folder


async def ask(space: practicum.Space, name: str, chance: random.Random) -> dict[str, float]:
    """Return the percentiles over new queries (ms)."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        wall, cpu = [], []
        for query in [texts(chance) for _ in range(WARM_QUERIES)]:
            began, worked = time.perf_counter(), time.thread_time()
            shown = await space.show(query)
            assert shown.text
            wall.append(1_000 * (time.perf_counter() - began))
            cpu.append(1_000 * (time.thread_time() - worked))
        taken = {f"{name}_p50": statistics.median(wall), f"{name}_p99": percentile(wall)}
        taken[f"{name}_cpu_p99"] = percentile(cpu)
        best = {key: min(value, best.get(key, value)) for key, value in taken.items()}
    return best


def add_versions(run: Path, section: str) -> subprocess.Popen[bytes]:
    """Start a process that adds versions, and return it when it has opened the run."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(run), section], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    return writer


async def measure(run: Path, section: str, chance: random.Random) -> dict[str, float]:
    """Return the percentiles of one run (ms)."""
    cold = []
    for query in [texts(chance) for _ in range(COLD_QUERIES)]:
        began = time.perf_counter()
        async with practicum.open(run) as space:
            assert (await space.show(query)).text
        cold.append(1_000 * (time.perf_counter() - began))
    async with practicum.open(run) as space:
        await space.show("the first one")
        numbers = {"reopened_best": min(cold), **await ask(space, "open", chance)}
        with add_versions(run, section) as writer:
            numbers |= await ask(space, "beside_writer", chance)
            writer.terminate()
    return {**numbers, "ratio": min(cold) / numbers["open_p50"]}


def percentile(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="entries (100 10000)")
    parser.add_argument("--json", action="store_true", help="print one JSON line last")
    options = parser.parse_args()
    before, results, targets = load_average(), dict[str, dict[str, float]](), []
    with tempfile.TemporaryDirectory(prefix="practicum-space-") as folder:
        for size in options.sizes:
            for method, section in METHODS.items():
                chance, name = random.Random(0), f"{method}, {size:,} entries"
                run = create_run(Path(folder) / f"{method}-{size}", method, size, chance)
                results[name] = numbers = asyncio.run(measure(run, section, chance))
                print(f"{name}: " + ", ".join(f"{key} {value:,.3g}" for key, value in numbers.items()), flush=True)
                targets.append(Target(name=f"{name}: p99, ms", value=numbers["open_p99"], bound=TARGET_MS))
    print_end("space", results, targets, before, options.json)
    return int(not all(target.met for target in targets))


if __name__ == "__main__":
    raise SystemExit(main())
