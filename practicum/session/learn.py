"""Learning runs from start to end: open the folder, learn, evaluate, report.

The command line and Python programs call `learn` and `resume`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Unpack, cast

from practicum.agents.tools import ToolsAgent
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Delta, Vote
from practicum.core.errors import (
    AgentError,
    BrokenAgentError,
    ModelError,
    PracticumError,
    ProviderError,
    Stopped,
    StoreError,
    UsageError,
)
from practicum.core.tool_texts import SECTION, tool_entries
from practicum.core.types import Attempt, Task
from practicum.core.words import quantity
from practicum.engine.loop import Method, StepReport, Validation, best_of_k, mean_score
from practicum.engine.place import Chain
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.methods.blocks.show import default_sections
from practicum.methods.settings import GateSettings
from practicum.models.budget import Need
from practicum.models.local import pinned
from practicum.models.registry import is_local
from practicum.session.amend import restore_live_version, save_snapshot, show_at_once
from practicum.session.components import Parts
from practicum.session.config import RESUMABLE, Splits, require_keywords
from practicum.session.foreign import Origin
from practicum.session.keywords import ResumeOptions, RunOptions
from practicum.session.legs import Leg, begin_leg, last_leg
from practicum.session.opening import Reserve, Shared, check_tasks, open_state, uncollected
from practicum.session.read_sessions import read_stored
from practicum.session.records import (
    CHANGED,
    as_seed,
    attempt_row,
    begin,
    change_run,
    config_columns,
    create,
    discard_journal,
    discard_unbegun,
    is_begun,
    new_folder,
    read_run,
    read_stored_results,
    step_rows,
    store_tasks,
    update_run,
)
from practicum.session.result import INTERRUPTED, OUTAGE, Progress, Result, RunInfo, Watch
from practicum.session.resume import resumed
from practicum.session.review import count_pending, read_reviews
from practicum.session.setup import Setup, set_up, strangers
from practicum.session.watching import one_watch
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import Elsewhere
from practicum.store.reviews import APPROVED, PENDING, REJECTED
from practicum.store.scope import Transaction
from practicum.store.snapshot import invalidate_snapshot
from practicum.store.versions import Version, version_row
from practicum.tasks.load import choices_from
from practicum.tasks.stored import StoredTasks, levels
from practicum.tasks.traces import TraceStream

COMPLETED, NOTHING_PAID, NOTHING_ELSE = "Completed work is kept", "Nothing was paid for yet", "Nothing else was done"
"""First words of the advice on how to continue, in the message of an error that ended a run."""

SAVE_TIME_EVERY = 5.0
"""Maximum work time (s) that may be missing from the run's count of minutes after a kill."""

WEAK_AFTER = 10
"""Number of failed attempts that led to no edit, after which a run with a reflector warns that the model may be too
weak."""

LOWERED = {"batch": Count.BATCH_LOWERED, "attempted": Count.ATTEMPTED_LOWERED}
"""Settings that cannot exceed the number of training tasks, each with the counter for a larger value."""


