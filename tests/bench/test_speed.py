"""The speed bench: its critical path, its simulated world, and the whole bench with tiny sizes and latencies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import Launcher

from practicum.bench import concurrency, simulated_world
from practicum.bench.measure import Target, timed_run
from practicum.bench.speed import (
    ASYNCHRONOUS,
    COMBEE,
    RCL,
    SCALED,
    SEQUENTIAL,
    WAYS,
    SpeedPlan,
    SpeedResult,
    SpeedRow,
    critical_path,
    speed,
)
from practicum.cli.app import main
from practicum.core.errors import UsageError
from practicum.testing import ServerOptions, SimulatedServer, serve, start_process

AT_ONCE: dict[str, Any] = {"latency": 0.0, "per_1k_prompt": 0.0, "per_output": 0.0}
ROW_KEYS = {
    "name", "iterations", "wall_s", "critical_s", "calls", "tokens", "cached_share", "entries", "most", "errors",
    "wall_to_critical", "speed_up", "ceiling",
}  # fmt: skip
KEYS = {"bench", "tasks", "rows", "heavy_tail", "in_flight", "targets", "load"}


@pytest.fixture(scope="module")
def world() -> Iterator[SimulatedServer]:
    """A server of the simulated world at zero latency, in a thread of this process."""
    ready: Future[tuple[SimulatedServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve_until_stopped() -> None:
        stop = asyncio.Event()
        async with serve(ServerOptions(responder=simulated_world.Responder())) as server:
            ready.set_result((server, asyncio.get_running_loop(), stop))
            await stop.wait()

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(asyncio.run, serve_until_stopped())
        server, loop, stop = ready.result(30)
        yield server
        loop.call_soon_threadsafe(stop.set)
        serving.result()


def test_the_world_teaches_a_distinct_rule_a_task(world: SimulatedServer, tmp_path: Path) -> None:
    result, wall = timed_run(world.url, 12, "combee", {"batch": 6}, tmp_path / "run", 32)
    assert (result.usage.calls, len(result.context), result.steps) == (24 + 2 * 2, 12, 2)
    assert result.errors == {}
    assert wall > 0


def test_half_of_the_answers_are_wrong_at_first_and_right_after_a_reflection(
    world: SimulatedServer, tmp_path: Path
) -> None:
    result, _ = timed_run(world.url, 10, "ace", {"batch": 10, "rounds": 1}, tmp_path / "run", 10)
    assert result.by_role["agent"].calls == 10 + 5
    hard, easy = simulated_world.tasks(10, easy=5)[9], simulated_world.tasks(10, easy=5)[0]
    assert hard.input.startswith("Hard message 9:")
    assert easy.input.startswith("Message 0:")
    assert {len(task.input) for task in simulated_world.tasks(20)} == {400}


@pytest.mark.slow
def test_the_critical_path_of_one_task_at_a_time_is_the_sum_of_the_latencies(tmp_path: Path) -> None:
    law = ServerOptions(latency=0.004, per_1k_prompt=0.002, per_output=0.0001)
    with start_process(simulated_world.MODULE, latency=0.004, per_1k_prompt=0.002, per_output=0.0001) as server:
        timed_run(server.url, 5, "ace", {}, tmp_path / "run", 4)
        assert critical_path(tmp_path / "run", law) == pytest.approx(server.stats()["latency_sum"])
    with pytest.raises(ValueError, match="heavy tail"):
        critical_path(tmp_path / "run", ServerOptions(tail=1.0))


@pytest.mark.slow
def test_the_bench_measures_every_part(tmp_path: Path) -> None:
    reports: list[str] = []
    plan = SpeedPlan(
        parts=(*WAYS, "heavy-tail"),
        tasks=8,
        batch=4,
        latencies=ServerOptions(latency=0.005, per_1k_prompt=0.0, per_output=0.0),
        tail_tasks=8,
        draws=1,
    )
    found = speed(plan, reports.append)
    value = json.loads(json.dumps(found.as_json()))
    assert [row["name"] for row in value["rows"]] == [
        "sequential", "naive", "combee", "combee-model", "combee-auto", "asynchronous", "rcl", "scaled", "network",
    ]  # fmt: skip
    assert all(set(row) == ROW_KEYS for row in value["rows"])
    one, many, free = (found.row(name) for name in (SEQUENTIAL, COMBEE, ASYNCHRONOUS))
    assert one
    assert many
    assert free
    # Attempt, reflection and curation eight times, and twice for batches of four.
    assert one.critical_s == pytest.approx(8 * 3 * 0.005)
    assert many.critical_s == pytest.approx(2 * 3 * 0.005)
    assert many.speed_up(one)[1] == pytest.approx(4)
    # Without a barrier, an attempt follows another only where it had to wait for it.
    assert 3 * 0.005 <= free.critical_s <= one.critical_s
    assert {row["entries"] for row in value["rows"][:-3]} == {8}
    everything = found.row(RCL)
    assert everything
    # Executions, heads, mutator and state; half of the tasks fail, so each step has lessons.
    assert everything.critical_s == pytest.approx(4 * everything.iterations * 0.005)
    scaled = found.row(SCALED)
    assert scaled
    # Attempts, verdicts, contrast and extractions, one task at a time.
    assert scaled.critical_s == pytest.approx(8 * 4 * 0.005)
    assert scaled.calls >= 8 * (5 + 1 + 1 + 1)
    network = found.row("network")
    assert network
    assert network.critical_s
    # Judging, decomposing, a part with at most two rounds, aggregating and the rewards, in two steps.
    assert 2 * 6 * 0.005 <= network.critical_s <= 2 * 9 * 0.005 + 1e-9
    assert set(value["heavy_tail"]) == {"synchronous", "asynchronous", "ratio"}
    assert [target["what"] for target in value["targets"]] == [
        "combee: wall / critical path", "rcl: wall / critical path", "scaled: wall / critical path",
        "network: wall / critical path", "combee: speed-up",
        "heavy tail: synchronous / asynchronous",
    ]  # fmt: skip
    assert len(reports) == 11


def test_targets_include_what_was_missed_and_the_ceiling() -> None:
    same = {"calls": 1, "tokens": 1, "cached_share": 0.0, "entries": 1, "most": 1, "errors": {}}
    one = SpeedRow(name=SEQUENTIAL, iterations=90, wall_s=80.0, critical_s=78.0, **same)  # type: ignore[arg-type]
    many = SpeedRow(name=COMBEE, iterations=3, wall_s=4.0, critical_s=3.9, **same)  # type: ignore[arg-type]
    near, faster = SpeedResult(rows=[one, many]).targets()
    assert near.met
    assert (
        faster.summary()
        == "combee: speed-up: 20 (at least 15): ok; ceiling 20.0 by the critical paths, 30 by iterations"
    )
    assert "MISSED" in Target(what="CPU", value=4.0, bound=3.0).summary()


@pytest.mark.slow
def test_attempts_in_flight_are_measured_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "METHODS", {"combee": concurrency.METHODS["combee"]})
    (row,) = concurrency.measure_all(12, lambda message: None)
    assert (row.method, row.at_once, row.calls, row.most) == ("combee", 12, 27, 12)
    assert row.cpu_ms > 0
    assert 20 < row.peak_mb < 2000
    assert [target.bound for target in row.targets()] == [3.0, 1000.0]


@pytest.mark.parametrize("name", ["asynchronous", pytest.param("naive", marks=pytest.mark.slow)])
def test_attempts_in_flight_are_counted(name: str, world: SimulatedServer, tmp_path: Path) -> None:
    row = concurrency.measure_method(name, world.url, 12, tmp_path)
    assert row.most >= 12
    assert (row.at_once, row.cpu_ms > 0) == (12, True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"parts": ("quick",)}, "known are sequential"), ({"tasks": 0}, "tasks=0"), ({"draws": -1}, "draws=-1")],
)
def test_wrong_plans_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SpeedPlan(**wrong)


@pytest.mark.slow
def test_the_command_prints_one_json_object(launcher: Launcher, tmp_path: Path) -> None:
    arguments = ["bench", "speed", "--tasks", "2", "--only", "naive,sequential", "--output-tokens", "5", "--json"]
    done = launcher.run(arguments, tmp_path)
    assert done.code == 0, done.err
    assert set(done.json) == KEYS
    assert [row["name"] for row in done.json["rows"]] == ["sequential", "naive"]
    assert "load average" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "quick"], "unknown 'quick' in --only: known are sequential, naive"),
        (["--only", ","], "--only ',' names nothing"),
        (["--tasks", "0"], "--tasks"),
    ],
)
def test_bad_input_is_one_clear_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "speed", *arguments])
    assert end.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("practicum: ")]
    assert message in line
