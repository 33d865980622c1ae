"""The loop over six seams: what it passes on, in which order, and when it gives up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from helpers import client
from loops import method, steps
from refusals import refused

from practicum.core.types import Task
from practicum.engine.loop import Batch, History
from practicum.engine.run import Run


def reading(since: int) -> Any:
    """A sampler of 30 steps of one task. Before each, it reads the history from `since` steps before the end on."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for step in range(1, 31):
            assert len(history) == step - 1
            assert [report.step for report in history[-since:]] == [*range(max(step - since, 1), step)]
            yield Batch(tuple(tasks[:1]))

    return sample


def test_a_step_that_is_no_longer_kept_is_named(tmp_path: Path) -> None:
    with refused("method.wrong_result"):
        steps(tmp_path / "run", client(), method(sample=reading(since=99)))
