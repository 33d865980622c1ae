"""The training dynamics of a run: each of its checkpoints scored on the same tasks (RCL, section 4.4).

A checkpoint is the context after a step; the first is what the run started from. They are evaluated through the
run's own journal, at the places its validation uses, so that what training scored is not paid for again, and what is
scored here is not paid for by the next call or a resume.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import select

from practicum import methods
from practicum.analysis.dynamics.curves import Curves, Window, curves
from practicum.core.context import Context
from practicum.core.errors import ProviderError, UsageError
from practicum.core.types import Rollout, Task, Usage
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.models.budget import Budget
from practicum.session.components import Parts
from practicum.session.config import Config, Splits, checked, configured
from practicum.session.opening import furnished_to_act
from practicum.session.records import RUN, read_run
from practicum.session.result import roles_json, usage_json
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import digest
from practicum.store.versions import read_versions


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The context after a step, by its version. A step that changed nothing has the version of the one before."""

    step: int
    version: int


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Which tasks each checkpoint solved, and what follows from it.

    `solved` has the shape (tasks, checkpoints). `split` is "val", "test", or the name of tasks that are not the
    run's; a task that could not be scored at some checkpoint is left out of `tasks`. `errors` counts attempts that
    failed, which stand as not solved, and those that nothing could score; `usage` is what this call paid for, in all
    and `by_role`, `hits` the results it found in the journal.
    """

    run: Path
    split: str
    tasks: tuple[Task, ...]
    checkpoints: tuple[Checkpoint, ...]
    solved: npt.NDArray[np.bool_]
    curves: Curves
    errors: int
    usage: Usage
    by_role: dict[str, Usage]
    hits: int

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them; rates lie in [0, 1]."""
        found = self.curves
        return {
            "run": str(self.run),
            "tasks": len(self.tasks),
            "checkpoints": [self._checkpoint(i) for i in range(len(self.checkpoints))],
            "peak": {**self._named(found.peak), "current": float(found.current[found.peak])},
            "first_full_coverage": None if found.covered is None else self._named(found.covered),
            "final": float(found.current[-1]),
            "mean_instability": {window_name(w): r.mean_instability for w, r in found.by_window.items()},
            "unlearned": found.unlearned,
            "relearned": found.relearned,
            "errors": self.errors,
            "usage": usage_json(self.usage),
            "by_role": roles_json(self.by_role),
            "hits": self.hits,
        }

    def _named(self, index: int) -> dict[str, int]:
        return {"version": self.checkpoints[index].version, "step": self.checkpoints[index].step}

    def _checkpoint(self, index: int) -> dict[str, Any]:
        windows = {window_name(w): recency for w, recency in self.curves.by_window.items()}
        return {
            **self._named(index),
            "current": float(self.curves.current[index]),
            "recent": {name: float(r.recent[index]) for name, r in windows.items()},
            "active_instability": {name: float(r.active[index]) for name, r in windows.items()},
            "stale": {name: float(r.stale[index]) for name, r in windows.items()},
            "best_so_far": float(self.curves.best[index]),
        }


def window_name(window: Window) -> str:
    """A window as it is typed and printed."""
    return "all" if window is None else str(window)


