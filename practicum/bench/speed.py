"""`practicum bench speed`: how fast a run learns from many tasks at once, against one at a time (Combee, section 4.2).

Tasks of the simulated world go through ACE one at a time, and through the methods that learn from many at once. One
reflection follows each attempt, so an iteration is attempts, reflections, level 1, level 2. Three more methods:

- RCL with all its primitives: executions (groups and twins included), the heads of all failures, mutator, state.
- ReasoningBank with five attempts a task, one task at a time: the slowest attempt, verdicts, contrast, extractions.
- MAEL: judging, decomposing, the slowest part with its critiques, aggregating, rewards.

A run before the clock starts loads the libraries and the embedder.

    wall / critical   wall time over the critical path (see `critical_path`): what practicum adds to the models' time
    speed-up          wall time of one task at a time over this one's
    ceiling           the same ratio of the critical paths: the most that is possible with these calls
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from practicum.bench import concurrency, simulated_world
from practicum.bench.concurrency import ConcurrencyRow
from practicum.bench.critical_path import critical_path
from practicum.bench.measure import Report, Target, timed_run
from practicum.core.errors import UsageError
from practicum.testing.server import ServerOptions, ServerProcess, start_process

NEAR, NETWORK_NEAR, FASTER, TAIL_FASTER = 1.10, 1.15, 15.0, 1.8
"""Targets: wall time over the critical path of combee, rcl and scaled attempts, that of a network, combee's speed-up,
and the speed-up without a barrier if latencies have a heavy tail."""

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
"""Methods and their settings. A batch has `SpeedPlan.batch` tasks unless the settings say otherwise."""
PARTS = (*WAYS, HEAVY_TAIL, IN_FLIGHT)
EXECUTIONS = 120
"""The most that rcl runs at once: thirty tasks, each in a group of three and with a twin."""
FEW = 15
"""Tasks of `SCALED`, which takes them one at a time, and of `NETWORK`, which makes many calls for each."""
REASONING: Mapping[str, Any] = {"labels": False, "reasoning": True}
"""Further options of `SCALED`: attempts differ in length and outcome, and a judge compares them."""
SYNCHRONOUS = "synchronous"
"""The name of combee with a barrier, in the comparison with `ASYNCHRONOUS`."""


@dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """What to measure. `draws` is the number of servers with a heavy tail, each with other latencies; their times are
    added."""

    parts: Sequence[str] = PARTS
    tasks: int = 90
    batch: int = 40
    latencies: ServerOptions = field(default_factory=ServerOptions)
    tail: float = 1.0
    tail_tasks: int = 240
    draws: int = 3
    at_once: int = 1000

    def __post_init__(self) -> None:
        if unknown := [part for part in self.parts if part not in PARTS]:
            raise UsageError(f"unknown {unknown[0]!r} in --only: known are {', '.join(PARTS)}")
        for name in ("tasks", "batch", "tail_tasks", "draws", "at_once"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """One way to learn. Times are in seconds; `critical_s` is None without a barrier. `most` is the most calls in
    flight at once, `errors` are the run's counts."""

    name: str
    iterations: int
    wall_s: float
    critical_s: float | None
    calls: int
    tokens: int
    cached_share: float
    entries: int
    most: int
    errors: Mapping[str, int]

    @property
    def ratio(self) -> float | None:
        """Wall time over the critical path."""
        return None if self.critical_s is None else self.wall_s / self.critical_s

    def speed_up(self, over: SpeedRow) -> tuple[float, float | None]:
        """How many times faster than another row, and its ceiling, the same ratio of the critical paths."""
        if self.critical_s is None or over.critical_s is None:
            return over.wall_s / self.wall_s, None
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
        """How many times faster combee is without a barrier, if latencies have a heavy tail."""
        return sum(self.tail[SYNCHRONOUS]) / sum(self.tail[ASYNCHRONOUS]) if self.tail else None

    def targets(self) -> list[Target]:
        """The targets of what was measured."""
        targets: list[Target] = []
        one, many = self.row(SEQUENTIAL), self.row(COMBEE)
        for row in (many, self.row(RCL), self.row(SCALED)):
            if row and row.ratio is not None:
                targets.append(Target(what=f"{row.name}: wall / critical path", value=row.ratio, bound=NEAR))
        if (network := self.row(NETWORK)) and network.ratio is not None:
            targets.append(Target(what="network: wall / critical path", value=network.ratio, bound=NETWORK_NEAR))
        if one and many:
            times, ceiling = many.speed_up(one)
            note = f"ceiling {ceiling:.1f} by the critical paths, {one.iterations / many.iterations:.3g} by iterations"
            targets.append(Target(what="combee: speed-up", value=times, bound=FASTER, at_least=True, note=note))
        if self.tail_ratio is not None:
            what = "heavy tail: synchronous / asynchronous"
            targets.append(Target(what=what, value=self.tail_ratio, bound=TAIL_FASTER, at_least=True))
        return targets + [target for row in self.in_flight for target in row.targets()]

    def as_json(self) -> dict[str, Any]:
        """The values that `--json` prints."""
        one = self.row(SEQUENTIAL)
        rows = []
        for row in self.rows:
            times, ceiling = row.speed_up(one) if one else (None, None)
            values = asdict(row) | {"wall_to_critical": row.ratio, "speed_up": times, "ceiling": ceiling}
            rows.append({k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()})
        tail = {name: [round(s, 3) for s in seconds] for name, seconds in self.tail.items()}
        return {
            "rows": rows,
            "heavy_tail": {**tail, "ratio": round(self.tail_ratio, 4)} if self.tail_ratio is not None else None,
            "in_flight": [asdict(row) for row in self.in_flight],
            "targets": [target.as_json() for target in self.targets()],
        }