async def learn(
    tasks: Iterable[Task],
    *,
    method: str | Method = "ace",
    settings: Mapping[str, Any] | GateSettings | None = None,
    val: Sequence[Task] = (),
    test: Sequence[Task] = (),
    out: Path | str | None = None,
    seed_context: Context | None = None,
    parts: Parts | None = None,
    watch: Watch | Sequence[Watch] | None = None,
    shared: Shared | None = None,
    store: str | Elsewhere | None = None,
    **config: Unpack[RunOptions],
) -> Result:
    """Learn from `tasks` and store everything in the folder `out` (None: a new folder under ./runs).

    `store` is the URL of a PostgreSQL database (`postgresql://user@host/database`) that stores the run under the name
    of the folder `out`; the folder then holds only the URL, logs and caches.

    `method` is the name of a method or your own Method. `settings` are the method's settings, as a mapping or as an
    object of the method's class `Settings` (`practicum.methods.ace.Settings(rounds=1)`). The best context is chosen by
    its score on the tasks `val`, and then scored on the tasks `test`; an empty list as `val` or `test` is refused.
    `parts` holds Python objects that replace names: an agent, a scorer, model clients, an embedder. `watch` is one
    observer of the run or several. `shared` holds models that concurrent runs share. `RunOptions` describes the other
    keywords.

    Tasks that are not a sequence, such as a `TraceStream`, are written to the folder as they arrive and read from there
    on use, so there may be more tasks than fit in memory. A TraceStream sets `from_traces` and `trace_faults`. With
    `choices="auto"`, the choices are the right answers of the training and validation tasks.

    If `out` holds a run that was stopped before it paid for or created anything, the folder is used again, so that the
    call works after its arguments are corrected.

    Raises UsageError before the first paid call for invalid arguments, and other PracticumErrors if the run cannot
    continue; completed work is kept.
    """
    require_keywords(learn, config)
    for name, split in (("val", val), ("test", test)):
        if not split and split != ():
            raise UsageError(
                "tasks.missing",
                f"`{name}` has no tasks: pass tasks (such as the last fifth of a list), or leave out `{name}`",
                tasks=name,
            )
    values: dict[str, Any] = {**config, "method": method, "settings": settings or {}}
    if isinstance(tasks, TraceStream):
        values["from_traces"] = True
    arriving = None if isinstance(tasks, Sequence) else iter(tasks)
    # If tasks arrive from a stream, the first task is enough to check the settings before the others are read.
    first = await asyncio.to_thread(list, islice(arriving, 1)) if arriving is not None else []
    splits = Splits(tuple(tasks if arriving is None else first), tuple(val), tuple(test))
    auto = values.get("choices") == "auto"
    if auto and arriving is not None:
        del values["choices"]
    elif auto:
        values["choices"] = choices_from([*splits.train, *splits.val])
    setup = set_up(values, splits, parts)
    folder = Path(out) if out is not None else new_folder(setup.method.name)
    fresh, observer = not folder.exists(), one_watch(watch)
    try:
        if arriving is not None:
            await _check_models(setup, folder, shared)
        with create(folder, store) as opened:
            again = is_begun(opened)
            if arriving is not None:
                stored = await store_tasks(opened, chain(first, arriving), setup.redactor, observer.reading)
                if auto:
                    values["choices"] = choices_from(chain(stored, splits.val))
                if isinstance(tasks, TraceStream):
                    values["trace_faults"] = tasks.summary.faults
                setup = set_up(values, replace(splits, train=stored), parts)
            seed = as_seed(await _with_tools(seed_context or Context(), setup), setup.redactor)
            # Sections and model commits are stored, so that a resume uses the same sections and models.
            sections = setup.config.sections or default_sections(setup.config.profile or "full", seed)
            setup = replace(setup, config=setup.config.model_copy(update={"sections": sections, **_pinned(setup)}))
            leg = Leg(1, seed, 0, setup.splits.train)
            async with open_session(opened, folder, setup, leg, observer, shared) as session:
                session.reserve.check()
                begin(opened, setup.config, setup.splits, seed)
                if again:
                    session.watch.warned(f"{folder} held a run that had not created anything yet: the run starts again")
                return await session.run()
    except (PracticumError, asyncio.CancelledError):
        # Remove the folder of a run that did not begin, so that the corrected command can use the same name.
        if fresh:
            discard_unbegun(folder)
        raise


