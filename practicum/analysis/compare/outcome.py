"""The outcome of one run of a comparison, read from the run's folder and kept beside it once the run is over.

Runs side by side share machines and limits, so how long one took says little. Three times are measured:

    wall      from start to end, beside the other runs
    work      the sum of the durations of its calls: with one call at a time it cannot be faster
    critical  the longest chain of calls that each waited for the one before: it can never be faster

With c calls at once and nothing beside it, a run takes at most critical + (work - critical) / c (Brent 1974). This is
`alone`. Other runs can still have slowed single calls, which all three times include.
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

TEST_PREFIX = "evaluate test "
"""The beginning of the places of the final evaluation."""


class CurvePoint(BaseModel, frozen=True):
    """One step of training: tasks tried so far, tasks tried in this step and their mean score, tokens of the context
    afterwards, and the score on the validation tasks where it was measured."""

    tasks: int
    tried: int
    score: float
    tokens: int
    val: float | None = None


@dataclass(frozen=True, slots=True)
class RunCost(Usage):
    """The cost of some calls: what they used, and `work`, the sum of their seconds."""

    work: float = 0.0


class RunOutcome(BaseModel, frozen=True, extra="forbid"):
    """The outcome of one run. `by_task` has the scores that count, by task id, those of first attempts, and `best_of_k`
    the mean score of the attempts that were chosen from several; `learning` and `testing` are the costs of the two
    stages, `by_role` those of each role in both. `agent_steps` are the steps of an attempt at a scored task on average,
    `helpful` the helpful votes of all entries at the end. `measures` are means over those attempts: what the scorer
    measures beside the score, and for a network its rounds of critique. `stopped` says why the run ended early (a spent
    budget), `failed` why it has no score."""

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
        """The mean over the tasks."""
        return sum(self.by_task.values()) / len(self.by_task) if self.by_task else None

    @property
    def usage(self) -> Usage:
        """The usage of both stages."""
        return self.learning + self.testing

    @property
    def work(self) -> float:
        """The seconds of all calls, added up."""
        return self.learning.work + self.testing.work

    @property
    def critical_path(self) -> float:
        """The seconds of the longest chain of calls, or of all calls where it was not measured."""
        return self.work if self.critical is None else self.critical

    @property
    def alone(self) -> float:
        """The most seconds that the run takes with nothing beside it."""
        return self.critical_path + max(self.work - self.critical_path, 0.0) / self.at_once


def read_outcome(path: Path) -> RunOutcome | None:
    """The outcome kept in a run's folder, or None where the run is not over. Raises StoreError for a damaged file."""
    file = path / OUTCOME_FILE
    if not file.exists():
        return None
    try:
        return RunOutcome.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        message = f"cannot read {file}: delete it, and the run is measured again without paying for it"
        raise StoreError("comparison.damaged", message) from error


def save_outcome(outcome: RunOutcome, path: Path) -> None:
    """Write the outcome into the run's folder; from now on the run is over."""
    write_atomic(path / OUTCOME_FILE, outcome.model_dump_json(), private=True)


def completed_outcome(
    run: PlannedRun, path: Path, result: Result, attempts: Collection[Attempt], at_once: int
) -> RunOutcome:
    """The outcome of a run that came to its end. `attempts` are those at the tasks that count, one for each task."""
    by_task = {r.task.id: score.value for r in attempts if (score := r.first.score) is not None}
    taken = [agent_steps(r.first) for r in attempts if r.first.score is not None]
    rounds = [r.trace.data["rounds"] for r in attempts if r.trace.error is None and "rounds" in r.trace.data]
    measures = {**mean_measures(attempts), **({"rounds": fmean(rounds)} if rounds else {})}
    early = f"{result.stopped}, before every task was scored" if result.stopped else "no task could be scored"
    # What a kill lost says nothing about a method.
    errors = {name: n for name, n in result.errors.items() if name != Count.LEFT_IN_FLIGHT}
    return RunOutcome(
        variant=run.variant.name, seed=run.seed, by_task=by_task, best_of_k=best_of_k(list(attempts)),
        at_once=at_once, **_stored(path),
        wall=result.seconds, critical=result.critical, context_tokens=render_full(result.context).tokens,
        entries=len(result.context), agent_steps=fmean(taken) if taken else None,
        helpful=result.context.helpful, measures=measures, steps=result.steps, refused=result.refused, errors=errors,
        stopped=result.stopped, failed=None if by_task else early,
    )  # fmt: skip


def agent_steps(attempt: Attempt) -> int:
    """The steps of an attempt: the agent's actions (or the moves of a network of agents), and its answer."""
    trace = attempt.trace
    return sum(step.kind not in ("thought", "observation") for step in trace.steps) + (trace.error is None)


def failed_outcome(run: PlannedRun, path: Path, error: Exception, at_once: int) -> RunOutcome:
    """The outcome of a run that an error ended: why, and what it had cost until then."""
    # The advice on how to continue a single run does not apply here.
    message = without_advice(str(error))
    why = message if isinstance(error, PracticumError) else f"{type(error).__name__}: {error}"
    try:
        stored = _stored(path) if is_run(path) else {}
    except PracticumError:
        # The error may be about this very file.
        stored = {}
    return RunOutcome(variant=run.variant.name, seed=run.seed, failed=why, at_once=at_once, **stored)


def _stored(path: Path) -> dict[str, Any]:
    """The fields of an outcome that are read from the run's database."""
    t = schema.journal.c
    columns = (t.place, t.seconds, t.calls, t.input_tokens, t.cached_tokens, t.output_tokens, t.usd)
    usage, work = defaultdict[str, Usage](Usage), defaultdict[str, float](float)
    with Store.read(path) as store:
        # What was lost to a kill is no cost of the method.
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
