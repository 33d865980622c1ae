"""Runs of a comparison, side by side: each an ordinary run in a folder of its own, under one limit at each endpoint.

A run that is over is never opened again. One that was cut short goes on from its journal, so that the same command,
given again after whatever ended it, pays for nothing twice and comes to the same report.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from practicum.analysis.compare.outcome import Outcome, finished, keep, lost, measured
from practicum.analysis.compare.plan import Plan, Planned, held, planned, remember
from practicum.analysis.compare.report import write_report
from practicum.analysis.compare.summary import summary
from practicum.analysis.compare.variants import Study, of_methods
from practicum.core.context import Context
from practicum.core.errors import PracticumError, UsageError
from practicum.core.types import Task
from practicum.engine.loop import StepReport
from practicum.models.registry import Models
from practicum.session.components import Parts
from practicum.session.config import Splits
from practicum.session.learn import INTERRUPTED, Session, begun, learn, opened, resume
from practicum.session.opening import Shared, opening
from practicum.session.records import load_context, new_folder
from practicum.session.result import Nobody
from practicum.store.database import Store


class Onlooker(Protocol):
    """Someone who looks on; every method must return at once. `low` and `high` are the calls expected of `runs`."""

    def planned(self, plan: Plan, folder: Path, done: int) -> None: ...

    def began(self, runs: int, low: int, high: int) -> None: ...

    def ended(self, outcome: Outcome, done: int, of: int) -> None: ...


class Unwatched:
    """Looks away."""

    def planned(self, plan: Plan, folder: Path, done: int) -> None: ...

    def began(self, runs: int, low: int, high: int) -> None: ...

    def ended(self, outcome: Outcome, done: int, of: int) -> None: ...


@dataclass
class Halt:
    """Stops all runs of a comparison, those under way and those to come."""

    reason: str = ""
    sessions: list[Session] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        """Calls that a stop lets finish."""
        return sum(session.house.budget.in_flight for session in self.sessions)

    def stop(self, reason: str) -> None:
        """Let nothing start from now on."""
        self.reason = self.reason or reason
        for session in self.sessions:
            session.house.budget.stop(self.reason)

    def join(self, session: Session) -> None:
        """A run that began."""
        self.sessions.append(session)
        if self.reason:
            session.house.budget.stop(self.reason)


@dataclass(frozen=True)
class Comparison:
    """A comparison's report, as `report.json` has it, and where it is kept. `failed` are runs without a score."""

    folder: Path
    report: dict[str, Any]
    failed: tuple[Outcome, ...]
    interrupted: bool


async def compare(
    tasks: Sequence[Task],
    *,
    test: Sequence[Task] = (),
    val: Sequence[Task] = (),
    methods: Sequence[str] | Study = (),
    baseline: str | None = None,
    settings: dict[str, Any] | None = None,
    seeds: int = 3,
    online: bool = False,
    out: Path | str | None = None,
    runs_at_once: int | None = None,
    parts: Parts | None = None,
    watch: Onlooker | None = None,
    halt: Halt | None = None,
    **common: Any,
) -> Comparison:
    """Run every method with every seed on the same data under the same budget, and report what may be said of it.

    `methods` are names (or "name=method"), or a study made in `comparison.variants`; `settings` go to every method that
    has them, or to one as "ace.rounds"; other keywords are fields of `Config`, shared by all runs (`max_calls` or
    `max_tokens` is the budget of each run, its evaluation included). At most `runs_at_once` are open at a time (None:
    as many as there may be calls). Raises UsageError before anything is paid for where something does not fit.
    """
    if isinstance(methods, Study) and baseline is not None:
        raise UsageError("these tables have baselines of their own: leave out --baseline")
    study = methods if isinstance(methods, Study) else of_methods(methods, baseline)
    parts = parts or Parts()
    splits = Splits(tuple(tasks), tuple(val), tuple(test))
    study = study.settled(settings or {}, online)
    plan = planned(study, splits, parts, seeds=seeds, online=online, **common)
    folder = Path(out) if out is not None else new_folder("compare")
    fresh = not folder.exists()
    runs = _Runs(plan, folder, parts, watch or Unwatched(), halt or Halt(), runs_at_once)
    with held(folder):
        try:
            remember(plan, folder)
            outcomes = await runs.all()
        except PracticumError:
            # Nothing was begun: the same command, put right, should find its folder free.
            if fresh and not (folder / "runs").exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        report = summary(plan, outcomes)
        write_report(report, folder)
    failed = tuple(outcome for outcome in outcomes if outcome.failed)
    return Comparison(folder, report, failed, bool(runs.halt.reason))


