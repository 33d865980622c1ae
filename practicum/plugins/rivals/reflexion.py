"""Reflexion: after a failure the agent reflects in words, and reads its reflections when it tries the task again (Shinn
et al., 2023, section 3).

It learns from success and failure, not from the right answer. docs/methods/reflexion.md says what differs from the
paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import Show, answer, with_memories
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.per_trace import Reflector, per_trace
from practicum.blocks.sample.orders import shuffled, stream
from practicum.blocks.update.append import votes
from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Entry
from practicum.core.types import Lesson, Rollout, Round, Task
from practicum.core.views import View, render_selected
from practicum.engine.loop import Batch, History, Method, SampleSeam, sources_of
from practicum.engine.run import Run
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.plugins.rivals.self_reflection import SELF, by_self
from practicum.tasks.stored import ids, picked

SECTION = "reflections"
"""The section of reflections."""


class Settings(Batched, RetrievalSettings):
    epochs: int = Field(default=3, ge=1)
    """The most trials of each task (offline); a task that was solved is not tried again."""
    batch: int = Field(default=8, ge=1)
    """Tasks attempted at once. Reflections are about their own task, so a large batch loses nothing."""
    keep: int = Field(default=3, ge=1)
    """The number of reflections kept for each task: the last ones (paper: 1 to 3)."""
    k: int = Field(default=3, ge=1)
    """The number of reflections shown for a task that has none of its own: those of the most similar tasks."""


def method(s: Settings) -> Method:
    """Attempt, reflect on failures, try again in the next epoch."""
    act = answer(own_or_similar(s.k))
    return Method(
        name="reflexion",
        sample=stream(s.batch) if s.online else trials(s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=per_trace(remembering(by_self(SELF)), "failures"),
        update=partial(keep_reflections, s.keep),
        accept=always,
        roles=("reflector",),
        costs="a reflection for each failure",
    )


def trials(most: int, batch: int) -> SampleSeam:
    """Up to `most` trials of each task, until it is solved. Each trial goes through the tasks that are left, shuffled
    anew, in steps of `batch` tasks."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        solved, read = set[str](), 0
        for trial in range(1, most + 1):
            order = shuffled(tasks, trial, run)
            left = picked(order, [at for at, id in enumerate(ids(order)) if id not in solved]) if solved else order
            for start in range(0, len(left), batch):
                yield Batch(tuple(left[start : start + batch]), trial)
                solved.update(r.task.id for step in history[read:] for r in step.rollouts if r.feedback.success is True)
                read = len(history)

    return sample


def own_or_similar(k: int) -> Show:
    """The reflections on the task itself or, if there are none, the `k` that were made on the most similar tasks."""
    similar = with_memories(k, SECTION)

    async def show(context: Context, task: Task, run: Run) -> View:
        found = own(context, task)
        return render_selected(found) if found else await similar(context, task, run)

    return show


def own(context: Context, task: Task) -> list[Entry]:
    """The reflections on a task, oldest first. Its input identifies it: in another file another task has its id."""
    return [entry for entry in context.in_section(SECTION) if entry.key == task.input]


def remembering(reflector: Reflector) -> Reflector:
    """The same; it also reads the earlier reflections on the task, and its lesson has the task by which it will be
    found."""

    async def reflect(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        before = [Round(Lesson(e.id, e.text)) for e in own(context, rollout.task)]
        lesson = await reflector(rollout, context, [*before, *earlier], run)
        return lesson and replace(lesson, data={**lesson.data, "task": rollout.task.input})

    return reflect


async def keep_reflections(keep: int, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Add each reflection under its task, and delete the oldest ones of the task."""
    telling = [lesson for lesson in lessons if lesson.text]
    known: dict[str, list[Entry]] = defaultdict(list)
    for entry in context.in_section(SECTION):
        known[entry.key].append(entry)
    about = dict.fromkeys(lesson.data["task"] for lesson in telling)
    old = (entry for task in about for entry in known[task][: max(len(known[task]) + 1 - keep, 0)])
    # What waits for review takes no older one's place.
    why = "older reflections are forgotten"
    gone = [
        Delete(entry.id, sources_of(x for x in telling if x.data["task"] == entry.key), reason=why) for entry in old
    ]
    new = [Add(SECTION, x.text, x.data["task"], sources=x.sources, lessons=(x.id,)) for x in telling]
    return votes(lessons) + Delta((*gone, *new))
