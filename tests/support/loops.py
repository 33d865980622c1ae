"""A method whose six seams are as plain as can be, and its steps in the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from helpers import make_tasks
from places import within

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, full_view
from practicum.blocks.attempt.attempt import once
from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, History, Method, StepReport, sequential
from practicum.engine.run import Run
from practicum.models.scripted import ScriptedClient


def pairs(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
    for start in range(0, len(tasks), 2):
        assert len(history) == start // 2
        yield Batch(tuple(tasks[start : start + 2]))


async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    return [Lesson(run.place, f"{r.task.id} was tried", sources=r.sources) for r in rollouts if not r.trace.lost]


async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    return Delta(tuple(Add("rules", lesson.text, sources=run.about) for lesson in lessons))


def method(**seams: Any) -> Method:
    act = answer(full_view)
    parts: dict[str, Any] = {"sample": pairs, "act": act, "attempt": once(act), "reflect": reflect}
    parts |= {"update": update, "accept": always}
    return Method(name="mine", **{**parts, **seams})


def steps(folder: Path, model: ScriptedClient, made: Method, n: int = 6, **how: Any) -> list[StepReport]:
    async def work(run: Run) -> list[StepReport]:
        return [report async for report in sequential(made, make_tasks(n), Context(), run, **how)]

    found = within(folder, model, work)
    assert isinstance(found, list)
    return found
