"""Speed of learning from many tasks at once, compared with one task at a time (Combee, section 4.2).

ACE learns from the tasks of the simulated world one at a time; other methods learn from many tasks at once. One
reflection follows each attempt, so an iteration is attempts, reflections, level 1, level 2. Three more methods:

- RCL with all its primitives: executions (groups and twins included), the heads of all failures, mutator, state.
- ReasoningBank with five attempts a task, one task at a time: the slowest attempt, verdicts, contrast, extractions.
- MAEL: judging, decomposing, the slowest part with its critiques, aggregating, rewards.

A run before the clock starts loads the libraries and the embedder.

    critical path     duration of the run if practicum itself took no time: the longest chain of calls that wait for
                      each other
    speed-up          wall time of one task at a time over this wall time; its ceiling is the ratio of the critical
                      paths
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import concurrency
import simulated_world
from concurrency import ConcurrencyRow
from measure import BenchError, OnResult, Target, arguments, load_average, print_end, print_table, rounded, timed_run
from sqlalchemy import case

from practicum.session.learn import resume
from practicum.store import schema
from practicum.store.database import Store
from practicum.testing import ServerOptions, ServerProcess, start_process

FASTER, TAIL_FASTER = 15.0, 1.8
"""Targets: combee's speed-up, and the speed-up without a barrier if latencies have a heavy tail."""

SEQUENTIAL, COMBEE, ASYNCHRONOUS, RCL, SCALED, NETWORK, HEAVY_TAIL, IN_FLIGHT = (
    "sequential", "combee", "asynchronous", "rcl", "scaled", "network", "heavy-tail", "in-flight",
)  # fmt: skip
WAYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    SEQUENTIAL: ("ace", {"batch": 1}),
    "naive": ("naive", {}),
    COMBEE: ("combee", {}),
    "combee-model": ("combee", {"join": "model"}),
    "combee-auto": ("combee", {"batch": "auto"}),
    ASYNCHRONOUS: ("combee", {"asynchronous": True}),
    RCL: ("rcl", {"batch": 3, "group": 3, "twin": True, "heads": True, "replay": 0.5, "state": True}),
    SCALED: ("reasoning_bank", {"batch": 1, "k": 5}),
    NETWORK: ("mael", {"batch": 5, "rounds": 2}),
}
"""Name → method and its settings. A batch has `SpeedPlan.batch` tasks unless the settings have another number."""
NEAR: Mapping[str, float] = {COMBEE: 1.10, RCL: 1.10, SCALED: 1.10, NETWORK: 1.15}
"""Targets: wall time over the critical path."""
PARTS = (*WAYS, HEAVY_TAIL, IN_FLIGHT)
EXECUTIONS = 120
"""Maximum number of executions that rcl runs at once: thirty tasks, each in a group of three and with a twin."""
FEW = 15
"""Number of tasks of `SCALED`, which learns from one at a time, and of `NETWORK`, which makes many calls a task."""
REASONING: Mapping[str, Any] = {"labels": False, "reasoning": True}
"""Additional options of `SCALED`: attempts differ in length and score, and a judge compares them."""
SYNCHRONOUS = "synchronous"
"""Name of combee with a barrier, in the comparison with `ASYNCHRONOUS`."""


@dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """Plan of the measurements. `draws` is the number of servers with a heavy tail. Each has different latencies, and
    their times are added."""

    parts: Sequence[str] = PARTS
    tasks: int = 90
    batch: int = 40
    latencies: ServerOptions = field(default_factory=lambda: ServerOptions(**simulated_world.LATENCIES))
    tail: float = 1.0
    tail_tasks: int = 240
    draws: int = 3
    at_once: int = 1000

    def __post_init__(self) -> None:
        if unknown := [part for part in self.parts if part not in PARTS]:
            raise BenchError(f"unknown {unknown[0]!r} in --only: known are {', '.join(PARTS)}")
        for name in ("tasks", "batch", "tail_tasks", "draws", "at_once"):
            if getattr(self, name) < 1:
                raise BenchError(f"{name}={getattr(self, name)} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """Measurement of one method. Times are in seconds, `most` is the highest number of calls in flight, and `errors`
    are the run's counts."""

    name: str
    iterations: int
    wall_s: float
    critical_s: float
    calls: int
    tokens: int
    cached_share: float
    entries: int
    most: int
    errors: Mapping[str, int]

    @property
    def ratio(self) -> float:
        """Wall time over the critical path."""
        return self.wall_s / self.critical_s

    def speed_up(self, over: SpeedRow) -> tuple[float, float]:
        """Return the speed-up over another row, and its ceiling: the same ratio of the critical paths."""
        return over.wall_s / self.wall_s, over.critical_s / self.critical_s


@dataclass(frozen=True, kw_only=True)
class SpeedResult:
    """All measurements. `tail` holds wall times in seconds, a value a draw."""

    rows: Sequence[SpeedRow] = ()
    tail: Mapping[str, Sequence[float]] = field(default_factory=dict)
    in_flight: Sequence[ConcurrencyRow] = ()

    def row(self, name: str) -> SpeedRow | None:
        return next((row for row in self.rows if row.name == name), None)

    @property
    def tail_ratio(self) -> float | None:
        """Speed-up of combee without a barrier over combee with one, if latencies have a heavy tail."""
        return sum(self.tail[SYNCHRONOUS]) / sum(self.tail[ASYNCHRONOUS]) if self.tail else None

    def targets(self) -> list[Target]:
        targets = [
            Target(name=f"{row.name}: wall / critical path", value=row.ratio, bound=NEAR[row.name])
            for row in self.rows
            if row.name in NEAR
        ]
        one, many = self.row(SEQUENTIAL), self.row(COMBEE)
        if one and many:
            times, ceiling = many.speed_up(one)
            note = f"ceiling {ceiling:.1f} by the critical paths, {one.iterations / many.iterations:.3g} by iterations"
            targets.append(Target(name="combee: speed-up", value=times, bound=FASTER, at_least=True, note=note))
        if self.tail_ratio is not None:
            title = "heavy tail: synchronous / asynchronous"
            targets.append(Target(name=title, value=self.tail_ratio, bound=TAIL_FASTER, at_least=True))
        return targets + [target for row in self.in_flight for target in row.targets()]

    def as_json(self) -> dict[str, Any]:
        """Return the values that `--json` prints."""
        one, rows = self.row(SEQUENTIAL), []
        for row in self.rows:
            times, ceiling = row.speed_up(one) if one else (None, None)
            ratios = {"wall_to_critical": row.ratio, "speed_up": times, "ceiling": ceiling}
            rows.append(rounded(asdict(row) | ratios))
        tail = {name: [round(s, 3) for s in seconds] for name, seconds in self.tail.items()}
        return {
            "rows": rows,
            "heavy_tail": rounded({**tail, "ratio": self.tail_ratio}) if self.tail else None,
            "in_flight": [asdict(row) for row in self.in_flight],
            "targets": [target.as_json() for target in self.targets()],
        }


def speed(plan: SpeedPlan, report: OnResult = lambda line: None) -> SpeedResult:
    """Make the measurements of the plan, one after another."""
    rows: list[SpeedRow] = []
    ways = [name for name in WAYS if name in plan.parts]
    with tempfile.TemporaryDirectory(prefix="practicum-speed-") as name:
        folder = Path(name)
        if ways:
            with _warm_server(plan.latencies, folder / "warm") as server:
                for way in ways:
                    rows.append(_row(way, plan, server, folder / way))
                    report(f"{way}: {rows[-1].wall_s:.1f} s")
        tail = _heavy_tail(plan, folder, report) if HEAVY_TAIL in plan.parts else {}
    in_flight = concurrency.measure_all(plan.at_once, report) if IN_FLIGHT in plan.parts else []
    return SpeedResult(rows=rows, tail=tail, in_flight=in_flight)


def _row(name: str, plan: SpeedPlan, server: ServerProcess, folder: Path) -> SpeedRow:
    method, settings = WAYS[name]
    at_once = EXECUTIONS if name in (RCL, SCALED, NETWORK) else 2 * plan.batch
    tasks = min(FEW, plan.tasks) if name in (SCALED, NETWORK) else plan.tasks
    more = REASONING if name == SCALED else {}
    server.reset()
    result, wall = timed_run(server.url, tasks, method, {"batch": plan.batch, **settings}, folder, at_once, **more)
    usage, most = result.usage, server.stats()["max_in_flight"]
    return SpeedRow(
        name=name, iterations=result.steps, wall_s=wall, critical_s=critical_path(folder, plan.latencies),
        calls=usage.calls, tokens=usage.tokens, cached_share=usage.cached_share, entries=len(result.context),
        most=most, errors=result.errors,
    )  # fmt: skip


def critical_path(folder: Path, latencies: ServerOptions) -> float:
    """Return the critical path (s) of the finished run in `folder`, whose server had these latencies.

    The run is replayed from its journal with exact latencies in place of the measured ones: the server computes a
    latency from the tokens, and the journal has the tokens. Raises ValueError for a heavy tail, because then a latency
    does not follow from the tokens.
    """
    if latencies.tail:
        raise ValueError("with a heavy tail, a latency does not follow from the tokens")
    columns: Any = schema.journal.c
    exact = latencies.latency_of("", columns.input_tokens, columns.output_tokens)
    with Store.open(folder) as store:
        changed = store.update(schema.journal).values(seconds=case((columns.calls > 0, exact), else_=0.0))
        store.change(lambda at: at.run(changed))
    return asyncio.run(resume(folder)).critical


def _heavy_tail(plan: SpeedPlan, folder: Path, report: OnResult) -> dict[str, list[float]]:
    """Return the wall times of each draw with and without a barrier, for the same number of attempts. A prompt has the
    same latency in both."""
    spent: dict[str, list[float]] = {SYNCHRONOUS: [], ASYNCHRONOUS: []}
    for draw in range(plan.draws):
        with _warm_server(replace(plan.latencies, tail=plan.tail, seed=draw), folder / f"warm-{draw}") as server:
            for name, walls in spent.items():
                settings = {"batch": plan.batch, "asynchronous": name == ASYNCHRONOUS}
                place = folder / f"{name}-{draw}"
                walls.append(timed_run(server.url, plan.tail_tasks, "combee", settings, place, 2 * plan.batch)[1])
                report(f"heavy tail, {name}: {walls[-1]:.1f} s")
    return spent


@contextmanager
def _warm_server(latencies: ServerOptions, folder: Path) -> Iterator[ServerProcess]:
    """Start a server in a new process, and make small runs that load libraries and the embedder."""
    with start_process(simulated_world.SCRIPT, **asdict(latencies)) as server:
        timed_run(server.url, 4, "combee", {"batch": 4}, folder, 8)
        timed_run(server.url, 1, "mael", {}, folder.with_name(f"{folder.name}-network"), 8)
        yield server


def show(result: SpeedResult) -> None:
    """Print the tables."""
    one, rows = result.row(SEQUENTIAL), []
    for row in result.rows:
        times, ceiling = row.speed_up(one) if one else (None, None)
        ratios = [None if times is None else f"{times:.1f}", None if ceiling is None else f"{ceiling:.1f}"]
        seconds = (f"{row.wall_s:.2f}", f"{row.critical_s:.2f}", f"{row.ratio:.3f}")
        counts = (row.calls, f"{row.tokens:,}", f"{row.cached_share:.0%}", row.most)
        rows.append((row.name, row.iterations, *seconds, *ratios, *counts))
    if rows:
        columns = ("way", "steps", "wall s", "critical s", "ratio", "speed-up", "ceiling", "calls", "tokens", "cached")
        print_table((*columns, "at once"), rows)
    for name, spent in result.tail.items():
        print(f"heavy tail, {name}: {' + '.join(f'{s:.1f}' for s in spent)} = {sum(spent):.1f} s")
    if result.in_flight:
        many = [(r.method, r.at_once, r.most, r.calls, r.cpu_ms, r.peak_mb, r.wall_s) for r in result.in_flight]
        print_table(("method", "attempts", "at once", "calls", "CPU ms a call", "peak MB", "wall s"), many)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tasks", type=int, default=90, help="tasks to learn from (90)")
    parser.add_argument("--only", help=f"parts to measure, as a,b,c (all): {', '.join(PARTS)}")
    parser.add_argument("--at-once", type=int, default=1000, help="attempts in flight at zero latency (1000)")
    parser.add_argument("--output-tokens", type=int, help="number of tokens counted for every answer (its own number)")
    options, load = parser.parse_args(), load_average()
    latencies = ServerOptions(**simulated_world.LATENCIES, output_tokens=options.output_tokens)
    parts = tuple(options.only.split(",")) if options.only else PARTS
    try:
        plan = SpeedPlan(tasks=options.tasks, latencies=latencies, at_once=options.at_once, parts=parts)
        result = speed(plan, print)
    except BenchError as error:
        sys.exit(str(error))
    show(result)
    print_end("speed", {"tasks": options.tasks, **result.as_json()}, result.targets(), load, options.json)


if __name__ == "__main__":
    main()
