"""Many attempts at once, at zero latency: the CPU time of a call, and the peak memory of the process.

Each method runs in a new process, `python bench/concurrency.py METHOD URL N`, and the server in a second one.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import simulated_world
from measure import OnResult, Target, in_process, peak_mb, timed_run

from practicum.bench.shared_budget import SharedBudget
from practicum.core.files import allow_many_files
from practicum.core.gc import collect_rarely
from practicum.testing import start_process

CPU_MS, PEAK_MB = 3.0, 1000.0
"""Targets: CPU time of a call, and peak memory of the process."""

LIMIT = 300.0
"""Time limit of one measurement (s). A measurement takes about 10 s."""

METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "asynchronous": ("combee", {"asynchronous": True}),
    "combee": ("combee", {}),
    "naive": ("naive", {}),
}


@dataclass(frozen=True, kw_only=True)
class ConcurrencyRow:
    """Measurement of one method with `at_once` attempts at once. `cpu_ms` is the CPU time of all threads, divided by
    the number of calls. `most` is the highest number of calls in flight."""

    method: str
    at_once: int
    calls: int
    cpu_ms: float
    peak_mb: float
    most: int
    wall_s: float

    def targets(self) -> list[Target]:
        name = f"{self.method}, {self.at_once} at once"
        return [
            Target(name=f"{name}: CPU ms a call", value=self.cpu_ms, bound=CPU_MS),
            Target(name=f"{name}: peak MB", value=self.peak_mb, bound=PEAK_MB),
        ]


def measure_all(at_once: int, report: OnResult) -> list[ConcurrencyRow]:
    """Measure each method in a new process."""
    rows: list[ConcurrencyRow] = []
    for method in METHODS:
        name, script = f"{method}, {at_once} at once", str(Path(__file__).resolve())
        with start_process(simulated_world.SCRIPT) as server:
            row = ConcurrencyRow(**in_process(name, [script, method, server.url, str(at_once)], LIMIT))
        report(f"{name}: {row.cpu_ms:.2f} ms a call, {row.peak_mb:.0f} MB")
        rows.append(row)
    return rows


def measure_method(method: str, url: str, at_once: int, folder: Path) -> ConcurrencyRow:
    """Measure one method in this process, after a small run that loads the libraries and the embedder."""
    name, settings = METHODS[method]
    timed_run(url, 8, name, {**settings, "batch": 8}, folder / "warm", 8)
    watch, cpu = SharedBudget(), time.process_time()
    result, wall = timed_run(url, at_once, name, {**settings, "batch": at_once}, folder / "run", at_once, watch=watch)
    cpu = time.process_time() - cpu
    calls, (budget,) = result.usage.calls, watch.budgets.values()
    return ConcurrencyRow(
        method=method, at_once=at_once, calls=calls, cpu_ms=round(1000 * cpu / calls, 3),
        peak_mb=round(peak_mb(), 1), most=budget.most_in_flight, wall_s=round(wall, 2),
    )  # fmt: skip


def main(arguments: list[str]) -> None:
    collect_rarely()
    method, url, at_once = arguments
    allow_many_files()
    with tempfile.TemporaryDirectory(prefix="practicum-concurrency-") as name:
        print(json.dumps(asdict(measure_method(method, url, int(at_once), Path(name)))))


if __name__ == "__main__":
    main(sys.argv[1:])
