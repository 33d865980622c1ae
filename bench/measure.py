"""Functions that the benches share: run on the simulated world, measure in a new process, print tables and the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import simulated_world

from practicum.bench.measure import Target as Target
from practicum.bench.measure import load_average as load_average
from practicum.bench.measure import rounded as rounded
from practicum.core.subprocesses import environment, python_command
from practicum.session.result import Result

OnResult = Callable[[str], None]
"""Function that receives one line about each measurement that is done."""


class BenchError(Exception):
    """Error: a measurement failed or is not possible."""


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of a bench's command line, with the option --json."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    return parser


def timed_run(
    url: str, tasks: int, method: str, settings: Mapping[str, Any], folder: Path, concurrency: int, **options: Any
) -> tuple[Result, float]:
    """Learn from tasks of the simulated world that `url` serves. Half of the tasks are hard, and each task gets at most
    one reflection. Returns the result, and the seconds of the whole run with its folder and its connections."""
    from practicum.methods import setting_docs
    from practicum.session.learn import learn

    rounds = {"rounds": 0} if "rounds" in setting_docs(method) else {}
    run = learn(
        simulated_world.tasks(tasks, easy=5), method=method, model=f"{url}#sim", settings={**rounds, **settings},
        choices=simulated_world.LABELS, instructions=simulated_world.INSTRUCTIONS, concurrency=concurrency, out=folder,
        **options,
    )  # fmt: skip
    began = time.perf_counter()
    result = asyncio.run(run)
    return result, time.perf_counter() - began


def in_process(name: str, command: Sequence[str], limit: float | None = None) -> Any:
    """Run a Python command in a new process, and return the JSON value that it prints last.

    A new process is needed because the peak of a process's memory never goes down. Raises BenchError, with `name` in
    its message, if the command fails or takes longer than `limit` seconds.
    """
    try:
        done = subprocess.run(
            python_command(*command), capture_output=True, text=True, timeout=limit, env=environment()
        )
    except subprocess.TimeoutExpired:
        raise BenchError(
            f"{name} took over {limit:g} s and was stopped: the machine may be busy, or the measurement too large",
        ) from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no error message"]
        raise BenchError(f"{name} ended with exit code {done.returncode}: {last[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_mb() -> float:
    """Return the peak memory of this process (MB)."""
    # A process inherits `ru_maxrss` from its parent process, so Linux's own count is better.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below the names of their columns, aligned to the right. None is an empty cell."""
    cells = [[*columns], *(["" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def print_end(bench: str, result: object, targets: Sequence[Target], load_before: float, as_json: bool) -> None:
    """Print the end of a script's output: its targets, the load of the machine, and its result as JSON if asked for."""
    load = [load_before, load_average()]
    for target in targets:
        print(target.summary())
    print(f"load average {load[0]} before, {load[1]} after, {os.cpu_count()} cores")
    if as_json:
        reached = [target.as_json() for target in targets]
        print(json.dumps({"bench": bench, "result": result, "targets": reached, "load": load}))
