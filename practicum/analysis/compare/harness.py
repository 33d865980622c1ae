"""Concurrent execution of the runs of a comparison. Each run is an ordinary run in a separate folder. All runs share
the models, and so the limits of each endpoint.

A finished run is not opened again. An interrupted run continues from its journal. Running the same command again
therefore pays for no call twice, and gives the same report.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Unpack

from practicum.analysis.compare.outcome import RunOutcome, completed_outcome, failed_outcome, read_outcome, save_outcome
from practicum.analysis.compare.plan import ComparisonPlan, PlannedRun, locked, make_plan, save_plan
from practicum.analysis.compare.report import brief_tables, write_report
from practicum.analysis.compare.summary import summary
from practicum.analysis.compare.variants import Study, default_methods, of_methods
from practicum.core.context import Context
from practicum.core.errors import PracticumError, ProviderError, UsageError
from practicum.core.formats import percent
from practicum.core.html import card, table
from practicum.core.types import Attempt, Task
from practicum.core.words import quantity
from practicum.engine.loop import StepReport
from practicum.models.budget import Budget, Finishing
from practicum.models.client import Wait
from practicum.session.components import Parts
from practicum.session.config import Splits, require_keywords
from practicum.session.foreign import executes
from practicum.session.keywords import RunOptions
from practicum.session.learn import begun, learn, open_session, resume
from practicum.session.legs import Leg
from practicum.session.live import moved_text, wait_text
from practicum.session.notebook import Notebook, in_notebook
from practicum.session.opening import Shared, join_workers, open_models
from practicum.session.records import as_seed, load_context, new_folder
from practicum.session.result import Progress, RunInfo, Watch
from practicum.session.setup import build_setup
from practicum.store.database import Store
from practicum.store.folder import Elsewhere

WAIT_EVERY = 5.0
"""Minimum interval between two printed lines about calls that wait (s)."""


class ComparisonWatch:
    """Base class of watches of a comparison. Override the methods that you need. Each method must return
    immediately."""

    def planned(self, plan: ComparisonPlan, folder: Path, done: int) -> None:
        """Receive the checked plan and the folder of the comparison, before any run starts. `done`: the number of runs
        of the plan that were finished before this call of `compare`."""

    def began(self, runs: int) -> None:
        """Receive the number of runs that are about to start."""

    def watching(self, run: PlannedRun) -> Sequence[Watch]:
        """Return the watches of a run that is about to start."""
        return ()

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        """Receive the outcome of a run that ended. `done`: number of runs that are finished so far. `of`: number of all
        runs of the plan."""


@dataclass
class ComparisonLines(ComparisonWatch):
    """Watch that prints a line for each run that ends, and a line about waits at most every `WAIT_EVERY` s.

    `log(name, group)`: returns the watches that report the run `name` of the comparison `group` to experiment
    trackers."""

    say: Callable[[str], None]
    log: Callable[..., Sequence[Watch]] = lambda **how: ()
    group: str = ""

    def __post_init__(self) -> None:
        self._waits = _Waits(self.say)

    def planned(self, plan: ComparisonPlan, folder: Path, done: int) -> None:
        self.group = folder.absolute().name
        for warning in plan.warnings:
            self.say(f"warning: {warning}")
        variants, seeds = quantity(len(plan.study.variants), "variant"), quantity(plan.seeds, "seed")
        finished = f", {done:,} of them done" if done else ""
        self.say(f"{variants} x {seeds} = {quantity(len(plan.runs), 'run')}{finished}; stored in {folder}")

    def began(self, runs: int) -> None:
        self.say(f"starting {quantity(runs, 'run')}")

    def watching(self, run: PlannedRun) -> Sequence[Watch]:
        return [self._waits, *self.log(name=run.folder.removeprefix("runs/"), group=self.group)]

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        score = "failed" if outcome.score is None else f"{outcome.score:.1%}"
        calls = quantity(outcome.learning.calls + outcome.testing.calls, "call")
        cause = f"; {reason}" if (reason := outcome.failed or outcome.stopped) else ""
        self.say(f"{done} of {of}: {outcome.variant}, seed {outcome.seed}: {score}, {calls}{cause}")


@dataclass(kw_only=True)
class Halt:
    """Switch that stops all runs of a comparison or a benchmark, both active runs and runs that have not started."""

    reason: str = ""
    budgets: dict[Path, Budget] = field(default_factory=dict)

    @property
    def finishing(self) -> Finishing:
        """Calls in flight, of all active runs. These calls may still finish after a stop."""
        return sum((budget.finishing for budget in self.budgets.values()), Finishing())

    def stop(self, reason: str) -> None:
        """Stop all runs: no more calls are started."""
        self.reason = self.reason or reason
        for budget in self.budgets.values():
            budget.stop(self.reason)

    def add(self, run: RunInfo) -> None:
        self.budgets[run.folder] = run.budget
        if self.reason:
            run.budget.stop(self.reason)


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison: its folder and its report, as in `report.json`. `failed`: the runs without a score.
    `interrupted`: whether a `Halt` stopped the runs."""

    folder: Path
    report: dict[str, Any]
    failed: tuple[RunOutcome, ...]
    interrupted: bool

    def __repr__(self) -> str:
        scores = "; ".join(f"{row['name']} {percent(row['score'])}" for row in self.report["variants"])
        return f"<Comparison {self.folder}: {scores}>"

    def _repr_html_(self) -> str:
        """Render the tables for notebooks."""
        tables = [
            table((name or "", *columns), rows, note) for name, (_, *columns), rows, note in brief_tables(self.report)
        ]
        failed = "\n".join(f"{outcome.variant}, seed {outcome.seed}: {outcome.failed}" for outcome in self.failed)
        facts = {"failed": failed, "costs and curves": self.folder / "report.html"}
        return card(f"Comparison in {self.folder}", facts, *tables)


