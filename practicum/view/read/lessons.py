"""Reader of the lessons of a run with their fates. A fate of a lesson is an edit, refusal or review that followed from
the lesson, or the reason why no edit followed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pydantic import TypeAdapter

from practicum.core.edits import Edit, Resolution
from practicum.core.types import Attempt, Lesson
from practicum.session.records import LESSON, REFUSED
from practicum.session.review import read_reviews
from practicum.store import schema
from practicum.store.dialects import ROW
from practicum.store.reviews import APPROVED, PENDING, REJECTED
from practicum.store.versions import EDITS
from practicum.view.read.naming import Names
from practicum.view.read.parts import Fate, FateWord, LessonStory
from practicum.view.read.run import StoredRun

RESOLUTIONS: TypeAdapter[tuple[Resolution, ...]] = TypeAdapter(tuple[Resolution, ...])


class Lessons:
    """Reader of the lessons of a run."""

    def __init__(self, run: StoredRun, names: Names) -> None:
        self.run, self.names, self.store = run, names, run.store

    def every(self, step: int | None = None) -> Iterator[LessonStory]:
        """Yield the lessons of a step, or of all steps, in the order in which they were stored."""
        table = schema.lessons
        columns = (table.c.step, table.c.data)
        for row in self.run.rows(table, *columns) if step is None else self.run.of_step(table, step, *columns):
            yield self._lesson(row.step, LESSON.validate_json(row.data))

    def with_ids(self, ids: Sequence[str]) -> list[LessonStory]:
        """Return the lessons with these ids, in the order in which they were stored."""
        table = schema.lessons
        query = self.store.select(table.c.step, table.c.data).where(table.c.lesson_id.in_(ids))
        rows = self.store.rows(query.order_by(ROW))
        return [self._lesson(row.step, LESSON.validate_json(row.data)) for row in rows]

    def of_attempt(self, step: int, attempt: Attempt) -> tuple[LessonStory, ...]:
        table, about = schema.lessons, f"attempt:{attempt.place}"
        rows = self.run.of_step(table, step, table.c.sources, table.c.data)
        lessons = (LESSON.validate_json(row.data) for row in rows if about in json.loads(row.sources))
        # A reflection may be about attempts at several tasks. Each of its lessons lists all these attempts as sources:
        # keep the lessons about the task of this attempt.
        own = (x for x in lessons if x.data.get("task_id", attempt.task.id) == attempt.task.id)
        return tuple(self._lesson(step, lesson) for lesson in own)

    def _lesson(self, step: int, lesson: Lesson) -> LessonStory:
        fates = self.run.part(
            "the edits", lambda: self._all_fates if self.run.without_barrier else self._fates_of(step)
        )
        return LessonStory(
            id=lesson.id,
            step=step,
            section=lesson.section,
            text=lesson.text,
            detail=lesson.detail,
            confirmed=lesson.confirmed,
            of=lesson.of,
            votes=lesson.votes,
            findings=lesson.data,
            sources=lesson.sources,
            attempts=self.names.attempts_of(lesson.sources),
            fates=tuple((fates or {}).get(lesson.id, ())),
        )

    @cached_property
    def _all_fates(self) -> Mapping[str, list[Fate]]:
        """Lesson id → fates, from all steps. In learning without a barrier, a lesson may lead to an edit in any later
        step."""
        return self._read_fates(None)

    def _fates_of(self, step: int) -> Mapping[str, list[Fate]]:
        if self._last_fates[0] != step:
            self._last_fates = (step, self._read_fates(step))
        return self._last_fates[1]

    _last_fates: tuple[int, Mapping[str, list[Fate]]] = (0, {})

    def _read_fates(self, step: int | None) -> Mapping[str, list[Fate]]:
        """Return lesson id → fates, from one step, or from all steps (None)."""
        fates: dict[str, list[Fate]] = defaultdict(list)
        reviewed = set()
        for review in read_reviews(self.store, (PENDING, APPROVED, REJECTED), step):
            reviewed.add(review.version)
            for number, edit in enumerate(review.edits):
                if review.version is not None:
                    entry = review.entries[number]
                    fate = _edited("applied", edit, review.step, entry, review.version, review.reason, review.id)
                else:
                    outcome: FateWord = "waits" if review.state == PENDING else "rejected"
                    fate = _edited(outcome, edit, review.step, "", None, review.reason, review.id)
                for lesson in edit.lessons:
                    fates[lesson].append(fate)
        for table, columns in (
            (schema.versions, (schema.versions.c.version, schema.versions.c.step, schema.versions.c.applied)),
            (schema.steps, (schema.steps.c.step, schema.steps.c.data, schema.steps.c.refused)),
        ):
            rows = self.run.rows(table, *columns) if step is None else self.run.of_step(table, step, *columns)
            for row in rows:
                if table is schema.versions:
                    if row.version in reviewed:
                        continue
                    for done in EDITS.validate_json(row.applied):
                        fate = _edited("applied", done.edit, row.step, done.id, row.version, done.edit.reason)
                        for lesson in done.edit.lessons:
                            fates[lesson].append(fate)
                    continue
                for refused in REFUSED.validate_json(row.refused):
                    fate = _edited("refused", refused.edit, row.step, "", None, refused.reason)
                    for lesson in refused.edit.lessons:
                        fates[lesson].append(fate)
                for settled in RESOLUTIONS.validate_python(json.loads(row.data)["fates"]):
                    settled_as: FateWord = "covered" if settled.entry else "dropped"
                    fates[settled.lesson].append(Fate(settled_as, row.step, settled.entry, reason=settled.reason))
        return fates


def _edited(
    outcome: FateWord, edit: Edit, step: int, entry: str, version: int | None, reason: str, review: str = ""
) -> Fate:
    named = entry or getattr(edit, "id", "") or ", ".join(getattr(edit, "ids", ()))
    return Fate(outcome, step, named, edit.op, version, getattr(edit, "text", None) or "", reason, review)
