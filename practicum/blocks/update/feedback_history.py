"""Feedback that outlives its step: lessons about earlier attempts are kept in hidden entries and read again when the
next candidates are written."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta
from practicum.core.types import Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run

FEEDBACK = ".feedback"
"""The hidden section of kept feedback."""

RECALLED = "recalled"
"""The key in a recalled lesson's data that names its entry."""


def with_feedback_history(update: UpdateSeam, most: int) -> UpdateSeam:
    """`update` also reads the newest `most` lessons of earlier steps, marked as RECALLED, before those of this step.

    Lessons without text are not kept. Candidates that rest on a recalled lesson have its sources, so that unlearning
    reaches them.
    """

    async def updated(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        kept = context.in_section(FEEDBACK)
        recalled = [Lesson(str(e.data["lesson"]), e.text, sources=e.sources, data={RECALLED: e.id}) for e in kept]
        delta = await update([*recalled, *lessons], context, run)
        new = [lesson for lesson in lessons if lesson.text][-most:] if most else []
        old = kept[: max(len(kept) + len(new) - most, 0)]
        adds = (Add(FEEDBACK, x.text, data={"lesson": x.id}, sources=x.sources, lessons=(x.id,)) for x in new)
        return delta + Delta((*adds, *(Delete(e.id, reason="newer feedback took its place") for e in old)))

    return updated
