"""`practicum bench mael`: what experience does for a network of agents (MAEL, tables 1 to 3, figures 2 to 4).

The network learns once, without looking at its pools, so that every way to use them is measured on the same ones. Then
the same test tasks are solved alone, by the network without experience, and with pools of the first so many tasks, by
step and by task; and with the largest by like or unlike, good or bad experience. Everything is journaled under `out`,
each row that is whole in a file of its own, so that the same command again goes on and pays for nothing twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from practicum.blocks.act.network import POOL
from practicum.core.context import Context
from practicum.core.differences import Difference, difference
from practicum.core.edits import Delete, Delta
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.types import Task, Usage
from practicum.models.budget import Budget, BudgetLimits, Need
from practicum.session.components import Parts
from practicum.session.evaluate import Evaluation, evaluate
from practicum.session.learn import begun, learn, resume
from practicum.session.records import load_context
from practicum.store.journal import digest

SIZES = (0, 10, 20, 30)
"""Tasks whose experience is in the pools (figures 2 to 4)."""

ALONE, NONE = "one agent", "no experience"
OWN = ("retrieval", "similarity", "reward")
"""Settings that the rows differ by."""


@dataclass(frozen=True, kw_only=True)
class MaelPlan:
    """What is measured: `learning` makes the pools, `testing` is scored; `config` holds fields of `Config`."""

    learning: Sequence[Task]
    testing: Sequence[Task]
    sizes: Sequence[int] = SIZES
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if taken := [name for name in OWN if name in self.settings]:
            raise UsageError(f"{taken[0]} is what is measured: leave it out")
        if max(self.sizes) > len(self.learning):
            have = len(self.learning)
            raise UsageError(f"pools of {max(self.sizes)} tasks need as many to learn from: there are {have}")
        if not self.testing:
            raise UsageError("there are no tasks left to test on: give --test, or fewer to learn from")


@dataclass(frozen=True, kw_only=True)
class MaelRow:
    """What came of one way on all test tasks. `tokens` and `calls` are a task's on average, `rounds` of critique too,
    of attempts that came to an answer; `pool` counts tasks, `experiences` what they left. `measures` are means of what
    the scorer measured, over the answers it measured: of `software` the size of a project's code (table 3). An attempt
    whose judge was away has no score, and none of 0."""

    name: str
    retrieval: str
    pool: int
    similarity: str
    reward: str
    experiences: int
    score: float
    ci95: tuple[float, float]
    tokens: float
    calls: float
    rounds: float
    errors: int
    scores: tuple[float | None, ...]
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        """Calls and tokens of all its tasks; the tokens not told apart."""
        n = len(self.scores)
        return Usage(calls=round(self.calls * n), input_tokens=round(self.tokens * n))

    def over(self, other: MaelRow) -> Difference | None:
        """What it gains over another row, on the tasks that both have a score of; None without any."""
        pairs = zip(self.scores, other.scores, strict=True)
        both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        return difference([[ours] for ours, _ in both], [[theirs] for _, theirs in both]) if both else None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values = asdict(self) | {"measures": {name: round(mean, 4) for name, mean in self.measures.items()}}
        return {name: round(v, 4) if isinstance(v, float) else v for name, v in values.items()}


@dataclass
class SharedBudget:
    """What all pieces of a bench may spend together. They are paid one after the other, the one under way from
    `budget`; `calls` and `tokens` are those of the pieces before it. What it is told to stop for stops them all."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    calls: int = 0
    tokens: int = 0
    budget: Budget | None = None
    reason: str = ""

    @property
    def in_flight(self) -> int:
        """Calls that a stop lets finish."""
        return self.budget.in_flight if self.budget else 0

    def stop(self, reason: str) -> None:
        """Let nothing start from now on."""
        self.reason = self.reason or reason
        if self.budget is not None:
            self.budget.stop(self.reason)

    def opened(self, budget: Budget) -> None:
        """A piece begins, or goes on: it may spend what the others left."""
        self.budget = budget
        budget.limits = self.limits
        budget.hold(Need(self.calls, self.tokens))
        if self.reason:
            budget.stop(self.reason)

    def closed(self, usage: Usage) -> None:
        """A piece ended."""
        self.calls += usage.calls
        self.tokens += usage.tokens


@dataclass(frozen=True)
class MaelResult:
    """The rows that are whole, and why there are no more."""

    rows: list[MaelRow]
    stopped: str | None = None


@dataclass(frozen=True)
class Variant:
    """A row to be measured."""

    name: str
    settings: Mapping[str, Any]
    pool: int


def variants(sizes: Sequence[int]) -> list[Variant]:
    """All rows, those without experience first."""
    bare = [Variant(ALONE, {"depth": 0, "retrieval": "none"}, 0), Variant(NONE, {"retrieval": "none"}, 0)]
    grown = [n for n in sorted({*sizes}) if n]
    used = [Variant(f"{how}-wise, {n} tasks", {"retrieval": how}, n) for how in ("task", "step") for n in grown]
    others = (("high", "low"), ("low", "high"), ("low", "low"))
    cells = [
        Variant(
            f"{alike} similarity, {good} reward", {"retrieval": "step", "similarity": alike, "reward": good}, grown[-1]
        )
        for alike, good in (others if grown else ())
    ]
    return bare + used + cells


