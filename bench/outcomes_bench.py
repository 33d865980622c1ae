"""Time of a service to acknowledge a score, and a correction, in a space with many entries and corrections.

The service runs in a new process, and its model answers at once (see `simulated_upstream`). The corrections are written
into the store of the space, each with a different question. Then one client asks, waits for the answer and reports its
outcome, one request after the other. The times are from the sending of a report to the last byte of its reply.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

import aiohttp
from measure import Target, arguments, load_average, print_end, print_table, rounded
from serve_bench import EMPTY, PRACTICUM, Place, ServePlan, _Bench, _free_port, make_seed, vocabulary

from practicum.session.corrections import Correction, hold, last_version, next_correction
from practicum.store.database import Store
from practicum.store.scope import Transaction

LIMIT = 20.0
"""Target: milliseconds to acknowledge a correction (p99)."""
SCORE, CORRECTION = "score", "correction"
AT_ONCE = 1_000
"""Number of corrections that are written at once."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Times of reports of one kind (ms), in a space with these numbers of entries and corrections."""

    space: str
    kind: str
    entries: int
    corrections: int
    p50_ms: float
    p99_ms: float


class Client:
    """Client that asks, and reports the outcomes of the answers, on a connection that stays open."""

    def __init__(self, http: aiohttp.ClientSession, url: str, seed: str) -> None:
        self._http, self._url = http, url
        self._rng, self._words = Random(seed), vocabulary()

    def text(self) -> str:
        return " ".join(self._rng.choices(self._words, k=25))

    async def ask(self) -> str:
        """Ask, and return the id of the new interaction."""
        body = {"model": "sim", "messages": [{"role": "user", "content": self.text()}]}
        async with self._http.post(f"{self._url}/v1/chat/completions", json=body) as reply:
            reply.raise_for_status()
            await reply.read()
            return reply.headers["x-practicum-interaction"]

    async def report(self, kind: str) -> float:
        """Ask and report an outcome. Returns the seconds until the report is acknowledged."""
        outcome = {"score": 1.0} if kind == SCORE else {"target": self.text()}
        about = {"interaction": await self.ask(), **outcome}
        began = time.perf_counter()
        async with self._http.post(f"{self._url}/v1/feedback", json=about) as reply:
            reply.raise_for_status()
            await reply.read()
            return time.perf_counter() - began


def fill(folder: Path, corrections: int) -> None:
    """Store a number of corrections in the space of a store."""
    rng, words = Random(0), vocabulary()

    def write(at: Transaction, some: range) -> None:
        last = last_version(at)
        for n in some:
            question, answer = (" ".join(rng.choices(words, k=25)) for _ in range(2))
            new = Correction(next_correction(at), question, answer, interaction=f"i{n}")
            last = hold(at, last, new, ()).version

    with Store.open(folder) as store:
        for start in range(0, corrections, AT_ONCE):
            store.change(partial(write, some=range(start, min(start + AT_ONCE, corrections))))


async def measured(url: str, reports: int) -> dict[str, list[float]]:
    """Send reports to a space. Returns, by kind, the sorted seconds of each report."""
    headers, timeout = {"authorization": "Bearer bench"}, aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        client, by_kind = Client(http, url, "measured"), dict[str, list[float]]()
        for kind in (SCORE, CORRECTION):
            by_kind[kind] = sorted([await client.report(kind) for _ in range(reports)])
        return by_kind


def run(entries: int, corrections: int, reports: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="practicum-outcomes-") as name, ExitStack() as stack:
        folder = Path(name)
        bench = _Bench(ServePlan(), folder, 0, {1}, print)
        _, upstream = bench._upstream(stack)
        make_seed(folder / "seed", entries)
        for space, seed, filled in ((EMPTY, None, 0), (PRACTICUM, folder / "seed", corrections)):
            place = Place(upstream, folder / space, "bench", _free_port(), seed)
            with ExitStack() as first:
                # The first start creates the space.
                bench._practicum(first, space, place)
            fill(place.store / "spaces" / place.space, filled)
            bench._practicum(stack, space, place)
            by_kind = asyncio.run(measured(f"http://127.0.0.1:{place.port}", reports))
            for kind, seconds in by_kind.items():
                times = (1000 * seconds[len(seconds) // 2], 1000 * seconds[int(0.99 * len(seconds))])
                size = entries if seed else 0
                rows.append(
                    Row(space=space, kind=kind, entries=size, corrections=filled, p50_ms=times[0], p99_ms=times[1])
                )
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--corrections", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=500, help="reports of each kind")
    options = parser.parse_args()
    load = load_average()
    rows = run(options.entries, options.corrections, options.reports)
    columns = ("space", "kind", "entries", "corrections", "p50 ms", "p99 ms")
    cells = [(r.space, r.kind, r.entries, r.corrections, f"{r.p50_ms:.1f}", f"{r.p99_ms:.1f}") for r in rows]
    print_table(columns, cells)
    last = rows[-1]
    target = Target(name="a correction, p99 ms", value=last.p99_ms, bound=LIMIT, note=f"p50 {last.p50_ms:.1f}")
    print_end("outcomes", [rounded(asdict(row)) for row in rows], [target], load, options.json)


if __name__ == "__main__":
    main()
