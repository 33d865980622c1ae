"""What a watch is told of a run, several at once included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, world
from refusals import refused

import practicum
from practicum.core.counts import Count
from practicum.core.errors import ProviderError
from practicum.session.evaluate import Evaluation
from practicum.session.result import Progress, Result, RunInfo, Watch


class Diary(Watch):
    """Writes down what it is told, and counts one thing that it could not send."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def began(self, run: RunInfo) -> None:
        self.run = run
        self.told.append("began")

    def stepped(self, report: practicum.StepReport, progress: Progress) -> None:
        self.told.append(f"step {report.step}")

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        self.told.append(name)

    def ended(self, result: Result | Evaluation | None) -> None:
        self.told.append("failed" if result is None else "ended")

    async def flush(self) -> None:
        self.told.append("flushed")
        self.run.counts[Count.UNTRACKED_RECORDS] += 1


def learn(folder: Path, watch: Any, model: Any = None) -> Result:
    parts = practicum.Parts(clients={"agent": model or client(world)})
    tasks = make_tasks(3)
    return practicum.run_sync(practicum.learn(tasks[:2], test=tasks[2:], out=folder, watch=watch, parts=parts))


def test_each_of_several_watches_is_told_everything_and_what_the_last_call_counts_is_in_the_result(
    tmp_path: Path,
) -> None:
    first, second = Diary(), Diary()
    result = learn(tmp_path / "run", [first, second])
    assert first.told == second.told == ["began", "step 1", "step 2", "test", "ended", "flushed"]
    assert result.errors[Count.UNTRACKED_RECORDS] == 2


def test_a_watch_is_told_of_an_evaluation_outside_of_a_run() -> None:
    diary, parts = Diary(), practicum.Parts(clients={"agent": client(world)})
    evaluation = practicum.run_sync(practicum.evaluate(make_tasks(2), practicum.Context(), watch=diary, parts=parts))
    assert diary.told == ["began", "eval", "ended", "flushed"]
    assert evaluation.counts[Count.UNTRACKED_RECORDS] == 1


def test_a_watch_is_told_that_a_run_failed(tmp_path: Path) -> None:
    diary = Diary()
    with pytest.raises(practicum.PracticumError):
        learn(tmp_path / "run", diary, client(lambda call: ProviderError("provider.failed", "down")))
    assert diary.told[-2:] == ["failed", "flushed"]


def test_what_is_no_watch_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with refused("settings.invalid"):
        learn(tmp_path / "run", ["wandb"])
    assert not (tmp_path / "run").exists()
