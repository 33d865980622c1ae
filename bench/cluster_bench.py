"""The cost of a cluster: the time that Ray adds to an attempt, and the driver's CPU and memory.

All numbers are from one process that does not learn: `practicum.evaluate` with a user's function as the agent, on a Ray
cluster of two nodes on this machine. The journal is written with synchronous=FULL, as in every run.

    attempts      400 attempts of 0.2 s, 100 at once, 20 kB of context: milliseconds added to each attempt, from the
                  wall time and the ideal time of the four rounds
    calls         a turn of an agent with tools on a worker: milliseconds between the driver's answer and the next call
    in flight     1,000 attempts at once
    simulated     a simulated Ray that answers after a delay, with 10,000 attempts in flight: attempts a second,
                  the driver's CPU for each and its memory. The driver can keep a cluster busy up to this size: the
                  number of attempts that it starts during one attempt.
    lost          the driver is killed at random moments and resumed: the final context is equal to the context of a run
                  on one machine, and no answered call is made again
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import pickle
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from measure import load_average

import practicum
from practicum.core import playbook
from practicum.core.context import seed_context
from practicum.core.types import Task, Trace
from practicum.models.scripted import Call, ScriptedClient
from practicum.plugins.ray.messages import RayOutcome
from practicum.plugins.ray.pool import Pool

ADDED = 40.0
"""Target: milliseconds added to an attempt of 0.2 s."""

CALL = 5.0
"""Target: milliseconds added to a model call of an agent on a worker."""

CONTEXT = seed_context([("rules", f"rule {n}: " + "x" * 180) for n in range(100)])
"""Context of about 20 kB."""

KILLS = 50


async def fifth(input: str, context: str) -> str:
    await asyncio.sleep(0.2)
    return "done"


def tasks(n: int) -> list[Task]:
    return [Task(f"t{i}", f"message {i}", "done") for i in range(n)]


def count(by: int) -> str:
    """Count on."""
    return str(by)


def acting(call: Call) -> str:
    """Answer as an agent that calls a tool in ten turns and then finishes."""
    turn = 1 + sum('"action"' in turn.assistant for turn in call.prompt.turns)
    action = {"count": {"by": turn}} if turn < 11 else {"finish": {"answer": "done"}}
    return json.dumps({"used": [], "thought": "so", "action": action})


class Clock(practicum.Watch):
    """Watch that records the times when attempts end."""

    def __init__(self) -> None:
        self.ended_at: list[float] = []

    def attempted(self, task: Task, trace: Trace) -> None:
        self.ended_at.append(time.monotonic())


@dataclass(frozen=True)
class Cost:
    """Cost of an evaluation: seconds of each later round of attempts and of the first round, and CPU seconds of this
    process and bytes of the store for each attempt."""

    each: float
    first: float
    cpu: float
    store: float


async def evaluated(n: int, at_once: int, parts: practicum.Parts, out: Path, **config: Any) -> Cost:
    clock, began, cpu = Clock(), time.monotonic(), time.process_time()
    result = await practicum.evaluate(
        tasks(n), CONTEXT, parts=parts, out=out, concurrency=at_once, watch=clock, **config
    )
    assert result.score == 1.0
    assert result.errors == 0
    # The workers start in the first round.
    ends = clock.ended_at[at_once - 1], clock.ended_at[-1]
    size = sum(file.stat().st_size for file in out.iterdir())  # noqa: ASYNC240
    each = (ends[1] - ends[0]) / max(n / at_once - 1, 1)
    return Cost(each, ends[0] - began, (time.process_time() - cpu) / n, size / n)


async def attempts(folder: Path) -> dict[str, float]:
    """Measure the time added to an attempt, in this process and on Ray in turn."""
    parts = practicum.Parts(agent=fifth, clients={"agent": ScriptedClient(lambda call: "done")})
    results: dict[str, float] = {}
    for name, n, at_once in (("attempts", 500, 100), ("in flight", 3000, 1000)):
        local, on_ray = [], []
        for turn in range(3):
            how: dict[str, Any] = {"engine": "ray", "resources": f"cpu={2 / at_once}"}
            local.append(await evaluated(n, at_once, parts, folder / f"{name} local {turn}"))
            on_ray.append(await evaluated(n, at_once, parts, folder / f"{name} ray {turn}", **how))
        here, there = min(local, key=lambda cost: cost.each), min(on_ray, key=lambda cost: cost.each)
        results |= {
            f"{name}: ms added to each here": 1000 * (here.each - 0.2),
            f"{name}: ms added to each": 1000 * (there.each - 0.2),
            f"{name}: seconds until the first are done": there.first,
            f"{name}: driver CPU ms an attempt here": 1000 * here.cpu,
            f"{name}: driver CPU ms an attempt": 1000 * there.cpu,
            f"{name}: kB in the store an attempt": there.store / 1000,
        }
    return results


async def calls(folder: Path) -> dict[str, float]:
    """Measure the time added to a turn of an agent on a worker: the median time from an answer to the next call, with
    one attempt after the other."""
    gaps: dict[str, float] = {}
    for engine in ("local", "ray"):
        times: list[tuple[bool, float]] = []

        def respond(call: Call, times: list[tuple[bool, float]] = times) -> str:
            times.append((not call.prompt.turns, time.monotonic()))
            return acting(call)

        parts = practicum.Parts(tools=[count], clients={"agent": ScriptedClient(respond)})
        await evaluated(30, 1, parts, folder / f"calls {engine}", engine=engine)
        gaps[engine] = statistics.median(
            later - earlier for (_, earlier), (first, later) in pairwise(times) if not first
        )
    return {
        "calls: ms a turn here": 1000 * gaps["local"],
        "calls: ms a turn on Ray": 1000 * gaps["ray"],
        "calls: ms added to each": 1000 * (gaps["ray"] - gaps["local"]),
    }


class Simulated(Pool):
    """Simulated cluster that ends every attempt after a delay of about `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.sent, self.at_once = seconds, 0, 10**9
        self.in_flight = self.most = 0
        self.random = random.Random(0)

    @property
    def nodes(self) -> list[str]:
        return [f"node {n}" for n in range(100)]

    async def run(self, cargo: Any, job: Any, answer: Any, check: Any, moved: Any) -> Any:
        # A real pool also pickles the job and reads its outcome.
        self.sent += len(pickle.dumps(job))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        node = f"node {self.random.randrange(100)}"
        moved(node, 1)
        await asyncio.sleep(self.seconds * self.random.uniform(0.8, 1.2))
        moved(node, -1)
        self.in_flight -= 1
        outcome: RayOutcome = pickle.loads(pickle.dumps(RayOutcome(Trace("done"))))
        return outcome.value


async def simulated(folder: Path, at_once: int, n: int, seconds: float) -> dict[str, float]:
    """Measure the driver with `n` attempts of `seconds` each, `at_once` of them in flight, on a simulated cluster."""
    from practicum.plugins.ray.remote import RemoteAgent, RemoteWork
    from practicum.session import evaluate, opening

    pool = Simulated(seconds)
    opened = opening.open_state

    @asynccontextmanager
    async def on_pool(*arguments: Any, **how: Any) -> Any:
        async with opened(*arguments, **how) as state:
            agent, remote = state.agent, RemoteWork(pool, None, state)  # type: ignore[arg-type]
            state.agent = RemoteAgent(remote, agent.journaled, agent.max_turns, agent.identity)
            yield state

    evaluate.open_state = on_pool  # type: ignore[assignment]
    try:
        parts = practicum.Parts(agent=fifth, clients={"agent": ScriptedClient(lambda call: "done")})
        began = time.monotonic()
        cost = await evaluated(n, at_once, parts, folder / f"simulated {at_once}")
        wall = time.monotonic() - began
    finally:
        evaluate.open_state = opened
    name = f"simulated, {at_once:,} at once"
    return {
        f"{name}: most in flight": pool.most, f"{name}: attempts a second": n / wall,
        f"{name}: driver CPU ms an attempt": 1000 * cost.cpu, f"{name}: kB sent an attempt": pool.sent / n / 1000,
        f"{name}: kB in the store an attempt": cost.store / 1000,
        f"{name}: MB at the peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }  # fmt: skip


KILLED = """
import sys, asyncio
sys.path.insert(0, {bench!r})
import practicum, cluster_bench
from pathlib import Path
folder, address = Path(sys.argv[1]), sys.argv[2]
print(practicum.run_sync(cluster_bench.learned(folder, address)), flush=True)
"""


async def learned(folder: Path, address: str | None) -> str:
    """Start or resume a short run that learns. Returns its context as JSON."""
    from practicum.session.learn import begun
    from practicum.testing import fill

    def respond(call: Call) -> str:
        with (folder.parent / f"{folder.name}.calls").open("a") as file:
            file.write(f"{hash_of(call)}\n")
        if call.schema is None:
            return "done"
        filled = fill(call.schema, int(hash_of(call), 16))
        return json.dumps(acting_of(call) if call.role == "agent" else filled)

    parts = practicum.Parts(tools=[count], clients={"agent": ScriptedClient(respond)})
    if begun(folder):
        result = await practicum.resume(folder, parts=parts)
    else:
        where: dict[str, Any] = {"engine": "ray", "ray_address": address, "resources": "cpu=0.1"} if address else {}
        result = await practicum.learn(
            tasks(8), out=folder, parts=parts, method="ace", settings={"rounds": 1, "batch": 4}, concurrency=4, **where
        )
    return playbook.export(result.context, "json")


def hash_of(call: Call) -> str:
    return sha256(f"{call.role}{call.text}{call.options.seed}".encode()).hexdigest()[:12]


def acting_of(call: Call) -> dict[str, Any]:
    turn = 1 + sum('"action"' in turn.assistant for turn in call.prompt.turns)
    action = {"count": {"by": turn}} if turn < 4 else {"finish": {"answer": "done"}}
    return {"used": [], "thought": "so", "action": action}


def killed(folder: Path, address: str, kills: int) -> dict[str, float]:
    """Kill the driver after a random number of calls, many times, in short runs. Each run must end with the context of
    a run on one machine. A call is made again only if it was in flight at a kill."""
    expected = practicum.run_sync(learned(folder / "one", None))
    calls = len((folder / "one.calls").read_text().split())
    code, rng, done, runs, again = KILLED.format(bench=str(Path(__file__).parent)), random.Random(0), 0, 0, 0
    while done < kills:
        run, log, runs = folder / f"killed {runs}", folder / f"killed {runs}.calls", runs + 1
        while True:
            calls_before = len(log.read_text().split()) if log.exists() else 0
            until = calls_before + rng.randrange(1, calls // 3) if done < kills else 10**9
            command = [sys.executable, "-c", code, str(run), address]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            while process.poll() is None and (not log.exists() or len(log.read_text().split()) < until):
                time.sleep(0.002)
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.communicate()
                done += 1
                continue
            out, _ = process.communicate()
            assert process.returncode == 0
            assert out.strip() == expected.strip(), f"{run} ended with another context"
            break
        asked = log.read_text().split()
        again += len(asked) - len(set(asked))
    return {
        "lost: kills of the driver": done,
        "lost: runs, all with the same context": runs,
        "lost: calls of a run": calls,
        "lost: calls in flight at a kill, made again": again,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="parts: attempts, calls, simulated, lost (all)")
    parser.add_argument("--kills", type=int, default=KILLS)
    asked = parser.parse_args()
    parts = asked.parts or ["attempts", "calls", "simulated", "lost"]
    before = load_average()
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="practicum-cluster-") as name:
        folder = Path(name)
        if "simulated" in parts:
            for at_once in (1000, 10_000):
                results |= practicum.run_sync(simulated(folder, at_once, 3 * at_once, 10.0))
        if {"attempts", "calls", "lost"} & {*parts}:
            os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
            logging.getLogger("ray").setLevel(logging.ERROR)
            import ray
            from ray.cluster_utils import Cluster

            small = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
            cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
            cluster.add_node(**small)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            if "attempts" in parts:
                results |= practicum.run_sync(attempts(folder))
            if "calls" in parts:
                results |= practicum.run_sync(calls(folder))
            ray.shutdown()
            if "lost" in parts:
                results |= killed(folder, cluster.address, asked.kills)
            cluster.shutdown()
    for key, value in results.items():
        print(f"{key:60} {value:12,.3f}")
    limits = {"attempts: ms added to each": ADDED, "calls: ms added to each": CALL}
    print(f"load before: {before}, after: {load_average()}")
    missed = [key for key, limit in limits.items() if results.get(key, 0) > limit]
    sys.exit(f"above the target: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
