"""Time of each page of a large service's site, and of requests to the model while users load pages.

    python bench/pages_bench.py [--interactions 1000000] [--entries 10000] [--spaces 1000] [--json]

The store of a service is filled: interactions of 90 days with outcomes, corrections, rollouts, alarms. Then each page
is loaded over HTTP, one after the other. At the end 50 users reload pages while requests go through the proxy. Their
99th percentile is printed, with users and without. The bound of a page is for the median of its times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from measure import Target, load_average, print_end
from simulated_upstream import CHUNKS, SCRIPT

from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Update
from practicum.core.subprocesses import environment, python_command
from practicum.engine.admission import Held
from practicum.session.config import Config, Splits
from practicum.session.corrections import Correction, hold, write_review
from practicum.session.records import HELD, begin
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.names import LIVE, name_version
from practicum.store.reviews import PENDING
from practicum.store.scope import Transaction
from practicum.store.sums import interaction_sums

PAGE_MS = 50.0
DAYS, BATCH, ROUNDS, USERS = 90, 20_000, 15, 50
SPACE = "default"
WORDS = ["order", "parcel", "invoice", "refund", "card", "branch", "delivery", "address", "statement", "fee", "limit"]


def a_text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def waiting(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield rows of learned edits that wait for review."""
    for n in range(1, 11):
        held = Held((Update(f"e{n}", a_text(chance, 20), reason=a_text(chance, 10)),), "user")
        data = json.dumps({**HELD.dump_python(held, mode="json"), "base": 0})
        yield {"id": f"1.{n}", "step": 1, "state": "pending", "reason": "", "data": data}


def an_id(at: float, number: int) -> str:
    return f"i{int(at * 1e6):013x}-{number:012x}"


