"""A service with many spaces. Only some of them fit in its memory at once.

Each space has 1,000 different entries of 20 words. A request gets the view of a task (`Service.show_text`). Requests
are made one after the other, in the process that is measured. They go to random spaces: to all with the same frequency,
and as customers ask, where the n-th customer asks 1/n as often as the first. Only the second half counts, when the
memory is full of open spaces.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from measure import OnResult, Target, arguments, load_average, peak_mb, print_end, rounded
from serve_bench import make_seed, vocabulary

from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.files import allow_many_files
from practicum.retrieval.vectors import WordLlama
from practicum.serve.service import Service
from practicum.serve.settings import ServiceSettings
from practicum.session.config import Splits
from practicum.session.records import begin, read_config
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.names import LIVE, name_version

ENTRIES, TEXTS = 1_000, 20_000
"""Number of entries of a space, and of texts that they are drawn from."""

P50_MS = 3.0
"""Target: the median time of requests as customers ask."""


@dataclass(frozen=True, kw_only=True)
class SpacesPlan:
    """Plan of the measurements. `folder` is not removed, and is used again if it exists. `memory` is the service's
    limit of memory for open spaces (MB)."""

    spaces: int
    requests: int = 4_000
    memory: int = ServiceSettings.model_fields["memory"].default
    folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class SpacesRow:
    """Times of all requests of a pattern, of requests to an open space, and of requests that had to open their space.
    `opened` is the share of the latter."""

    pattern: str
    p50_ms: float
    p99_ms: float
    open_p50_ms: float
    open_p99_ms: float
    opened_p50_ms: float
    opened_p99_ms: float
    opened: float


@dataclass(frozen=True, kw_only=True)
class SpacesResult:
    """Times of each pattern. `open` is the number of open spaces at the end, and `peak_mb` the peak memory."""

    spaces: int
    rows: Sequence[SpacesRow]
    open: int
    peak_mb: float

    def targets(self) -> list[Target]:
        """Return the target of requests as customers ask."""
        (row,) = (row for row in self.rows if row.pattern == SKEWED)
        return [Target(name=f"{self.spaces:,} spaces, {SKEWED}: p50, ms", value=row.p50_ms, bound=P50_MS)]

    def as_json(self) -> dict[str, Any]:
        return rounded({"spaces": self.spaces, "open": self.open, "peak_mb": self.peak_mb}) | {
            "rows": [rounded(asdict(row)) for row in self.rows],
            "targets": [target.as_json() for target in self.targets()],
        }


UNIFORM, SKEWED = "all alike", "as customers ask"


def spaces(plan: SpacesPlan, report: OnResult = lambda line: None) -> SpacesResult:
    """Create the spaces and measure the requests."""
    allow_many_files()
    with ExitStack() as stack:
        folder = plan.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="practicum-spaces-")))
        asyncio.run(_make(folder, plan.spaces, report))
        return asyncio.run(_measure(folder, plan, report))


async def _make(folder: Path, spaces: int, report: OnResult) -> None:
    """Create the missing spaces. The service creates the first space; the others have its settings and new entries."""
    seed, store = folder / "seed", folder / "store"
    if not store.exists():
        make_seed(seed, ENTRIES)
        service = Service(_settings(folder, context=str(seed)))
        try:
            await service.start()
        finally:
            await service.close()
    database = Database.at(store, store)
    try:
        if len(there := {*database.names()}) < spaces:
            await _make_others(database, spaces, there, report)
    finally:
        database.close()


async def _make_others(database: Database, spaces: int, there: Collection[str], report: OnResult) -> None:
    config, _ = read_config(database.named("s0"))
    rng, words, vectors = Random(1), vocabulary(), schema.vectors
    texts = [" ".join(rng.choices(words, k=20)) for _ in range(TEXTS)]
    rows = [
        {"embedder": WordLlama.name, "key": schema.text_key(text), "vector": vector.tobytes()}
        for text, vector in zip(texts, await WordLlama().embed(texts), strict=True)
    ]
    for number in range(1, spaces):
        if (name := f"s{number}") in there:
            continue
        some = Random(number).sample(range(TEXTS), ENTRIES)
        context = initial_context(Add("memories" if at % 500 else "rules", texts[i]) for at, i in enumerate(some))
        with database.create(name) as space:
            await space.write(vectors, [rows[i] for i in some])
            begin(space, config, Splits(), context, "done")
            name_version(space, LIVE)
        if number % 1_000 == 0:
            report(f"{number:,} spaces created")


def _settings(folder: Path, **more: Any) -> ServiceSettings:
    store = folder / "store"
    return ServiceSettings(store=store, folder=store, spaces=("s0",), method="unified", learn=False, **more)


async def _measure(folder: Path, plan: SpacesPlan, report: OnResult) -> SpacesResult:
    rng, words, rows = Random(2), vocabulary(), list[SpacesRow]()
    service = Service(_settings(folder, memory=plan.memory))

    async def ask(pattern: str, numbers: Sequence[int]) -> None:
        times, opened = list[float](), list[bool]()
        for number in numbers:
            opened.append(f"s{number}" not in service.spaces)
            began = time.perf_counter()
            await service.show_text(f"s{number}", " ".join(rng.choices(words, k=10)), None, None)
            times.append(1_000 * (time.perf_counter() - began))
            # Other tasks of the service may run now.
            await asyncio.sleep(0)
        all_ms, was_closed = np.array(times[len(times) // 2 :]), np.array(opened[len(times) // 2 :])
        values = [
            float(np.percentile(some, share)) if len(some) else 0.0
            for some in (all_ms, all_ms[~was_closed], all_ms[was_closed])
            for share in (50, 99)
        ]
        names = ("p50_ms", "p99_ms", "open_p50_ms", "open_p99_ms", "opened_p50_ms", "opened_p99_ms")
        row = SpacesRow(pattern=pattern, opened=float(was_closed.mean()), **dict(zip(names, values, strict=True)))
        rows.append(row)
        report(
            f"{pattern}: p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.1f} ms; of spaces that were open "
            f"{row.open_p50_ms:.2f} and {row.open_p99_ms:.1f}, of the {row.opened:.0%} that were not "
            f"{row.opened_p50_ms:.1f} and {row.opened_p99_ms:.1f}"
        )

    try:
        await service.start()
        every = range(plan.spaces)
        await ask(UNIFORM, rng.choices(every, k=plan.requests))
        by_frequency = rng.sample(every, plan.spaces)
        weights = [*accumulate(1 / (rank + 1) for rank in every)]
        await ask(SKEWED, rng.choices(by_frequency, cum_weights=weights, k=plan.requests))
        return SpacesResult(spaces=plan.spaces, rows=rows, open=len(service.spaces), peak_mb=peak_mb())
    finally:
        await service.close()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "spaces", type=int, nargs="?", default=10_000, help="spaces of 1,000 entries, 2 MB each (10000)"
    )
    parser.add_argument("--requests", type=int, default=4_000, help="requests of each pattern (4000)")
    parser.add_argument("--memory", type=int, default=4_000, help="MB that the service may use for open spaces (4000)")
    parser.add_argument("--folder", type=Path, help="folder of the spaces, not removed (a temporary folder)")
    options, load = parser.parse_args(), load_average()
    plan = SpacesPlan(
        spaces=options.spaces, requests=options.requests, memory=options.memory, folder=options.folder
    )  # fmt: skip
    result = spaces(plan, print)
    print(f"{result.open:,} of {result.spaces:,} spaces open in the end, {result.peak_mb:,.0f} MB at most")
    print_end("spaces", result.as_json(), result.targets(), load, options.json)


if __name__ == "__main__":
    main()