async def dynamics(
    run: Path | str,
    tasks: Sequence[Task] | None = None,
    *,
    every: int = 1,
    concurrency: int | None = None,
    parts: Parts | None = None,
    watch: Callable[[int, int], None] | None = None,
    on_state: Callable[[RunState], None] | None = None,
) -> Dynamics:
    """Score the checkpoints of a run on `tasks`, with its method's `act` alone, and say how its learning went.

    Without `tasks` the run's validation tasks are taken, else its test tasks. The checkpoints are the start, each
    `every`-th step and the last. The run may be done or stopped; its limits do not hold here, but what is paid
    here counts in them should it go on. `parts` are those the run was made with, `concurrency` may be another;
    `watch` is told after each checkpoint how many are done, and of how many; `on_state` gets the house whose budget
    stops it.

    Raises UsageError where there are no tasks or a model cannot be opened, before anything is paid for, and
    ProviderError where the provider lost a whole checkpoint or no task could be scored, and Stopped where it was
    stopped; what was done is kept.
    """
    if every < 1:
        raise UsageError(f"every={every}: checkpoints are every first, second, third … step")
    folder, parts = Path(run), parts or Parts()
    with Store.open(folder) as store:
        config, splits, _ = read_run(store)
        if concurrency is not None:
            config = configured({**config.model_dump(), "concurrency": concurrency})
        split, listed = _dev_tasks(config, splits, tasks, parts)
        chosen, contexts = _checkpoints(store, every)
        method = methods.build(config.method, config.settings)
        # The run's limits were set for learning; a budget of its own also counts what is paid here alone.
        async with furnished_to_act(store, RUN, folder, config, parts, method, budget=Budget()) as state:
            if on_state is not None:
                on_state(state)
            root, columns = Run(state), list[list[Rollout]]()
            for context in contexts:
                columns.append(await root.evaluate(method.act, split, listed, context))
                if watch is not None:
                    watch(len(columns), len(contexts))
            return _found(folder, split, chosen, columns, state)


def _dev_tasks(
    config: Config, splits: Splits, tasks: Sequence[Task] | None, parts: Parts
) -> tuple[str, tuple[Task, ...]]:
    """The tasks to score on, and the split whose places in the journal they have."""
    own = {name: kept for name, kept in (("val", splits.val), ("test", splits.test)) if kept}
    listed = next(iter(own.values()), None) if tasks is None else tuple(tasks)
    if listed is None:
        raise UsageError("this run has neither validation nor test tasks to score its checkpoints on: give --tasks")
    for split, kept in own.items():
        if listed == kept:
            return split, kept
    checked(config.model_copy(update={"validate_every": 1}), Splits((), (), listed), parts)
    # Two files may give one id to different tasks, so what the tasks are is part of their places.
    return f"dev {digest([[t.id, t.input, t.target, dict(t.meta)] for t in listed])[:12]}", listed


def _checkpoints(store: Store, every: int) -> tuple[tuple[Checkpoint, ...], list[Context]]:
    """The start, every `every`-th step and the last one, each with its context.

    Versions that no step made (the best context taken up again at the end, a rollback) are not part of the course.
    """
    by_version: dict[int | None, Context] = {None: Context()}
    for made in read_versions(store, RUN):
        by_version[made.version] = by_version[made.parent].replay(made.applied, made.version)
    table = schema.steps
    rows = store.rows(select(table.c.step, table.c.data).where(table.c.run_id == RUN).order_by(table.c.step))
    found = [Checkpoint(0, 0), *(Checkpoint(row.step, json.loads(row.data)["version"]) for row in rows)]
    # A kill may come between a step and its version.
    found = [checkpoint for checkpoint in found if checkpoint.version in by_version]
    chosen = tuple(c for c in found if c.step % every == 0 or c is found[-1])
    return chosen, [by_version[c.version] for c in chosen]


def _found(
    folder: Path,
    split: str,
    checkpoints: tuple[Checkpoint, ...],
    columns: Sequence[Sequence[Rollout]],
    state: RunState,
) -> Dynamics:
    rows = list(zip(*columns, strict=True))
    scored = [row for row in rows if all(rollout.score is not None for rollout in row)]
    if not scored:
        raise ProviderError(f"none of {len(rows)} tasks could be scored at every checkpoint: {state.last_error}")
    solved = np.array([[r.score is not None and r.score.correct for r in row] for row in scored], dtype=bool)
    # A context that several checkpoints share was tried once.
    tried = {id(r): r for column in columns for r in column}.values()
    errors = sum(r.trace.error is not None or r.score is None for r in tried)
    return Dynamics(
        folder, split, tuple(row[0].task for row in scored), checkpoints, solved, curves(solved), errors,
        state.budget.spent, state.journal.by_role(sitting=True), state.journal.hits,
    )  # fmt: skip
