"""The bench of MAEL (section 3): what experience changes in the quality, the tokens and the rounds of a network.

The pools are filled once for each seed, as `learn` fills them. Then every variant is measured with every seed on the
same test tasks: one agent, the network without experience, pools of several sizes (figure 3) retrieved by task and by
step (tables 1 to 3, figure 2), and with the largest pools also by high and low similarity and reward (table 4). The
first few test tasks are the cases of figure 4: how good their solutions are after each round of critique.

Everything is journaled under `out`, and each measurement that is complete has a file of its own, so the same command
again continues and pays for nothing twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from practicum.bench.measure import claim_folder, rounded
from practicum.bench.shared_budget import SharedBudget
from practicum.blocks.act.network import POOL
from practicum.core.context import Context
from practicum.core.differences import Claim, claims
from practicum.core.edits import Delete, Delta
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.intervals import method_ci95, repeated_ci95
from practicum.core.types import Task, Usage
from practicum.methods.mael import Settings
from practicum.session.components import Parts
from practicum.session.evaluate import Evaluation, evaluate
from practicum.session.learn import begun, learn, resume
from practicum.session.records import load_context
from practicum.store.schema import IN_FLIGHT

SIZES = (0, 10, 20, 30)
"""Numbers of tasks whose experience is in the pools (figure 3)."""

ONE_AGENT, NO_EXPERIENCE = "one agent", "no experience"
VARIED = ("retrieval", "similarity", "reward")
"""The settings in which the variants differ. The cases also differ in `rounds`."""

Retrieved = tuple[str, str, str]
"""How experience is chosen: `retrieval`, `similarity` and `reward` of the method's settings."""


@dataclass(frozen=True, kw_only=True)
class MaelPlan:
    """What to measure: `learning` fills the pools, `testing` is scored; `config` holds fields of `Config`, of which
    `seed` is the first of the seeds. `cases` is the number of test tasks that are followed round by round."""

    learning: Sequence[Task]
    testing: Sequence[Task]
    sizes: Sequence[int] = SIZES
    seeds: int = 3
    cases: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if varied := [name for name in VARIED if name in self.settings]:
            raise UsageError(f"the setting {varied[0]} is varied by this bench: leave it out")
        if (most := max(self.sizes)) > len(self.learning):
            raise UsageError(f"pools of {most} tasks need {most} tasks to learn from: there are {len(self.learning)}")
        if not most:
            raise UsageError("no pool holds the experience of any task: give a larger size")
        if not self.testing:
            raise UsageError("no tasks are left to test on: give --test, or smaller --sizes")

    @property
    def seeds_used(self) -> range:
        """The seeds of the runs."""
        first = int(self.config.get("seed", 0))
        return range(first, first + self.seeds)

    @property
    def variants(self) -> list[MaelVariant]:
        """All variants, those without experience first, the cases last."""
        grown = [n for n in sorted({*self.sizes}) if n]
        most = grown[-1]
        none: dict[str, Any] = {"retrieval": "none"}
        made = [MaelVariant(ONE_AGENT, {"depth": 0, **none}, 0), MaelVariant(NO_EXPERIENCE, none, 0)]
        for how in ("task", "step"):
            made += [MaelVariant(f"{how}-wise, {n} tasks", {"retrieval": how}, n) for n in grown]
        # The paper's best cell has the score of task-wise retrieval in its table 1, so the others are task-wise too.
        for alike, good in (("high", "low"), ("low", "high"), ("low", "low")):
            cell = {"retrieval": "task", "similarity": alike, "reward": good}
            made.append(MaelVariant(f"{alike} similarity, {good} reward", cell, most))
        limits = range(Settings.model_validate(self.settings).rounds if self.cases else 0)
        for how, pool in (("none", 0), ("task", most), ("step", most)):
            name = NO_EXPERIENCE if how == "none" else f"{how}-wise, {most} tasks"
            cases = [(f"{name}, at most {n} rounds", {"retrieval": how, "rounds": n}) for n in limits]
            made += [MaelVariant(called, settings, pool, self.cases) for called, settings in cases]
        return made


@dataclass(frozen=True)
class MaelVariant:
    """What to measure: settings of the method, the number of tasks in the pools, and how many of the test tasks are
    tried; 0: all."""

    name: str
    settings: Mapping[str, Any]
    pool: int
    cases: int = 0

    @property
    def retrieved(self) -> Retrieved:
        """How experience is chosen."""
        retrieval, *levels = (str(self.settings.get(name, "high")) for name in VARIED)
        return (retrieval, levels[0], levels[1])


