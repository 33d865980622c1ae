"""One run in the simulated world, and how long it took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from practicum.bench import simulated_world
from practicum.methods import described
from practicum.session.learn import learn
from practicum.session.result import Result


def timed(
    url: str, tasks: int, method: str, settings: Mapping[str, Any], folder: Path, concurrency: int, **how: Any
) -> tuple[Result, float]:
    """Learn from tasks of the world that `url` serves, half of them hard, each reflected on once where that can be set.

    Gives the result, and the seconds from the first to the last of it: the run's folder, connections and all.
    """
    once = {"rounds": 0} if "rounds" in described(method) else {}
    work = learn(
        simulated_world.tasks(tasks, easy=5),
        method=method,
        model=f"{url}#sim",
        settings={**once, **settings},
        choices=simulated_world.LABELS,
        instructions=simulated_world.INSTRUCTIONS,
        concurrency=concurrency,
        out=folder,
        **how,
    )
    began = time.perf_counter()
    result = asyncio.run(work)
    return result, time.perf_counter() - began
