"""What the benches share: runs on the simulated world, a table, measurements in a process of their own, and the end."""

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
"""Called with a line about each measurement that is done."""


class BenchError(Exception):
    """A measurement cannot be made."""


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a bench, with its option --json."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    return parser


def timed_run(
    url: str, tasks: int, method: str, settings: Mapping[str, Any], folder: Path, concurrency: int, **options: Any
) -> tuple[Result, float]:
    """Learn from tasks of the simulated world that `url` serves; half of them are hard, and each gets one reflection at
    most. Returns the result and the seconds of the whole run, including its folder and its connections."""
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


def in_process(what: str, command: Sequence[str], limit: float | None = None) -> Any:
    """The JSON value that a module with these arguments prints last, run in a process of its own since a peak of memory
    does not go down again. Raises BenchError if it fails or takes longer than `limit` seconds; `what` names it."""
    try:
        done = subprocess.run(
            python_command(*command), capture_output=True, text=True, timeout=limit, env=environment()
        )
    except subprocess.TimeoutExpired:
        raise BenchError(
            f"{what} took over {limit:g} s and was stopped: the machine may be busy, or the measurement too large",
        ) from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no error message"]
        raise BenchError(f"{what} ended with exit code {done.returncode}: {last[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_mb() -> float:
    """The most memory that this process held, in MB."""
    # A process inherits `ru_maxrss` from the one that started it, so Linux's own count is better.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below their columns, to the right; None is an empty cell."""
    cells = [[*columns], *(["" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def print_end(bench: str, result: object, targets: Sequence[Target], load_before: float, as_json: bool) -> None:
    """How every script ends: its targets, how busy the machine was, and its result as one line of JSON if asked for."""
    load = [load_before, load_average()]
    for target in targets:
        print(target.summary())
    print(f"load average {load[0]} before, {load[1]} after, {os.cpu_count()} cores")
    if as_json:
        reached = [target.as_json() for target in targets]
        print(json.dumps({"bench": bench, "result": result, "targets": reached, "load": load}))
