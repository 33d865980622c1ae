"""What the benches share: a target, a timed run on the simulated server, a measurement in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.core.errors import PracticumError
from practicum.core.subprocesses import environment, python_command

if TYPE_CHECKING:
    from practicum.session.result import Result

OnResult = Callable[[str], None]
"""Called with a line about each measurement that is done."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A measured value and its bound, which it should not exceed; with `at_least`, which it should reach."""

    what: str
    value: float
    bound: float
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def as_json(self) -> dict[str, Any]:
        bound = "at_least" if self.at_least else "at_most"
        values = {"what": self.what, "value": self.value, bound: self.bound, "met": self.met, "note": self.note}
        return rounded(values)

    def summary(self) -> str:
        bound = f"at {'least' if self.at_least else 'most'} {self.bound:.4g}"
        line = f"{self.what}: {self.value:.3g} ({bound}): {'ok' if self.met else 'MISSED'}"
        return f"{line}; {self.note}" if self.note else line


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with four decimals, for JSON."""
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def timed_run(
    url: str, tasks: int, method: str, settings: Mapping[str, Any], folder: Path, concurrency: int, **options: Any
) -> tuple[Result, float]:
    """Learn from tasks of the simulated world that `url` serves; half of them are hard, and each gets one reflection at
    most. Returns the result and the seconds of the whole run, including its folder and its connections."""
    from practicum.bench import simulated_world
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
    does not go down again. Raises PracticumError if it fails or takes longer than `limit` seconds; `what` names it."""
    try:
        done = subprocess.run(
            python_command(*command), capture_output=True, text=True, timeout=limit, env=environment()
        )
    except subprocess.TimeoutExpired:
        raise PracticumError(
            "bench.failed",
            f"{what} took over {limit:g} s and was stopped: the machine may be busy, or the measurement too large",
        ) from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no error message"]
        raise PracticumError("bench.failed", f"{what} ended with exit code {done.returncode}: {last[0]}")
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


def load_average() -> float:
    """The load of this machine over the last minute. Timings are worth little if it is high."""
    return round(os.getloadavg()[0], 2)


def print_end(bench: str, result: object, targets: Sequence[Target], load_before: float, as_json: bool) -> None:
    """How every script ends: its targets, how busy the machine was, and its result as one line of JSON if asked for."""
    load = [load_before, load_average()]
    for target in targets:
        print(target.summary())
    print(f"load average {load[0]} before, {load[1]} after, {os.cpu_count()} cores")
    if as_json:
        reached = [target.as_json() for target in targets]
        print(json.dumps({"bench": bench, "result": result, "targets": reached, "load": load}))
