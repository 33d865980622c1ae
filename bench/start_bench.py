"""Time of a command to its first model call, and from the last answer to its end.

`practicum learn` runs as a user starts it, in a new process, with a server on loopback that answers at once. The server
records when the first request arrived and when the last request was answered. CPU seconds are of the whole process, and
depend less on other work of the machine. With --against, each run is followed by a run of another source tree, so that
both have the same conditions.

    first call   from the start of the process to the arrival of its first request
    exit         from the last answer to the end of the process
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Target, load_average, print_end
from simulated_world import LABELS, Responder, tasks

from practicum.testing import Body, ServerOptions, serve

FIRST_CALL, EXIT = 0.8, 0.2
"""Targets for the medians, in seconds."""


@dataclass(frozen=True)
class Start:
    """Times of one run of the command (s)."""

    first_call: float
    exit: float
    cpu_first_call: float
    cpu: float


class Clock:
    """Responder of the simulated world that records the times of the requests, and the command's CPU time at first."""

    def __init__(self) -> None:
        self.process = 0
        self.times: list[float] = []
        self.cpu_first_call = 0.0
        self._answer = Responder()

    def __call__(self, body: Body) -> str:
        if not self.times:
            self.cpu_first_call = _cpu_seconds(self.process)
        self.times.append(time.monotonic())
        return self._answer(body)


def _cpu_seconds(process: int) -> float:
    """Return the CPU seconds that the threads of a process have used (Linux counts nanoseconds)."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


async def one_start(tree: Path, folder: Path, count: int) -> Start:
    """Run the command of a source tree once."""
    clock = Clock()
    async with serve(ServerOptions(responder=clock)) as server:
        command = (
            *(sys.executable, "-m", "practicum.cli.app", "learn", "tasks.jsonl", "--model", f"{server.url}#sim"),
            *("--choices", ",".join(LABELS), "--set", "rounds=0", "--epochs", "1", "--out", str(folder / "run")),
        )
        # Compiled modules are stored, like the modules of an installed package.
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
        (folder / "tasks.jsonl").write_text("".join(_lines(count)), encoding="utf-8")
        began = time.monotonic()
        process = await asyncio.to_thread(
            subprocess.Popen, command, cwd=folder, env=environment, stdout=subprocess.DEVNULL
        )
        clock.process = process.pid
        _, status, usage = await asyncio.to_thread(os.wait4, process.pid, 0)
        ended = time.monotonic()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"practicum of {tree} ended with exit code {process.returncode}")
    used = usage.ru_utime + usage.ru_stime
    return Start(clock.times[0] - began, ended - clock.times[-1], clock.cpu_first_call, used)


def _lines(count: int) -> Iterator[str]:
    for task in tasks(count):
        yield json.dumps({"id": task.id, "input": task.input, "target": task.target}) + "\n"


def medians(starts: list[Start]) -> Mapping[str, float]:
    values = [asdict(start) for start in starts]
    return {name: round(statistics.median(value[name] for value in values), 4) for name in values[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="runs; the medians count (20)")
    parser.add_argument("--tasks", type=int, default=2, help="tasks to learn from (2)")
    parser.add_argument("--against", type=Path, help="another source tree, measured in turn with this tree")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    trees = [Path(__file__).resolve().parents[1], *([options.against.resolve()] if options.against else [])]
    before = load_average()
    starts: dict[Path, list[Start]] = {tree: [] for tree in trees}
    with tempfile.TemporaryDirectory(prefix="practicum-start-") as name:
        for number in range(options.times + 1):
            for index, tree in enumerate(trees):
                folder = Path(name, f"{number}-{index}")
                folder.mkdir()
                start = asyncio.run(one_start(tree, folder, options.tasks))
                if number:  # the first run compiles the modules and does not count
                    starts[tree].append(start)
    by_tree = {str(tree): medians(values) for tree, values in starts.items()}
    for tree, values in by_tree.items():
        print(f"{tree}: {', '.join(f'{name} {value:.3f}' for name, value in values.items())}")
    own = by_tree[str(trees[0])]
    targets = [
        Target(name="start to first call, s", value=own["first_call"], bound=FIRST_CALL),
        Target(name="last answer to exit, s", value=own["exit"], bound=EXIT),
    ]
    print_end("start", by_tree, targets, before, options.json)


if __name__ == "__main__":
    main()
