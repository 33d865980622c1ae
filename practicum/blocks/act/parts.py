"""Parts of a view that are shown only where they pay: rules, memories, solved tasks.

While learning, each task is attempted a second time, with one part more or one part less. Both attempts are made before
anything is learned from the task, so the comparison is one on held-out tasks. The record of a part is a hidden entry:
`helpful` counts the tasks that were solved only with the part, `harmful` those that were solved only without it. So
versions, rollback, forgetting and review hold for it as for all that is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt

from practicum.blocks.act.show import Answer, answer, joined
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit, Entry, Vote
from practicum.core.types import Lesson, Rating, Rollout, Round, Task
from practicum.core.views import View
from practicum.engine.loop import ReflectSeam, ShowSeam, UpdateSeam
from practicum.engine.run import Run

PARTS = ".parts"
"""The hidden section of the records. The text of an entry is the name of its part."""

Parts = Mapping[str, ShowSeam]
"""The views of the parts by name, what changes least first."""


def record(context: Context, name: str) -> Entry | None:
    """The record of a part; None before the first comparison."""
    return next((entry for entry in context.in_section(PARTS) if entry.text == name), None)


def pays(entry: Entry | None) -> bool:
    """Whether a part is shown: unless it did harm more often than it helped, by more than chance (one standard
    deviation of a fair coin)."""
    return entry is None or entry.harmful - entry.helpful <= sqrt(entry.helpful + entry.harmful)


def paying(parts: Parts, changed: str = "") -> ShowSeam:
    """The parts that pay, one after the other; with the part `changed` if it does not pay, and without it if it
    does."""

    async def show(context: Context, task: Task, run: Run) -> View:
        records = {entry.text: entry for entry in context.in_section(PARTS)}
        names = [name for name in parts if pays(records.get(name)) != (name == changed)]
        return await joined(*(parts[name] for name in names))(context, task, run)

    return show


def compared(act: Answer, parts: Parts, warmth: float | None = None) -> Answer:
    """Apply `act`, which shows the parts that pay; beside it attempt the task with one part changed, drawn by chance
    from those that have something to show, at the temperature `warmth`. The attempt of `act` stands; the other one is a
    round of it, whose lesson votes on the part. A try with a note is not compared, nor is one at a task that is
    itself among the solved tasks."""

    async def wrapped(task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        if note:
            return await act(task, context, run, note)
        views = [(name, await show(context, task, run.at(f"has {name}"))) for name, show in parts.items()]
        filled = [name for name, view in views if view.pages or view.turns]
        # In a second epoch the task's own answer is among the solved tasks.
        solved = any(entry.text == task.input for _, view in views for entry in view.entries())
        if solved or not filled:
            return await act(task, context, run)
        name = run.rng("part").choice(filled)
        changed = answer(paying(parts, name))

        async def second(at: Run) -> Rollout:
            return await changed(task, context, replace(at, warmth=warmth))

        async def first(at: Run) -> Rollout:
            return await act(task, context, at)

        stands, other = await run.gather([("as is", first), ("changed", second)])
        with_, without = stands.first, other
        if not pays(record(context, name)):
            with_, without = without, with_
        data = {"stage": PARTS, "part": name, "verdict": _verdict(with_, without)}
        lesson = Lesson(f"{run.place}/{name}", "", sources=stands.sources, data=data)
        return replace(stands, rounds=(*stands.rounds, Round(lesson, other.trace, other.feedback)))

    return wrapped


def _verdict(with_: Rollout, without: Rollout) -> Rating:
    solved, plain = with_.feedback.success, without.feedback.success
    if solved is plain or None in (solved, plain):
        return "neutral"
    return "helpful" if solved else "harmful"


def is_comparison(round: Round) -> bool:
    """Whether a round is the second attempt of a comparison, and no reflection."""
    return round.lesson.data.get("stage") == PARTS


def with_comparisons(reflect: ReflectSeam) -> ReflectSeam:
    """The lessons of `reflect`, which does not see the comparisons, and those of the comparisons."""

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        made = [round.lesson for r in rollouts for round in r.rounds if is_comparison(round)]
        plain = [replace(r, rounds=tuple(x for x in r.rounds if not is_comparison(x))) for r in rollouts]
        return [*made, *await reflect(plain, context, run)]

    return wrapped


def recorded(update: UpdateSeam) -> UpdateSeam:
    """Apply `update`, and count the comparisons in the records of their parts."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        edits: list[Edit] = []
        names = dict.fromkeys(x.data["part"] for x in lessons if x.data.get("stage") == PARTS)
        for name in names:
            of = [x for x in lessons if x.data.get("part") == name]
            said = [x.data["verdict"] for x in of]
            sources, ids = tuple(dict.fromkeys(s for x in of for s in x.sources)), tuple(x.id for x in of)
            counts = said.count("helpful"), said.count("harmful")
            old = record(context, name)
            if old is None:
                edits.append(Add(PARTS, name, "", {}, *counts, sources=sources, lessons=ids))
            else:
                edits.append(Vote(old.id, *counts, len(said), sources=sources, lessons=ids))
        return await update(lessons, context, run) + Delta(tuple(edits))

    return wrapped
