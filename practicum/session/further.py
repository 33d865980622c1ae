"""Further steps of a run that has ended: from reported outcomes, from tasks, or from one query.

Outcomes are processed in the order of their interactions, one batch of the method at a time. Each batch is written with
its version in one transaction. The calls of a batch and the ids of its outcomes are journaled. So after an interruption
the same batch continues, even if outcomes outside the batch have new reports, and no call is paid for twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from statistics import fmean
from typing import Any

from practicum import methods
from practicum.agents.limits import MAX_TURNS, TOOL_TIMEOUT
from practicum.core.context import Context
from practicum.core.errors import ProviderError, Stopped, UsageError
from practicum.core.types import Task, Usage
from practicum.core.views import View
from practicum.core.words import quantity
from practicum.engine.loop import StepReport
from practicum.engine.run import Run
from practicum.engine.sessions import sessions
from practicum.engine.state import RunState
from practicum.models.budget import Budget
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Vectors
from practicum.session.amend import (
    add_steps,
    next_step,
    require_ended,
    restore_live_version,
    save_snapshot,
    show_at_once,
)
from practicum.session.components import Parts
from practicum.session.config import Config, Splits, config_from
from practicum.session.foreign import Origin
from practicum.session.opening import Shared, check_tasks, open_state, run_embedder
from practicum.session.outcomes import Question, Trusted, WaitingOutcome, close_outcomes, outcomes_in, stored_question
from practicum.session.read_sessions import read_tasks
from practicum.session.records import read_by_origin
from practicum.session.result import Progress, Result, RunInfo, Watch
from practicum.session.review import count_pending
from practicum.session.setup import REPEATED_ATTEMPTS, SINGLE_ATTEMPT, Setup, build_setup, set_up
from practicum.store.database import Store
from practicum.store.journal import NOTE_ROLE, Journal, JournalRow
from practicum.store.scope import Transaction
from practicum.tasks.stored import TASK

TRUSTED = Trusted()

KEPT = "; the lessons of earlier batches are kept, and the next call learns from the remaining outcomes"


async def learn_further(
    store: Store, parts: Parts, watch: Watch, overrides: Mapping[str, Any], shared: Shared | None = None,
    trust_run: bool = False, trusted: Trusted = TRUSTED, question: Question = stored_question,
    most: int | None = None, tasks: Sequence[Task] | None = None, served: bool = False,
) -> Result:  # fmt: skip
    """Learn from tasks or outcomes, as further steps of the run, until a budget is spent.

    Without `tasks`, learn from the outcomes that were not learned from yet: from the `most` oldest of these outcomes,
    or from all of these outcomes if `most` is None. `trusted` names the sources that are trusted like the operator's
    own; `question` returns the question of an interaction.

    A task with a recorded attempt is not attempted again; other tasks are attempted by the run's agent. The feedback on
    an answer is the recorded score. Without a recorded score, the run's scorer computes a score if there is a right
    answer; otherwise a judge gives a verdict. If `served`, the caller is the service of the space, and tests the new
    version. Raises UsageError before the first model call for invalid arguments, Conflict while a version is in a
    canary, and ProviderError if the provider failed during a batch. After a ProviderError, the lessons of earlier
    batches are kept.
    """
    require_ended(store)
    if not served:
        restore_live_version(store)
    attempting = any(task.recorded is None for task in tasks or ())
    without = () if attempting else ("agent",)
    values = Origin.of(store, overrides, parts, trust_run).acting_values(learns=True, without=without)
    values["trust_tools"] = True if trusted.tools else values["trust_tools"]
    if tasks is None:
        waiting = outcomes_in(store, replace(trusted, tools=values["trust_tools"]), question, most)
    else:
        waiting = [*map(as_outcome, tasks)]
    learning = FurtherLearning(store, values, parts, watch, shared, at_once=not served and not store.is_served)
    if waiting:
        await learning.learn(waiting)
    return learning.result()


def as_outcome(task: Task, *shown: str) -> WaitingOutcome:
    """Return a task as an outcome to learn from.

    The revision of the outcome is a digest of the task and of the corrections `shown` to the agent, so that an
    interrupted batch only continues with an equal task and equal corrections.
    """
    same = int.from_bytes(blake2b(b"\0".join([TASK.dump_json(task), *map(str.encode, shown)]), digest_size=6).digest())
    return WaitingOutcome(task.id, same, task, task.recorded is not None and task.recorded.score is not None)


@dataclass
class FurtherLearning:
    """Learning from outcomes, batch by batch, with counts over all batches.

    `complete` adds corrections to every view. If `at_once`, a new version of a space that was served becomes live at
    once. `last` are the steps of the last batch, even if the batch was lost, and `last_error` is the last error in the
    batch.
    """

    store: Store
    values: Mapping[str, Any]
    parts: Parts
    watch: Watch
    shared: Shared | None
    complete: Callable[[View], View] | None = None
    at_once: bool = False
    progress: Progress = field(init=False)
    budget: Budget = field(default_factory=Budget)
    by_role: dict[str, Usage] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    critical: float = 0.0
    hits: int = 0
    steps: int = 0
    scores: list[float] = field(default_factory=list)
    stopped: str | None = None
    last: list[StepReport] = field(default_factory=list)
    last_error: str = ""

    def __post_init__(self) -> None:
        context = read_by_origin(self.store)
        self.progress = Progress(context, context)

    def result(self) -> Result:
        """Return the result of all batches so far."""
        return Result(
            run=self.store.folder,
            context=self.progress.context,
            scores={"reported": fmean(self.scores)} if self.scores else {},
            usage=self.budget.spent,
            by_role=self.by_role,
            seconds=self.budget.elapsed,
            critical=self.critical,
            hits=self.hits,
            refused=self.progress.refused,
            errors={key: count for key, count in sorted(self.counts.items()) if count},
            steps=self.steps,
            stopped=self.stopped,
            held=count_pending(self.store),
        )

    async def learn(self, waiting: Sequence[WaitingOutcome]) -> None:
        """Learn from these outcomes, in batches of the size that the method's settings name."""
        setup = self._set_up(waiting)
        # Begin a new budget: the calls that the run made for its own tasks do not count.
        self.budget = Budget(setup.config.limits)
        vectors = Vectors(run_embedder(setup.config, self.parts), self.store)
        retriever = Retriever(vectors, retrieval=setup.method.retrieval)
        size = getattr(setup.settings, "batch", 1)
        steps, before = -(-len(waiting) // size), self.progress.context
        began = RunInfo(self.store.folder, setup.config, setup.splits, self.budget, steps=steps, context=before)
        self.watch.began(began)
        result = None
        try:
            await self._batches(waiting, setup, size, retriever)
            await save_snapshot(self.store, self.progress.context, retriever)
            result = self.result()
        finally:
            self.watch.ended(result)
            await self.watch.flush()

    async def _with_sessions_read(
        self, waiting: Sequence[WaitingOutcome], setup: Setup, retriever: Retriever
    ) -> Sequence[WaitingOutcome]:
        """In learning with a judge, ask the judge to read the recorded sessions, which may join tasks."""
        tasks = [outcome.task for outcome in waiting]
        if not setup.reads_sessions or next(sessions(tasks), None) is None:
            return waiting
        async with self._state(setup, retriever) as state:
            root = Run(state).at(f"sessions {setup.digest()}")
            read = await read_tasks(tasks, root, self.budget, self.watch.warned)
            self.critical += root.chain.seconds
        unread = {id(outcome.task): outcome for outcome in waiting}
        return [unread.get(id(task)) or as_outcome(task) for task in read]

    async def _batches(self, waiting: Sequence[WaitingOutcome], setup: Setup, size: int, retriever: Retriever) -> None:
        try:
            waiting = await self._with_sessions_read(waiting, setup, retriever)
        except Stopped as stop:
            self.stopped = stop.reason
            return
        interrupted = self._interrupted(waiting)
        batch = interrupted or [*waiting[:size]]
        while batch:
            waiting = [outcome for outcome in waiting if outcome not in batch]
            try:
                await self._learn_batch(batch, retriever)
            except Stopped as stop:
                self.stopped = stop.reason
                break
            except ProviderError as error:
                if batch is not interrupted or not waiting:
                    raise ProviderError("attempts.all_failed", f"{error}{KEPT}") from error
                # The interrupted batch was lost again, so learning continues with the other outcomes.
                self.stopped = (
                    f"{quantity(len(batch), 'report')} not learned from; learning that begins later uses them: {error}"
                )
            batch = [*waiting[:size]]

    def _interrupted(self, waiting: Sequence[WaitingOutcome]) -> list[WaitingOutcome]:
        """Return the batch whose learning was interrupted. Return [] if no batch was interrupted, or if an outcome in
        the batch has a newer report."""
        note_row = Journal(self.store).find(_note(next_step(self.store)), NOTE_ROLE)
        by_revision = {(outcome.id, outcome.revision): outcome for outcome in waiting}
        members = (
            [] if note_row is None else [by_revision.get((id, number)) for id, number in json.loads(note_row.answer)]
        )
        return [] if None in members else [outcome for outcome in members if outcome is not None]

    async def _learn_batch(self, batch: Sequence[WaitingOutcome], retriever: Retriever) -> None:
        setup, before, step = self._set_up(batch), self.progress.context, next_step(self.store)
        tasks, method, members = setup.splits.train, setup.method, [(o.id, o.revision) for o in batch]
        async with self._state(setup, retriever) as state:
            for warning in [] if setup.config.from_traces else check_tasks(tasks, state):
                self.watch.warned(warning)
            sources = tuple(f"task:{task.id}" for task in tasks)
            state.journal.post(JournalRow(_note(step), NOTE_ROLE, NOTE_ROLE, json.dumps(members), sources=sources))
            root = Run(state).at(f"learn {step} {setup.digest(members, before.version)}")
            seconds, reports = self.budget.elapsed, list[StepReport]()
            self.last = reports
            try:
                async for report in method.schedule(method, tasks, before, root, None):
                    reports.append(replace(report, step=step + len(reports)))
                if not reports:
                    raise UsageError(
                        "method.unsuitable", f"method {method.name} takes no step on {quantity(len(tasks), 'task')}"
                    )
                if any(not row.ok for row in state.lost.values()):
                    # The last call is lost, so the lesson from these outcomes is lost too.
                    raise ProviderError("attempts.all_failed", state.last_error)
                await state.journal.write(*state.settle([*state.lost]))
            finally:
                self.critical += root.chain.seconds

            def change(at: Transaction) -> None:
                add_steps(at, tasks, before, reports, self.budget.elapsed - seconds)
                close_outcomes(at, batch)
                if self.at_once:
                    show_at_once(at, reports[-1].context.version)

            self.store.change(change)
        self._count(reports, before)

    @asynccontextmanager
    async def _state(self, setup: Setup, retriever: Retriever) -> AsyncIterator[RunState]:
        """Open the state of a run, and add its usage to the result at the end of the block."""
        async with open_state(
            self.store, self.store.files, setup, budget=self.budget, retriever=retriever, shared=self.shared
        ) as state:
            state.observer, state.counts, state.complete = self.watch, self.counts, self.complete
            try:
                yield state
            finally:
                self.last_error = state.last_error
                self.hits += state.journal.hits
                for role, usage in state.journal.by_role(this_process=True).items():
                    self.by_role[role] = self.by_role.get(role, Usage()) + usage

    def _count(self, reports: Sequence[StepReport], before: Context) -> None:
        for report in reports:
            self.progress.stepped(report, False)
            self.progress.usage = self.budget.spent
            self.steps += 1
            self.scores += [r.score.value for r in report.attempts if r.score is not None]
            self.watch.stepped(report, self.progress)

    def _set_up(self, outcomes: Sequence[WaitingOutcome]) -> Setup:
        """Return the setup of a run that learns from these outcomes. If every outcome has a recorded attempt, the
        agent's settings are ignored."""
        name = self.values["method"]
        splits = Splits(tuple(outcome.task for outcome in outcomes))
        if not all(task.recorded for task in splits.train):
            return set_up(self._attempting(splits), splits, self.parts)
        setting_names = methods.settings_of(name, self.values["profile"] or "full").model_fields
        once = {setting: value for setting, value in SINGLE_ATTEMPT.items() if setting in setting_names}
        method_settings = methods.for_one_task(name, self.values["settings"])
        method_settings = {
            setting: value
            for setting, value in method_settings.items()
            if setting not in (*REPEATED_ATTEMPTS, "online")
        }
        agent = {"agent": Config.model_fields["agent"].default, "reasoning": False}
        turns = {"max_turns": MAX_TURNS, "tool_timeout": TOOL_TIMEOUT, "guard_tools": "off"}
        scored = all(outcome.scored for outcome in outcomes)
        feedback = {
            "labels": True,
            "judged": any(not outcome.scored and outcome.task.target is None for outcome in outcomes),
            "scorer": "exact" if scored else self.values["scorer"],
        }
        settings = methods.override_settings(name, method_settings, once)
        values = {**self.values, **agent, **turns, **feedback, "settings": settings, "from_traces": True}
        parts = replace(self.parts, agent=None, tools=None, scorer=None if scored else self.parts.scorer)
        return set_up(values, splits, parts)

    def _attempting(self, splits: Splits) -> dict[str, Any]:
        """Return the settings for attempting tasks. The feedback is a score if the scorer can compute a score, and
        otherwise a judge's verdict."""
        name = self.values["method"]
        methods.read_settings(name, self.values["settings"], self.values["profile"])
        settings = methods.for_one_task(name, self.values["settings"])
        values = {**self.values, "settings": settings, "from_traces": False}
        try:
            setup = build_setup(config_from(values), splits, self.parts)
        except UsageError as error:
            raise UsageError(
                "method.unsuitable", f"method {name} cannot learn in a run that has ended; choose another method with "
                f"`method`: {error}"
            ) from error  # fmt: skip
        labels = any(task.target is not None for task in splits.train) or not setup.scorer.needs_target
        return {**values, "labels": labels, "judged": not labels and "judge" not in setup.method.roles}


def _note(step: int) -> str:
    """Return the place in the journal that holds the ids and revisions of the outcomes of a step."""
    return f"learn {step}/outcomes"