@dataclass(frozen=True, kw_only=True)
class MaelRun:
    """A variant with one seed. `scores` and `rounds` of critique are those of each test task; a score is None if its
    judge failed, rounds are None if there is no answer. `experiences` is the number of entries in the pools. `measures`
    are means of the scorer's further measures, such as the quality and the size of software (tables 2 and 3)."""

    seed: int
    experiences: int
    usage: Usage
    errors: int
    scores: tuple[float | None, ...]
    rounds: tuple[int | None, ...]
    measures: Mapping[str, float] = field(default_factory=dict)


_RUN = TypeAdapter(MaelRun)


@dataclass(frozen=True)
class MaelRow:
    """A variant with all seeds. `tokens`, `output_tokens`, `calls` and `rounds` are means of an attempt, `experiences`
    and `measures` of a run."""

    variant: MaelVariant
    runs: tuple[MaelRun, ...]

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def pool(self) -> int:
        return self.variant.pool

    @property
    def by_task(self) -> list[list[float]]:
        """The scores of each test task, at most one for each seed."""
        return [[s for s in scores if s is not None] for scores in zip(*(run.scores for run in self.runs), strict=True)]

    @property
    def score(self) -> float:
        return fmean(fmean(scores) for scores in self.by_task if scores)

    @property
    def ci95(self) -> tuple[float, float]:
        whole = [scores for scores in self.by_task if len(scores) == len(self.runs)]
        return method_ci95(whole) if whole else repeated_ci95([scores for scores in self.by_task if scores])

    @property
    def attempts(self) -> int:
        return sum(len(run.scores) for run in self.runs)

    @property
    def calls(self) -> float:
        return sum(run.usage.calls for run in self.runs) / self.attempts

    @property
    def tokens(self) -> float:
        return sum(run.usage.tokens for run in self.runs) / self.attempts

    @property
    def output_tokens(self) -> float:
        return sum(run.usage.output_tokens for run in self.runs) / self.attempts

    @property
    def rounds(self) -> float:
        return fmean([n for run in self.runs for n in run.rounds if n is not None] or [0.0])

    @property
    def experiences(self) -> float:
        return fmean(run.experiences for run in self.runs)

    @property
    def measures(self) -> dict[str, float]:
        names = dict.fromkeys(name for run in self.runs for name in run.measures)
        return {name: fmean(run.measures[name] for run in self.runs if name in run.measures) for name in names}

    def as_json(self) -> dict[str, Any]:
        names = ("score", "tokens", "output_tokens", "calls", "rounds", "experiences")
        return {
            "name": self.name, "pool": self.pool, **dict(zip(VARIED, self.variant.retrieved, strict=True)),
            **rounded({name: getattr(self, name) for name in names}), "ci95": [round(end, 4) for end in self.ci95],
            "measures": rounded(self.measures), "errors": sum(run.errors for run in self.runs),
            "seeds": {run.seed: list(run.scores) for run in self.runs},
        }  # fmt: skip


@dataclass(frozen=True)
class MaelResult:
    """The rows on all test tasks, those of the `cases`, and why there are no more of them."""

    rows: list[MaelRow]
    cases: list[MaelRow]
    stopped: str | None = None

    @property
    def claims(self) -> dict[str, Claim]:
        """Each row against the network without experience, on the tasks that all runs of both scored, by name."""
        pairs: dict[str, list[Any]] = {}
        for none in (row for row in self.rows if row.name == NO_EXPERIENCE):
            for row in (row for row in self.rows if row is not none):
                runs = len(row.runs), len(none.runs)
                both = zip(row.by_task, none.by_task, strict=True)
                pairs[row.name] = [(a, b) for a, b in both if (len(a), len(b)) == runs]
        return claims(pairs)

    @property
    def cells(self) -> list[list[MaelRow]]:
        """The 2 x 2 rows of the largest pools (table 4): high similarity, then low; in each, high reward, then low.
        Empty if one is missing."""
        most = max((row.pool for row in self.rows), default=0)
        by = {row.variant.retrieved: row for row in self.rows if row.pool == most}
        keys = [[("task", alike, good) for good in ("high", "low")] for alike in ("high", "low")]
        return [[by[key] for key in line] for line in keys] if all(key in by for line in keys for key in line) else []

    @property
    def progress(self) -> dict[str, list[list[float | None]]]:
        """The quality of each case after each round of critique (figure 4), by retrieval: for each case, the mean over
        the seeds with no round allowed, one, two and so on; None if it could not be scored."""
        found = {}
        for how in dict.fromkeys(row.variant.retrieved[0] for row in self.cases):
            limited = [row for row in self.cases if row.variant.retrieved[0] == how]
            # The most rounds are those of the row on all test tasks.
            *_, last = (r for r in self.rows if r.variant.retrieved == limited[0].variant.retrieved)
            lines = [row.by_task for row in (*limited, last)]
            found[how] = [[fmean(s) if (s := line[n]) else None for line in lines] for n in range(len(lines[0]))]
        return found


