"""CPU and memory of a process that makes many model calls at once, at zero latency, compared with two bare clients.

practicum: `Run.ask` with schema, validation and journal (SQLite, synchronous=FULL), as every method calls a model.
openai: the bare `AsyncOpenAI` client over aiohttp; the answer is neither validated nor stored.
pydantic-ai: its `direct.model_request` on the same client; the answer is neither validated nor stored.

Each measurement runs in a new process, and so does the server. All processes collect garbage as rarely as the
`practicum` command does. "seen" is the highest number of calls in flight, counted around each request. The variants
take turns; the best of `--repeat` counts. Compare only numbers of the same run. The bench takes about five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from measure import BenchError, Target, in_process, load_average, peak_mb, print_end
from pydantic import Field

from practicum.core.bounded import EntryId, Output
from practicum.core.files import allow_many_files
from practicum.core.gc import collect_rarely
from practicum.testing import start_process

TARGETS = {64: 2.2, 1000: 2.5}
"""Number of calls at once → CPU milliseconds a call."""
RATIO = 1.2
"""CPU of a call over the CPU of a call of the bare `openai` client in the same run."""
MEMORY = 250
"""Peak memory (MB) with 64 calls at once."""
WARM = 200
"""Calls before the clock starts: imports, connections, first-time caches."""
LIMIT = 120.0
"""Time limit of one measurement (s). A measurement takes about 15 s."""
TIMEOUT = 120.0
"""Time limit of a call (s), including opening its connection. It is practicum's limit, and all variants have it."""

SYSTEM = "You sort the messages of a bank's customers and name the entries of the playbook that decide. " * 12
TASK = "The customer with number {n} writes that a card payment of last week shows up twice on the statement. " * 4

One = Callable[[int], Awaitable[object]]


def client_of(url: str) -> Any:
    """Return an OpenAI client with practicum's options.

    The client's default limit for opening a connection, 5 s, is too short when a process on a busy machine opens 1,000
    connections at once.
    """
    from openai import AsyncOpenAI, DefaultAioHttpClient

    transport = DefaultAioHttpClient()
    return AsyncOpenAI(base_url=url, api_key="none", http_client=transport, max_retries=0, timeout=TIMEOUT)


class InFlight:
    """Context manager that counts the blocks that are open. `most` is the highest count."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    async def __aexit__(self, *error: object) -> None:
        self.now -= 1


class Answer(Output):
    """A small schema, much like the agent's own."""

    used: list[EntryId] = Field(max_length=3, description="ids of the entries that apply, best first")
    answer: str = Field(max_length=200, description="the answer to the task")


async def practicum_calls(url: str, at_once: int, stack: AsyncExitStack, in_flight: InFlight) -> One:
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

    async def counted(*arguments: Any) -> Any:
        async with in_flight:
            return await complete(*arguments)

    client.complete = counted
    seat = Seat(client, CallOptions(temperature=0.0))
    state = RunState(Journal(store), {"agent": seat}, ChatAgent(), None, Vectors(WordLlama()), concurrency=at_once)
    root = Run(state)

    async def one(n: int) -> object:
        prompt = Prompt(system=SYSTEM, user=TASK.format(n=n))
        return await root.at(f"step {n}", ("task:t", "attempt:r")).ask("agent", prompt, Answer)

    return one


async def openai_calls(url: str, at_once: int, stack: AsyncExitStack, in_flight: InFlight) -> One:
    client, limit = client_of(url), asyncio.Semaphore(at_once)
    stack.push_async_callback(client.close)
    schema = {"name": "answer", "schema": Answer.model_json_schema()}

    async def one(n: int) -> object:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK.format(n=n)}]
        async with limit, in_flight:
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


