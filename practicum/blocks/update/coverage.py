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

from practicum.blocks.update.join import combine
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Resolution
from practicum.core.types import Lesson
from practicum.engine.asynchronous import LastWord
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run

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
    settle = keep_or_drop(uncovered, section)

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        delta = await _completed(delta, lessons, by or update, again, context, run)
        left = left_out(lessons, delta)
        gone = delta.deleted
        standing = tuple(resolution for resolution in delta.resolutions if resolution.entry not in gone)
        return replace(delta, resolutions=standing) + settle(left, run)

    return wrapped


def retried(by: UpdateSeam, again: Sequence[int]) -> UpdateSeam:
    """An update for lessons that another one left out: they go through `by`, in groups of each size of `again` in turn,
    as long as there are any. What is still left out then is in no edit and no resolution."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return await _completed(Delta(), lessons, by, again, context, run)

    return update


def keep_or_drop(uncovered: Uncovered, section: str) -> LastWord:
    """What becomes of lessons that are still left out in the end: entries of `section` in their own words, or nothing;
    counted."""

    def settle(lessons: Sequence[Lesson], run: Run, why: str = LEFT_OUT) -> Delta:
        run.count(Count.KEPT_LESSONS if uncovered == "keep" else Count.DROPPED_LESSONS, len(lessons))
        return kept(lessons, section, why) if uncovered == "keep" else dropped(lessons, why)

    return settle


async def _completed(
    delta: Delta, lessons: Sequence[Lesson], by: UpdateSeam, again: Sequence[int], context: Context, run: Run
) -> Delta:
    """The delta, and beside it what comes of asking about the lessons it left out."""
    for turn, size in enumerate(again, 1):
        if not (left := left_out(lessons, delta)):
            break
        run.count(Count.REPEATED_LESSONS, len(left))
        delta = combine([delta, *await _again(by, left, size, context, run.at(f"again {turn}"))])
    return delta


async def _again(update: UpdateSeam, left: Sequence[Lesson], size: int, context: Context, run: Run) -> list[Delta]:
    # What they voted was counted the first time.
    silent = [replace(lesson, votes={}) for lesson in left]
    groups = [silent[start : start + size] for start in range(0, len(silent), size)]
    return await run.gather([(str(i), partial(update, group, context)) for i, group in enumerate(groups)])


def left_out(lessons: Sequence[Lesson], delta: Delta) -> list[Lesson]:
    """Lessons with something to say that the delta neither covers nor tells as dropped."""
    named = delta.covered | {resolution.lesson for resolution in delta.resolutions if not resolution.entry}
    return [lesson for lesson in lessons if lesson.text and lesson.id not in named]


def kept(lessons: Sequence[Lesson], section: str, why: str = LEFT_OUT) -> Delta:
    """Each lesson as an entry, in its own words."""
    return Delta(tuple(Add(section, x.text, sources=x.sources, lessons=(x.id,), reason=why) for x in lessons))


def dropped(lessons: Sequence[Lesson], why: str = LEFT_OUT) -> Delta:
    """No edits, but a record that these lessons are gone."""
    return Delta(resolutions=tuple(Resolution(x.id, reason=why) for x in lessons))
