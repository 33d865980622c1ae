"""Scoring a context on tasks, outside a run: `practicum eval` and `practicum.evaluate`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any, Unpack

from practicum.core.context import Context
from practicum.core.errors import ProviderError, Stopped
from practicum.core.html import card
from practicum.core.intervals import repeated_ci95
from practicum.core.types import Rollout, Task, Usage
from practicum.core.words import quantity
from practicum.engine.loop import Method, best_of_k
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.methods.settings import GateSettings
from practicum.session.components import Parts
from practicum.session.config import RunOptions, Splits, require_known
from practicum.session.foreign import acting_values
from practicum.session.opening import check_tasks, open_state
from practicum.session.records import load_context
from practicum.session.result import RunInfo, Watch, counts_said, one_watch, roles_json, usage_facts, usage_json
from practicum.session.setup import set_up, take_objects
from practicum.store.database import Store
from practicum.store.folder import is_run


@dataclass(frozen=True)
class Evaluation:
    """A score with its 95% interval, over the `n` tasks that could be scored, run `repeat` times each.

    It is that of the first attempts; `best_of_k` is that of the attempts that were chosen from several, if any were.
    `errors` counts attempts that failed, which score 0, and those that nothing could score, which are left out of the
    score. `counts` holds the counters above zero (see `core.counts`). If it was `stopped`, it covers what was done
    until then; if nothing was, `n` is 0 and `score` is not a number.
    """

    score: float
    ci95: tuple[float, float]
    n: int
    repeat: int
    errors: int
    usage: Usage
    by_role: dict[str, Usage]
    seconds: float
    rollouts: tuple[Rollout, ...]
    counts: Mapping[str, int]
    stopped: str | None = None
    best_of_k: float | None = None

    def __repr__(self) -> str:
        return f"<Evaluation: {'; '.join(f'{name} {value}' for name, value in self._facts.items())}>"

    def _repr_html_(self) -> str:
        """The score with its interval, the cost and the counts, for notebooks."""
        return card("Evaluation", {**self._facts, **counts_said(self.counts)})

    @property
    def _facts(self) -> dict[str, str]:
        times = f", {self.repeat} times each" if self.repeat > 1 else ""
        score = f"{self.score:.1%} (95% interval {self.ci95[0]:.1%} to {self.ci95[1]:.1%})" if self.n else "none"
        best = {} if self.best_of_k is None else {"best of k": f"{self.best_of_k:.1%}"}
        facts = {"score": f"{score} on {quantity(self.n, 'task')}{times}", **best}
        facts |= usage_facts(self.usage, self.seconds)
        return facts if self.stopped is None else {**facts, "stopped early": self.stopped}

    @property
    def measures(self) -> dict[str, float]:
        """What the scorer measured beside the score."""
        return mean_measures(self.rollouts)

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        values = {
            "score": self.score if self.n else None,
            "ci95": list(self.ci95) if self.n else None,
            **({} if self.best_of_k is None else {"best_of_k": self.best_of_k}),
            "n": self.n,
            "errors": self.errors,
            "counts": dict(self.counts),
            "measures": self.measures,
            "usage": usage_json(self.usage),
            "by_role": roles_json(self.by_role),
            "seconds": round(self.seconds, 3),
            "attempts": [_attempt_json(rollout) for rollout in self.rollouts],
        }
        return values if self.stopped is None else {**values, "stopped": self.stopped}


def mean_measures(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """What a scorer measured beside the score: the mean of each measure over the answers that have it."""
    found = [r.score.measures for r in rollouts if r.score is not None and r.score.measures]
    return keyed_means(found)


def keyed_means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each value over the mappings that have it."""
    names = dict.fromkeys(name for values in found for name in values)
    return {name: fmean(values[name] for values in found if name in values) for name in names}


def _attempt_json(rollout: Rollout) -> dict[str, Any]:
    """The first attempt at a task: its score and the scorer's note, each null if nothing could score it; and the score
    of the attempt that was chosen, if one was."""
    score, best = rollout.first.score, rollout.score
    scored = {"value": score and score.value, "correct": score and score.correct, "note": score and score.note}
    chosen = {"best_of_k": best and best.value} if rollout.choice else {}
    return {"id": rollout.task.id, **scored, **chosen, "error": rollout.first.trace.error}


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
    """Run each task `repeat` times under the context of a run, of a playbook file, or this one, with the method's `act`
    alone.

    Keywords are those of `learn`; those not given are the run's. The interval is over tasks, because repeats of one
    task are not independent. With a temperature of 0 repeats differ only if the provider is not deterministic. The
    journal is kept in `out`, if given: the same call continues what was cut off, and `usage` and `by_role` cover all of
    it. `watch`, or each of several, observes it. A run that was made elsewhere is obeyed in what it would execute only
    with `trust_run`. Raises ProviderError if nothing could be scored.
    """
    require_known(evaluate, config)
    given = {**config, **({"method": method} if method else {}), "settings": settings or {}}
    values, parts = take_objects(given, parts or Parts())
    if not isinstance(context, Context):
        values = acting_values(context, values, parts, trust_run)
        context = load_context(context)
    setup = set_up(values, Splits(test=tuple(tasks)), parts)
    tasks = setup.splits.test
    with ExitStack() as opened:
        folder = (
            Path(out)
            if out
            else Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="practicum-eval-"))) / "eval"
        )
        open_store = Store.open if is_run(folder) else Store.create
        store = opened.enter_context(open_store(folder))
        async with open_state(store, "eval", folder, setup, act_only=True) as state:
            watch, evaluation, warnings = one_watch(watch), None, check_tasks(tasks, state)
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
            # A watch may have counted what it could not send.
            return replace(evaluation, counts=state.nonzero_counts)


async def _evaluate(
    state: RunState, method: Method, tasks: Sequence[Task], context: Context, repeat: int
) -> Evaluation:
    # Every rollout is kept as soon as it is made, so that a stop loses nothing that was paid for.
    turns: list[dict[str, Rollout]] = [{} for _ in range(repeat)]
    stopped = None
    try:
        for n, turn in enumerate(turns):
            await Run(state).evaluate(partial(_act, method, turn), "eval", tasks, context, n)
    except Stopped as stop:
        stopped = stop.reason
    rollouts = tuple(turn[task.id] for turn in turns for task in tasks if task.id in turn)
    # A task that could be scored counts with the mean of its repeats.
    by_task: dict[str, list[float]] = {}
    for rollout in rollouts:
        if (score := rollout.first.score) is not None:
            by_task.setdefault(rollout.task.id, []).append(score.value)
    if not by_task and stopped is None:
        why = f": {state.last_error}" if state.last_error else ""
        raise ProviderError("attempts.all_failed", f"none of {quantity(len(rollouts), 'attempt')} could be scored{why}")
    return Evaluation(
        score=fmean(map(fmean, by_task.values())) if by_task else nan,
        ci95=repeated_ci95(list(by_task.values())) if by_task else (0.0, 1.0),
        n=len(by_task),
        repeat=repeat,
        errors=sum(r.trace.error is not None or r.score is None for r in (rollout.first for rollout in rollouts)),
        usage=state.budget.spent,
        by_role=state.journal.by_role(),
        seconds=state.budget.elapsed,
        rollouts=rollouts,
        counts=state.nonzero_counts,
        stopped=stopped,
        best_of_k=best_of_k(rollouts),
    )


async def _act(method: Method, done: dict[str, Rollout], task: Task, context: Context, run: Run) -> Rollout:
    done[task.id] = await method.act(task, context, run)
    return done[task.id]