async def pydantic_ai_calls(url: str, at_once: int, stack: AsyncExitStack, in_flight: InFlight) -> One:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.providers.openai import OpenAIProvider

    client, limit = client_of(url), asyncio.Semaphore(at_once)
    stack.push_async_callback(client.close)
    model = OpenAIChatModel("sim", provider=OpenAIProvider(openai_client=client))
    output = OutputObjectDefinition(json_schema=Answer.model_json_schema(), name="answer")
    shape = ModelRequestParameters(output_mode="native", output_object=output)

    async def one(n: int) -> object:
        messages = [ModelRequest(parts=[SystemPromptPart(SYSTEM), UserPromptPart(TASK.format(n=n))])]
        async with limit, in_flight:
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
    """Return the CPU (all threads) of one of `calls` calls, the calls a second, and the peak memory of the process."""
    async with AsyncExitStack() as stack:
        in_flight = InFlight()
        one = await VARIANTS[variant](url, at_once, stack, in_flight)
        await asyncio.gather(*map(one, range(WARM)))
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*map(one, range(WARM, WARM + calls)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    each = {"cpu_ms": 1000 * cpu / calls, "calls_per_s": calls / wall}
    return {**each, "peak_mb": peak_mb(), "in_flight": in_flight.most}


def profiled(work: Callable[[], dict[str, float]], path: str) -> dict[str, float]:
    """Return the result of `work`, run under cProfile. Writes the profile to a file for `python -m pstats`."""
    import cProfile

    profile = cProfile.Profile(time.process_time)
    result = profile.runcall(work)
    profile.dump_stats(path)
    return result


def compare(at_once: int, calls: int, repeat: int) -> list[dict[str, Any]]:
    """Measure every variant with `at_once` calls in flight. A row has the best CPU and highest memory of its turns."""
    turns: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    with start_process() as server:
        for _ in range(repeat):
            for variant, row_turns in turns.items():
                server.reset()
                name = f"{variant} with {at_once} calls at once"
                options = ["--url", server.url, "--at-once", str(at_once), "--calls", str(calls)]
                row_turns.append(in_process(name, [__file__, "--one", variant, *options], LIMIT))
                print(f"{name}: {row_turns[-1]['cpu_ms']:.2f} ms a call", file=sys.stderr)
    bare = min(turn["cpu_ms"] for turn in turns["openai"])
    return [
        {
            "variant": variant,
            "at_once": at_once,
            "cpu_ms": round(min(turn["cpu_ms"] for turn in row_turns), 3),
            "cpu_ms_all": [round(turn["cpu_ms"], 2) for turn in row_turns],
            "ratio_to_openai": round(min(turn["cpu_ms"] for turn in row_turns) / bare, 2),
            "in_flight": round(max(turn["in_flight"] for turn in row_turns)),
            "peak_mb": round(max(turn["peak_mb"] for turn in row_turns), 1),
            "calls_per_s": round(max(turn["calls_per_s"] for turn in row_turns)),
        }
        for variant, row_turns in turns.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4000, help="calls a measurement (4000)")
    parser.add_argument("--at-once", type=int, nargs="+", default=[64, 1000], help="calls in flight (64 1000)")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each variant; the best counts (3)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    parser.add_argument("--one", choices=VARIANTS, help="measure one variant in this process (against --url)")
    parser.add_argument("--url", help="with --one: the server's address")
    parser.add_argument("--profile", metavar="FILE", help="with --one: write a cProfile there")
    options = parser.parse_args()
    allow_many_files()
    if options.one:
        collect_rarely()
        work = partial(asyncio.run, measure(options.one, options.url, options.at_once[0], options.calls))
        print(json.dumps(profiled(work, options.profile) if options.profile else work()))
        return
    before, rows = load_average(), []
    try:
        for at_once in options.at_once:
            rows += compare(at_once, options.calls, options.repeat)
    except BenchError as error:
        sys.exit(str(error))
    print(
        f"{'':12} {'at once':>7} {'seen':>5} {'CPU ms/call':>11} {'x openai':>8} {'peak MB':>8} {'calls/s':>8}  turns"
    )
    targets = []
    for row in rows:
        counts = f"{row['variant']:12} {row['at_once']:>7} {row['in_flight']:>5} {row['cpu_ms']:>11.2f}"
        ratios = f"{row['ratio_to_openai']:>8.2f} {row['peak_mb']:>8.0f} {row['calls_per_s']:>8}"
        print(counts, ratios, f" {row['cpu_ms_all']}")
        if row["variant"] == "practicum" and row["at_once"] in TARGETS:
            name = f"{row['at_once']} at once"
            targets.append(Target(name=f"{name}: CPU ms a call", value=row["cpu_ms"], bound=TARGETS[row["at_once"]]))
            targets.append(Target(name=f"{name}: x openai", value=row["ratio_to_openai"], bound=RATIO))
            if row["at_once"] == 64:
                targets.append(Target(name=f"{name}: peak MB", value=row["peak_mb"], bound=MEMORY))
    print_end("calls", rows, targets, before, options.json)


if __name__ == "__main__":
    main()