async def compare(
    tasks: Sequence[Task], *, test: Sequence[Task] = (), val: Sequence[Task] = (),
    methods: Sequence[str] | Study = (), baseline: str | None = None, settings: Mapping[str, Any] | None = None,
    seeds: int = 3, online: bool = False, seed_context: Context | None = None, out: Path | str | None = None,
    runs_at_once: int | None = None, parts: Parts | None = None, watch: ComparisonWatch | None = None,
    halt: Halt | None = None, store: str | None = None, **common: Unpack[RunOptions],
) -> Comparison:  # fmt: skip
    """Run every method with every seed, all with the same data and the same budget, and report the differences between
    the methods.

    `methods`: names (or "name=method"), or a study from `compare.variants`; by default none, icl, episodes and ace.
    `settings`: setting → value. The key "rounds" sets `rounds` for every method with such a setting, "ace.rounds" only
    for `ace`. `seed_context`: the context that every run starts from. `store`: URL of a PostgreSQL database that stores
    the runs, each under the name of the comparison's folder and of the run's folder, FOLDER/RUN. `runs_at_once`:
    maximum number of concurrent runs (default: the maximum number of concurrent calls). The other keywords apply to all
    runs, see `RunOptions`; `max_calls` or `max_tokens` is the budget of each run, for learning and evaluation together.
    Raises UsageError for invalid values, before any paid call.
    """
    require_keywords(compare, common)
    if "seed" in common:
        raise UsageError(
            "settings.conflict",
            "a comparison uses the seeds 0, 1, 2 and so on: pass the number of seeds as seeds=N, not a seed",
        )
    if isinstance(methods, Study) and baseline is not None:
        raise UsageError("settings.conflict", "the tables of this study define their baselines: leave out `baseline`")
    chosen = methods or default_methods(common.get("labels", True))
    study = chosen if isinstance(chosen, Study) else of_methods(chosen, baseline)
    parts = parts or Parts()
    splits = Splits(tuple(tasks), tuple(val), tuple(test))
    study, start = study.with_settings(settings or {}, online), as_seed(seed_context or Context())
    plan = make_plan(study, splits, parts, seeds=seeds, online=online, seed_context=start, **common)
    folder = Path(out) if out is not None else new_folder("compare")
    fresh = not folder.exists()
    watch = watch or (ComparisonLines(Notebook().say) if in_notebook() else ComparisonWatch())
    runs = _Runs(plan, folder, parts, watch, halt or Halt(), runs_at_once, store)
    with locked(folder):
        try:
            save_plan(plan, folder)
            outcomes = await runs.all()
        except PracticumError:
            # If this call created the folder and no run has started, remove the folder, so that a corrected command can
            # use the same path.
            if fresh and not (folder / "runs").exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        report = summary(plan, outcomes)
        write_report(report, folder)
    failed = tuple(outcome for outcome in outcomes if outcome.failed)
    return Comparison(folder, report, failed, bool(runs.halt.reason))


