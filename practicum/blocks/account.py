"""Accounting for lessons: none that enters an update is lost in silence, whatever the model makes of it.

Each lesson comes out named by an edit, covered by an entry, or dropped with a reason. Those that the model left out go
through again in smaller groups, a few times; what is left then is kept as it is, or dropped, and counted. (Beyond the
papers: their curators lose what they do not mention, which Combee, section 2.2, calls context overload.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from practicum.blocks.join import beside
from practicum.context import Add, Context, Delete, Delta, Fate, Merge, Update, targets
from practicum.loop import Update as UpdateSeam
from practicum.run import Run
from practicum.types import Lesson

Uncovered = Literal["keep", "drop"]

LEFT_OUT = "the curator left it out"


def accounted(
    update: UpdateSeam, uncovered: Uncovered, section: str, by: UpdateSeam | None = None, again: Sequence[int] = ()
) -> UpdateSeam:
    """`update`, with every lesson accounted for.

    Lessons it left out go through `by` (`update` itself where None), once for each number in `again`, which is the size
    of the groups; the groups go at once. What then is still `uncovered` becomes an entry of `section` in its own words,
    or is dropped.
    """

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        left = unaccounted(lessons, delta)
        for turn, size in enumerate(again, 1):
            if not left:
                break
            run.house.counts["lessons asked about again"] += len(left)
            more = await _again(by or update, left, size, context, run.at(f"again {turn}"))
            delta = beside([delta, *more])
            left = unaccounted(lessons, delta)
        run.house.counts["lessons kept as they were" if uncovered == "keep" else "lessons dropped"] += len(left)
        delta = replace(delta, fates=_standing(delta))
        return delta + (kept(left, section) if uncovered == "keep" else dropped(left))

    return wrapped


async def _again(update: UpdateSeam, left: Sequence[Lesson], size: int, context: Context, run: Run) -> list[Delta]:
    # What they voted was counted the first time.
    silent = [replace(lesson, votes={}) for lesson in left]
    groups = [silent[start : start + size] for start in range(0, len(silent), size)]
    return await run.gather([(str(i), partial(update, group, context)) for i, group in enumerate(groups)])


def unaccounted(lessons: Sequence[Lesson], delta: Delta) -> list[Lesson]:
    """Lessons with something to say that neither an edit nor a fate names.

    Votes and deletions do not count: that an entry is wrong does not yet say what is right. Nor does an entry that
    takes a lesson in, or says it already, where the delta deletes it.
    """
    gone = _gone(delta)
    named = {fate.lesson for fate in _standing(delta)}
    for edit in delta.edits:
        if isinstance(edit, Add | Update | Merge) and gone.isdisjoint(targets(edit)):
            named.update(edit.lessons)
    return [lesson for lesson in lessons if lesson.text and lesson.id not in named]


def _standing(delta: Delta) -> tuple[Fate, ...]:
    """The fates of lessons that no deleted entry was to cover."""
    gone = _gone(delta)
    return tuple(fate for fate in delta.fates if fate.entry not in gone)


def _gone(delta: Delta) -> set[str]:
    return {edit.id for edit in delta.edits if isinstance(edit, Delete)}


def kept(lessons: Sequence[Lesson], section: str, why: str = LEFT_OUT) -> Delta:
    """Each lesson as an entry, in its own words."""
    return Delta(tuple(Add(section, x.text, sources=x.sources, lessons=(x.id,), reason=why) for x in lessons))


def dropped(lessons: Sequence[Lesson]) -> Delta:
    """No edits, but a record that these lessons are gone."""
    return Delta(fates=tuple(Fate(x.id, reason=LEFT_OUT) for x in lessons))
