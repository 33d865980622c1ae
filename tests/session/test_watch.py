"""What a watch is told of a run, several at once included."""

from __future__ import annotations

from helpers import client, make_tasks, world

import practicum
from practicum.core.counts import Count
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


def test_a_watch_is_told_of_an_evaluation_outside_of_a_run() -> None:
    diary, parts = Diary(), practicum.Parts(clients={"agent": client(world)})
    evaluation = practicum.run_sync(practicum.evaluate(make_tasks(2), practicum.Context(), watch=diary, parts=parts))
    assert diary.told == ["began", "eval", "ended", "flushed"]
    assert evaluation.counts[Count.UNTRACKED_RECORDS] == 1
