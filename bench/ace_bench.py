"""ACE on a simulated server: the time that practicum adds to the models' time, and the use of the prefix cache.

One run learns from 90 tasks one at a time with ACE's default settings. Instructions have 300 tokens, tasks 100. The
server answers after 0.2 s + 0.02 s per 1,000 prompt tokens + 0.002 s per output token, keeps an idealised prefix
cache, and plays all three roles: the agent is right at once on six tasks of ten, and on the others after it read the
reflection. Each reflection has a different rule, which the curator adds. So the playbook grows by an entry a task.

    wall / latency   wall time of learning over the sum of the latencies of all calls, which are made one at a time
    agent cached     share of the agent's prompt tokens that came from the prefix cache, over the whole training

With --curve: the CPU time of a step with playbooks of growing size and a scripted model, without a server.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import simulated_world
from measure import Target, load_average, print_end
from simulated_world import INSTRUCTIONS, LABELS, attempt, respond, tasks, words

import practicum
from practicum.core.context import seed_context
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.components import Parts
from practicum.session.learn import learn
from practicum.session.result import Watch
from practicum.testing import ServerProcess, start_process

RATIO, CACHED = 1.03, 0.85
"""Targets: wall time over the sum of the latencies, and the share of the agent's tokens from the cache."""


async def learn_tasks(server: ServerProcess, count: int, rounds: int, folder: Path) -> practicum.Result:
    return await practicum.learn(
        tasks(count),
        method="ace",
        model=f"{server.url}#sim",
        settings={"rounds": rounds},
        choices=LABELS,
        instructions=INSTRUCTIONS,
        out=folder,
    )


async def bare_ratio(server: ServerProcess, calls: int = 15) -> float:
    """Return wall time over latencies of the bare openai client, one call at a time, as a baseline of the machine."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    schema = {"name": "answer", "schema": {"type": "object", "properties": {}}}
    shape: Any = {"type": "json_schema", "json_schema": schema}
    turns: Any = [{"role": "system", "content": INSTRUCTIONS * 5}, {"role": "user", "content": tasks(1)[0].input}]
    async with AsyncOpenAI(base_url=server.url, api_key="none", http_client=DefaultAioHttpClient()) as client:
        for n in range(calls + 1):
            if n == 1:  # the first call opens the connection and does not count
                before, began = server.stats()["latency_sum"], time.perf_counter()
            await client.chat.completions.create(model="sim", messages=turns, response_format=shape)
        wall = time.perf_counter() - began
    return wall / float(server.stats()["latency_sum"] - before)


async def one_run(count: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Measure one run with a new server. A run of one task before it loads the libraries and the embedder."""
    with start_process(simulated_world.SCRIPT, **simulated_world.LATENCIES) as server:
        began = time.perf_counter()
        await learn_tasks(server, 1, rounds, folder / "warm")
        startup = time.perf_counter() - began - server.stats()["latency_sum"]
        bare = [await bare_ratio(server)]
        server.reset()
        began, cpu = time.perf_counter(), time.process_time()
        result = await learn_tasks(server, count, rounds, folder / "run")
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        served = server.stats()
        bare.append(await bare_ratio(server))
    by_role = {role: round(usage.cached_share, 4) for role, usage in result.by_role.items()}
    return {
        "tasks": count,
        "rounds": rounds,
        "calls": result.usage.calls,
        "entries": len(result.context),
        "wall_s": round(wall, 2),
        "latency_s": round(served["latency_sum"], 2),
        "startup_s": round(startup, 2),
        "bare_openai": round(sum(bare) / 2, 4),
        "wall_to_latency": round(wall / served["latency_sum"], 4),
        "cpu_ms_a_step": round(1000 * cpu / count, 1),
        "agent_cached": by_role["agent"],
        "all_cached": round(result.usage.cached_share, 4),
        "by_role": by_role,
        "errors": result.errors,
    }


class Clock(Watch):
    """Watch that records the CPU time of this process after each step."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def stepped(self, report: Any, progress: Any) -> None:
        self.at.append(time.process_time())


async def step_cpu(entries: int, steps: int, folder: Path) -> dict[str, Any]:
    """Measure the CPU time (ms) of a step with `entries` entries. The first step, which embeds all, is separate."""

    def answer(call: Call) -> str:
        if call.schema is None:
            return attempt(call.text, call.prompt.user)
        return respond(call.schema["title"], call.schema, call.text, call.prompt.user)

    context = seed_context(
        ("rules", f"If it speaks of {words(f'old {n}', 10)}, then answer {n}.") for n in range(entries)
    )
    clock = Clock()
    began = time.process_time()
    await learn(
        tasks(steps + 1),
        method="ace",
        settings={"budget": 10**9},
        choices=LABELS,
        instructions=INSTRUCTIONS,
        parts=Parts(clients={"agent": ScriptedClient(answer)}),
        seed_context=context,
        watch=clock,
        out=folder / f"run-{entries}",
    )
    spent = [1000 * (b - a) for a, b in zip(clock.at, clock.at[1:], strict=False)]
    return {
        "entries": entries,
        "median_ms": round(statistics.median(spent), 1),
        "best_ms": round(min(spent), 1),
        "first_ms": round(1000 * (clock.at[0] - began), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=90, help="tasks to learn from, one at a time (90)")
    parser.add_argument("--rounds", type=int, default=3, help="ACE's rounds of refinement (3, its default)")
    parser.add_argument(
        "--curve", type=int, nargs="*", metavar="N", help="only measure the CPU of a step with N entries"
    )
    parser.add_argument("--steps", type=int, default=20, help="with --curve: steps a size (20)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    load = load_average()
    with tempfile.TemporaryDirectory(prefix="ace_bench-") as name:
        if options.curve is not None:
            rows = [asyncio.run(step_cpu(n, options.steps, Path(name))) for n in options.curve or [100, 1000, 10000]]
            print(f"{'entries':>8} {'CPU ms a step':>14} {'best':>8} {'first':>8}")
            for row in rows:
                print(f"{row['entries']:>8} {row['median_ms']:>14} {row['best_ms']:>8} {row['first_ms']:>8}")
            print_end("ace-curve", rows, [], load, options.json)
            return
        run = asyncio.run(one_run(options.tasks, options.rounds, Path(name)))
    print(f"{run['calls']} calls in {run['wall_s']} s, {run['entries']} entries from {options.tasks} tasks")
    print(f"all roles cached {run['all_cached']:.1%}  {run['by_role']}")
    print(f"CPU of a step    {run['cpu_ms_a_step']} ms")
    note = f"bare openai client {run['bare_openai']:.3f}, before and after"
    targets = [
        Target(name="wall / latency", value=run["wall_to_latency"], bound=RATIO, note=note),
        Target(name="agent cached", value=run["agent_cached"], bound=CACHED, at_least=True),
    ]
    print_end("ace", run, targets, load, options.json)


if __name__ == "__main__":
    main()