def speed(plan: SpeedPlan, report: Report = lambda line: None) -> SpeedResult:
    """Measure what the plan names, one after another."""
    with tempfile.TemporaryDirectory(prefix="practicum-speed-") as name:
        folder = Path(name)
        rows = list(_rows(plan, folder, report))
        tail = _heavy_tail(plan, folder, report) if HEAVY_TAIL in plan.parts else {}
    flying = concurrency.measure_all(plan.at_once, report) if IN_FLIGHT in plan.parts else []
    return SpeedResult(rows=rows, tail=tail, in_flight=flying)


def _rows(plan: SpeedPlan, folder: Path, report: Report) -> Iterator[SpeedRow]:
    wanted = [name for name in WAYS if name in plan.parts]
    if not wanted:
        return
    with _warm_server(plan.latencies, folder / "warm") as server:
        for name in wanted:
            row = _row(name, plan, server, folder / name)
            report(f"{name}: {row.wall_s:.1f} s")
            yield row


def _row(name: str, plan: SpeedPlan, server: ServerProcess, folder: Path) -> SpeedRow:
    method, settings = WAYS[name]
    settings = {"batch": plan.batch, **settings}
    concurrency = EXECUTIONS if name in (RCL, SCALED, NETWORK) else 2 * plan.batch
    tasks = min(FEW, plan.tasks) if name in (SCALED, NETWORK) else plan.tasks
    more = REASONING if name == SCALED else {}
    server.reset()
    result, wall = timed_run(server.url, tasks, method, settings, folder, concurrency, **more)
    return SpeedRow(
        name=name,
        iterations=result.steps,
        wall_s=wall,
        critical_s=None if settings.get("asynchronous") else critical_path(folder, plan.latencies),
        calls=result.usage.calls,
        tokens=result.usage.tokens,
        cached_share=result.usage.cached_share,
        entries=len(result.context),
        most=server.stats()["max_in_flight"],
        errors=result.errors,
    )


def _heavy_tail(plan: SpeedPlan, folder: Path, report: Report) -> dict[str, list[float]]:
    """Wall times with and without a barrier, for the same number of attempts, by draw. A prompt has the same latency in
    both."""
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
    """A server in a process of its own, after small runs that load everything."""
    with start_process(simulated_world.MODULE, **asdict(latencies)) as server:
        timed_run(server.url, 4, "combee", {"batch": 4}, folder, 8)
        timed_run(server.url, 1, "mael", {}, folder.with_name(f"{folder.name}-network"), 8)
        yield server
