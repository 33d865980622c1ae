"""Outcomes of a space as tasks, for learning in another run or for evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from practicum.core.errors import UsageError
from practicum.core.trust import Trust, least
from practicum.core.types import Recorded, Task
from practicum.core.words import in_number
from practicum.session.outcomes import HELD, LEARNED, WAITING, Trusted, outcomes_in
from practicum.session.records import is_own, read_config
from practicum.store.database import Store


def load_outcomes(path: Path | str, *, held_out: bool = False, trust_tools: bool = False) -> list[Task]:
    """Return the outcomes of a space as tasks, in the order of the interactions.

    Without `held_out`, return the outcomes that the space has learned from or will learn from. With `held_out`, return
    the outcomes that a service keeps for the replay gate and never learns from.

    `path` is the folder of a run or of a store, or STORE/spaces/NAME. The space may be served at the same time. The
    `input` of a task is the question, `target` the right answer if one was reported, and `recorded` the answer with its
    score. `trust` is the level at which the space learns from the outcome; with `trust_tools`, tool results are trusted
    as the operator's own. All outcomes of a space from another machine are foreign.

    Raises StoreError if the space does not exist, and UsageError with the code run.no_data if the space has no outcome
    to return.
    """
    with Store.read(Path(path)) as store:
        level: Trust = "own" if is_own(store, read_config(store)[0]) else "foreign"
        states = (HELD,) if held_out else (WAITING, LEARNED)
        tasks = [outcome.task for outcome in outcomes_in(store, Trusted(tools=trust_tools), states=states)]
        others = 0 if tasks or held_out else len(outcomes_in(store, Trusted(), states=(HELD,)))
    if not tasks and held_out:
        raise UsageError(
            "run.no_data",
            f"no outcome of {path} is held out from learning (only a service holds outcomes out): pass a file of tasks",
        )
    if not tasks:
        held = in_number(others, f" ({others:,} [is|are] held out)") if others else ""
        raise UsageError(
            "run.no_data",
            f"{path} has no outcome to learn from{held}: report outcomes (practicum space report, "
            "POST /v1/feedback, or Space.report)",
        )
    return [replace(_elsewhere(task), trust=least(task.trust, level)) for task in tasks]


def _elsewhere(task: Task) -> Task:
    """Return the task without data about the space's own entries, which another run does not have."""
    recorded = task.recorded
    return task if recorded is None else replace(task, recorded=Recorded(recorded.trace, recorded.score))