@dataclass
class _Runs:
    plan: ComparisonPlan
    folder: Path
    parts: Parts
    watch: ComparisonWatch
    halt: Halt
    runs_at_once: int | None
    store: str | None
    done: int = 0
    jobs: dict[str, asyncio.Task[RunOutcome | None]] = field(default_factory=dict)

    async def all(self) -> list[RunOutcome]:
        """Execute the unfinished runs. Returns the outcomes of all finished runs, in the order of the plan."""
        outcomes = {run.folder: read_outcome(self.folder / run.folder) for run in self.plan.runs}
        todo = [run for run in self.plan.runs if outcomes[run.folder] is None]
        self.done = len(self.plan.runs) - len(todo)
        self.watch.planned(self.plan, self.folder, self.done)
        if todo:
            # All runs share these models. Each model is opened at its first call.
            config = self.plan.runs[0].config
            async with join_workers(config) as workers:
                models = open_models(config, self.folder, self.parts, workers)
                try:
                    shared = Shared(models, workers=workers)
                    await self._check(todo, shared)
                    self.watch.began(len(todo))
                    gate = asyncio.Semaphore(self.runs_at_once or self._calls_at_once(shared))
                    for run in todo:
                        self.jobs[run.folder] = asyncio.create_task(self._in_turn(gate, run, shared))
                    outcomes |= dict(zip(self.jobs, await asyncio.gather(*self.jobs.values()), strict=True))
                finally:
                    await models.close()
        return [outcome for run in self.plan.runs if (outcome := outcomes[run.folder]) is not None]

    def _calls_at_once(self, shared: Shared) -> int:
        """Return the maximum number of concurrent calls: the `concurrency` of the configuration, but not more than the
        slots of any local model. With more calls than slots, the calls would evict each other's prefixes from the cache
        of the model."""
        clients = (*shared.models.clients, *self.parts.clients.values())
        slots = [client.slots for client in clients if client.slots is not None]
        return min([self.plan.runs[0].config.concurrency, *slots])

    async def _check(self, todo: Sequence[PlannedRun], shared: Shared) -> None:
        """Open each variant once without calling a model, to check the variant's models, prices and budget."""
        with tempfile.TemporaryDirectory(prefix="practicum-compare-") as name:
            for run in {run.variant.name: run for run in todo}.values():
                place = Path(name) / run.folder
                try:
                    with Store.create(place) as store:
                        setup = build_setup(run.config, run.splits, run.parts)
                        async with open_session(
                            store, place, setup, Leg(1, self.plan.seed_context, 0, ()), shared=shared
                        ) as session:
                            session.reserve.check()
                except PracticumError as error:
                    error.args = (f"{run.variant.name}: {error}",)
                    raise

    async def _in_turn(self, gate: asyncio.Semaphore, run: PlannedRun, shared: Shared) -> RunOutcome | None:
        """Execute a run as soon as the run that it starts from has ended and the semaphore `gate` has a free slot.
        Returns the outcome; None if the run was interrupted or not started."""
        if run.start in self.jobs:
            await asyncio.wait([self.jobs[run.start]])
        async with gate:
            if self.halt.reason:
                return None
            outcome = await self._run(run, shared)
        if outcome is not None:
            self.done += 1
            self.watch.ended(outcome, self.done, len(self.plan.runs))
        return outcome

    async def _run(self, run: PlannedRun, shared: Shared) -> RunOutcome | None:
        """Execute a run. Returns the outcome; None if the run was interrupted. An error in one run does not stop the
        others."""
        path, watch, concurrency = self.folder / run.folder, _RunWatch(self.halt), self._calls_at_once(shared)
        watches = [watch, *self.watch.watching(run)]
        options: dict[str, Any] = {"parts": run.parts, "watch": watches, "shared": shared}
        try:
            if begun(path):
                # The plan of this comparison names all code that the run executes, so this code is trusted.
                result = await resume(path, trust_run=executes(path, run.config), **options)
            else:
                name = f"{self.folder.resolve().name}/{path.name}"
                result = await learn(
                    run.splits.train, val=run.splits.val, test=run.splits.test, out=path,
                    seed_context=self._start(run), store=self.store and Elsewhere(self.store, name),
                    **run.config.model_dump(), **options,
                )  # fmt: skip
            if result.interrupted:
                return None
            if result.cut_short:
                raise ProviderError("comparison.stopped", str(result.stopped))
            # The score of a stream is the score of its predictions. A task is predicted before the run learns from it.
            streamed = self.plan.online or run.variant.stream
            attempts = watch.predicted.values() if streamed else result.attempts.get("test", ())
            outcome = completed_outcome(run, path, result, attempts, concurrency)
            # The outcome of a run without a score is not saved, so the next command tries the run again: a judge that
            # failed may answer in the next try. But the outcome of a run that was stopped early (by its budget, for
            # example) is saved even without a score, because the next try would stop early again.
            if outcome.failed is None or result.stopped is not None:
                save_outcome(outcome, path)
            return outcome
        except Exception as error:
            return None if self.halt.reason else failed_outcome(run, path, error, concurrency)
        finally:
            self.halt.budgets.pop(path, None)

    def _start(self, run: PlannedRun) -> Context:
        """Return the context that a run starts from: `seed_context`, or the result of another run."""
        if not run.start:
            return self.plan.seed_context
        outcome = read_outcome(self.folder / run.start)
        if outcome is None or outcome.failed:
            raise PracticumError("comparison.stopped", f"this run starts from {run.variant.after}, which has no result")
        return load_context(self.folder / run.start)


@dataclass
class _Waits(Watch):
    """Watch that prints a line about a waiting call, at most once per `WAIT_EVERY` seconds. It also prints a line
    whenever calls move to another server because a server failed."""

    say: Callable[[str], None]
    last: float = -inf

    def waiting(self, wait: Wait) -> None:
        if wait.moved:
            self.say(moved_text(wait))
        if wait.seconds >= 1 and time.monotonic() - self.last >= WAIT_EVERY:
            self.last = time.monotonic()
            self.say(f"{wait.model}: {wait_text(wait, round(wait.seconds))}")


@dataclass
class _RunWatch(Watch):
    """Watch that adds a run to the `halt`, and collects the run's last prediction for each task."""

    halt: Halt
    predicted: dict[str, Attempt] = field(default_factory=dict)

    def began(self, run: RunInfo) -> None:
        self.halt.add(run)

    def stepped(self, report: StepReport, progress: Progress) -> None:
        self.predicted.update((r.task.id, r) for r in report.attempts if r.first.score is not None)
