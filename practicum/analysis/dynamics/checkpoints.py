"""Training dynamics of a run, computed by scoring all checkpoints of the run on the same tasks (RCL, section 4.4).

A checkpoint is the context after a step; the first checkpoint is the context that the run started from. The evaluation
uses the run's journal, at the same places as the validation of the run. Therefore scores that training computed cost
nothing in this evaluation, and scores that this evaluation computes cost nothing in the next evaluation or when the run
is resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from practicum.analysis.dynamics.curves import Curves, curves
from practicum.core.context import Context
from practicum.core.errors import ProviderError, UsageError
from practicum.core.types import Attempt, Task, Usage
from practicum.engine.run import Run
from practicum.models.budget import Budget
from practicum.session.components import Parts
from practicum.session.config import Config, Splits, config_from
from practicum.session.foreign import Origin
from practicum.session.opening import open_state
from practicum.session.records import read_run
from practicum.session.result import RunInfo, Watch, roles_json, usage_json
from practicum.session.setup import build_setup, set_up
from practicum.session.watching import one_watch
from practicum.store.database import Store
from practicum.store.journal import digest
from practicum.store.versions import read_versions
from practicum.view.read import Story


class Checkpoint(NamedTuple):
    """Version of the context after a step. A step without changes has the version of the previous step."""

    version: int
    step: int


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Training dynamics of a run.

    `solved`: whether each checkpoint solved each task, of shape (tasks, checkpoints). `curves`: the rates computed from
    `solved`. `split`: "val", "test", or a name for tasks that do not belong to the run. `tasks`: the tasks with a score
    at every checkpoint. `errors`: number of attempts that failed or lack a score. `usage` and `by_role`: usage of this
    call of `dynamics`. `hits`: number of results that were read from the journal and so not paid again.
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
        """Return JSON values, as printed by `--json`. Rates are in [0, 1]."""
        curves, named = self.curves, [checkpoint._asdict() for checkpoint in self.checkpoints]
        windows = {str(window or "all"): recency for window, recency in curves.by_window.items()}
        checkpoints = [
            {
                **names,
                "current": float(curves.current[i]),
                "recent": {name: float(recency.recent[i]) for name, recency in windows.items()},
                "active": {name: float(recency.active[i]) for name, recency in windows.items()},
                "stale": {name: float(recency.stale[i]) for name, recency in windows.items()},
                "best": float(curves.best[i]),
            }
            for i, names in enumerate(named)
        ]
        return {
            "run": str(self.run),
            "tasks": len(self.tasks),
            "checkpoints": checkpoints,
            "peak": {**named[curves.peak], "current": float(curves.current[curves.peak])},
            "first_full_coverage": None if curves.covered is None else named[curves.covered],
            "final": float(curves.current[-1]),
            "mean_instability": {name: recency.mean_instability for name, recency in windows.items()},
            "unlearned": curves.unlearned,
            "relearned": curves.relearned,
            "errors": self.errors,
            "usage": usage_json(self.usage),
            "by_role": roles_json(self.by_role),
            "hits": self.hits,
        }


async def dynamics(
    run: Path | str, tasks: Sequence[Task] | None = None, *, every: int = 1, concurrency: int | None = None,
    parts: Parts | None = None, watch: Watch | Sequence[Watch] | None = None, trust_run: bool = False,
) -> Dynamics:  # fmt: skip
    """Score the checkpoints of a run on `tasks`, using only `act` of the run's method.

    `tasks`: default: the validation tasks of the run, or its test tasks if it has no validation tasks. `every`: score
    the start, each `every`-th step, and the last step. `parts`: the Python objects that the run was created with.
    `trust_run`: execute code named in a run from another machine. `watch`: receives the run with the budget of this
    call (which the watch can stop), the start of each checkpoint, and the attempts. The limits of the run do not apply
    to this call, but if the run is resumed, the costs of this call count towards these limits.

    Raises UsageError, before any paid call, if `tasks` are missing or a model cannot be opened; ProviderError if all
    attempts of a checkpoint failed or no task has a score at every checkpoint; Stopped if the budget was stopped.
    Finished calls stay in the journal.
    """
    if every < 1:
        raise UsageError(
            "settings.invalid", f"every={every}: pass 1 to score every step, 2 for every second step, and so on"
        )
    folder, parts = Path(run), parts or Parts()
    with Store.open(folder) as store:
        Origin.of(store, {}, parts, trust_run, ()).require_acting()
        config, splits, _ = read_run(store)
        if concurrency is not None:
            config = config_from({**config.model_dump(), "concurrency": concurrency})
        split, scored_on = _choose_tasks(config, splits, tasks, parts)
        checkpoints, contexts = _checkpoints(store, every)
        setup, budget = build_setup(config, Splits(test=scored_on), parts), Budget()
        # Use a separate budget, which counts only the costs of this call. This budget has no limits, because the limits
        # of the run were set for learning.
        async with open_state(store, store.files, setup, act_only=True, budget=budget) as state:
            watch = one_watch(watch or Watch())
            watch.began(RunInfo(folder, config, setup.splits, budget))
            state.observer = watch
            columns: list[list[Attempt]] = []
            root = Run(state)
            for n, context in enumerate(contexts, 1):
                watch.evaluating(f"checkpoint {n} of {len(contexts)}", len(scored_on))
                columns.append(await root.evaluate(setup.method.act, split, scored_on, context))
            rows = list(zip(*columns, strict=True))
            scores = [[score.correct for r in row if (score := r.first.score) is not None] for row in rows]
            # Only tasks that were scored at every checkpoint can be compared.
            whole = [i for i, row in enumerate(scores) if len(row) == len(contexts)]
            if not whole:
                raise ProviderError(
                    "attempts.all_failed",
                    f"none of {len(rows)} tasks has a score at every checkpoint: {state.last_error}",
                )
            solved = np.array([scores[i] for i in whole], dtype=bool)
            # Checkpoints with equal contexts share their attempts.
            attempts = {id(r): r for column in columns for r in column}.values()
            return Dynamics(
                folder, split, tuple(scored_on[i] for i in whole), checkpoints, solved, curves(solved),
                errors=sum(r.trace.error is not None or r.score is None for r in attempts),
                usage=state.budget.spent, by_role=state.journal.by_role(this_process=True), hits=state.journal.hits,
            )  # fmt: skip


def _choose_tasks(
    config: Config, splits: Splits, tasks: Sequence[Task] | None, parts: Parts
) -> tuple[str, tuple[Task, ...]]:
    """Return the name of the split and the tasks to score. The places of the evaluations in the journal contain this
    name. Raises UsageError if `tasks` is None and the run has no validation or test tasks."""
    own = {name: split_tasks for name, split_tasks in (("val", splits.val), ("test", splits.test)) if split_tasks}
    if tasks is None and not own:
        raise UsageError(
            "tasks.missing", "this run has no validation or test tasks to score its checkpoints on: pass `tasks`"
        )
    scored_on = next(iter(own.values())) if tasks is None else tuple(tasks)
    for split, split_tasks in own.items():
        if scored_on == split_tasks:
            return split, split_tasks
    set_up({**config.model_dump(), "validate_every": 1, "before": False}, Splits(test=scored_on), parts)
    # Two files may use the same id for different tasks, so the places depend on the contents of the tasks.
    return f"dev {digest([[t.id, t.input, t.target, dict(t.meta)] for t in scored_on])[:12]}", scored_on


def _checkpoints(store: Store, every: int) -> tuple[tuple[Checkpoint, ...], list[Context]]:
    """Return the start, every `every`-th step and the last step, each with its context. Versions that no step created
    (a rollback, or the best context restored at the end) are left out."""
    by_version: dict[int | None, Context] = {None: Context()}
    for version in read_versions(store):
        by_version[version.version] = by_version[version.parent].replay(version.applied, version.version)
    steps = [Checkpoint(0, 0), *(Checkpoint(step.version, step.step) for step in Story(store).steps())]
    # If the process was killed after it stored a step and before it stored the version, the step has no version.
    steps = [checkpoint for checkpoint in steps if checkpoint.version in by_version]
    chosen = tuple(c for c in steps if c.step % every == 0 or c is steps[-1])
    return chosen, [by_version[c.version] for c in chosen]