async def mael(
    plan: MaelPlan, out: Path, *, parts: Parts | None = None, budget: SharedBudget | None = None,
    report: Callable[[MaelRow], None] = lambda row: None,
) -> MaelResult:  # fmt: skip
    """Learn with each seed, and measure each variant, as far as the budget allows. Raises UsageError if `out` holds
    anything else."""
    parts, budget = parts or Parts(), budget or SharedBudget()
    _claim(plan, out)
    options: dict[str, Any] = {"parts": parts, "watch": budget}
    pools: dict[int, Context] = {}
    for seed in plan.seeds_used:
        folder, config = out / f"learning-{seed}", {**plan.config, "seed": seed}
        if begun(folder):
            result = await resume(folder, **options)
        else:
            settings = dict(plan.settings)
            result = await learn(plan.learning, out=folder, method="mael", settings=settings, **options, **config)
        budget.close(result.usage)
        if result.stopped:
            return MaelResult([], [], result.stopped)
        pools[seed] = load_context(folder)
    rows: list[MaelRow] = []
    for n, variant in enumerate(plan.variants, 1):
        runs = []
        for seed, pool in pools.items():
            run = await _measured(plan, variant, seed, pool, out / f"row-{n}-{seed}", options)
            if isinstance(run, str):
                return _result(rows, run)
            runs.append(run)
        rows.append(MaelRow(variant, tuple(runs)))
        report(rows[-1])
    return _result(rows)


def _result(rows: Sequence[MaelRow], stopped: str | None = None) -> MaelResult:
    return MaelResult([r for r in rows if not r.variant.cases], [r for r in rows if r.variant.cases], stopped)


async def _measured(
    plan: MaelPlan, variant: MaelVariant, seed: int, pools: Context, folder: Path, options: Mapping[str, Any]
) -> MaelRun | str:
    """One variant with one seed, from its file if there is one; or why it was stopped."""
    budget: SharedBudget = options["watch"]
    path = folder.with_suffix(".json")
    if path.is_file():
        run = _RUN.validate_json(path.read_bytes())
    else:
        context = first_tasks(pools, variant.pool)
        settings = {**plan.settings, **variant.settings}
        if variant.settings["retrieval"] == "none":
            # What concerns experience has no effect then, and would be refused.
            settings = {name: value for name, value in settings.items() if name not in ("alpha", "while_learning")}
        tasks = plan.testing[: variant.cases or None]
        evaluation = await evaluate(
            tasks, context, out=folder, method="mael", settings=settings, **options, **{**plan.config, "seed": seed}
        )
        if evaluation.stopped:
            budget.close(evaluation.usage)
            return evaluation.stopped
        run = _summarize(seed, len(context), evaluation)
        write_atomic(path, json.dumps(asdict(run), indent=1, ensure_ascii=False) + "\n")
    budget.close(run.usage)
    return run


def _claim(plan: MaelPlan, folder: Path) -> None:
    # Scorers read the meta. More seeds may be added later.
    tasks = [(task.id, task.input, task.target or "", dict(task.meta)) for task in (*plan.learning, *plan.testing)]
    numbers = [len(plan.learning), *plan.sizes, plan.cases]
    claim_folder(folder, tasks, numbers, dict(plan.settings), dict(plan.config))


def first_tasks(pools: Context, tasks: int) -> Context:
    """The pools with the experience of the first `tasks` tasks alone, in the order of learning."""
    traces = dict.fromkeys(entry.data["trace"] for entry in pools if entry.section.startswith(POOL))
    ordered = sorted(traces, key=lambda place: [int(n) for n in re.findall(r"(?:^step |/attempt/)(\d+)", place)])
    kept = {*ordered[:tasks]}
    removed = (Delete(entry.id) for entry in pools if entry.data.get("trace") not in kept)
    return pools.apply(Delta(tuple(removed))).context


def _summarize(seed: int, experiences: int, evaluation: Evaluation) -> MaelRun:
    rollouts = evaluation.rollouts
    # What a kill lost says nothing about a variant.
    made = sum((usage for role, usage in evaluation.by_role.items() if role != IN_FLIGHT), Usage())
    return MaelRun(
        seed=seed, experiences=experiences, usage=made, errors=evaluation.errors,
        scores=tuple(r.score.value if r.score else None for r in rollouts), measures=evaluation.measures,
        rounds=tuple(r.trace.data["rounds"] if r.trace.error is None else None for r in rollouts),
    )  # fmt: skip