def fill(folder: Path, interactions: int, entries: int, spaces: int) -> str:
    """Fill the store of a service. Returns the id of one of its interactions."""
    chance, now = random.Random(0), time.time()
    adds = tuple(
        Add(f"section {n % 7}", f"{n}: {a_text(chance, 14)}", helpful=n % 5, harmful=n % 3) for n in range(entries)
    )
    context = Context().apply(Delta(adds)).context
    database = Database.at(folder, folder, create=True)
    for name in (SPACE, "other", *(f"team-{n:05}" for n in range(spaces))):
        with database.create(name) as space:
            begin(space, Config(method="unified"), Splits(), context if name == SPACE else Context(), "done")
            name_version(space, LIVE)
    store = database.named(SPACE)
    store.change(lambda at: at.insert(schema.reviews, *waiting(chance)))
    chosen = ""
    for start in range(0, interactions, BATCH):
        rows, outcomes, sums = [], [], []
        for n in range(start, min(start + BATCH, interactions)):
            at = now - DAYS * 86_400 * (1 - n / interactions)
            version, model = n * 20 // interactions, ("gpt-4.1-mini", "gpt-4.1")[n % 5 == 0]
            data = {
                "query": a_text(chance, 40), "question": "", "session_from": None, "steps": [],
                "answer": a_text(chance, 60), "calls": [],
                "entries": [(f"e{chance.randrange(max(entries, 1))}", 0.5) for _ in range(4)], "corrections": [],
                "pin": f"s{n // 3}", "status": 200 if n % 300 else 500, "seconds": chance.lognormvariate(0, 0.5),
                "model": model, "counted": model, "tokens": [900, 700 if n % 3 else 0, 120, 0],
            }  # fmt: skip
            row = {
                "id": an_id(at, n), "at": at, "session": f"s{n // 3}",
                "user": f"u{n % 5_000}" if n % 2 else None, "response": None, "version": version, "rollout": None,
                "kind": None, "data": json.dumps(data),
            }  # fmt: skip
            rows.append(row)
            sums.append(interaction_sums(row, data))
            if n % 3:
                score = float(chance.random() < 0.6 + 0.3 * n / interactions)
                report = {"at": at + 60, "trust": "own", "score": score}
                outcomes.append({
                    "id": row["id"], "at": at + 60, "number": n + 1, "revision": 1, "score": score,
                    "trust": "own", "state": "learned",
                    "data": json.dumps({"reports": [report], "own": {"score": score}, "user": {}}),
                })  # fmt: skip
                sums.append({"at": at + 60, "version": version, "model": model, "scored": 1, "total": score})
        chosen = str(rows[len(rows) // 2]["id"])

        def write(at: Transaction, rows: Any = rows, outcomes: Any = outcomes, sums: Any = sums) -> None:
            at.insert(schema.interactions, *rows)
            at.insert(schema.outcomes, *outcomes)
            for each in sums:
                at.count(each)

        store.change(write)
    store.change(lambda at: _fill_rest(at, chance, now, entries))
    database.close()
    return chosen


def _fill_rest(at: Transaction, chance: random.Random, now: float, entries: int) -> None:
    test: dict[str, Any] = {"alpha": 0.05, "worse": None, "better": False, "kinds": []}
    arms = {"canary": {"scores": 200, "mean": 0.8}, "live": {"scores": 800, "mean": 0.7}, "e_worse": 0.2}
    days = [now - DAYS * 86_400 * (1 - n / 20) for n in range(20)]
    rollouts = [
        {
            "number": n, "version": n, "base": n - 1, "state": "promoted" if n % 4 else "taken back",
            "data": json.dumps({
                "share": 0.2, "length": 200, "alpha": 0.05, "began": days[n] - 7_200, "ended": days[n], "gate": {},
                "reason": "better (80% of 200 against 70% of 800)", "test": {**test, "all": arms}, "centroids": [],
            }),
        }
        for n in range(1, 20)
    ]  # fmt: skip
    corrections = [
        Correction(n, a_text(chance, 20), a_text(chance, 5), trust="own" if n % 10 else "user", interaction=f"i{n}")
        for n in range(1, 2_001)
    ]
    alarms = [
        {"number": n, "at": now - 3_600 * (500 - n), "kind": "outcomes", "text": a_text(chance, 9)}
        for n in range(1, 501)
    ]
    credits = [{"item": f"e{n}", "scored": 10 + n % 90, "total": 8.0} for n in range(entries)]
    at.insert(schema.rollouts, *rollouts)
    at.run(at.update(schema.spaces).values(numbered=len(corrections)))
    last = 0
    for one in corrections:
        if one.trust == "own":
            last = hold(at, last, one, ()).version
        else:
            write_review(at, one, PENDING)
    at.insert(schema.alarms, *alarms)
    at.insert(schema.credits, *credits)


def paths(interaction: str) -> dict[str, str]:
    """Return the names and paths of the pages that are measured."""
    root = f"/s/{SPACE}"
    return {
        "spaces": "/", "spaces, searched": "/?q=99", "overview, 7 days": root, "overview, 90 days": f"{root}?days=90",
        "overview, live part": f"{root}/live?days=7", "entries": f"{root}/entries",
        "entries, searched": f"{root}/entries?q=refund+of+a+parcel", "entry": f"{root}/entries/e17",
        "versions": f"{root}/versions", "version": f"{root}/versions/0", "review": f"{root}/review",
        "episodes": f"{root}/episodes", "episodes, wrong": f"{root}/episodes?only=wrong",
        "episodes, failed": f"{root}/episodes?only=failed",
        "episodes, without an outcome": f"{root}/episodes?only=open",
        "episodes, searched": f"{root}/episodes?q=limit+fee+limit", "episodes, of a user": f"{root}/episodes?user=u7",
        "interaction": f"{root}/episodes/{interaction}", "steps": f"{root}/steps", "calls": f"{root}/calls",
        "lessons": f"{root}/lessons",
        "corrections": f"{root}/corrections", "costs, 90 days": f"{root}/costs?days=90", "alarms": f"{root}/alarms",
    }  # fmt: skip


async def get(http: aiohttp.ClientSession, url: str) -> float:
    """Load a page, and return its time (ms)."""
    began = time.perf_counter()
    async with http.get(url) as response:
        body = await response.read()
    assert response.status == 200, (url, response.status, body[:2_000])
    return 1_000 * (time.perf_counter() - began)


async def ask(http: aiohttp.ClientSession, url: str, number: int) -> float:
    """Send a request to the model, and return its time (ms)."""
    began = time.perf_counter()
    body = {"messages": [{"role": "user", "content": f"Where is parcel {number}?"}]}
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        await response.read()
    assert response.status == 200, response.status
    return 1_000 * (time.perf_counter() - began)


async def ask_all(http: aiohttp.ClientSession, url: str, seconds: float) -> list[float]:
    """Send requests for a time, with a pause of 0.1 s after each. Returns their times (ms)."""
    times, until = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < until:
        times.append(await ask(http, url, len(times)))
        await asyncio.sleep(0.1)
    return times


def p99(times: list[float]) -> float:
    return sorted(times)[min(int(0.99 * len(times)), len(times) - 1)]


@contextmanager
def started(command: Sequence[str]) -> Iterator[str]:
    """Start a server in a new process, and return the address that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            ready = process.stdout.readline() if process.stdout else ""
            if not (match := re.search(r"(http://[^/\s]+:\d+)/v1(:|$)", ready)):
                raise SystemExit(f"the server did not start: {ready}")
            yield match[1]
        finally:
            process.terminate()


async def measure(folder: Path, interaction: str) -> dict[str, Any]:
    """Return the times of all pages, and of requests with and without 50 users who load pages."""
    with started(python_command(SCRIPT, f"--chunks={CHUNKS}")) as behind:
        arguments = ("serve", "--upstream", f"{behind}/v1#gpt-4.1", str(folder), "--port", "0", "--no-learning")
        with started(python_command("practicum.cli.app", *arguments)) as url:
            async with aiohttp.ClientSession() as http:
                return await _measure(http, url, interaction)


async def _measure(http: aiohttp.ClientSession, url: str, interaction: str) -> dict[str, Any]:
    result: dict[str, Any] = {"pages": {}}
    pages = paths(interaction)
    for name, path in pages.items():
        await get(http, url + path)
        times = [await get(http, url + path) for _ in range(ROUNDS)]
        result["pages"][name] = {"median": statistics.median(times), "most": max(times)}
    await ask_all(http, url, 2.0)
    alone = await ask_all(http, url, 10.0)

    async def user(number: int) -> None:
        chance = random.Random(number)
        while True:
            await get(http, url + chance.choice([*pages.values()]))
            # The user reads the page.
            await asyncio.sleep(chance.uniform(2.0, 8.0))

    users = [asyncio.create_task(user(n)) for n in range(USERS)]
    with_users = await ask_all(http, url, 30.0)
    for task in users:
        task.cancel()
    await asyncio.gather(*users, return_exceptions=True)
    result["proxy p99"], result["proxy p99 with 50 users"] = p99(alone), p99(with_users)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interactions", type=int, default=1_000_000)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--spaces", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="practicum-pages-") as folder:
        chosen = fill(Path(folder), options.interactions, options.entries, options.spaces)
        print(f"filled with {options.interactions:,} interactions", file=sys.stderr, flush=True)
        result = asyncio.run(measure(Path(folder), chosen))
    for name, times in result["pages"].items():
        print(f"{name}: {times['median']:.0f} ms (at most {times['most']:.0f})")
    targets = [
        Target(name=f"{name} (ms)", value=times["median"], bound=PAGE_MS) for name, times in result["pages"].items()
    ]
    for name in ("proxy p99", "proxy p99 with 50 users"):
        print(f"{name}: {result[name]:.1f} ms")
    print_end("pages", result, targets, before, options.json)


if __name__ == "__main__":
    main()
