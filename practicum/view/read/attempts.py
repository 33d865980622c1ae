"""Reader of the attempts of a run: the summary of each attempt, and all data of one attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement

from practicum.core.context import Context
from practicum.core.types import Usage
from practicum.session.records import ATTEMPT
from practicum.store import schema
from practicum.view.read.calls import StoredCalls
from practicum.view.read.lessons import Lessons
from practicum.view.read.naming import EvaluationScope, Names, in_order
from practicum.view.read.parts import AttemptLine, AttemptStory, EntryShown, LessonStory, RoundStory
from practicum.view.read.run import StoredRun


class StoredAttempts:
    """Reader of the attempts of a run."""

    def __init__(self, run: StoredRun, names: Names, calls: StoredCalls, lessons: Lessons) -> None:
        self.run, self.names, self._calls, self._lessons = run, names, calls, lessons

    def every(
        self, *, failed: bool = False, split: str | None = None, step: int | None = None, task: str | None = None
    ) -> Iterator[AttemptLine]:
        """Yield the attempts, in the order in which they were stored.

        `failed`: only failed attempts. `split`: train, before, test, val, or the name of one validation, such as val5.
        `step`: only attempts of this step. `task`: only attempts at this task.
        """
        table = schema.attempts
        where: list[ColumnElement[bool]] = []
        if step is not None:
            where.append(table.c.step == step)
        if split is not None:
            where.append(table.c.step > 0 if split == "train" else table.c.step == 0)
        rows = self.run.rows(table, table.c.place, table.c.step, table.c.data, where=where)
        for scope, group in groupby(rows, lambda row: row.step or EvaluationScope.at(row.place)):
            if isinstance(scope, EvaluationScope) and split not in (
                None,
                self.names.label(scope),
                self.names.split(scope),
            ):
                continue
            for attempt, ids in self.names.ids(scope, [ATTEMPT.validate_json(row.data) for row in group]):
                if task is None or attempt.task.id == task:
                    yield from (line for line in self.names.lines(scope, attempt, ids) if line.failed or not failed)

    def one(self, id: str) -> AttemptStory:
        """Return one attempt, by its id or place. Raises UsageError, with similar ids, if the attempt does not
        exist."""
        scope, attempt, ids = self.names.find(id)
        members, lines = in_order(attempt), self.names.lines(scope, attempt, ids)
        line, one = next(both for both in zip(lines, members, strict=True) if id in (both[0].id, both[0].place))
        evaluated = isinstance(scope, EvaluationScope)
        part = self.run.part
        version, context = part("the versions", lambda: self._shown_by(scope, line)) or (None, Context())
        calls_by_kind = part("the calls", lambda: self._calls.about(attempt, one, members))
        calls, judging, reflecting, updating = calls_by_kind or ([], [], [], [])
        lessons: tuple[LessonStory, ...] | None = ()
        if not isinstance(scope, EvaluationScope):
            lessons = part("the lessons", partial(self._lessons.of_attempt, scope, attempt))
        paid = [*calls, *judging, *reflecting]
        return AttemptStory(
            line=line,
            task=one.task,
            version=None if not evaluated and self.run.without_barrier else version,
            calls=tuple(calls),
            retrieved=tuple(_shown(context, id, similarity) for id, similarity in one.retrieved),
            trace=one.trace,
            used=tuple(_shown(context, id) for id in one.trace.used),
            score=one.score,
            feedback=one.feedback,
            judging=tuple(judging),
            rounds=tuple(map(_round, one.rounds)),
            group=tuple(lines) if len(lines) > 1 else (),
            choice=attempt.choice,
            twin=attempt.twin,
            reused=next(iter(self.names.attempts_of([f"attempt:{one.of}"])), one.of) if one.of else "",
            recorded=one.task.recorded is not None and self.run.config.from_traces,
            lessons=lessons or (),
            reflecting=tuple(reflecting),
            updating=tuple(updating),
            usage=sum((call.usage for call in paid), Usage()),
            seconds=sum(call.seconds for call in paid),
        )

    def _shown_by(self, scope: int | EvaluationScope, line: AttemptLine) -> tuple[int | None, Context]:
        """Return the version that an attempt saw, and the context at this version."""
        version = line.version if isinstance(scope, EvaluationScope) else self.run.version_before(scope)
        return version, Context() if version is None else self.run.context(version)

    def line(self, id: str) -> AttemptLine:
        """Return the summary of one attempt, by its id or place. Raises UsageError, with similar ids, if the attempt
        does not exist."""
        return next(line for line in self.names.lines(*self.names.find(id)) if id in (line.id, line.place))

    def with_entry(self, entry: str) -> Iterator[AttemptLine]:
        """Yield the attempts that looked up or cited an entry."""
        table = schema.attempts
        named = table.c.data.contains(json.dumps(entry), autoescape=True)
        for row in self.run.rows(table, table.c.place, table.c.step, where=[named]):
            scope = row.step or EvaluationScope.at(row.place)
            for attempt, ids in self.names.scope(scope):
                if attempt.place == row.place:
                    members = zip(self.names.lines(scope, attempt, ids), in_order(attempt), strict=True)
                    for line, member in members:
                        if entry in member.trace.used or entry in dict(member.retrieved):
                            yield line


def _shown(context: Context, id: str, similarity: float | None = None) -> EntryShown:
    entry = context.get(id)
    return (
        EntryShown(id, "", "", similarity) if entry is None else EntryShown(id, entry.section, entry.text, similarity)
    )


def _round(one: Any) -> RoundStory:
    trace, feedback = one.trace, one.feedback
    return RoundStory(
        one.lesson.texts, trace and trace.answer, trace and trace.error, feedback and feedback.success,
        feedback.text if feedback else "",
    )  # fmt: skip
