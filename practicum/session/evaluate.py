"""Scoring of a context on tasks, outside a run: `practicum eval` and `practicum.evaluate`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any, Unpack

from practicum.core.context import Context
from practicum.core.errors import ProviderError, Stopped, UsageError
from practicum.core.intervals import repeated_ci95
from practicum.core.types import Attempt, Task
from practicum.core.words import quantity
from practicum.engine.loop import Method, best_of_k
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.methods.settings import GateSettings
from practicum.session.components import Parts
from practicum.session.config import Splits, require_keywords
from practicum.session.foreign import acting_values
from practicum.session.keywords import RunOptions
from practicum.session.opening import check_tasks, open_state, uncollected
from practicum.session.records import load_context
from practicum.session.result import Evaluation, RunInfo, Watch
from practicum.session.setup import set_up, take_objects
from practicum.session.watching import one_watch
from practicum.store.database import Store
from practicum.store.folder import is_run


async def evaluate(
    tasks: Sequence[Task],
    context: Path | str | Context,
    *,
    method: str | Method | None = None,
    settings: Mapping[str, Any] | GateSettings | None = None,
    repeat: int = 1,
    out: Path | str | None = None,
    parts: Parts | None = None,
    watch: Watch | Sequence[Watch] | None = None,
    trust_run: bool = False,
    **config: Unpack[RunOptions],
) -> Evaluation:
    """Attempt each task `repeat` times with a context and return the scores; only the method's `act` runs.

    `context` is a run, a playbook file or a Context. Keywords are the same as for `learn`; if `context` is a run, the
    defaults of the keywords are the run's values. The confidence interval is over tasks, because repeats of one task
    are not independent. At temperature 0, repeats differ only if the provider is not deterministic. If `out` is set,
    the journal is stored in the folder `out`: repeating the call continues an interrupted evaluation, and `usage` and
    `by_role` then include the interrupted call. `watch` is one observer of the evaluation or several. Without
    `trust_run`, raises UsageError if a run from another machine names an agent, models or programs that the keywords do
    not replace. Raises ProviderError if no attempt could be scored.
    """
    require_keywords(evaluate, config)
    if config.get("batch_api") and out is None:
        raise UsageError(
            "settings.missing",
            "`batch_api` may take hours, and a stopped evaluation continues only in its folder: pass `out`",
            setting="out",
        )
    overrides = {**config, **({"method": method} if method else {}), "settings": settings or {}}
    values, parts = take_objects(overrides, parts or Parts())
    if not isinstance(context, Context):
        values = acting_values(context, values, parts, trust_run)
        context = load_context(context)
    setup = set_up(values, Splits(test=tuple(tasks)), parts)
    tasks = setup.splits.test
    with ExitStack() as stack:
        folder = (
            Path(out)
            if out
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="practicum-eval-"))) / "eval"
        )
        open_store = Store.open if is_run(folder) else Store.create
        store = stack.enter_context(open_store(folder))
        async with open_state(store, store.files, setup, act_only=True) as state:
            watch, evaluation, warnings = (
                one_watch(watch),
                None,
                [*check_tasks(tasks, state), *uncollected(setup.config, state)],
            )
            watch.began(RunInfo(folder, setup.config, setup.splits, state.budget, context=context, counts=state.counts))
            for warning in warnings:
                watch.warned(warning)
            watch.evaluating("eval", len(tasks) * repeat)
            state.observer = watch
            try:
                evaluation = await _evaluate(state, setup.method, tasks, context, repeat)
                watch.evaluated("eval", evaluation.score if evaluation.n else None, evaluation.n)
            finally:
                watch.ended(evaluation)
                await watch.flush()
            # The counters are read after the flush, which may count data that a watch could not send.
            return replace(evaluation, counts=state.nonzero_counts)


async def _evaluate(
    state: RunState, method: Method, tasks: Sequence[Task], context: Context, repeat: int
) -> Evaluation:
    # Each attempt is recorded when it is complete, so that a stop loses nothing that was paid for.
    turns: list[dict[str, Attempt]] = [{} for _ in range(repeat)]
    stopped = None
    try:
        for n, turn in enumerate(turns):
            await Run(state).evaluate(partial(_act, method, turn), "eval", tasks, context, n)
    except Stopped as stop:
        stopped = stop.reason
    attempts = tuple(turn[task.id] for turn in turns for task in tasks if task.id in turn)
    # The score of a task is the mean over its scored repeats.
    by_task: dict[str, list[float]] = {}
    for attempt in attempts:
        if (score := attempt.first.score) is not None:
            by_task.setdefault(attempt.task.id, []).append(score.value)
    if not by_task and stopped is None:
        why = f": {state.last_error}" if state.last_error else ""
        raise ProviderError("attempts.all_failed", f"none of {quantity(len(attempts), 'attempt')} could be scored{why}")
    return Evaluation(
        score=fmean(map(fmean, by_task.values())) if by_task else nan,
        ci95=repeated_ci95(list(by_task.values())) if by_task else (0.0, 1.0),
        n=len(by_task),
        repeat=repeat,
        errors=sum(
            first.trace.error is not None or first.score is None for first in (attempt.first for attempt in attempts)
        ),
        usage=state.budget.spent,
        by_role=state.journal.by_role(),
        seconds=state.budget.elapsed,
        attempts=attempts,
        counts=state.nonzero_counts,
        stopped=stopped,
        best_of_k=best_of_k(attempts),
    )


async def _act(method: Method, done: dict[str, Attempt], task: Task, context: Context, run: Run) -> Attempt:
    done[task.id] = await method.act(task, context, run)
    return done[task.id]
