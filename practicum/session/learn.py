"""A run from start to end: open the folder, learn, evaluate, report. The library's front door.

`learn` and `resume` are what the command line calls, and what five lines of Python call.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.blocks.accept.gate import gated
from practicum.blocks.attempt.attempt import reading
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.errors import ModelError, PracticumError, ProviderError, Stopped, StoreError, UsageError
from practicum.core.types import Task
from practicum.engine.loop import Method, StepReport, Validation, mean_score
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.models.budget import Need
from practicum.session.components import Parts
from practicum.session.config import Config, Splits, acts, checked, configured, raised
from practicum.session.estimate import Reserve
from practicum.session.opening import Shared, furnished
from practicum.session.records import (
    FINAL,
    RUN,
    as_seed,
    begin,
    create,
    load_context,
    new_folder,
    read_run,
    seconds_spent,
    step_rows,
    update_run,
)
from practicum.session.result import Nobody, Result, Watch
from practicum.session.upkeep import keep
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.snapshot import invalidate_snapshot
from practicum.store.versions import Version, delete_versions_after, read_versions, rebuild, version_row

INTERRUPTED = "interrupted"
"""The reason of a stop that the user asked for."""

GO_ON = ". What was done is kept; go on with: practicum resume "
"""Stands between what stopped a run and its folder."""

SAVE_TIME_EVERY = 5.0
"""Seconds of work that a kill may take out of the count of minutes."""


SIZES = {"batch": Count.BATCH_LOWERED, "rollouts": Count.ROLLOUTS_LOWERED}
"""Settings that are numbers of training tasks, and what they are called."""


@dataclass
class Progress:
    """How far a run is: its context, the best one so far, and what was counted."""

    context: Context
    best: Context
    best_score: float | None = None
    steps: int = 0
    refused: int = 0
    attempts: int = 0
    points: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)

    def validated(self, context: Context, score: float) -> None:
        """Keep the best context; the earliest on ties."""
        if self.best_score is None or score > self.best_score:
            self.best, self.best_score = context, score
            self.scores["val_best"] = score

    def stepped(self, report: StepReport, online: bool) -> None:
        """Count a step."""
        self.context, self.steps = report.context, report.step
        self.refused += len(report.refused)
        scored = [r.score.value for r in report.rollouts if r.score is not None]
        self.attempts += len(scored)
        self.points += sum(scored)
        if online and self.attempts:
            self.scores["online"] = self.points / self.attempts
        if report.val is not None:
            self.validated(report.context, report.val)


@dataclass
class Session:
    """An open run: what it is made of and how far it is."""

    folder: Path
    config: Config
    splits: Splits
    method: Method
    state: RunState
    store: Store
    seed: Context
    watch: Watch = field(default_factory=Nobody)
    progress: Progress = field(init=False)
    reserve: Reserve = field(init=False)
    _time_saved: float = 0.0

    def __post_init__(self) -> None:
        self._count_lowered()
        self.state.counts[Count.TRACE_FAULTS] += self.config.trace_faults
        self.progress = Progress(self.seed, self.seed)
        self.reserve = Reserve(self.config, self.splits, self.method, self.state, self.seed)
        self._time_saved = self.state.budget.elapsed

    def _count_lowered(self) -> None:
        """Sizes that were asked for, and are more than there is. Defaults are no wish."""
        asked = methods.validated(self.config.method, self.config.settings)
        for setting, counter in SIZES.items():
            size = getattr(asked, setting, None)
            if setting in self.config.settings and isinstance(size, int) and size > len(self.splits.train) > 0:
                self.state.counts[counter] += 1

    async def run(self) -> Result:
        """Learn, evaluate, report. A spent budget or an interrupt ends it early, with the best context so far."""
        self.watch.began(self)
        root = Run(self.state)
        # Versions to come may take the place of those that an earlier sitting ended with.
        self.store.execute(invalidate_snapshot(RUN))
        stopped = None
        try:
            await self._learn(root)
        except Stopped as stop:
            stopped = stop.reason
        final = await self._restore_best()
        if self.splits.test and stopped != INTERRUPTED:
            try:
                self.state.budget.hold(Need())
                await self._evaluate(root, "test", final)
            except Stopped as stop:
                stopped = stop.reason
        await self.state.write()
        await self.store.flush()
        result = self._result(final, stopped, root)
        await keep(self.store, final, self.state.retriever)
        state, report = "done" if stopped is None else "stopped", json.dumps(result.as_json(), ensure_ascii=False)
        update_run(self.store, state=state, seconds=result.seconds, result=report)
        return result

    async def _learn(self, root: Run) -> None:
        self.state.budget.hold(self.reserve.need(), self.reserve.seconds())
        if self.config.before:
            await self._evaluate(root, "before", self.seed)
        validation = Validation(self.splits.val, self.config.validate_every) if self.splits.val else None
        if validation is not None:
            self.progress.validated(self.seed, await validation.score(self.method, self.seed, root))
        last = None
        async for last in self.method.schedule(self.method, self.splits.train, self.seed, root, validation):
            self._keep(last)
        if validation is not None and last is not None and last.val is None:
            # What was learned last counts too, also where the number of steps is no multiple of `validate_every`.
            self.progress.validated(last.context, await validation.score(self.method, last.context, root))

    def _keep(self, report: StepReport) -> None:
        """Write a step down and count it. A resume makes steps anew, so nothing waits for the disk."""
        parent = self.progress.context
        self.progress.stepped(report, bool(self.config.settings.get("online")))
        for table, rows in step_rows(report).items():
            self.store.post(table, rows)
        new = report.context
        if new.version != parent.version:
            made = Version(new.version, parent.version, report.step, new.next_number, report.applied)
            self.store.post(schema.versions, [version_row(RUN, made)])
        self.state.budget.hold(self.reserve.need(), self.reserve.seconds())
        if self.state.budget.elapsed - self._time_saved > SAVE_TIME_EVERY:
            self._time_saved = self.state.budget.elapsed
            update_run(self.store, seconds=self._time_saved)
        self.watch.stepped(self, report)

    async def _restore_best(self) -> Context:
        """Make the best context the last version; without validation it is that already."""
        last = self.progress.context
        best = self.progress.best if self.splits.val else last
        if best.version != last.version:
            version = Version(last.version + 1, best.version, self.progress.steps, last.next_number, ())
            await self.store.write(schema.versions, [version_row(RUN, version)])
            best = replace(best, version=version.version, next_number=last.next_number)
        # An earlier sitting may have ended with another best context, which it wrote down as its last version.
        self.store.execute(delete_versions_after(RUN, best.version))
        return best

    async def _evaluate(self, root: Run, name: str, context: Context) -> None:
        """Score the test tasks; no score where none of them could be. Equal contexts are evaluated once, before or
        after. Raises ProviderError where a resume may score them, since it asks again what was lost last."""
        self.watch.evaluating(self, name, len(self.splits.test))
        found = await root.evaluate(self.method.act, "test", self.splits.test, context)
        scored = [rollout for rollout in found if rollout.score is not None]
        if not scored and self.state.failures:
            raise ProviderError(f"none of {len(found)} test tasks could be scored: {self.state.last_error}")
        if scored:
            self.progress.scores[name] = mean_score(scored)
        self.watch.evaluated(self, name, self.progress.scores.get(name), len(scored))

    def _result(self, context: Context, stopped: str | None, root: Run) -> Result:
        return Result(
            run=self.folder,
            context=context,
            scores=self.progress.scores,
            usage=self.state.budget.spent,
            by_role=self.state.journal.by_role(),
            seconds=self.state.budget.elapsed,
            critical=root.chain.seconds,
            hits=self.state.journal.hits,
            refused=self.progress.refused,
            errors=self.state.nonzero_counts,
            steps=self.progress.steps,
            stopped=stopped,
            interrupted=stopped == INTERRUPTED,
        )


async def learn(
    tasks: Sequence[Task],
    *,
    val: Sequence[Task] = (),
    test: Sequence[Task] = (),
    out: Path | str | None = None,
    seed_context: Context | None = None,
    parts: Parts | None = None,
    watch: Watch | None = None,
    on_session: Callable[[Session], None] | None = None,
    shared: Shared | None = None,
    **config: Any,
) -> Result:
    """Learn from `tasks` and keep everything in the folder `out` (a new one under ./runs where None).

    Keywords are the fields of `Config`; settings of the method go in `settings={...}`. `parts` takes Python objects
    in place of names: an agent, a scorer, model clients, an embedder. Raises UsageError before anything is paid for
    where something does not fit, and other PracticumErrors where the run cannot go on. `shared` is what it has in
    common with runs beside it.
    """
    parts = parts or Parts()
    splits = Splits(tuple(tasks), tuple(val), tuple(test))
    made = checked(configured(config), splits, parts)
    folder = Path(out) if out is not None else new_folder(made.method)
    seed = as_seed(seed_context or Context())
    fresh = not folder.exists()
    try:
        with create(folder) as store:
            async with opened(store, folder, made, splits, seed, parts, watch, shared) as session:
                session.reserve.check()
                begin(store, made, splits, seed)
                return await _started(session, on_session)
    except PracticumError:
        # Nothing was begun: the same command, put right, should find its folder free.
        if fresh and not begun(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


async def resume(
    folder: Path | str,
    *,
    limits: Mapping[str, Any] | None = None,
    parts: Parts | None = None,
    watch: Watch | None = None,
    on_session: Callable[[Session], None] | None = None,
    shared: Shared | None = None,
) -> Result:
    """Go on with a run: its own tasks and settings, and no call again that its journal holds.

    `limits` (max_calls, max_tokens, max_usd, max_minutes) may only be raised.
    """
    folder = Path(folder)
    with Store.open(folder) as store:
        config, splits, state = read_run(store)
        if state in FINAL:
            raise UsageError(f"{folder} {FINAL[state]} and cannot go on: start a new run with --seed-playbook {folder}")
        config = raised(config, limits or {})
        seed = rebuild([v for v in read_versions(store, RUN) if v.version == 0])
        async with opened(store, folder, config, splits, seed, parts or Parts(), watch, shared) as session:
            update_run(store, state="running", config=config.model_dump_json())
            return await _started(session, on_session)


@asynccontextmanager
async def opened(
    store: Store,
    folder: Path,
    config: Config,
    splits: Splits,
    seed: Context,
    parts: Parts,
    watch: Watch | None,
    shared: Shared | None,
) -> AsyncIterator[Session]:
    """A session with its models open, not written down yet."""
    values = methods.traced(config.method, config.settings) if config.from_traces else config.settings
    settings = methods.validated(config.method, values)
    method = methods.build(config.method, values)
    if settings.gate:
        method = gated(method, splits.val, settings.gate_alpha)
    if config.from_traces:
        method = reading(method)
    agent, seconds = acts(config, splits), seconds_spent(store)
    async with furnished(
        store, RUN, folder, config, parts,
        roles=method.roles, seats=method.models, agent=agent, seconds=seconds, shared=shared,
    ) as state:  # fmt: skip
        yield Session(folder, config, splits, method, state, store, seed, watch or Nobody())


async def _started(session: Session, on_session: Callable[[Session], None] | None) -> Result:
    """Run a session that is written down; whatever ends it, the time it took is kept, and how to go on is said."""
    if on_session is not None:
        on_session(session)
    try:
        return await session.run()
    except BaseException as error:
        with suppress(StoreError):
            update_run(session.store, state="stopped", seconds=session.state.budget.elapsed)
        if isinstance(error, ProviderError | ModelError):
            error.args = (f"{error}{GO_ON}{session.folder}",)
        raise


def begun(folder: Path) -> bool:
    """Whether a run was written down here, so that it can go on."""
    try:
        with Store.open(folder) as store:
            read_run(store)
    except PracticumError:
        return False
    return True


__all__ = ["INTERRUPTED", "RUN", "Config", "Progress", "Result", "Session", "Watch", "learn", "load_context", "resume"]
