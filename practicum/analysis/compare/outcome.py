"""Outcome of one run of a comparison. It is computed from the result and the database of the run, and stored in the
run's folder when the run is finished.

Concurrent runs share machines and limits, so the times from start to end of two runs cannot be compared. Three
durations are measured:

    wall      from the start to the end of the run, while other runs were active
    work      sum of the durations of the calls: the least time of the run if calls are made one at a time
    critical  longest chain of dependent calls: the least time of the run with any number of concurrent calls

With c concurrent calls and no other run, a run takes at most critical + (work - critical) / c (Brent 1974). This bound
is `single_run_s`. Other runs may still have slowed down single calls, which affects all three durations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from practicum.analysis.compare.plan import PlannedRun
from practicum.core.counts import Count
from practicum.core.errors import PracticumError, StoreError
from practicum.core.files import write_atomic
from practicum.core.types import Attempt, Usage
from practicum.core.views import render_full
from practicum.engine.loop import best_of_k
from practicum.session.learn import without_advice
from practicum.session.result import Result, mean_measures, usage_json
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import is_run
from practicum.store.journal import Journal
from practicum.view.read import Story

OUTCOME_FILE = "measured.json"
"""Name of the file of the outcome, in the folder of the run."""

TEST_PREFIX = "evaluate test "
"""Prefix of the journal places of the final evaluation, which is on the test tasks."""


class CurvePoint(BaseModel, frozen=True):
    """Point of a learning curve, after one step. `tasks`: number of tasks tried so far. `tried` and `score`: number and
    mean score of the tasks of this step. `tokens`: size of the context. `val`: validation score; None if this step was
    not validated."""

    tasks: int
    tried: int
    score: float
    tokens: int
    val: float | None = None


@dataclass(frozen=True, slots=True)
class RunCost(Usage):
    """Usage of some calls. `work`: the sum of the durations of these calls (s)."""

    work: float = 0.0


class RunOutcome(BaseModel, frozen=True, extra="forbid"):
    """Outcome of one run.

    `by_task`: task id → score of the first attempt. `best_of_k`: mean score of the attempts that were chosen, each from
    several attempts at a task. `learning` and `testing`: costs of learning and of the final evaluation. `by_role`:
    usage of each role in learning and final evaluation together. `at_once`: maximum number of concurrent calls.
    `agent_steps`: mean number of steps of an attempt at a scored task. `helpful`: total helpful votes of all entries at
    the end. `measures`: means over the attempts at scored tasks: of each additional measure of the scorer, and, for a
    network of agents, of the number of rounds of critique. `stopped`: reason why the run ended early, such as a spent
    budget. `failed`: reason why the run has no score."""

    variant: str
    seed: int
    by_task: dict[str, float] = Field(default_factory=dict)
    best_of_k: float | None = None
    learning: RunCost = RunCost()
    testing: RunCost = RunCost()
    by_role: dict[str, Usage] = Field(default_factory=dict)
    at_once: int = 1
    wall: float = 0.0
    critical: float | None = None
    context_tokens: int = 0
    entries: int = 0
    agent_steps: float | None = None
    helpful: int | None = None
    measures: dict[str, float] = Field(default_factory=dict)
    steps: int = 0
    refused: int = 0
    errors: dict[str, int] = Field(default_factory=dict)
    curve: list[CurvePoint] = Field(default_factory=list)
    stopped: str | None = None
    failed: str | None = None

    @property
    def score(self) -> float | None:
        """Mean of the scores in `by_task`; None if no task has a score."""
        return sum(self.by_task.values()) / len(self.by_task) if self.by_task else None

    @property
    def usage(self) -> Usage:
        """Usage of learning and testing together."""
        return self.learning + self.testing

    @property
    def work(self) -> float:
        """Sum of the durations of all calls (s)."""
        return self.learning.work + self.testing.work

    @property
    def critical_path(self) -> float:
        """Duration of the longest chain of dependent calls (s). If this duration was not measured: the sum of the
        durations of all calls."""
        return self.work if self.critical is None else self.critical

    @property
    def single_run_s(self) -> float:
        """Upper bound of the duration (s) that the run would have if no other run were active."""
        return self.critical_path + max(self.work - self.critical_path, 0.0) / self.at_once


def read_outcome(path: Path) -> RunOutcome | None:
    """Read the outcome in a run's folder; None if the run is not finished. Raises StoreError for a damaged file."""
    file = path / OUTCOME_FILE
    if not file.exists():
        return None
    try:
        return RunOutcome.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        message = f"cannot read {file}: delete this file and run the command again; no paid call is repeated"
        raise StoreError("comparison.damaged", message) from error


