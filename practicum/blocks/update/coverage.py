"""Accounting for lessons: no lesson that enters an update is lost silently, whatever the model does with it.

Each lesson is named by an edit, covered by an entry, or dropped with a reason. Those that the model left out go through
again in smaller groups, a few times; those still left out are kept as they are or dropped, and counted. (Beyond the
papers: their curators lose the lessons they do not mention, which Combee, section 2.2, calls context overload.)
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

LEFT_OUT = "no edit of the curator covered it"


def accounted(
    update: UpdateSeam, uncovered: Uncovered, section: str, by: UpdateSeam | None = None, again: Sequence[int] = ()
) -> UpdateSeam:
    """`update`, with every lesson accounted for.

    Lessons that it left out go through `by` (by default `update` itself) once for each group size in `again`, all
    groups at once. A lesson that is still `uncovered` then becomes an entry of `section` in its own words, or is
    dropped.
    """
    settle = keep_or_drop(uncovered, section)

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await retried(by or update, again, await update(lessons, context, run))(lessons, context, run)
        standing = tuple(resolution for resolution in delta.resolutions if resolution.entry not in delta.deleted)
        return replace(delta, resolutions=standing) + settle(left_out(lessons, delta), run)

    return wrapped


def retried(by: UpdateSeam, again: Sequence[int], first: Delta | None = None) -> UpdateSeam:
    """An update for lessons that another update, whose delta was `first`, left out: they go through `by` in groups of
    each size of `again` in turn, as long as any are left. Lessons that are still left out have no edit and no
    resolution."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = Delta() if first is None else first
        for turn, size in enumerate(again, 1):
            # Their votes were counted the first time.
            left = [replace(lesson, votes={}) for lesson in left_out(lessons, delta)]
            if not left:
                break
            run.count(Count.REPEATED_LESSONS, len(left))
            groups = [left[start : start + size] for start in range(0, len(left), size)]
            jobs = [(str(i), partial(by, group, context)) for i, group in enumerate(groups)]
            delta = combine([delta, *await run.at(f"again {turn}").gather(jobs)])
        return delta

    return update


def keep_or_drop(uncovered: Uncovered, section: str) -> LastWord:
    """What to do with lessons that are left out in the end, as a function that counts them too: keep them as entries of
    `section` in their own words, or drop them."""

    def settle(lessons: Sequence[Lesson], run: Run, why: str = LEFT_OUT) -> Delta:
        if uncovered == "keep":
            run.count(Count.KEPT_LESSONS, len(lessons))
            return kept(lessons, section, why)
        run.count(Count.DROPPED_LESSONS, len(lessons))
        return Delta(resolutions=tuple(Resolution(lesson.id, reason=why) for lesson in lessons))

    return settle


def left_out(lessons: Sequence[Lesson], delta: Delta) -> list[Lesson]:
    """Lessons with a text that the delta neither covers nor reports as dropped."""
    named = delta.covered | {resolution.lesson for resolution in delta.resolutions if not resolution.entry}
    return [lesson for lesson in lessons if lesson.text and lesson.id not in named]


def kept(lessons: Sequence[Lesson], section: str, why: str) -> Delta:
    """Each lesson as an entry in its own words, of its own section if it names one."""
    return Delta(
        tuple(Add(x.section or section, x.text, sources=x.sources, lessons=(x.id,), reason=why) for x in lessons)
    )
