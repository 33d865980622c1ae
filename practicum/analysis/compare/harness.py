"""Run the runs of a comparison side by side: ordinary runs, each in its own folder, with one limit for each endpoint.

A run that is over is not opened again. A run that was cut short continues from its journal. Giving the same command
again therefore pays for nothing twice and leads to the same report, whatever ended it before.
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
from practicum.analysis.compare.variants import Study, of_methods
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
from practicum.session.config import Splits, require_known
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
"""Seconds between two lines about waits."""


class ComparisonWatch:
    """Follows the progress of a comparison. Override what you need; methods must return at once."""

    def planned(self, plan: ComparisonPlan, folder: Path, done: int) -> None:
        """The plan is checked; `done` of its runs are over already."""

    def began(self, runs: int) -> None:
        """This many runs begin."""

    def watching(self, run: PlannedRun) -> Sequence[Watch]:
        """What watches this run, which is about to begin."""
        return ()

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        """A run ended; `done` of all runs are over."""


@dataclass
class ComparisonLines(ComparisonWatch):
    """Says a line about each run that ends, and about waits of calls: not more than one in `WAIT_EVERY` seconds. `log`
    makes the trackers of a run."""

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
        ready = f", {done:,} of them done" if done else ""
        self.say(f"{variants} x {seeds} = {quantity(len(plan.runs), 'run')}{ready}; kept in {folder}")

    def began(self, runs: int) -> None:
        self.say(f"{quantity(runs, 'run')} to go")

    def watching(self, run: PlannedRun) -> Sequence[Watch]:
        return [self._waits, *self.log(name=run.folder.removeprefix("runs/"), group=self.group)]

    def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
        score = "failed" if outcome.score is None else f"{outcome.score:.1%}"
        calls = quantity(outcome.learning.calls + outcome.testing.calls, "call")
        why = f"; {reason}" if (reason := outcome.failed or outcome.stopped) else ""
        self.say(f"{done} of {of}: {outcome.variant}, seed {outcome.seed}: {score}, {calls}{why}")


@dataclass(kw_only=True)
class Halt:
    """Stops all runs of a comparison or a bench: those under way and those that have not begun."""

    reason: str = ""
    budgets: dict[Path, Budget] = field(default_factory=dict)

    @property
    def finishing(self) -> Finishing:
        """What a stop allows to finish."""
        return sum((budget.finishing for budget in self.budgets.values()), Finishing())

    def stop(self, reason: str) -> None:
        """Start no more calls."""
        self.reason = self.reason or reason
        for budget in self.budgets.values():
            budget.stop(self.reason)

    def add(self, run: RunInfo) -> None:
        self.budgets[run.folder] = run.budget
        if self.reason:
            run.budget.stop(self.reason)


@dataclass(frozen=True)
class Comparison:
    """The report of a comparison, as in `report.json`, and its folder. `failed` are the runs without a score."""

    folder: Path
    report: dict[str, Any]
    failed: tuple[RunOutcome, ...]
    interrupted: bool

    def __repr__(self) -> str:
        scores = "; ".join(f"{row['name']} {percent(row['score'])}" for row in self.report["variants"])
        return f"<Comparison {self.folder}: {scores}>"

    def _repr_html_(self) -> str:
        """The tables, for notebooks."""
        tables = [
            table((name or "", *columns), rows, note) for name, (_, *columns), rows, note in brief_tables(self.report)
        ]
        failed = "\n".join(f"{outcome.variant}, seed {outcome.seed}: {outcome.failed}" for outcome in self.failed)
        facts = {"failed": failed, "costs, curves and more": self.folder / "report.html"}
        return card(f"Comparison in {self.folder}", facts, *tables)


async def compare(
    tasks: Sequence[Task], *, test: Sequence[Task] = (), val: Sequence[Task] = (),
    methods: Sequence[str] | Study = (), baseline: str | None = None, settings: Mapping[str, Any] | None = None,
    seeds: int = 3, online: bool = False, seed_context: Context | None = None, out: Path | str | None = None,
    runs_at_once: int | None = None, parts: Parts | None = None, watch: ComparisonWatch | None = None,
    halt: Halt | None = None, store: str | None = None, **common: Unpack[RunOptions],
) -> Comparison:  # fmt: skip
    """Run every method with every seed on the same data and budget, and report what may be claimed.

    `methods` are names (or "name=method"), or a study of `compare.variants`. `settings` go to
    every method that has them, or to one method as "ace.rounds". Every run starts from `seed_context`, if given.
    With `store`, the URL of a PostgreSQL database, the runs are kept there, as NAME OF THE FOLDER/NAME OF THE RUN.
    `RunOptions` describes the other keywords, which all runs share; `max_calls` or `max_tokens` is the budget of each
    run, its evaluation included. The default of `runs_at_once` is the number of calls allowed at once. Raises
    UsageError before anything is paid for where something does not fit.
    """
    require_known(compare, common)
    if "seed" in common:
        raise UsageError(
            "settings.conflict",
            "the seeds of a comparison are 0, 1, 2 and so on: give their number as seeds=N, not a seed",
        )
    if isinstance(methods, Study) and baseline is not None:
        raise UsageError("settings.conflict", "the tables of this study have their own baselines: leave out `baseline`")
    study = methods if isinstance(methods, Study) else of_methods(methods, baseline)
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
            # No run began, so the corrected command should find its folder free.
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
        """Run what is not over yet; the outcomes of all runs that are over then, in the order of the plan."""
        outcomes = {run.folder: read_outcome(self.folder / run.folder) for run in self.plan.runs}
        todo = [run for run in self.plan.runs if outcomes[run.folder] is None]
        self.done = len(self.plan.runs) - len(todo)
        self.watch.planned(self.plan, self.folder, self.done)
        if todo:
            # All runs share these models, each opened when it is first asked.
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
        """How many calls may be in flight; more than a local model has slots would evict each other's prefixes."""
        clients = (*shared.models.clients, *self.parts.clients.values())
        slots = [client.slots for client in clients if client.slots is not None]
        return min([self.plan.runs[0].config.concurrency, *slots])

    async def _check(self, todo: Sequence[PlannedRun], shared: Shared) -> None:
        """Open each variant once without asking anything, which checks its models, prices and budget."""
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
        """Wait for the run that this one starts from and for a free place, then run."""
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
        """The outcome of a run, or None where it was interrupted. An error in one run does not stop the others."""
        path, watch, at_once = self.folder / run.folder, _RunWatch(self.halt), self._calls_at_once(shared)
        watches = [watch, *self.watch.watching(run)]
        options: dict[str, Any] = {"parts": run.parts, "watch": watches, "shared": shared}
        try:
            if begun(path):
                # The plan names all that the run executes, wherever the folder is from.
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
            # A stream is scored by its predictions before it learned from each task.
            streamed = self.plan.online or run.variant.stream
            attempts = watch.predicted.values() if streamed else result.attempts.get("test", ())
            outcome = completed_outcome(run, path, result, attempts, at_once)
            # A run without a score is tried again, since its judge may answer then, unless its budget is spent.
            if outcome.failed is None or result.stopped is not None:
                save_outcome(outcome, path)
            return outcome
        except Exception as error:
            return None if self.halt.reason else failed_outcome(run, path, error, at_once)
        finally:
            self.halt.budgets.pop(path, None)

    def _start(self, run: PlannedRun) -> Context:
        """The context a run starts from: that of the comparison, or what another run learned from it."""
        if not run.start:
            return self.plan.seed_context
        outcome = read_outcome(self.folder / run.start)
        if outcome is None or outcome.failed:
            raise PracticumError(
                "comparison.stopped", f"{run.variant.after}, which this run starts from, has no result"
            )
        return load_context(self.folder / run.start)


@dataclass
class _Waits(Watch):
    """Says that calls wait, not more often than every `WAIT_EVERY` seconds."""

    say: Callable[[str], None]
    said: float = -inf

    def waiting(self, wait: Wait) -> None:
        if wait.moved:
            self.say(moved_text(wait))
        if wait.seconds >= 1 and time.monotonic() - self.said >= WAIT_EVERY:
            self.said = time.monotonic()
            self.say(f"{wait.model}: {wait_text(wait, round(wait.seconds))}")


@dataclass
class _RunWatch(Watch):
    """Collects a run's predictions, the last one of each task."""

    halt: Halt
    predicted: dict[str, Attempt] = field(default_factory=dict)

    def began(self, run: RunInfo) -> None:
        self.halt.add(run)

    def stepped(self, report: StepReport, progress: Progress) -> None:
        self.predicted.update((r.task.id, r) for r in report.attempts if r.first.score is not None)
