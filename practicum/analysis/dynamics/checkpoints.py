"""The training dynamics of a run: each of its checkpoints scored on the same tasks (RCL, section 4.4).

A checkpoint is the context after a step; the first is the context that the run started from. They are evaluated through
the run's own journal, at the places that its validation uses. What training scored is therefore not paid for again, and
what is scored here is not paid for by the next call or by a resume.
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
    """The context after a step, by its version. A step that changed nothing has the version of the one before."""

    version: int
    step: int


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The tasks that each checkpoint solved, of shape (tasks, checkpoints), and the curves that follow from them.

    `split` is "val", "test", or the name of tasks that are not the run's; `tasks` are those scored at every checkpoint.
    `errors` counts attempts that failed, or that nothing could score. `usage` is what this call paid for, in total and
    `by_role`, and `hits` the number of results it found in the journal.
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
    """Score the checkpoints of a run on `tasks`, with its method's `act` alone.

    The default tasks are the run's validation tasks, otherwise its test tasks. The checkpoints are the start, each
    `every`-th step and the last. The limits of the run do not apply here, but what is paid here counts towards them if
    it is resumed. `parts` are those that the run was made with. What a run that was made elsewhere would execute is
    used only with `trust_run`. `watch` is told of the run, whose budget can be stopped, of each checkpoint that begins,
    and of attempts.

    Raises UsageError where there are no tasks or a model cannot be opened, before anything is paid for; ProviderError
    where a whole checkpoint was lost or no task could be scored; and Stopped. What was done is kept.
    """
    if every < 1:
        raise UsageError(
            "settings.invalid", f"every={every}: give 1 to score every step, 2 to score every second, and so on"
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
        # The run's limits were set for learning; a budget of its own also counts what is paid here alone.
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
            # A task that could not be scored at every checkpoint says nothing about the others.
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
    """The tasks to score on, and the split that their places in the journal name."""
    own = {name: kept for name, kept in (("val", splits.val), ("test", splits.test)) if kept}
    if tasks is None and not own:
        raise UsageError(
            "tasks.missing", "this run has neither validation nor test tasks to score its checkpoints on: give `tasks`"
        )
    scored_on = next(iter(own.values())) if tasks is None else tuple(tasks)
    for split, kept in own.items():
        if scored_on == kept:
            return split, kept
    set_up({**config.model_dump(), "validate_every": 1, "before": False}, Splits(test=scored_on), parts)
    # Two files may give one id to different tasks, so the places depend on all that the tasks are.
    return f"dev {digest([[t.id, t.input, t.target, dict(t.meta)] for t in scored_on])[:12]}", scored_on


def _checkpoints(store: Store, every: int) -> tuple[tuple[Checkpoint, ...], list[Context]]:
    """The start, every `every`-th step and the last one, each with its context. Versions that no step made (a rollback,
    or the best context restored at the end) are no checkpoints."""
    by_version: dict[int | None, Context] = {None: Context()}
    for version in read_versions(store):
        by_version[version.version] = by_version[version.parent].replay(version.applied, version.version)
    steps = [Checkpoint(0, 0), *(Checkpoint(step.version, step.step) for step in Story(store).steps())]
    # A kill may come between a step and its version.
    steps = [checkpoint for checkpoint in steps if checkpoint.version in by_version]
    chosen = tuple(c for c in steps if c.step % every == 0 or c is steps[-1])
    return chosen, [by_version[c.version] for c in chosen]
