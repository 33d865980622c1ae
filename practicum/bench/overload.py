"""`practicum bench overload`: measures how many of n lessons a context still states after one update, by method
(Combee, section 2.2: context overload).

Each lesson states one fact (see `facts`) and is predefined, so only the curator calls a model. Each method applies its
usual update with its usual settings. Each measurement is a run in a separate folder under `out`: inspect the run with
`practicum show`. Run the same command again to continue; no call is paid for twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from practicum import methods
from practicum.bench import overloaded_curator
from practicum.bench.facts import Fact, count_facts, make_facts
from practicum.bench.measure import Target
from practicum.bench.shared_budget import SharedBudget
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.errors import UsageError
from practicum.core.types import Attempt, Lesson, Prompt, Task, Usage
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import shown_answers
from practicum.methods.blocks.curate import Changes
from practicum.models.client import CallOptions, Client
from practicum.models.provider import ProviderClient
from practicum.models.registry import ClientSettings, Models
from practicum.retrieval.vectors import open_embedder
from practicum.session.components import Parts
from practicum.session.config import Config, Splits
from practicum.session.learn import learn, resume
from practicum.session.records import is_begun, last_report, read_run
from practicum.session.setup import set_up
from practicum.store.database import Store
from practicum.store.folder import is_run
from practicum.testing import start_process
from practicum.view.read import Story

SIMULATED = "simulated"
"""Name of the simulated model (see `overloaded_curator`), which runs on a server in a separate process."""

SEQUENTIAL, NAIVE, COMBEE, UNACCOUNTED, LEVEL_1 = "sequential", "naive", "combee", "unaccounted", "level-1"
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    SEQUENTIAL: ("ace", {"batch": 1}),
    NAIVE: ("naive", {}),
    "top_k": ("top_k", {}),
    "summarized": ("summarized", {}),
    COMBEE: ("combee", {}),
    UNACCOUNTED: ("combee", {"accounting": False}),
    "exact": ("combee", {"exact": True}),
    LEVEL_1: ("combee", {"levels": 1, "copies": 1, "accounting": False}),
}
"""Name of a measured variant → its method and settings. Without the setting `batch`, one batch has all lessons."""

INSTRUCTIONS = "You work in the office of a trading house. Asked what to do in a case, say it with the number it needs."


MANY = 40
"""Minimum number of lessons for targets, because fewer lessons do not overload a curator."""
KEPT, TOKENS, WALL = 0.8, 1.5, 0.25
"""Targets for combee: minimum share of readable facts, and maximum tokens and wall time relative to learning from one
lesson at a time."""


@dataclass(frozen=True, kw_only=True)
class OverloadPlan:
    """Plan of the measurements. `sizes`: numbers of lessons. `config`: further fields of `Config`."""

    sizes: Sequence[int] = (10, 20, 40, 80)
    arms: Sequence[str] = tuple(ARMS)
    model: str = SIMULATED
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := [arm for arm in self.arms if arm not in ARMS]:
            raise UsageError("method.unknown", f"unknown {unknown[0]!r} in --methods: choose from {', '.join(ARMS)}")
        for size in self.sizes:
            make_facts(size, self.seed)


@dataclass(frozen=True, kw_only=True)
class OverloadRow(Usage):
    """Result of one method with n lessons, and the usage of its run. `readable` and `wrong`: shares among all facts
    (see `facts.FactCount`). `wall_s`: wall time (s), None if a step was interrupted. `by_code`: number of lessons that
    the curator ignored and practicum added as entries."""

    n: int
    method: str
    readable: float
    wrong: float
    entries: int
    context_tokens: int
    wall_s: float | None
    by_code: int
    counts: Mapping[str, int]
    run: str
    stopped: str | None = None

    def as_json(self) -> dict[str, Any]:
        wall = None if self.wall_s is None else round(self.wall_s, 3)
        return asdict(self) | {"tokens": self.tokens, "wall_s": wall}


async def overload(
    plan: OverloadPlan, out: Path, *, client: Client | None = None, budget: SharedBudget | None = None,
    report: Callable[[OverloadRow], None] = lambda row: None,
) -> list[OverloadRow]:  # fmt: skip
    """Measure each method with each number of lessons. End early if a limit is reached or a stop is requested.

    `client` replaces the model of the plan. Raise UsageError if `out` contains runs with other settings or lessons.
    """
    rows, budget = list[OverloadRow](), budget or SharedBudget()
    async with _client(plan, client) as model:
        for size in plan.sizes:
            for arm in plan.arms:
                rows.append(await _measure(plan, arm, size, out / f"{arm}-{size}", model, budget))
                budget.close(rows[-1])
                report(rows[-1])
                if rows[-1].stopped:
                    return rows
    return rows


def targets(rows: Sequence[OverloadRow], model: str) -> list[Target]:
    """Return the targets for these rows. Wall time has a target only with the simulated model."""
    targets: list[Target] = []
    for n in dict.fromkeys(row.n for row in rows if row.n >= MANY and not row.stopped):
        by = {row.method: row for row in rows if row.n == n and not row.stopped}
        one, many, plain, level_1 = (by.get(arm) for arm in (SEQUENTIAL, COMBEE, UNACCOUNTED, LEVEL_1))
        if many:
            readable = f"{n} lessons: share of facts readable with combee"
            targets.append(Target(name=readable, value=many.readable, bound=KEPT, at_least=True))
        if one and many:
            tokens = f"{n} lessons: tokens of combee relative to sequential"
            targets.append(Target(name=tokens, value=many.tokens / max(one.tokens, 1), bound=TOKENS))
            if model == SIMULATED and one.wall_s and many.wall_s:
                wall = f"{n} lessons: wall time of combee relative to sequential"
                targets.append(Target(name=wall, value=many.wall_s / one.wall_s, bound=WALL))
        if plain and level_1:
            share = f"{n} lessons: share of facts readable without accounting (bound: the share with level 1 only)"
            targets.append(Target(name=share, value=plain.readable, bound=level_1.readable, at_least=True))
    return targets


async def _measure(
    plan: OverloadPlan, arm: str, size: int, folder: Path, client: Client | None, budget: SharedBudget
) -> OverloadRow:
    """Start or continue the run in the folder, unless the run is done, and return the row of its results."""
    facts = make_facts(size, plan.seed)
    name, settings = ARMS[arm]
    # The attempts and lessons of the run are predefined.
    method = methods.build(name, {"batch": size, **settings})
    method = replace(method, attempt=shown_answers(method.act), reflect=_lessons)
    tasks = tuple(Task(f"fact-{n}", fact.text, fact.value) for n, fact in enumerate(facts, 1))
    # Load the embedder before the clock starts.
    embedder = open_embedder("wordllama")
    await embedder.embed([INSTRUCTIONS])
    parts = Parts(method=method, clients={"agent": client} if client else {}, embedder=embedder)
    values = {"model": plan.model, "seed": plan.seed, "instructions": INSTRUCTIONS, **plan.config}
    setup = set_up({**values, "method": method}, Splits(tasks), parts)
    state = _state(folder, setup.config, setup.splits)
    if state is None:
        await learn(tasks, **values, method=method, out=folder, parts=parts, watch=budget)
    elif state != "done":
        await resume(folder, parts=parts, watch=budget)
    return _row(folder, arm, facts)


def _state(folder: Path, config: Config, splits: Splits) -> str | None:
    """Return the state of the run in a folder, or None without a run. Raise UsageError if the settings or lessons of
    the run differ from `config` or `splits`."""
    if not is_run(folder):
        return None
    with Store.read(folder) as store:
        if not is_begun(store):
            return None
        old, tasks, state = read_run(store)
    for name, value in config:
        # The sections of a run are only determined when the run starts.
        if name != "sections" and getattr(old, name) != value:
            raise UsageError(
                "comparison.mismatch",
                f"{folder} was made with {name}={getattr(old, name)!r}, not {value!r}: pass another --out",
            )
    if any([*tasks.by_name[name]] != [*planned] for name, planned in splits.by_name.items()):
        raise UsageError("comparison.mismatch", f"{folder} was made with other lessons: pass another --out")
    return state


async def _lessons(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Return a lesson for each attempt: the input of the task, which states a fact."""
    return [Lesson(r.task.id, r.task.input, sources=r.sources) for r in attempts]


