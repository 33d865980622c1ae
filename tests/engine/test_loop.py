"""The loop over six seams: what it passes on, in which order, and when it gives up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from helpers import client, make_tasks
from loops import method, steps
from refusals import refused

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta
from practicum.core.errors import ProviderError
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, History, Validation
from practicum.engine.run import Run


def test_each_step_starts_where_the_last_one_ended(tmp_path: Path) -> None:
    reports = steps(tmp_path / "run", client(), method())
    assert [r.step for r in reports] == [1, 2, 3]
    assert [len(r.context) for r in reports] == [2, 4, 6]
    assert [r.context.version for r in reports] == [1, 2, 3]
    assert [a.id for r in reports for a in r.applied] == [f"e{n}" for n in range(6)]
    assert all("task:t0" in e.sources for e in list(reports[0].context))


def test_a_rejected_delta_changes_nothing(tmp_path: Path) -> None:
    async def never(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        return Delta()

    reports = steps(tmp_path / "run", client(), method(accept=never))
    assert [r.context.version for r in reports] == [0, 0, 0]


def test_an_edit_that_does_not_fit_comes_back_with_its_reason(tmp_path: Path) -> None:
    async def wrong(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return Delta((Add("rules", run.place), *([Delete("e0")] if context.version else [])))

    reports = steps(tmp_path / "run", client(), method(update=wrong))
    assert [[r.edit for r in report.refused] for report in reports] == [[], [], [Delete("e0")]]
    assert "e0" in reports[2].refused[0].reason
    assert [len(r.context) for r in reports] == [1, 1, 2]


def reading(since: int) -> Any:
    """A sampler of 30 steps of one task. Before each, it reads the history from `since` steps before the end on."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for step in range(1, 31):
            assert len(history) == step - 1
            assert [report.step for report in history[-since:]] == [*range(max(step - since, 1), step)]
            yield Batch(tuple(tasks[:1]))

    return sample


def test_a_history_counts_all_steps_and_keeps_the_last_ones(tmp_path: Path) -> None:
    assert len(steps(tmp_path / "run", client(), method(sample=reading(since=20)))) == 30


def test_a_step_that_is_no_longer_kept_is_named(tmp_path: Path) -> None:
    with refused("method.wrong_result"):
        steps(tmp_path / "run", client(), method(sample=reading(since=99)))


def test_validation_scores_every_so_many_steps(tmp_path: Path) -> None:
    reports = steps(tmp_path / "run", client(), method(), n=8, validation=Validation(make_tasks(2, 50), every=2))
    assert [r.val is None for r in reports] == [True, False, True, False]


def test_a_run_that_lost_every_step_raises(tmp_path: Path) -> None:
    dead = client(lambda call: ProviderError("provider.failed", "gone"))
    with refused("attempts.all_failed"):
        steps(tmp_path / "run", dead, method(), n=2)