@dataclass
class _Runs:
    """The runs of a plan."""

    plan: Plan
    folder: Path
    parts: Parts
    watch: Onlooker
    halt: Halt
    most: int | None
    done: int = 0
    jobs: dict[str, asyncio.Task[Outcome | None]] = field(default_factory=dict)

    async def all(self) -> list[Outcome]:
        """What came of each run that is over, in the order of the plan."""
        known = {run.folder: finished(self.folder / run.folder) for run in self.plan.runs}
        todo = [run for run in self.plan.runs if known[run.folder] is None]
        self.done = len(self.plan.runs) - len(todo)
        self.watch.planned(self.plan, self.folder, self.done)
        if todo:
            async with self._shared() as shared:
                calls = await self._check(todo, shared)
                self.watch.began(len(todo), sum(low for low, _ in calls), sum(high for _, high in calls))
                gate = asyncio.Semaphore(self.most or self._at_once(shared))
                for run in todo:
                    self.jobs[run.folder] = asyncio.create_task(self._within(gate, run, shared))
                known |= dict(zip(self.jobs, await asyncio.gather(*self.jobs.values()), strict=True))
        return [outcome for run in self.plan.runs if (outcome := known[run.folder]) is not None]

    @asynccontextmanager
    async def _shared(self) -> AsyncIterator[Shared]:
        """Models that all runs have in common, opened when they are first asked for."""
        models = Models(opening(self.plan.runs[0].config, self.folder, self.parts))
        try:
            yield Shared(models)
        finally:
            await models.close()

    def _at_once(self, shared: Shared) -> int:
        """How many calls may be in flight: more than the slots of a local model would push each other out of it."""
        clients = (*shared.models.clients, *self.parts.clients.values())
        slots = [client.slots for client in clients if client.slots is not None]
        return min([self.plan.runs[0].config.concurrency, *slots])

    async def _check(self, todo: Sequence[Planned], shared: Shared) -> list[tuple[int, int]]:
        """Open each variant once without asking anything: models, prices and budgets. The calls that each run of it
        may take."""
        calls: dict[str, tuple[int, int]] = {}
        with tempfile.TemporaryDirectory(prefix="practicum-compare-") as name:
            for run in {run.variant.name: run for run in todo}.values():
                place = Path(name) / run.variant.folder
                try:
                    with Store.create(place) as store:
                        opening_ = opened(
                            store, place, run.config, self.plan.splits_of(run), Context(), self.parts, None, shared
                        )
                        async with opening_ as session:
                            session.estimate.refuse_small_budget()
                            calls[run.variant.name] = session.estimate.calls()
                except PracticumError as error:
                    error.args = (f"{run.variant.name}: {error}",)
                    raise
        return [calls[run.variant.name] for run in todo]

    async def _within(self, gate: asyncio.Semaphore, run: Planned, shared: Shared) -> Outcome | None:
        before = self.plan.before(run)
        if before is not None and before.folder in self.jobs:
            await asyncio.wait([self.jobs[before.folder]])
        async with gate:
            if self.halt.reason:
                return None
            outcome = await self._one(run, shared)
        if outcome is not None:
            self.done += 1
            self.watch.ended(outcome, self.done, len(self.plan.runs))
        return outcome

    async def _one(self, run: Planned, shared: Shared) -> Outcome | None:
        """A run to its end; None where it was interrupted. What breaks one run off must not take the others along."""
        path, seen, slots = self.folder / run.folder, _Seen(), self._at_once(shared)
        how: dict[str, Any] = {"parts": self.parts, "watch": seen, "on_session": self.halt.join, "shared": shared}
        try:
            if begun(path):
                result = await resume(path, **how)
            else:
                splits, config, seed = self.plan.splits_of(run), run.config.model_dump(), self._seed(run)
                result = await learn(
                    splits.train, val=splits.val, test=splits.test, out=path, seed_context=seed, **config, **how
                )
            if result.interrupted:
                return None
            outcome = measured(run, path, result, seen.scores(self.plan.predicted(run), result.context), slots)
            # Where nothing could be scored, and no budget is why, the judge may be there the next time.
            if outcome.failed is None or result.stopped is not None:
                keep(outcome, path)
            return outcome
        except Exception as error:
            return None if self.halt.reason else lost(run, path, error, slots)
        finally:
            self.halt.sessions = [s for s in self.halt.sessions if s.folder != path]

    def _seed(self, run: Planned) -> Context | None:
        """What the run starts from, where that is what another one learned."""
        before = self.plan.before(run)
        if before is None:
            return None
        path = self.folder / before.folder
        known = finished(path)
        if known is None or known.failed:
            raise PracticumError(f"{before.variant.name}, which it starts from, has no result")
        return load_context(path)


class _Seen(Nobody):
    """What a run scored, task by task."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._predicted: dict[str, float] = {}

    def began(self, session: Session, low: int, high: int) -> None:
        self._session = session

    def stepped(self, session: Session, report: StepReport) -> None:
        scored = ((r.task.id, r.score) for r in report.rollouts)
        self._predicted.update({id: score.value for id, score in scored if score is not None})

    def scores(self, online: bool, context: Context) -> dict[str, float]:
        """Those that count: of the test tasks under the final context, or of the predictions of a stream."""
        if online:
            return self._predicted
        assert self._session is not None
        found = self._session.house.evaluated.items()
        tested = {id: r.score for (split, id, shown, _), r in found if (split, shown) == ("test", context.digest)}
        return {id: score.value for id, score in tested.items() if score is not None}


__all__ = ["INTERRUPTED", "Comparison", "Halt", "Onlooker", "Unwatched", "compare"]