def save_outcome(outcome: RunOutcome, path: Path) -> None:
    """Write the outcome into the run's folder. The written file marks the run as finished."""
    write_atomic(path / OUTCOME_FILE, outcome.model_dump_json(), private=True)


def completed_outcome(
    run: PlannedRun, path: Path, result: Result, attempts: Collection[Attempt], at_once: int
) -> RunOutcome:
    """Return the outcome of a run that reached its end. `attempts`: one reported attempt for each scored task."""
    by_task = {r.task.id: score.value for r in attempts if (score := r.first.score) is not None}
    steps = [agent_steps(r.first) for r in attempts if r.first.score is not None]
    rounds = [r.trace.data["rounds"] for r in attempts if r.trace.error is None and "rounds" in r.trace.data]
    measures = {**mean_measures(attempts), **({"rounds": fmean(rounds)} if rounds else {})}
    reason = f"{result.stopped}, before all tasks were scored" if result.stopped else "no task could be scored"
    # Calls that were lost when the process was killed are not an error of the method.
    errors = {name: n for name, n in result.errors.items() if name != Count.LEFT_IN_FLIGHT}
    return RunOutcome(
        variant=run.variant.name, seed=run.seed, by_task=by_task, best_of_k=best_of_k(list(attempts)),
        at_once=at_once, **_stored(path),
        wall=result.seconds, critical=result.critical, context_tokens=render_full(result.context).tokens,
        entries=sum(not entry.retired for entry in result.context), agent_steps=fmean(steps) if steps else None,
        helpful=result.context.helpful, measures=measures, steps=result.steps, refused=result.refused, errors=errors,
        stopped=result.stopped, failed=None if by_task else reason,
    )  # fmt: skip


def agent_steps(attempt: Attempt) -> int:
    """Count the steps of an attempt: each action of the agent (or each move of a network of agents) is one step. If the
    attempt did not fail, the answer is one more step."""
    trace = attempt.trace
    return sum(step.kind not in ("thought", "observation") for step in trace.steps) + (trace.error is None)


def failed_outcome(run: PlannedRun, path: Path, error: Exception, at_once: int) -> RunOutcome:
    """Return the outcome of a run that ended with an error: the error, and the costs before the error."""
    # Remove the advice on how to resume a single run: this advice does not apply to a run of a comparison.
    message = without_advice(str(error))
    reason = message if isinstance(error, PracticumError) else f"{type(error).__name__}: {error}"
    try:
        stored = _stored(path) if is_run(path) else {}
    except PracticumError:
        # The error may be that the run's database is damaged.
        stored = {}
    return RunOutcome(variant=run.variant.name, seed=run.seed, failed=reason, at_once=at_once, **stored)


def _stored(path: Path) -> dict[str, Any]:
    """Read the fields of an outcome that are stored in the run's database."""
    t = schema.journal.c
    columns = (t.place, t.seconds, *(t[name] for name in schema.USAGE))
    usage, work = defaultdict[str, Usage](Usage), defaultdict[str, float](float)
    with Store.read(path) as store:
        # Calls that were lost when the process was killed are not a cost of the method.
        for place, seconds, *used in store.rows(store.select(*columns).where(t.role != schema.IN_FLIGHT)):
            stage = "testing" if place.startswith(TEST_PREFIX) else "learning"
            work[stage] += seconds
            usage[stage] += Usage(*used) if used[0] else Usage()
        by_role, steps = Journal(store).by_role(), Story(store).steps()
        by_role.pop(schema.IN_FLIGHT, None)
    tried, curve = 0, []
    for step in steps:
        tried += len(step.tasks)
        point = CurvePoint(tasks=tried, tried=len(step.tasks), score=step.score, tokens=step.tokens, val=step.val)
        curve.append(point)
    costs = {stage: RunCost(**usage_json(usage[stage]), work=work[stage]) for stage in ("learning", "testing")}
    return {**costs, "by_role": by_role, "curve": curve}
