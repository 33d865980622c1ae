"""What the benches share: a target, a timed run on the simulated server, and the peak memory of this process."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum.bench import simulated_world
from practicum.methods import described
from practicum.session.learn import learn
from practicum.session.result import Result

Report = Callable[[str], None]
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
        return {
            "what": self.what,
            "value": round(self.value, 4),
            "at_least" if self.at_least else "at_most": round(self.bound, 4),
            "met": self.met,
            "note": self.note,
        }

    def summary(self) -> str:
        """One line."""
        bound = f"at {'least' if self.at_least else 'most'} {self.bound:.4g}"
        line = f"{self.what}: {self.value:.3g} ({bound}): {'ok' if self.met else 'MISSED'}"
        return f"{line}; {self.note}" if self.note else line


def timed_run(
    url: str, tasks: int, method: str, settings: Mapping[str, Any], folder: Path, concurrency: int, **options: Any
) -> tuple[Result, float]:
    """Learn from tasks of the simulated world that `url` serves; half of them are hard. If the method has rounds of
    reflection, it makes one reflection a task.

    Returns the result and the seconds of the whole run, including its folder and its connections.
    """
    rounds = {"rounds": 0} if "rounds" in described(method) else {}
    run = learn(
        simulated_world.tasks(tasks, easy=5),
        method=method,
        model=f"{url}#sim",
        settings={**rounds, **settings},
        choices=simulated_world.LABELS,
        instructions=simulated_world.INSTRUCTIONS,
        concurrency=concurrency,
        out=folder,
        **options,
    )
    began = time.perf_counter()
    result = asyncio.run(run)
    return result, time.perf_counter() - began


def peak_mb() -> float:
    """The most memory that this process held, in MB."""
    # A process inherits `ru_maxrss` from the one that started it, so Linux's own count is better.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