def _row(folder: Path, arm: str, facts: Sequence[Fact]) -> OverloadRow:
    with Store.read(folder) as store:
        result, steps = last_report(store), Story(store).steps()
    timed = [step.seconds for step in steps if step.seconds is not None]
    usage, errors = result["usage"], result["errors"]
    left = count_facts(facts, [entry["text"] for entry in result["entries"]])
    return OverloadRow(
        n=len(facts), method=arm, run=str(folder), stopped=result.get("stopped"), **usage,
        readable=left.readable / len(facts), wrong=left.wrong / len(facts), entries=len(result["entries"]),
        context_tokens=result["context_tokens"], wall_s=sum(timed) if len(timed) == len(steps) else None,
        by_code=errors.get(Count.KEPT_LESSONS, 0), counts=errors,
    )  # fmt: skip


@asynccontextmanager
async def _client(plan: OverloadPlan, client: Client | None) -> AsyncIterator[Client | None]:
    """Open the client of the plan's model for the duration of the block. Yields None if the run itself opens the
    client, by the model's name."""
    if client is not None or plan.model != SIMULATED:
        yield client
        return
    models = Models(ClientSettings(concurrency=plan.config.get("concurrency", 16)))
    with start_process(overloaded_curator.MODULE, **overloaded_curator.LATENCIES) as server:
        try:
            simulated = cast(ProviderClient, models.open(f"{server.url}#sim"))
            # The name must not depend on the server's port, so that a resumed run finds the answers in its journal.
            simulated.name = SIMULATED
            # Make a first call before the clock starts: it connects and imports modules.
            await simulated.complete("curator", Prompt("", "Insight 1: -"), Changes.model_json_schema(), CallOptions())
            yield simulated
        finally:
            await models.close()
