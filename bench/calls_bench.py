"""CPU and memory of one process that makes many model calls at once, at zero latency, beside two bare clients.

practicum: `Run.ask` with schema, validation and journal (SQLite, synchronous=FULL), as every method calls a model.
openai: the bare `AsyncOpenAI` client over aiohttp; the answer is not validated and nothing is written down.
pydantic-ai: its `direct.model_request` on the same client; not validated, nothing written down.

Each measurement is a process of its own (memory is a peak, and does not go down again); the server is another. All
collect garbage as rarely as the `practicum` command does.
"seen" is the most calls that were really in flight, counted around each request.
The variants take turns, the best of `--repeat` counts, and the ratios are of one run. A process that takes longer than
`--limit` seconds is ended, and the bench with it. All of it takes about five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from practicum.core.gc import collect_rarely
from practicum.testing.server import start_process

TARGETS = {64: 2.2, 1000: 2.5}
"""CPU milliseconds a call, by calls at once."""
MEMORY = 250
"""MB at the peak, with 64 at once."""
WARM = 200
"""Calls before the clock starts: imports, connections, first-time caches."""
LIMIT = 120.0
"""Seconds that one measurement may take; it takes about 15."""
TIMEOUT = 120.0
"""Seconds that a call may take, opening its connection included, in every variant as in practicum's own."""

SYSTEM = "You sort the messages of a bank's customers and name the entries of the playbook that decide. " * 12
TASK = "The customer with number {n} writes that a card payment of last week shows up twice on the statement. " * 4

One = Callable[[int], Awaitable[object]]


class Gauge:
    """Counts what is inside it: `async with gauge`; `most` is the highest count."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    async def __aexit__(self, *_: object) -> None:
        self.now -= 1


def client_of(url: str) -> Any:
    """One OpenAI client, as practicum makes its own.

    Its own limit for opening a connection, 5 s, runs out where a process on a busy machine opens 1,000 in one go.
    """
    from openai import AsyncOpenAI, DefaultAioHttpClient

    transport = DefaultAioHttpClient()
    return AsyncOpenAI(base_url=url, api_key="none", http_client=transport, max_retries=0, timeout=TIMEOUT)


def answer_shape() -> Any:
    """A small schema, much like the agent's own."""
    from pydantic import Field

    from practicum.core.bounded import EntryId, Output

    class Answer(Output):
        used: list[EntryId] = Field(max_length=3, description="ids of the entries that apply, best first")
        answer: str = Field(max_length=200, description="the answer to the task")

    # With postponed annotations the names of this function are not found by themselves.
    Answer.model_rebuild(_types_namespace={"EntryId": EntryId, "list": list, "str": str})
    return Answer


async def practicum_calls(url: str, at_once: int, stack: AsyncExitStack, gauge: Gauge) -> One:
    from practicum.agents.chat import ChatAgent
    from practicum.core.types import Prompt
    from practicum.engine.run import Run
    from practicum.engine.state import RunState, Seat
    from practicum.models.client import CallOptions
    from practicum.models.registry import ClientSettings, Models
    from practicum.retrieval.vectors import Vectors, WordLlama
    from practicum.store.database import Store
    from practicum.store.journal import Journal

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="calls_bench-")))
    store = stack.enter_context(Store.create(folder / "run"))
    models = Models(ClientSettings(concurrency=at_once))
    stack.push_async_callback(models.close)
    client: Any = models.open(f"{url}#sim")
    complete = client.complete

    async def counted(*asked: Any) -> Any:
        async with gauge:
            return await complete(*asked)

    client.complete = counted
    seat = Seat(client, CallOptions(temperature=0.0))
    state = RunState(
        Journal(store, "run"), {"agent": seat}, ChatAgent(), None, Vectors(WordLlama()), concurrency=at_once
    )
    root, shape = Run(state), answer_shape()

    async def one(n: int) -> object:
        prompt = Prompt(system=SYSTEM, user=TASK.format(n=n))
        return await root.at(f"step {n}", ("task:t", "rollout:r")).ask("agent", prompt, shape)

    return one


async def openai_calls(url: str, at_once: int, stack: AsyncExitStack, gauge: Gauge) -> One:
    client, limit = client_of(url), asyncio.Semaphore(at_once)
    stack.push_async_callback(client.close)
    schema = {"name": "answer", "schema": answer_shape().model_json_schema()}

    async def one(n: int) -> object:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK.format(n=n)}]
        async with limit, gauge:
            reply = await client.chat.completions.create(
                model="sim",
                messages=messages,
                temperature=0.0,
                max_tokens=1024,
                seed=n,
                response_format={"type": "json_schema", "json_schema": schema},
            )
        return reply.choices[0].message.content

    return one


async def pydantic_ai_calls(url: str, at_once: int, stack: AsyncExitStack, gauge: Gauge) -> One:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.providers.openai import OpenAIProvider

    client, limit = client_of(url), asyncio.Semaphore(at_once)
    stack.push_async_callback(client.close)
    model = OpenAIChatModel("sim", provider=OpenAIProvider(openai_client=client))
    output = OutputObjectDefinition(json_schema=answer_shape().model_json_schema(), name="answer")
    shape = ModelRequestParameters(output_mode="native", output_object=output)

    async def one(n: int) -> object:
        messages = [ModelRequest(parts=[SystemPromptPart(SYSTEM), UserPromptPart(TASK.format(n=n))])]
        async with limit, gauge:
            reply = await model_request(
                model,
                messages,
                model_settings={"temperature": 0.0, "max_tokens": 1024, "seed": n},
                model_request_parameters=shape,
            )
        return reply.text

    return one


