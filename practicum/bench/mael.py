"""`practicum bench mael`: the effect of experience on a network of agents (MAEL, tables 1 to 3, figures 2 to 4).

The network learns once, without using its pools, so that every variant is measured with the same ones. Then the same
test tasks are solved by one agent, by the network without experience, and with the pools of the first N tasks,
retrieved by step and by task; with the largest pools also by high and low similarity and reward. Everything is
journaled under `out`, and each complete row has a file of its own, so the same command again continues and pays for
nothing twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from practicum.bench.measure import rounded
from practicum.bench.shared_budget import SharedBudget
from practicum.blocks.act.network import POOL
from practicum.core.context import Context
from practicum.core.differences import Difference, difference
from practicum.core.edits import Delete, Delta
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.types import Task, Usage
from practicum.session.components import Parts
from practicum.session.evaluate import Evaluation, evaluate
from practicum.session.learn import begun, learn, resume
from practicum.session.records import load_context
from practicum.store.journal import digest

SIZES = (0, 10, 20, 30)
"""Numbers of tasks whose experience is in the pools (figures 2 to 4)."""

ONE_AGENT, NO_EXPERIENCE = "one agent", "no experience"
VARIED = ("retrieval", "similarity", "reward")
"""The settings in which the variants differ."""


@dataclass(frozen=True, kw_only=True)
class MaelPlan:
    """What to measure: `learning` fills the pools, `testing` is scored; `config` holds fields of `Config`."""

    learning: Sequence[Task]
    testing: Sequence[Task]
    sizes: Sequence[int] = SIZES
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if varied := [name for name in VARIED if name in self.settings]:
            raise UsageError(f"the setting {varied[0]} is varied by this bench: leave it out")
        if (most := max(self.sizes)) > len(self.learning):
            raise UsageError(f"pools of {most} tasks need {most} tasks to learn from: there are {len(self.learning)}")
        if not self.testing:
            raise UsageError("no tasks are left to test on: give --test, or smaller --sizes")


@dataclass(frozen=True, kw_only=True)
class MaelRow:
    """One variant on all test tasks. `tokens`, `calls` and `rounds` of critique are averages a task; `rounds` of the
    attempts with an answer. `pool` is the number of tasks in the pools, `experiences` the number of entries they left.
    `measures` are averages of the scorer's further measures: with `software`, the size of a project's code (table 3).
    The score of an attempt is None if its judge failed."""

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
        """The calls and tokens of all tasks; all tokens count as input."""
        n = len(self.scores)
        return Usage(calls=round(self.calls * n), input_tokens=round(self.tokens * n))

    def over(self, other: MaelRow) -> Difference | None:
        """The gain over another row, on the tasks that are scored in both; None if there are none."""
        pairs = [(a, b) for a, b in zip(self.scores, other.scores, strict=True) if a is not None and b is not None]
        return difference([[a] for a, _ in pairs], [[b] for _, b in pairs]) if pairs else None

    def as_json(self) -> dict[str, Any]:
        return rounded(asdict(self) | {"measures": rounded(self.measures)})


@dataclass(frozen=True)
class MaelResult:
    """The complete rows, and why there are no more of them."""

    rows: list[MaelRow]
    stopped: str | None = None


@dataclass(frozen=True)
class MaelVariant:
    """A row to measure: settings of the method, and the number of tasks in the pools."""

    name: str
    settings: Mapping[str, Any]
    pool: int


def variants(sizes: Sequence[int]) -> list[MaelVariant]:
    """All variants, those without experience first."""
    bare = [
        MaelVariant(ONE_AGENT, {"depth": 0, "retrieval": "none"}, 0),
        MaelVariant(NO_EXPERIENCE, {"retrieval": "none"}, 0),
    ]
    grown = [n for n in sorted({*sizes}) if n]
    used = [MaelVariant(f"{how}-wise, {n} tasks", {"retrieval": how}, n) for how in ("task", "step") for n in grown]
    others = (("high", "low"), ("low", "high"), ("low", "low"))
    cells = [
        (f"{alike} similarity, {good} reward", {"retrieval": "step", "similarity": alike, "reward": good})
        for alike, good in (others if grown else ())
    ]
    return [*bare, *used, *(MaelVariant(name, settings, grown[-1]) for name, settings in cells)]


async def mael(
    plan: MaelPlan, out: Path, *, parts: Parts | None = None, budget: SharedBudget | None = None,
    report: Callable[[MaelRow], None] = lambda row: None,
) -> MaelResult:  # fmt: skip
    """Learn, and measure each variant, as far as the budget allows. Raises UsageError if `out` holds anything else."""
    parts, budget = parts or Parts(), budget or SharedBudget()
    _claim(plan, out / "plan.json")
    # Without experience, alpha has no effect, so that it is not a setting then.
    bare = {name: value for name, value in plan.settings.items() if name != "alpha"}
    options: dict[str, Any] = {"parts": parts, "watch": budget}
    rows: list[MaelRow] = []
    folder, settings = out / "learning", {**bare, "retrieval": "none"}
    if begun(folder):
        result = await resume(folder, **options)
    else:
        result = await learn(plan.learning, out=folder, method="mael", settings=settings, **options, **plan.config)
    budget.close(result.usage)
    pools, stopped = load_context(folder), result.stopped
    for n, variant in enumerate(variants(plan.sizes), 1):
        if stopped:
            break
        path = out / f"row-{n}.json"
        if path.is_file():
            value = json.loads(path.read_text(encoding="utf-8"))
            row = MaelRow(**{**value, "ci95": tuple(value["ci95"]), "scores": tuple(value["scores"])})
            budget.close(row.usage)
        else:
            context = first_tasks(pools, variant.pool)
            settings = {**(bare if variant.settings["retrieval"] == "none" else plan.settings), **variant.settings}
            evaluation = await evaluate(
                plan.testing, context, out=out / f"row-{n}", method="mael", settings=settings, **options, **plan.config
            )
            budget.close(evaluation.usage)
            if stopped := evaluation.stopped:
                break
            row = _summarize(variant, len(context), evaluation)
            write_atomic(path, json.dumps(asdict(row), indent=1, ensure_ascii=False) + "\n")
        rows.append(row)
        report(row)
    return MaelResult(rows, stopped)


def _claim(plan: MaelPlan, path: Path) -> None:
    """Mark a new folder as this plan's. Raises UsageError if it is another plan's, or holds anything else."""
    # Scorers read the meta. It is left out if empty, so that folders from before it was included are still recognized.
    tasks = [
        (task.id, task.input, task.target or "", *([dict(task.meta)] if task.meta else []))
        for task in (*plan.learning, *plan.testing)
    ]
    name = digest(tasks, len(plan.learning), list(plan.sizes), dict(plan.settings), dict(plan.config))
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8"))["plan"] != name:
            raise UsageError(f"{path.parent} holds a bench with other tasks or settings: give another --out")
        return
    if path.parent.exists() and any(path.parent.iterdir()):
        raise UsageError(f"{path.parent} is not empty and holds no bench: give another --out")
    write_atomic(path, json.dumps({"plan": name}) + "\n")


def first_tasks(pools: Context, tasks: int) -> Context:
    """The pools with the experience of the first `tasks` tasks alone, in the order of learning."""
    traces = dict.fromkeys(entry.data["trace"] for entry in pools if entry.section.startswith(POOL))
    ordered = sorted(traces, key=lambda place: [int(n) for n in re.findall(r"(?:^step |/attempt/)(\d+)", place)])
    kept = {*ordered[:tasks]}
    removed = (Delete(entry.id) for entry in pools if entry.data.get("trace") not in kept)
    return pools.apply(Delta(tuple(removed))).context


def _summarize(variant: MaelVariant, experiences: int, evaluation: Evaluation) -> MaelRow:
    answered = [r for r in evaluation.rollouts if r.trace.error is None]
    settings, n = variant.settings, max(len(evaluation.rollouts), 1)
    return MaelRow(
        name=variant.name, retrieval=settings["retrieval"], pool=variant.pool, experiences=experiences,
        similarity=settings.get("similarity", "high"), reward=settings.get("reward", "high"),
        score=evaluation.score, ci95=evaluation.ci95,
        tokens=evaluation.usage.tokens / n, calls=evaluation.usage.calls / n,
        rounds=fmean(r.trace.data["rounds"] for r in answered) if answered else 0.0, errors=evaluation.errors,
        scores=tuple(r.score.value if r.score else None for r in evaluation.rollouts), measures=evaluation.measures,
    )  # fmt: skip