async def resume(
    folder: Path | str,
    *,
    parts: Parts | None = None,
    watch: Watch | Sequence[Watch] | None = None,
    shared: Shared | None = None,
    trust_run: bool = False,
    **changes: Unpack[ResumeOptions],
) -> Result:
    """Continue a run with the run's own tasks and settings; calls whose results are in the run's journal are not made
    again.

    `parts` holds the Python objects that the run was started with. `ResumeOptions` describes the other keywords, which
    correct settings, and raise, lower or add limits. With `trust_run`, a run from another machine counts as a run of
    this installation after this call.

    Raises UsageError for a change of a setting that a stored result depends on, for a spent limit, and, without
    `trust_run`, for a run from another machine that names an agent, models or programs, unless `parts` and the
    keywords replace these names.
    """
    folder = Path(folder)
    with Store.open(folder) as store:
        Origin.of(store, changes, parts or Parts(), trust_run, RESUMABLE).require_all()
        restore_live_version(store)
        config, splits, state = read_run(store)
        leg = None if state in CHANGED else last_leg(store, splits.train)
        stored_results = read_stored_results(store, leg.number if leg is not None else None)
        setup = resumed(config, changes, splits, parts or Parts(), stored_results)
        if stored_results.is_empty:
            discard_journal(store)
        leg = leg or begin_leg(store, splits.train)
        async with open_session(store, folder, setup, leg, watch, shared, stored_results.seconds) as session:
            update_run(store, learning="running", **config_columns(setup.config))
            return await session.run()


async def _with_tools(seed: Context, setup: Setup) -> Context:
    """Return a seed with the descriptions of the agent's tools as entries, if the run learns them and the seed has
    none."""
    if not setup.config.learn_tools or seed.in_section(SECTION):
        return seed
    tools = await cast(ToolsAgent, setup.agent).tools(setup.splits.train[0])
    return seed.apply(Delta(tuple(tool_entries(tools)))).context


async def _check_models(setup: Setup, folder: Path, shared: Shared | None) -> None:
    """Raise UsageError if a model, a key or a price is missing, before many tasks are read.

    Models on this machine are not tested, because loading a model takes long.
    """
    named = (setup.config.model_of(role) for role in setup.roles if setup.client(role) is None)
    if not any(map(is_local, named)):
        async with open_state(None, folder, setup, shared=shared):
            pass


def _pinned(setup: Setup) -> dict[str, Any]:
    """Return the names of the run's models, with the commit of each model that comes from a hub."""
    config = setup.config
    opened = {config.model_of(role) for role in setup.roles if setup.client(role) is None}
    names = {name: pinned(name) for name in sorted(opened)}
    roles = {role: names.get(name, name) for role, name in config.roles.items()}
    return {"model": names.get(config.model or "", config.model), "roles": roles}


def without_advice(message: str) -> str:
    """Return the message of an error that ended a run, without the advice on how to continue."""
    for advice in (COMPLETED, NOTHING_PAID, NOTHING_ELSE):
        message = message.partition(f" {advice}")[0]
    return message.removesuffix(".")


def begun(folder: Path) -> bool:
    """Return whether the folder holds a run that has begun, so that the run can be resumed."""
    try:
        with Store.open(folder) as store:
            read_run(store)
    except PracticumError:
        return False
    return True


@asynccontextmanager
async def open_session(
    store: Store,
    folder: Path,
    setup: Setup,
    leg: Leg,
    watch: Watch | Sequence[Watch] | None = None,
    shared: Shared | None = None,
    seconds: float = 0.0,
) -> AsyncIterator[LearningSession]:
    """Open a session with its models, without writing to the run. `seconds` is the work time of the run before this
    session."""
    async with open_state(store, store.files, setup, seconds=seconds, last_step=leg.step, shared=shared) as state:
        splits, config = setup.splits, setup.config
        warnings = check_tasks(chain(() if config.from_traces else leg.tasks, splits.val, splits.test), state)
        warnings += uncollected(config, state)
        if splits.test and (same := setup.survey.shared(task.text for task in splits.test)):
            warnings.append(
                f"the training tasks contain {same:,} of {quantity(len(splits.test), 'test task')}: the test score "
                "does not measure how well the context generalizes to new tasks"
            )
        if setup.unlabelled:
            warnings.append(
                f"{setup.unlabelled:,} of {quantity(setup.survey.count, 'task')} have no target: they are attempted, "
                "and have no score"
            )
        if config.review == "foreign" and (authors := strangers(setup.config, levels(splits.train))):
            warnings.append(f"lessons from {authors} wait for review: practicum review {folder} lists these lessons")
        yield LearningSession(folder, setup, state, store, leg, one_watch(watch), warnings)


