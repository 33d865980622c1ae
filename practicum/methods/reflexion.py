"""Reflexion: after a failure the agent reflects in words, and reads its reflections when it tries the task again (Shinn
et al., 2023, section 3).

Deviations: a trial is an epoch over all tasks. A task that was never tried has no reflections of its own, so it is
shown those of the most similar tasks; otherwise held-out tasks could not profit from learning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, with_memories
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.per_trace import Reflector, by_model, per_trace
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import votes
from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Entry
from practicum.core.types import Instructions, Lesson, Rollout, Round
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.methods.settings import Batched


class Settings(Batched):
    """Settings of Reflexion."""

    epochs: int = Field(default=3, ge=1)
    """The number of trials of each task (offline)."""
    batch: int = Field(default=8, ge=1)
    """Tasks attempted at once. Reflections are about their own task, so a large batch loses nothing."""
    keep: int = Field(default=3, ge=1)
    """The number of reflections kept for each task: the last ones (paper: 1 to 3)."""
    k: int = Field(default=3, ge=1)
    """The number of reflections shown; those of the task itself come first, being most similar."""


def method(s: Settings) -> Method:
    """Attempt, reflect on failures, try again in the next epoch."""
    act = answer(with_memories(s.k, SECTION))
    return Method(
        name="reflexion",
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=per_trace(with_task(by_model(Instructions(REFLECTOR), rules_shown=False)), "failures"),
        update=partial(keep_reflections, s.keep),
        accept=always,
        roles=("reflector",),
        costs="a reflection for each failure",
    )


def with_task(reflector: Reflector) -> Reflector:
    """The same, with the task by which the lesson will be retrieved."""

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        lesson = await reflector(rollout, context, earlier, run)
        return lesson and replace(lesson, data={**lesson.data, "task": rollout.task.input})

    return reflect


async def keep_reflections(keep: int, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Add each reflection under its task, and delete the oldest ones of the task."""
    telling = [lesson for lesson in lessons if lesson.text]
    own: dict[str, list[Entry]] = defaultdict(list)
    for entry in context.in_section(SECTION):
        own[_task(entry.sources)].append(entry)
    about = dict.fromkeys(_task(lesson.sources) for lesson in telling)
    old = (entry for task in about for entry in own[task][: max(len(own[task]) + 1 - keep, 0)])
    gone = [Delete(entry.id, reason="older reflections are forgotten") for entry in old]
    new = [Add(SECTION, x.text, x.data["task"], sources=x.sources, lessons=(x.id,)) for x in telling]
    return votes(lessons) + Delta((*gone, *new))


def _task(sources: Sequence[str]) -> str:
    return next((source for source in sources if source.startswith("task:")), "")


SECTION = "reflections"
"""The section of reflections."""

REFLECTOR = """\
You failed at a task and will try it again. Reflect on what you did, so that you do better then.

kind: what kind of task it is. correction: what would have been right. insight: what to do the next time, in one \
sentence: "If ..., ...". diagnosis: where you went wrong, and why. tags: leave empty."""