async def mael(
    plan: MaelPlan, out: Path, *, parts: Parts | None = None, budget: SharedBudget | None = None,
    tell: Callable[[MaelRow], None] = lambda row: None,
) -> MaelResult:  # fmt: skip
    """Learn, and measure each way, as far as the budget goes. Raises UsageError where `out` holds something else."""
    parts, budget = parts or Parts(), budget or SharedBudget()
    _same(plan, out / "plan.json")
    rows: list[MaelRow] = []
    pools, stopped = await _learned(plan, out / "learning", parts, budget)
    for n, way in enumerate(variants(plan.sizes), 1):
        if stopped:
            break
        kept = out / f"row-{n}.json"
        if kept.is_file():
            row = _row(json.loads(kept.read_text(encoding="utf-8")))
            budget.closed(row.usage)
        else:
            made = first(pools, way.pool)
            found = await _evaluated(plan, way, made, out / f"row-{n}", parts, budget)
            if stopped := found.stopped:
                break
            row = _summed(way, len(made), found)
            write_atomic(kept, json.dumps(asdict(row), indent=1, ensure_ascii=False) + "\n")
        rows.append(row)
        tell(row)
    return MaelResult(rows, stopped)


def _same(plan: MaelPlan, path: Path) -> None:
    """Whether the folder is of this plan; a new one is made its."""
    # Scorers read the meta; a folder of before it was kept here is still known where there is none.
    tasks = [
        (task.id, task.input, task.target or "", *([dict(task.meta)] if task.meta else []))
        for task in (*plan.learning, *plan.testing)
    ]
    name = digest(tasks, len(plan.learning), list(plan.sizes), dict(plan.settings), dict(plan.config))
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8"))["plan"] != name:
            raise UsageError(f"{path.parent} holds a bench of other tasks or settings: take another --out")
        return
    if path.parent.exists() and any(path.parent.iterdir()):
        raise UsageError(f"{path.parent} holds something else: take another --out")
    write_atomic(path, json.dumps({"plan": name}) + "\n")


async def _learned(plan: MaelPlan, folder: Path, parts: Parts, budget: SharedBudget) -> tuple[Context, str | None]:
    """The pools of all tasks to learn from, and why some are missing."""
    settings = {**{k: v for k, v in plan.settings.items() if k != "alpha"}, "retrieval": "none"}
    how: dict[str, Any] = {"parts": parts, "on_session": lambda session: budget.opened(session.house.budget)}
    if begun(folder):
        result = await resume(folder, **how)
    else:
        result = await learn(plan.learning, out=folder, method="mael", settings=settings, **how, **plan.config)
    budget.closed(result.usage)
    return load_context(folder), result.stopped


def first(pools: Context, tasks: int) -> Context:
    """What the first so many tasks left, in the order they were learned from."""
    traces = list(dict.fromkeys(entry.data["trace"] for entry in pools if entry.section.startswith(POOL)))
    traces.sort(key=_order)
    kept = {*traces[:tasks]}
    gone = (Delete(entry.id) for entry in pools if entry.data.get("trace") not in kept)
    return pools.apply(Delta(tuple(gone))).context


def _order(place: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"(?:^step |/attempt/)(\d+)", place))


async def _evaluated(
    plan: MaelPlan, way: Variant, pools: Context, out: Path, parts: Parts, budget: SharedBudget
) -> Evaluation:
    given = {k: v for k, v in plan.settings.items() if k != "alpha" or way.settings["retrieval"] != "none"}
    found = await evaluate(
        plan.testing, pools, out=out, method="mael", settings={**given, **way.settings}, parts=parts,
        on_house=lambda house: budget.opened(house.budget), **plan.config,
    )  # fmt: skip
    budget.closed(found.usage)
    return found


def _summed(way: Variant, experiences: int, found: Evaluation) -> MaelRow:
    came = [r for r in found.rollouts if r.trace.error is None]
    made, n = way.settings, max(len(found.rollouts), 1)
    return MaelRow(
        name=way.name, retrieval=made["retrieval"], pool=way.pool, similarity=made.get("similarity", "high"),
        reward=made.get("reward", "high"), experiences=experiences, score=found.score, ci95=found.ci95,
        tokens=found.usage.tokens / n, calls=found.usage.calls / n,
        rounds=fmean(r.trace.data["rounds"] for r in came) if came else 0.0, errors=found.errors,
        scores=tuple(r.score.value if r.score else None for r in found.rollouts), measures=found.measures,
    )  # fmt: skip


def _row(value: Mapping[str, Any]) -> MaelRow:
    return MaelRow(**{**value, "ci95": tuple(value["ci95"]), "scores": tuple(value["scores"])})