@dataclass
class LearningSession:
    """Run that is open for learning: its setup, state and progress."""

    folder: Path
    setup: Setup
    state: RunState
    store: Store
    leg: Leg
    watch: Watch
    warnings: Sequence[str] = ()
    progress: Progress = field(init=False)
    reserve: Reserve = field(init=False)
    _time_saved: float = 0.0
    _reviewed: set[str] = field(default_factory=set)
    _untaught: int | None = 0
    """Failed attempts so far, while none of them led to an edit; None after the first edit or the warning."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.leg.start, self.leg.start, steps=self.leg.step)
        self.reserve = Reserve(self.setup, self.state, self.leg.start)
        self._time_saved = self.state.budget.elapsed

    async def run(self) -> Result:
        """Learn and evaluate until the run ends, and return the result. The work time is stored even after an error.
        The message of an error by a model, the agent or the scorer gets advice on how to continue."""
        result = None
        try:
            result = await self._run()
        except BaseException as error:
            with suppress(StoreError):
                await self.store.flush()
                update_run(self.store, learning="stopped", seconds=self.state.budget.elapsed)
            # An AgentError that no attempt recorded comes from the scorer.
            if isinstance(error, ProviderError | ModelError | BrokenAgentError | AgentError):
                text = str(error).rstrip(".")
                error.args = (f"{text}{'' if text.endswith('?') else '.'} {self._resume_advice(error)}",)
            raise
        finally:
            self.watch.ended(result)
            await self.watch.flush()
        # The counters are read after the flush, which may count data that a watch could not send.
        result = replace(result, errors=self.state.nonzero_counts)
        state, report = "stopped" if result.stopped else "done", json.dumps(result.as_json(), ensure_ascii=False)
        ended, served = result, self.store.is_served

        def end(at: Transaction) -> None:
            change_run(at, learning=state, seconds=ended.seconds, result=report)
            if not served:
                show_at_once(at, ended.context.version)

        self.store.change(end)
        return result

    def _resume_advice(self, error: PracticumError) -> str:
        """Return the advice on how to continue after an error that ended the run."""
        command, other = f"practicum space resume {self.folder}", isinstance(error, ModelError)
        if (stored_results := read_stored_results(self.store)).is_empty:
            state = NOTHING_ELSE if stored_results.spent.calls else NOTHING_PAID
            again = f"{state}: correct the cause and repeat the command, or: {command}"
            return f"{again} --model NAME" if other else again
        advice = f"{COMPLETED}; continue with: {command}"
        return f"{advice}, or with another model: {command} --model NAME" if other else advice

    async def _run(self) -> Result:
        """Learn, evaluate, report. A spent budget or a stop ends the run early, with the best context so far."""
        config, splits, method = self.setup.config, self.setup.splits, self.setup.method
        steps = getattr(self.setup.settings, "steps", None) if splits.train else None
        budget, counts = self.state.budget, self.state.counts
        self.watch.began(RunInfo(self.folder, config, splits, budget, method.calls, steps, self.leg.start, counts))
        for warning in self.warnings:
            self.watch.warned(warning)
        self.state.observer, self.state.keep_evaluated = self.watch, self._store_evaluated
        self.state.counts[Count.TRACE_FAULTS] += config.trace_faults
        for name, counter in LOWERED.items():
            size = getattr(self.setup.settings, name, None)
            if name in config.settings and isinstance(size, int) and size > len(splits.train) > 0:
                self.state.counts[counter] += 1
        root = self.leg.root(self.state)
        # After a resume, new versions may have the numbers of the run's last versions, so the stored snapshot is not
        # valid.

        def change(at: Transaction) -> None:
            invalidate_snapshot(at)
            self._delete_lost_steps(at, root)

        self.store.change(change)
        # Reviews of a step that were decided after the step keep their state when the step is repeated from the
        # journal.
        self._reviewed = {review.id for review in read_reviews(self.store, (PENDING, APPROVED, REJECTED))}
        stopped = None
        try:
            await self._read_sessions(root)
            await self._learn(root)
        except Stopped as stop:
            stopped = stop.reason
        best = await self._restore_best()
        # If the evaluation before learning was cut off, the final evaluation would open the same places again, so it is
        # left out. A resume finishes both evaluations.
        cut_off = config.before and self.leg.number == 1 and "before" not in self.progress.attempts
        if splits.test and stopped != INTERRUPTED and not cut_off:
            try:
                self.state.longer_attempt = None
                self.state.budget.hold(Need())
                await self._evaluate(root, "test", best)
            except Stopped as stop:
                stopped = stop.reason
        stopped = stopped or await self._settle()
        await self.store.flush()
        result = Result(
            run=self.folder,
            context=best,
            scores=self.progress.scores,
            usage=self.state.budget.spent,
            by_role=self.state.journal.by_role(),
            seconds=self.state.budget.elapsed,
            critical=root.chain.seconds,
            hits=self.state.journal.hits,
            refused=self.progress.refused,
            errors=self.state.nonzero_counts,
            steps=self.progress.steps,
            attempts=self.progress.attempts,
            stopped=stopped,
            held=count_pending(self.store),
        )
        await save_snapshot(self.store, best, self.state.retriever)
        return result

    def _delete_lost_steps(self, at: Transaction, root: Run) -> None:
        """Delete the first step that an outage ended, and all later steps. The deleted steps are repeated, perhaps with
        other tasks."""
        start = f"{root.place}/step ".lstrip("/")
        lost = [int(place.removeprefix(start)) for place in self.state.journal.again if place.startswith(start)]
        for table in (schema.steps, schema.attempts, schema.lessons, schema.reviews) if lost else ():
            at.run(at.delete(table).where(table.c.step >= self.leg.step + min(lost)))

    async def _settle(self) -> str | None:
        """Decide whether a resume retries the calls that failed at the provider and that no result depends on.

        Returns the reason to stop if a resume should retry the calls. Otherwise the calls are stored as failed, and
        None is returned. A call that fails again after a resume stays failed.
        """
        lost, journal = self.state.lost, self.state.journal
        failed = [row.place for row in lost.values() if not row.ok]
        if not failed or journal.lost_last.issuperset(failed):
            await journal.write(*self.state.settle([*lost]))
            return None
        journal.note_outage(lost=failed)
        calls = "1 call was" if len(failed) == 1 else f"{len(failed):,} calls were"
        return f"{OUTAGE}: {calls} lost ({self.state.last_error})"

    async def _read_sessions(self, root: Run) -> None:
        """In a run with a judge, ask the judge to read the recorded sessions, which may join tasks."""
        if not self.setup.config.from_traces or not self.setup.reads_sessions:
            return
        at = root.at("sessions")

        async def read() -> bool:
            left = await read_stored(self.store, self.leg.tasks, at, self.state.budget, self.watch.warned)
            if left is not self.leg.tasks:
                splits = replace(self.setup.splits, train=StoredTasks(self.store, "train"))
                self.leg, self.setup = replace(self.leg, tasks=left), replace(self.setup, splits=splits)
                self.reserve = Reserve(self.setup, self.state, self.leg.start)
            return True

        # A resume must not read sessions that the first part of the run did not read.
        await at.once("read", read)

    async def _learn(self, root: Run) -> None:
        config, splits, method, start = self.setup.config, self.setup.splits, self.setup.method, self.leg.start
        self.state.longer_attempt = self._update_reserve
        self._update_reserve()
        if config.before and self.leg.number == 1:
            await self._evaluate(root, "before", start)
        validation = Validation(splits.val, config.validate_every) if splits.val else None
        if validation is not None:
            self.progress.validated(start, await validation.score(method, start, root))
        last = None
        async for last in method.schedule(method, self.leg.tasks, start, root, validation):
            self._store_step(replace(last, step=self.leg.step + last.step))
        if validation is not None and last is not None and last.val is None:
            # The last context is validated even if the number of steps is not a multiple of `validate_every`.
            self.progress.validated(last.context, await validation.score(method, last.context, root))

    def _update_reserve(self) -> None:
        """Update the budget's reserve for the final evaluation."""
        self.state.budget.hold(self.reserve.need(), self.reserve.seconds())

    def _store_step(self, report: StepReport) -> None:
        """Write a step to the store, and add the step to the progress. A resume repeats steps from the journal, so
        writing does not wait for the disk."""
        parent = self.progress.context
        self.progress.stepped(report, bool(self.setup.config.settings.get("online")))
        self.progress.usage = self.state.budget.spent
        for table, rows in step_rows(report).items():
            new_rows = [row for row in rows if table is not schema.reviews or row["id"] not in self._reviewed]
            self.store.post(table, new_rows)
        new = report.context
        if new.version != parent.version:
            version = Version(new.version, parent.version, report.step, new.next_number, report.applied)
            self.store.post(schema.versions, [version_row(version)])
        self._update_reserve()
        if self.state.budget.elapsed - self._time_saved > SAVE_TIME_EVERY:
            self._time_saved = self.state.budget.elapsed
            update_run(self.store, seconds=self._time_saved)
        self.watch.stepped(report, self.progress)
        self._warn_of_weak_model(report)

    def _warn_of_weak_model(self, report: StepReport) -> None:
        """Warn once if a reflector drew no lesson from the first failed attempts, long before the run ends."""
        if self._untaught is None or "reflector" not in self.setup.method.roles:
            return
        if any(not isinstance(done.edit, Vote) for done in report.applied) or report.held:
            self._untaught = None
            return
        self._untaught += sum(attempt.feedback.success is False for attempt in report.attempts)
        if self._untaught >= WEAK_AFTER:
            config = self.setup.config
            model = config.roles.get("reflector") or config.model or "the model of the reflector"
            self.watch.warned(
                f"{self._untaught} failed attempts led to no lesson: {model} may be too weak for {config.method}; stop "
                "the run, and use a stronger model (`roles=reflector=MODEL`) or `method=episodes`, which needs no "
                "reflector"
            )
            self._untaught = None

    def _store_evaluated(self, attempts: Sequence[Attempt]) -> None:
        self.store.post(schema.attempts, [attempt_row(attempt, 0) for attempt in attempts])

    async def _restore_best(self) -> Context:
        """Make the best context the last version. Without validation, the last context is the best."""
        last = self.progress.context
        best = self.progress.best if self.setup.splits.val else last
        if best.version != last.version:
            version = Version(last.version + 1, best.version, self.progress.steps, last.next_number, ())
            await self.store.write(schema.versions, [version_row(version)])
            best = replace(best, version=version.version, next_number=last.next_number)
        # Versions with higher numbers were left by an earlier end of this run, which restored another best context.
        self.store.change(lambda at: at.run(at.delete(schema.versions).where(schema.versions.c.version > best.version)))
        return best

    async def _evaluate(self, root: Run, name: str, context: Context) -> None:
        """Score a context on the test tasks. A context that was evaluated before is not attempted again.

        Raises ProviderError if the provider failed for all tasks; a resume repeats the failed calls.
        """
        test = self.setup.splits.test
        self.watch.evaluating(name, len(test))
        # Learning does not depend on the evaluation, so a resume can retry the failed calls of the evaluation.
        aside = replace(root, chain=Chain(root.chain.seconds))
        attempts = await aside.evaluate(self.setup.method.act, "test", test, context)
        root.chain.seconds = aside.chain.seconds
        scored = [attempt for attempt in attempts if attempt.first.score is not None]
        if not scored and aside.provider_failed:
            raise ProviderError(
                "attempts.all_failed", f"none of {len(attempts)} test tasks could be scored: {self.state.last_error}"
            )
        self.progress.attempts[name] = tuple(attempts)
        if scored:
            self.progress.scored(name, mean_score(scored), best_of_k(scored))
        self.watch.evaluated(name, self.progress.scores.get(name), len(scored))
