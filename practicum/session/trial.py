"""Trials of waiting edits: the score on held-out tasks with and without an edit (`practicum review RUN --try`).

The test is the paired test of the acceptance gate (`methods.blocks.gate`). Before an approval, only a trial shows
waiting edits to the agent. The attempts of a trial are written to the run's journal, so repeating the call continues an
interrupted trial, and a validation that the run paid for is not paid for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from practicum.core.edits import Delta
from practicum.core.errors import ProviderError, Stopped, UsageError
from practicum.core.types import Task, Usage
from practicum.core.words import quantity
from practicum.engine.loop import mean_score
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.methods.blocks.gate import Trial, tried
from practicum.models.budget import Budget
from practicum.session.amend import writing
from practicum.session.components import Parts
from practicum.session.config import FREE, Splits, require_keywords
from practicum.session.foreign import Origin
from practicum.session.keywords import RunOptions
from practicum.session.opening import check_tasks, open_state
from practicum.session.records import attempt_row, read_run
from practicum.session.result import RunInfo, Watch, usage_json
from practicum.session.review import Approval, Present, Review, approve, find_reviews, read_reviews, store_reviews
from practicum.session.setup import Setup, set_up, take_objects
from practicum.session.watching import one_watch
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import digest

MIN_TASKS = 20
"""Minimum number of tasks for an approval by the gate."""


@dataclass
class Tried:
    """Result of trials: the edits with their measured scores, the edits that could not be tried, with the reasons; and
    the edits that the gate approved. A `stopped` result covers the trials until the stop."""

    reviews: list[Review] = field(default_factory=list)
    untried: dict[str, str] = field(default_factory=dict)
    approval: Approval | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    stopped: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        approved = self.approval.approved if self.approval else ()
        return {
            "tried": [review.as_json() for review in self.reviews],
            "untried": self.untried,
            "approved": [review.id for review in approved],
            "version": self.approval.context.version if self.approval and approved else None,
            "usage": usage_json(self.usage),
            "seconds": round(self.seconds, 3),
            "counts": dict(self.counts),
            **({} if self.stopped is None else {"stopped": self.stopped}),
        }


async def try_reviews(
    run: Path | str,
    ids: Iterable[str] | None = None,
    *,
    val: Sequence[Task] = (),
    approve_better: bool = False,
    parts: Parts | None = None,
    watch: Watch | Sequence[Watch] | None = None,
    trust_run: bool = False,
    **config: Unpack[RunOptions],
) -> Tried:
    """Score a run with and without the waiting edits with these ids (None: all waiting edits without a flag).

    The tasks are `val`, or the validation tasks of the run. Several edits are tried together first. If the score with
    all of these edits is worse than without them, the edits are tried one by one. With `approve_better`, each edit is
    tried by itself, and the gate approves the edit if the bet that the edit raises the score is won on at least
    `MIN_TASKS` tasks; the error rate of the bet is divided by the number of edits, and flagged edits are never approved
    in this way. Other keywords are the same as for `learn`; the defaults of these keywords are the run's values, except
    that the run's limits do not apply.

    Raises UsageError before the first paid call for invalid arguments, and, without `trust_run`, for a run from another
    machine that names an agent, models or programs that the keywords do not replace. Raises ProviderError if no task
    could be scored; earlier measurements are kept.
    """
    require_keywords(try_reviews, config)
    folder = Path(run)
    overrides, parts = take_objects(dict(config), parts or Parts())
    async with writing(folder) as store:
        values = Origin.of(store, overrides, parts, trust_run).acting_values()
        own_tasks = read_run(store)[1].val
        tasks = tuple(val) or own_tasks
        if not tasks:
            raise UsageError(
                "tasks.missing", f"{folder} has no validation tasks to try edits on: pass `val`", tasks="val"
            )
        if approve_better and len(tasks) < MIN_TASKS:
            raise UsageError(
                "tasks.missing",
                f"the gate needs {MIN_TASKS} validation tasks or more to approve, and there are {len(tasks)}: leave "
                "out `approve_better`, or pass more tasks as `val`",
                tasks="val",
                needed=MIN_TASKS,
            )
        pending = read_reviews(store, corrections=False) if ids is None else find_reviews(store, ids)
        if corrections := [review.id for review in pending if review.correction is not None]:
            raise UsageError(
                "review.not_tried",
                f"{corrections[0]} is a correction or a note, which cannot be tried: approve or reject "
                f"{corrections[0]}",
            )
        reviews = [review for review in pending if ids is not None or not review.held.flags]
        setup = set_up(values, Splits(test=tasks), parts)
        same = tasks == own_tasks and not {name for name, value in overrides.items() if value is not None} - FREE
        # If the tasks and settings are the same as the run's, the scores of the run's validation are used.
        split = "val" if same else setup.test_name("try")
        budget, watch = Budget(setup.config.limits), one_watch(watch)
        async with open_state(store, store.files, setup, act_only=True, budget=budget) as state:
            trying = _Trying(store, setup, state, watch, Present(store), tasks, split)
            watch.began(RunInfo(folder, setup.config, setup.splits, budget, counts=state.counts))
            for warning in check_tasks(tasks, state):
                watch.warned(warning)
            state.observer = watch
            state.keep_evaluated = lambda attempts: store.post(schema.attempts, [attempt_row(r, 0) for r in attempts])
            try:
                await trying.all(reviews, approve_better)
            except Stopped as stop:
                trying.done.stopped = stop.reason
            finally:
                watch.ended(None)
                await watch.flush()
                await store.flush()
            if approve_better and (
                better := [r for r in trying.done.reviews if r.tried["better"] and not r.held.flags]
            ):
                trying.done.approval = approve(
                    store, better, {review.id: _approval_reason(review) for review in better}
                )
            return replace(trying.done, usage=budget.spent, seconds=budget.elapsed, counts=state.nonzero_counts)


def _approval_reason(review: Review) -> str:
    points, tasks = 100 * review.tried["mean"], review.tried["tasks"]
    return f"approved by the gate: {points:+.1f} points on {quantity(tasks, 'task')}"


@dataclass
class _Trying:
    store: Store
    setup: Setup
    state: RunState
    watch: Watch
    present: Present
    tasks: Sequence[Task]
    split: str
    done: Tried = field(default_factory=Tried)

    async def all(self, reviews: Sequence[Review], separately: bool) -> None:
        """Try the edits: first together, and then one by one the edits that were not accepted together. With
        `separately`, try the edits only one by one."""
        possible, together = list[Review](), list[Review]()
        context_so_far = self.present.context
        for review in reviews:
            after = self.present.context.apply(Delta(review.edits)).context
            if problem := self.present.problem(review, self.present.context):
                self.done.untried[review.id] = problem
            elif after.digest == self.present.context.digest:
                self.done.untried[review.id] = "the change does not affect the agent's view"
            else:
                possible.append(review)
                # Of several edits of one entry, only the first edit can be tried together with edits of other entries.
                if not separately and not self.present.problem(review, context_so_far):
                    together.append(review)
                    context_so_far = context_so_far.apply(Delta(review.edits)).context
        alpha = self.setup.settings.gate_alpha
        if len(together) > 1:
            trial = await self._trial(f"{len(together)} edits", together, alpha)
            if trial.accepted:
                possible = [review for review in possible if review not in together]
        for review in possible:
            await self._trial(
                review.id, [review], alpha / len(possible) if separately else alpha, MIN_TASKS if separately else 0
            )

    async def _trial(self, name: str, reviews: Sequence[Review], alpha: float, min_tasks: int = 0) -> Trial:
        """Try edits together, and store the measured scores."""
        context, act = self.present.context, self.setup.method.act
        new = context.apply(Delta(tuple(edit for review in reviews for edit in _with_unique_refs(review)))).context
        self.watch.evaluating(f"trying {name}", 2 * len(self.tasks))
        run = Run(self.state).at(f"try {digest([review.id for review in reviews], context.version)[:12]}")
        trial = await tried(Trial(alpha, min_tasks), act, self.split, self.tasks, context, new, run)
        if not trial.differences:
            raise ProviderError(
                "attempts.all_failed", f"none of {len(self.tasks)} tasks could be scored: {self.state.last_error}"
            )
        paired = [task for task in self.tasks if task.id in trial.differences]
        without = mean_score(await run.evaluate(act, self.split, paired, context))
        measured = {
            **trial.as_json(), "without": without, "better": trial.better,
            "version": context.version, "together": len(reviews),
        }  # fmt: skip
        del measured["differences"]
        updated = [replace(review, tried=measured) for review in reviews]
        await self.store.flush()
        store_reviews(self.store, updated)
        ids = {review.id for review in updated}
        self.done.reviews = [*(review for review in self.done.reviews if review.id not in ids), *updated]
        return trial


def _with_unique_refs(review: Review) -> Iterable[Any]:
    """Return the edits of a review, with refs that are unique among all reviews. A ref names an entry that is not added
    yet."""
    refs = {ref: f"{review.id} {ref}" for edit in review.edits if (ref := getattr(edit, "ref", ""))}
    edits_named = review.held.naming(refs).edits
    return [replace(edit, ref=refs[edit.ref]) if edit.op == "add" and edit.ref else edit for edit in edits_named]
