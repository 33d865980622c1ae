"""Many attempts at once, at zero latency: what a call costs this process, and how large it grows.

Each method has a process of its own, since a peak of memory does not go down again; the server has another.
`python -m practicum.bench.concurrency METHOD URL N` is one such process: it prints one line of JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from practicum.bench import simulated_world
from practicum.bench.target import Target
from practicum.core.errors import PracticumError
from practicum.core.gc import collect_rarely
from practicum.session.learn import Session
from practicum.testing.server import start_process

CPU_MS, PEAK_MB = 3.0, 1000.0
"""Targets: CPU of a call, and the peak memory of the process."""

LIMIT = 300.0
"""Seconds that one measurement may take; it takes about 10."""

METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "asynchronous": ("combee", {"asynchronous": True}),
    "combee": ("combee", {}),
    "naive": ("naive", {}),
}


@dataclass(frozen=True, kw_only=True)
class ConcurrencyRow:
    """One method with `at_once` attempts at once. `cpu_ms` of all threads by the calls made; `most` calls were in
    flight at once, counted around each."""

    method: str
    at_once: int
    calls: int
    cpu_ms: float
    peak_mb: float
    most: int
    wall_s: float

    def targets(self) -> list[Target]:
        """What it should reach."""
        what = f"{self.method}, {self.at_once} at once"
        return [
            Target(what=f"{what}: CPU ms a call", value=self.cpu_ms, bound=CPU_MS),
            Target(what=f"{what}: peak MB", value=self.peak_mb, bound=PEAK_MB),
        ]


def measured(at_once: int, tell: Callable[[str], None]) -> list[ConcurrencyRow]:
    """Each method in a process of its own."""
    rows: list[ConcurrencyRow] = []
    for method in METHODS:
        with start_process(simulated_world.MODULE, latency=0.0, per_1k_prompt=0.0, per_output=0.0) as server:
            command = [sys.executable, "-m", "practicum.bench.concurrency", method, server.url, str(at_once)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                raise PracticumError(
                    f"{method} with {at_once} attempts at once took over {LIMIT:g} s and was ended: is the machine "
                    "busy? (--at-once N makes it smaller)"
                ) from None
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["no word of why"]
            raise PracticumError(f"{method} with {at_once} attempts at once ended with {done.returncode}: {said[0]}")
        rows.append(ConcurrencyRow(**json.loads(done.stdout.splitlines()[-1])))
        tell(f"{method}, {at_once} at once: {rows[-1].cpu_ms:.2f} ms a call, {rows[-1].peak_mb:.0f} MB")
    return rows


class Gauge:
    """Counts the calls in flight of every model of a session."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def watch(self, session: Session) -> None:
        for client in {id(seat.client): seat.client for seat in session.house.seats.values()}.values():
            self._count(client)

    def _count(self, client: Any) -> None:
        complete = client.complete

        async def counted(*asked: Any) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return await complete(*asked)
            finally:
                self.now -= 1

        client.complete = counted


def one(method: str, url: str, at_once: int, folder: Path) -> ConcurrencyRow:
    """The measurement, in this process. A small run comes before it, which loads libraries and the embedder."""
    from practicum.bench.timed import timed

    name, settings = METHODS[method]
    timed(url, 8, name, {**settings, "batch": 8}, folder / "warm", 8)
    gauge, cpu = Gauge(), time.process_time()
    result, wall = timed(
        url, at_once, name, {**settings, "batch": at_once}, folder / "run", at_once, on_session=gauge.watch
    )
    cpu = time.process_time() - cpu
    calls = result.usage.calls
    return ConcurrencyRow(
        method=method,
        at_once=at_once,
        calls=calls,
        cpu_ms=round(1000 * cpu / calls, 3),
        peak_mb=round(peak_mb(), 1),
        most=gauge.most,
        wall_s=round(wall, 2),
    )


def peak_mb() -> float:
    """The most memory this process held. A new process inherits `ru_maxrss` from the one that started it, so Linux's
    own count is better."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def main(arguments: list[str]) -> None:
    collect_rarely()
    method, url, at_once = arguments
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each connection is an open file
    with tempfile.TemporaryDirectory(prefix="practicum-in-flight-") as name:
        print(json.dumps(asdict(one(method, url, int(at_once), Path(name)))))


if __name__ == "__main__":
    main(sys.argv[1:])
