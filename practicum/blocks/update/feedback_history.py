"""Feedback that outlives its step: what was said of earlier attempts is kept in hidden entries, and read again by
whoever writes the next candidates."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Entry
from practicum.core.types import Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run

FEEDBACK = ".feedback"
"""The hidden section it stands in."""

RECALLED = "recalled"
"""What a lesson's data name that comes from there: the entry."""


def with_feedback_history(update: UpdateSeam, most: int) -> UpdateSeam:
    """`update` reads the newest `most` lessons of earlier steps too, marked as RECALLED and before those of this step.

    A lesson without text says nothing to keep. Candidates that rest on a recalled lesson have its sources, so that
    unlearning reaches them.
    """

    async def updated(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        kept = context.in_section(FEEDBACK)
        delta = await update([*map(_recalled, kept), *lessons], context, run)
        new = [lesson for lesson in lessons if lesson.text][-most:] if most else []
        gone = kept[: max(len(kept) + len(new) - most, 0)]
        adds = tuple(
            Add(FEEDBACK, x.text, data={"lesson": x.id}, sources=x.sources, lessons=(x.id,)) for x in new
        )  # fmt: skip
        return delta + Delta((*adds, *(Delete(e.id, reason="newer feedback took its place") for e in gone)))

    return updated


def _recalled(entry: Entry) -> Lesson:
    return Lesson(str(entry.data["lesson"]), entry.text, sources=entry.sources, data={RECALLED: entry.id})