VARIANTS = {"practicum": practicum_calls, "openai": openai_calls, "pydantic-ai": pydantic_ai_calls}


async def measure(variant: str, url: str, at_once: int, calls: int) -> dict[str, float]:
    """CPU of all threads and wall time of `calls` calls, and the peak memory of the process."""
    async with AsyncExitStack() as stack:
        gauge = Gauge()
        one = await VARIANTS[variant](url, at_once, stack, gauge)
        await asyncio.gather(*map(one, range(WARM)))
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*map(one, range(WARM, WARM + calls)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"cpu_ms": 1000 * cpu / calls, "peak_mb": peak, "calls_per_s": calls / wall, "in_flight": gauge.most}


def profiled(work: Callable[[], dict[str, float]], path: str) -> dict[str, float]:
    """The same under cProfile, whose numbers go to a file for `python -m pstats`."""
    import cProfile

    profile = cProfile.Profile(time.process_time)
    result = profile.runcall(work)
    profile.dump_stats(path)
    return result


def in_process(variant: str, url: str, at_once: int, calls: int, limit: float) -> dict[str, float]:
    """One measurement in a process of its own. Ends the bench with one line where it fails or takes too long."""
    what = f"{variant} with {at_once} calls at once"
    command = [sys.executable, __file__, "--one", variant, "--url", url, "--at-once", str(at_once)]
    try:
        done = subprocess.run([*command, "--calls", str(calls)], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        sys.exit(f"{what} took over {limit:g} s and was ended: is the machine busy? (--limit SECONDS, --calls N)")
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["no word of why"]
        sys.exit(f"{what} failed: {said[0]}")
    turn = dict(json.loads(done.stdout.splitlines()[-1]))
    print(f"{what}: {turn['cpu_ms']:.2f} ms a call", file=sys.stderr)
    return turn


def compare(at_once: int, calls: int, repeat: int, limit: float) -> list[dict[str, Any]]:
    """Every variant with `at_once` calls in flight: the best CPU and the highest memory of its turns."""
    turns: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    with start_process(latency=0.0, per_1k_prompt=0.0, per_output=0.0) as server:
        for _ in range(repeat):
            for variant, kept in turns.items():
                server.reset()
                kept.append(in_process(variant, server.url, at_once, calls, limit))
    bare = min(turn["cpu_ms"] for turn in turns["openai"])
    rows = []
    for variant, kept in turns.items():
        best = min(turn["cpu_ms"] for turn in kept)
        rows.append(
            {
                "variant": variant,
                "at_once": at_once,
                "cpu_ms": round(best, 3),
                "cpu_ms_all": [round(turn["cpu_ms"], 2) for turn in kept],
                "ratio_to_openai": round(best / bare, 2),
                "in_flight": round(max(turn["in_flight"] for turn in kept)),
                "peak_mb": round(max(turn["peak_mb"] for turn in kept), 1),
                "calls_per_s": round(max(turn["calls_per_s"] for turn in kept)),
            }
        )
    return rows


def verdict(row: dict[str, Any]) -> str:
    if row["variant"] != "practicum" or row["at_once"] not in TARGETS:
        return ""
    target = TARGETS[row["at_once"]]
    said = f"target {target} ms: {'ok' if row['cpu_ms'] <= target else 'MISSED'}"
    if row["at_once"] == 64:
        said += f", {MEMORY} MB: {'ok' if row['peak_mb'] <= MEMORY else 'MISSED'}"
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4000, help="calls a measurement (4000)")
    parser.add_argument("--at-once", type=int, nargs="+", default=[64, 1000], help="calls in flight (64 1000)")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each variant; the best counts (3)")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds a measurement may take ({LIMIT:g})")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    parser.add_argument("--one", choices=VARIANTS, help="measure one variant in this process (against --url)")
    parser.add_argument("--url", help="with --one: the server's address")
    parser.add_argument("--profile", metavar="FILE", help="with --one: write a cProfile there")
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each connection is an open file
    if given.one:
        collect_rarely()
        work = partial(asyncio.run, measure(given.one, given.url, given.at_once[0], given.calls))
        print(json.dumps(profiled(work, given.profile) if given.profile else work()))
        return
    load = [os.getloadavg()]
    rows = [row for at_once in given.at_once for row in compare(at_once, given.calls, given.repeat, given.limit)]
    load.append(os.getloadavg())
    print(f"{'':12} {'at once':>7} {'seen':>5} {'CPU ms/call':>11} {'x openai':>8} {'peak MB':>8} {'calls/s':>8}")
    for row in rows:
        ratio, peak, turns = row["ratio_to_openai"], row["peak_mb"], row["cpu_ms_all"]
        print(
            f"{row['variant']:12} {row['at_once']:>7} {row['in_flight']:>5} {row['cpu_ms']:>11.2f} {ratio:>8.2f} "
            f"{peak:>8.0f} {row['calls_per_s']:>8} {verdict(row)}  (turns: {turns})"
        )
    print(f"load average {load[0][0]:.1f} before, {load[1][0]:.1f} after, {os.cpu_count()} cores")
    if given.json:
        print(json.dumps({"bench": "calls", "rows": rows, "load": [round(each[0], 2) for each in load]}))


if __name__ == "__main__":
    main()
