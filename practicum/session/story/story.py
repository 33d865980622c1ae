"""Reading the story of a run from its rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Table, func

from practicum.core.context import Context
from practicum.core.edits import Applied, Edit, Merge, Resolution
from practicum.core.errors import UsageError
from practicum.core.types import Attempt, Lesson, Task, Usage
from practicum.methods.blocks.scaling import number_of, place_of_all
from practicum.session.config import Config
from practicum.session.corrections import LETTER, read_corrections
from practicum.session.records import ATTEMPT, LESSON, REFUSED, last_report, read_config, run_summary, seconds_spent
from practicum.session.review import read_reviews
from practicum.session.story.parts import (
    STEP,
    AttemptLine,
    AttemptStory,
    CallStory,
    EntryShown,
    EntryStory,
    Fate,
    FateWord,
    LessonStory,
    RoundStory,
    RunStory,
    StepStory,
    top_place,
)
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.store.journal import NOTE_ROLE, Journal
from practicum.store.reviews import APPROVED, PENDING, REJECTED
from practicum.store.snapshot import read_context
from practicum.store.versions import EDITS, EntryEvent, lineage, read_parents
from practicum.tasks.stored import TASK, StoredTasks

BLOCK = 256
"""Rows that are read together."""

KEPT = 16
"""Contexts, and steps with their attempts, that stay in memory."""

LISTED = 8
"""Ids that an error names at most."""

RESOLUTIONS: TypeAdapter[tuple[Resolution, ...]] = TypeAdapter(tuple[Resolution, ...])


@dataclass(frozen=True)
class EvaluationScope:
    """An evaluation of a context, as the run names it in places: `split`, the digest of the context, and a repeat."""

    split: str
    digest: str
    repeat: str

    @classmethod
    def at(cls, place: str) -> EvaluationScope:
        return cls(*place.split("/")[0].removeprefix("evaluate ").rsplit(" ", 2))

    @property
    def place(self) -> str:
        return f"evaluate {self.split} {self.digest} {self.repeat}"


Named = list[tuple[Attempt, list[str]]]
"""The reported attempts of a step or an evaluation, each with the ids of its group."""


class Story:
    """The story of a run. A context manager: `with Story.open(folder) as story`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.folder
        self.journal = Journal(store)
        self.config: Config = read_config(store)[0]
        self._contexts: dict[int, Context] = {}
        self._named: dict[int, Named] = {}

    @classmethod
    def open(cls, folder: Path | str) -> Story:
        """Open a run read-only. Raises NotARun or StoreError if it cannot be read."""
        store = Store.read(Path(folder))
        try:
            return cls(store)
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self.store.__exit__(kind, error)

    # The run as a whole

    @property
    def info(self) -> RunStory:
        """The run as a whole, at this moment."""
        config, state = read_config(self.store)
        tasks, summary = schema.tasks, run_summary(self.store)
        by_split = self.store.select(tasks.c.split, func.count()).group_by(tasks.c.split)
        by_role = self.journal.by_role()
        return RunStory(
            folder=self.folder,
            method=config.method,
            model=config.model or "",
            state=state,
            config=config.model_dump(mode="json"),
            scores=summary["scores"],
            counts=summary["counts"],
            usage=sum(by_role.values(), Usage()),
            by_role=by_role,
            seconds=seconds_spent(self.store),
            steps=summary["steps"],
            versions=summary["versions"],
            tasks={row.split: row[1] for row in self.store.rows(by_split)},
        )

    def tasks(self, split: str) -> Iterator[Task]:
        """The tasks of a split (train, val, test), in their order."""
        return iter(StoredTasks(self.store, split))

    def task(self, id: str) -> Task | None:
        """The task with this id, of any split; None if there is none."""
        table = schema.tasks
        rows = self.store.rows(self.store.select(table.c.data).where(table.c.task_id == id).limit(1))
        return TASK.validate_json(rows[0].data) if rows else None

    def steps(self) -> list[StepStory]:
        table = schema.steps
        rows = self.store.rows(self.store.select(table.c.step, table.c.data).order_by(table.c.step))
        return [STEP.validate_python({**json.loads(row.data), "step": row.step}) for row in rows]

    def context(self, version: int | None = None) -> Context:
        """The context at a version (None: the last). Raises UsageError if there is no such version."""
        parents = read_parents(self.store)
        if not parents:
            return Context()
        line = lineage(parents, version)
        known = next((number for number in reversed(line) if number in self._contexts), None)
        if known is None:
            context = read_context(self.store, line[-1])
        else:
            context, table, left = self._contexts[known], schema.versions, line[line.index(known) + 1 :]
            for start in range(0, len(left), BLOCK):
                block = {*left[start : start + BLOCK]}
                between = table.c.version.between(min(block), max(block))
                query = self.store.select(table.c.version, table.c.applied).where(between)
                for row in self.store.rows(query.order_by(table.c.version)):
                    if row.version in block:
                        context = context.replay(EDITS.validate_json(row.applied), row.version)
        self._keep(self._contexts, line[-1], context)
        return context

    # Attempts

    def attempts(
        self, *, failed: bool = False, split: str | None = None, step: int | None = None, task: str | None = None
    ) -> Iterator[AttemptLine]:
        """The attempts, in the order in which they were stored.

        `failed`: only those that went wrong. `split`: train, before, test, val or, of one validation, its name such as
        val5. `step`: only those of a step. `task`: only those at a task.
        """
        table = schema.attempts
        where: list[ColumnElement[bool]] = []
        if step is not None:
            where.append(table.c.step == step)
        if split is not None:
            where.append(table.c.step > 0 if split == "train" else table.c.step == 0)
        rows = self._rows(table, table.c.place, table.c.step, table.c.data, where=where)
        for scope, group in groupby(rows, lambda row: row.step or EvaluationScope.at(row.place)):
            if isinstance(scope, EvaluationScope) and split not in (None, self._label(scope), self._split(scope)):
                continue
            for attempt, ids in self._ids(scope, [ATTEMPT.validate_json(row.data) for row in group]):
                if task is None or attempt.task.id == task:
                    yield from (line for line in self._lines(scope, attempt, ids) if line.failed or not failed)

    def attempt(self, id: str) -> AttemptStory:
        """One attempt, by its id or its place. Raises UsageError that names similar ids if there is none."""
        scope, attempt, ids = self._find(id)
        members, lines = in_order(attempt), self._lines(scope, attempt, ids)
        line, one = next(both for both in zip(lines, members, strict=True) if id in (both[0].id, both[0].place))
        evaluated = isinstance(scope, EvaluationScope)
        version = line.version if isinstance(scope, EvaluationScope) else self._version_before(scope)
        context = Context() if version is None else self.context(version)
        calls, judging, reflecting, updating = self._calls_about(attempt, one, members)
        paid = [*calls, *judging, *reflecting]
        return AttemptStory(
            line=line,
            task=one.task,
            version=None if not evaluated and self._without_barrier else version,
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
            reused=next(iter(self.attempts_of([f"attempt:{one.of}"])), one.of) if one.of else "",
            recorded=one.task.recorded is not None and self.config.from_traces,
            lessons=() if isinstance(scope, EvaluationScope) else self._lessons_of(scope, attempt),
            reflecting=tuple(reflecting),
            updating=tuple(updating),
            usage=sum((call.usage for call in paid), Usage()),
            seconds=sum(call.seconds for call in paid),
        )

    def attempt_line(self, id: str) -> AttemptLine:
        """One attempt in a line, by its id or its place. Raises UsageError that names similar ids if there is none."""
        return next(line for line in self._lines(*self._find(id)) if id in (line.id, line.place))

    def attempts_of(self, sources: Iterable[str]) -> tuple[str, ...]:
        """The ids of the attempts among the sources of a lesson, an edit or a call."""
        places = (source.removeprefix("attempt:") for source in sources if source.startswith("attempt:"))
        return tuple(dict.fromkeys(id for place in places if (id := self._id_at(place)) is not None))

    @property
    def splits(self) -> list[str]:
        """The splits whose attempts are stored: train, then those of evaluations."""
        learned = self.store.select(schema.attempts.c.step).where(schema.attempts.c.step > 0)
        evaluated = sorted({self._split(one) for one in self._evaluations()})
        return [*(["train"] if self.store.rows(learned.limit(1)) else []), *evaluated]

    # Lessons

    def lessons(self, step: int | None = None) -> Iterator[LessonStory]:
        """The lessons of a step, or of all steps, in order."""
        table = schema.lessons
        columns = (table.c.step, table.c.data)
        for row in self._rows(table, *columns) if step is None else self._of_step(table, step, *columns):
            yield self._lesson(row.step, LESSON.validate_json(row.data))

    def lessons_with(self, ids: Sequence[str]) -> list[LessonStory]:
        """The lessons with these ids, in the order of writing."""
        table = schema.lessons
        query = self.store.select(table.c.step, table.c.data).where(table.c.lesson_id.in_(ids))
        rows = self.store.rows(query.order_by(ROW))
        return [self._lesson(row.step, LESSON.validate_json(row.data)) for row in rows]

    # Calls

    def calls(self, step: int | None = None, role: str | None = None) -> Iterator[CallStory]:
        """The calls of a step, or of the whole run, in the order in which they ended."""
        table = schema.journal
        where = [table.c.role != NOTE_ROLE] + ([] if role is None else [table.c.role == role])
        if step is not None:
            where.append(self._at_step(step))
        return map(self._call, self._rows(table, *self._call_columns, where=where))

    def call(self, id: str) -> CallStory:
        """One call, by its id or its place. Raises UsageError if there is none."""
        table = schema.journal
        this = ROW.in_([int(id)]) if id.isdecimal() else table.c.place == id
        query = self.store.select(ROW.label("number"), *self._call_columns)
        for row in self.store.rows(query.where(this).where(table.c.role != NOTE_ROLE)):
            return self._call(row)
        raise UsageError(
            "call.unknown", f"there is no call {id!r} in {self.folder}: practicum show {self.folder} --calls lists them"
        )

    # Entries

    def entry(self, id: str) -> EntryStory:
        """One entry with its history: of the playbook, or a correction or a note (such as c5). Raises UsageError if
        there never was one with this id."""
        table = schema.corrections if id.startswith(LETTER) else schema.versions
        # Only versions that name it are read as a whole.
        named = table.c.applied.contains(json.dumps(id), autoescape=True)
        query = self.store.select(table.c.version, table.c.step, table.c.applied).where(named)
        events = tuple(
            EntryEvent(row.version, row.step, done, self.lost(row.version, done))
            for row in self.store.rows(query.order_by(table.c.version))
            for done in EDITS.validate_json(row.applied)
            if done.id == id or id in getattr(done.edit, "ids", ())
        )
        if not events:
            raise UsageError(
                "entry.unknown",
                f"{self.folder} has never had an entry {id!r}: practicum show {self.folder} lists those it has",
                entry=id,
            )
        now = (read_corrections(self.store) if table is schema.corrections else self.context()).get(id)
        edited = dict.fromkeys(source for event in events for source in event.done.edit.sources)
        sources = tuple(edited) if now is None else now.sources
        return EntryStory(id, now, events, sources, self.attempts_of(sources))

    def lost(self, version: int, done: Applied) -> dict[str, str]:
        """The texts of the entries that an edit of a version merged into another one, by their ids; empty for one that
        was forgotten."""
        return {id: self._last_text(version, id) for id in getattr(done.edit, "ids", ()) if id != done.id}

    def _last_text(self, version: int, id: str) -> str:
        table, text = schema.versions, ""
        named = table.c.applied.contains(json.dumps(id), autoescape=True)
        query = self.store.select(table.c.applied).where(named, table.c.version <= version).order_by(table.c.version)
        for row in self.store.rows(query):
            for done in EDITS.validate_json(row.applied):
                if done.id == id and (new := getattr(done.edit, "text", None)) is not None:
                    text = new
        return text

    def merges(self, step: int | None = None) -> Iterator[EntryEvent]:
        """The merges of entries, with what was lost, in all steps or in one."""
        table, texts = schema.versions, dict[str, str]()
        query = self.store.select(table.c.version, table.c.step, table.c.applied).order_by(table.c.version)
        for row in self.store.rows(query):
            for done in EDITS.validate_json(row.applied):
                if isinstance(done.edit, Merge) and step in (None, row.step):
                    lost = {id: texts.get(id, "") for id in done.edit.ids if id != done.id}
                    yield EntryEvent(row.version, row.step, done, lost)
                if (text := getattr(done.edit, "text", None)) is not None:
                    texts[done.id] = text

    def attempts_with(self, entry: str) -> Iterator[AttemptLine]:
        """The attempts that an entry was looked up for, or that cite it."""
        table = schema.attempts
        named = table.c.data.contains(json.dumps(entry), autoescape=True)
        for row in self._rows(table, table.c.place, table.c.step, where=[named]):
            scope = row.step or EvaluationScope.at(row.place)
            for attempt, ids in self._scope(scope):
                if attempt.place == row.place:
                    members = zip(self._lines(scope, attempt, ids), in_order(attempt), strict=True)
                    for line, member in members:
                        if entry in member.trace.used or entry in dict(member.retrieved):
                            yield line

    # How rows are read

    def _rows(self, table: Table, *columns: Any, where: Sequence[ColumnElement[bool]] = ()) -> Iterator[Any]:
        """Rows in the order of writing, a block at a time."""
        last, block = 0, BLOCK // 8
        while True:
            query = self.store.select(ROW.label("number"), *columns).where(last < ROW, *where)
            rows = self.store.rows(query.order_by(ROW).limit(block))
            yield from rows
            if len(rows) < block:
                return
            last, block = rows[-1].number, BLOCK

    def _of_step(self, table: Table, step: int, *columns: Any) -> list[Any]:
        """The rows of a step, in the order of writing."""
        return self.store.rows(self.store.select(*columns).where(table.c.step == step).order_by(ROW))

    @staticmethod
    def _keep(cache: dict[int, Any], key: int, value: Any) -> None:
        cache.pop(key, None)
        cache[key] = value
        while len(cache) > KEPT:
            del cache[next(iter(cache))]

    # How attempts are named

    @cached_property
    def _final(self) -> int:
        """The version that the final evaluation scored."""
        last, parents = last_report(self.store).get("version"), read_parents(self.store)
        return last if last in parents else max(parents, default=0)

    @cached_property
    def _evaluated(self) -> dict[str, int]:
        """The first version of each context that was evaluated, by its digest: the first, the last and each that was
        validated."""
        parents = read_parents(self.store)
        wanted = {0, self._final, *(step.version for step in self.steps() if step.val is not None)}
        found: dict[str, int] = {}
        for version in sorted(wanted & parents.keys()):
            found.setdefault(self.context(version).digest, version)
        return found

    @cached_property
    def _tests(self) -> set[str]:
        """The contexts that were evaluated on the test tasks, by their digests."""
        return {one.digest for one in self._evaluations() if one.split == "test"}

    def _evaluations(self) -> Iterator[EvaluationScope]:
        """All evaluations whose attempts are stored, each by a jump in the index of places."""
        table, after = schema.attempts, "evaluate "
        while True:
            below = _below(table, after, "evaluate!")
            rows = self.store.rows(self.store.select(table.c.place).where(below).order_by(table.c.place).limit(1))
            if not rows:
                return
            one = EvaluationScope.at(rows[0].place)
            yield one
            after = f"{one.place}0"  # the character after the slash

    def _split(self, one: EvaluationScope) -> str:
        """The split of an evaluation; "before" if it is that of the first context alone."""
        if one.split == "test" and self.config.before and len(self._tests) > 1 and self._evaluated.get(one.digest) == 0:
            return "before" if one.digest != self.context(self._final).digest else "test"
        return one.split

    def _label(self, one: EvaluationScope) -> str:
        """The beginning of the ids of an evaluation's attempts."""
        split, version = self._split(one), self._evaluated.get(one.digest)
        again = "" if one.repeat == "0" else f"~{int(one.repeat) + 1}"
        if split == "before" or (
            split == "test" and (len(self._tests) == 1 or one.digest == self.context(self._final).digest)
        ):
            return split + again
        return f"{split}-{one.digest[:8]}{again}" if version is None else f"{split}{version}{again}"

    def _ids(self, scope: int | EvaluationScope, attempts: Sequence[Attempt]) -> Named:
        """The attempts of a step or an evaluation, each with the ids of its group. A task that comes twice has
        `~2` behind its second time."""
        label = f"{scope}" if isinstance(scope, int) else self._label(scope)
        taken: set[str] = set()
        named: Named = []
        for attempt in attempts:
            base, time = f"{label}.{attempt.task.id}", 1
            while True:
                name = base if time == 1 else f"{base}~{time}"
                ids = [name, *(f"{name}.{n}" for n in range(2, len(attempt.group) + 1))]
                if taken.isdisjoint(ids):
                    break
                time += 1
            taken.update(ids)
            named.append((attempt, ids))
        return named

    def _scope(self, scope: int | EvaluationScope) -> Named:
        """The attempts of a step or an evaluation."""
        if isinstance(scope, int) and scope in self._named:
            return self._named[scope]
        table = schema.attempts
        if isinstance(scope, int):
            rows = self._of_step(table, scope, table.c.data)
        else:
            rows = self.store.rows(self.store.select(table.c.data).where(_under(table, scope.place)).order_by(ROW))
        named = self._ids(scope, [ATTEMPT.validate_json(row.data) for row in rows])
        if isinstance(scope, int) and named:
            self._keep(self._named, scope, named)
        return named

    def _lines(self, scope: int | EvaluationScope, attempt: Attempt, ids: Sequence[str]) -> list[AttemptLine]:
        members = in_order(attempt)
        return [
            AttemptLine(
                id=id,
                split=self._split(scope) if isinstance(scope, EvaluationScope) else "train",
                step=None if isinstance(scope, EvaluationScope) else scope,
                version=self._evaluated.get(scope.digest) if isinstance(scope, EvaluationScope) else None,
                task=one.task.id,
                input=one.task.input,
                answer=one.trace.answer,
                error=one.trace.error,
                lost=one.trace.lost,
                score=None if one.score is None else one.score.value,
                correct=None if one.score is None else one.score.correct,
                success=one.feedback.success,
                feedback=one.feedback.text,
                number=number,
                tries=len(members),
                chosen=bool(attempt.choice) and one is attempt,
                reused=one.of,
                place=one.place,
            )
            for number, (id, one) in enumerate(zip(ids, members, strict=True), 1)
        ]

    def _find(self, id: str) -> tuple[int | EvaluationScope, Attempt, list[str]]:
        """The reported attempt whose group has this attempt, with the ids of the group."""
        scopes: list[int | EvaluationScope] = []
        if "/" in id and (row := self._row_near(id)) is not None:
            scopes.append(row.step or EvaluationScope.at(row.place))
        label = id.partition(".")[0]
        if label.isdecimal():
            scopes.append(int(label))
        else:
            scopes += [one for one in self._evaluations() if label in (self._label(one), self._alias(one))]
        close: list[str] = []
        for scope in scopes:
            for attempt, ids in self._scope(scope):
                if id in ids or any(id == member.place for member in attempt.group):
                    return scope, attempt, ids
                if label == "before" and f"test{id.removeprefix('before')}" in ids:
                    return scope, attempt, [f"before{own.removeprefix('test')}" for own in ids]
                close += ids
        raise UsageError("attempt.unknown", self._no_attempt(id, close))

    def _alias(self, one: EvaluationScope) -> str:
        """The other name of an evaluation: if nothing was learned, that before and that after it are one."""
        first = self.config.before and one.split == "test" and self._evaluated.get(one.digest) == 0
        return "before" if first else self._label(one)

    def _no_attempt(self, id: str, close: Sequence[str]) -> str:
        said = f"there is no attempt {id!r} in {self.folder}"
        if similar := get_close_matches(id, close, LISTED, 0.5):
            return f"{said}; did you mean {', '.join(similar)}?"
        if at_task := [line.id for line in self.attempts(task=id)]:
            return f"{said}; at the task {id}: {', '.join(at_task[:LISTED])}{', …' if len(at_task) > LISTED else ''}"
        return f"{said}: practicum show {self.folder} --attempts lists them"

    def _row_near(self, place: str) -> Any:
        """The row of an attempt at a place, above it or below it; None if there is none. Of several attempts that are
        made at once, one row holds all."""
        table = schema.attempts
        columns = self.store.select(table.c.place, table.c.step)
        for query in (
            columns.where(table.c.place == place),
            columns.where(_under(table, place)).limit(1),
            columns.where(_under(table, place_of_all(place))).limit(1),
            columns.where(_under(table, top_place(place))).limit(1),
        ):
            if rows := self.store.rows(query):
                return rows[0]
        return None

    def _id_at(self, place: str) -> str | None:
        """The id of the attempt at a place, or of the first one below it; None if it is not stored."""
        row = self._row_near(place)
        if row is None:
            return None
        for attempt, ids in self._scope(row.step or EvaluationScope.at(row.place)):
            for id, member in zip(ids, in_order(attempt), strict=True):
                if place in (member.place, place_of_all(member.place), _twin_place(member.place)):
                    return id
        return None

    # What belongs to an attempt

    @property
    def _without_barrier(self) -> bool:
        """Whether attempts started from whatever context was the newest, which is not stored."""
        return bool(self.config.settings.get("asynchronous"))

    def _version_before(self, step: int) -> int | None:
        table = schema.versions
        earlier = self.store.select(func.max(table.c.version)).where(table.c.step < step)
        ((version,),) = self.store.rows(earlier)
        return 0 if version is None and read_parents(self.store) else version

    def _calls_about(
        self, attempt: Attempt, one: Attempt, members: Sequence[Attempt]
    ) -> tuple[list[CallStory], list[CallStory], list[CallStory], list[CallStory]]:
        """The calls of an attempt, those that judged it, those that reflected on it, and those that made edits."""
        calls: list[CallStory] = []
        judging: list[CallStory] = []
        reflecting: list[CallStory] = []
        updating: list[CallStory] = []
        together = place_of_all(attempt.place)
        others = tuple(f"{member.place}/" for member in members if member.place != one.place)
        about = f"attempt:{attempt.place}"
        for call in self._calls_of_scope(one.place):
            inner = call.place.removeprefix(f"{one.place}/")
            if inner != call.place:
                if inner.startswith(("round ", "reflect/")) and not inner.endswith("/agent"):
                    reflecting.append(call)
                elif call.role in ("judge", "score"):
                    judging.append(call)
                else:
                    calls.append(call)
            elif call.place.startswith(others):
                continue
            elif call.place.startswith(f"{together}/"):
                (reflecting if call.role == "reflector" else judging).append(call)
            elif about in call.sources and call.role != "agent":
                (updating if _updates(call.place) else reflecting).append(call)
        # The row of an attempt as a whole repeats what its turns did.
        in_turns = {f"{call.place.partition('/turn ')[0]}/agent" for call in calls if "/turn " in call.place}
        return [call for call in calls if call.place not in in_turns], judging, reflecting, updating

    def _calls_of_scope(self, place: str) -> Iterator[CallStory]:
        """All calls of the step, the attempt without a barrier or the evaluated task that a place lies in."""
        table = schema.journal
        query = self.store.select(ROW.label("number"), *self._call_columns)
        query = query.where(_under(table, top_place(place)), table.c.role != NOTE_ROLE)
        return map(self._call, self.store.rows(query.order_by(ROW)))

    @property
    def _call_columns(self) -> tuple[Any, ...]:
        t = schema.journal.c
        usage = (t.calls, t.input_tokens, t.cached_tokens, t.output_tokens, t.usd)
        return (t.place, t.role, t.ok, t.seconds, t.sources, *usage)

    def _call(self, row: Any) -> CallStory:
        usage = Usage(row.calls, row.input_tokens, row.cached_tokens, row.output_tokens, row.usd)
        # No model of the run answers for an agent of the user's own, for tools, or for a scorer.
        asked = row.calls or (not row.ok and row.role != "score" and self._asks_agent)
        model = self.config.roles.get(row.role, self.config.model or "") if asked else ""
        return CallStory(
            f"{row.number}", row.place, row.role, model, bool(row.ok), usage, row.seconds,
            tuple(json.loads(row.sources)), self,
        )  # fmt: skip

    @property
    def _asks_agent(self) -> bool:
        """Whether the agent is a model of the run."""
        return self.config.agent == "chat" or self.config.agent.startswith("tools:")

    def _at_step(self, step: int) -> ColumnElement[bool]:
        """The condition that a call belongs to a step: by its place, or by those of the step's attempts and group."""
        table = schema.journal
        data = next((one for one in self.steps() if one.step == step), None)
        if data is None:
            raise UsageError("step.unknown", f"{self.folder} has no step {step}", step=step)
        tops = {top_place(attempt.place) for attempt, _ in self._scope(step)} or {f"step {step}"}
        if "group" in data.sampled:
            # In the same leg of the run as its attempts.
            group = f"{min(tops).rpartition('/')[0]}/group {data.sampled['group']}".lstrip("/")
            tops |= {group, f"{group} again"}
        first, *rest = (_under(table, top) for top in sorted(tops))
        for condition in rest:
            first = first | condition
        return first

    # What became of lessons

    def _lessons_of(self, step: int, attempt: Attempt) -> tuple[LessonStory, ...]:
        table, about = schema.lessons, f"attempt:{attempt.place}"
        rows = self._of_step(table, step, table.c.sources, table.c.data)
        lessons = (LESSON.validate_json(row.data) for row in rows if about in json.loads(row.sources))
        # A reflection on many attempts names all of them, and is about one.
        own = (x for x in lessons if x.data.get("task_id", attempt.task.id) == attempt.task.id)
        return tuple(self._lesson(step, lesson) for lesson in own)

    def _lesson(self, step: int, lesson: Lesson) -> LessonStory:
        fates = self._all_fates if self._without_barrier else self._fates_of(step)
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
            attempts=self.attempts_of(lesson.sources),
            fates=tuple(fates.get(lesson.id, ())),
        )

    @cached_property
    def _all_fates(self) -> Mapping[str, list[Fate]]:
        """Without a barrier a lesson may be settled in any later step."""
        return self._read_fates(None)

    def _fates_of(self, step: int) -> Mapping[str, list[Fate]]:
        if self._last_fates[0] != step:
            self._last_fates = (step, self._read_fates(step))
        return self._last_fates[1]

    _last_fates: tuple[int, Mapping[str, list[Fate]]] = (0, {})

    def _read_fates(self, step: int | None) -> Mapping[str, list[Fate]]:
        """What became of the lessons in a step, or in all, by their ids."""
        found: dict[str, list[Fate]] = defaultdict(list)
        reviewed = set()
        for review in read_reviews(self.store, (PENDING, APPROVED, REJECTED), step):
            reviewed.add(review.version)
            for number, edit in enumerate(review.edits):
                if review.version is not None:
                    entry = review.entries[number]
                    fate = _edited("applied", edit, review.step, entry, review.version, review.reason, review.id)
                else:
                    what: FateWord = "waits" if review.state == PENDING else "rejected"
                    fate = _edited(what, edit, review.step, "", None, review.reason, review.id)
                for lesson in edit.lessons:
                    found[lesson].append(fate)
        for table, columns in (
            (schema.versions, (schema.versions.c.version, schema.versions.c.step, schema.versions.c.applied)),
            (schema.steps, (schema.steps.c.step, schema.steps.c.data, schema.steps.c.refused)),
        ):
            rows = self._rows(table, *columns) if step is None else self._of_step(table, step, *columns)
            for row in rows:
                if table is schema.versions:
                    if row.version in reviewed:
                        continue
                    for done in EDITS.validate_json(row.applied):
                        fate = _edited("applied", done.edit, row.step, done.id, row.version, done.edit.reason)
                        for lesson in done.edit.lessons:
                            found[lesson].append(fate)
                    continue
                for refused in REFUSED.validate_json(row.refused):
                    fate = _edited("refused", refused.edit, row.step, "", None, refused.reason)
                    for lesson in refused.edit.lessons:
                        found[lesson].append(fate)
                for settled in RESOLUTIONS.validate_python(json.loads(row.data)["fates"]):
                    settled_as: FateWord = "covered" if settled.entry else "dropped"
                    found[settled.lesson].append(Fate(settled_as, row.step, settled.entry, reason=settled.reason))
        return found


def in_order(attempt: Attempt) -> list[Attempt]:
    """All attempts at a task at once, in the order of their numbers; the first is the one that reports count."""
    return sorted(attempt.group, key=number_of) if attempt.choice else list(attempt.group)


def _below(table: Table, first: str, stop: str) -> ColumnElement[bool]:
    """The condition that a place lies between two texts, by the index of places."""
    return (table.c.place >= first) & (table.c.place < stop)


def _under(table: Table, place: str) -> ColumnElement[bool]:
    """The condition that a place lies under another one."""
    return _below(table, f"{place}/", f"{place}0")


def _twin_place(place: str) -> str:
    """The place of the attempt with the annotated playbook, from that of the attempt."""
    head, _, rest = place.partition("/plain/")
    return f"{head}/annotated/{rest.rpartition('/')[2]}"


def _updates(place: str) -> bool:
    """Whether what is done at a place makes edits of lessons."""
    return "group " in top_place(place) or "/update/" in place or "/accept/" in place


def _shown(context: Context, id: str, similarity: float | None = None) -> EntryShown:
    entry = context.get(id)
    return (
        EntryShown(id, "", "", similarity) if entry is None else EntryShown(id, entry.section, entry.text, similarity)
    )


def _round(one: Any) -> RoundStory:
    trace, known = one.trace, one.feedback
    return RoundStory(
        one.lesson.texts, trace and trace.answer, trace and trace.error, known and known.success,
        known.text if known else "",
    )  # fmt: skip


def _edited(
    what: FateWord, edit: Edit, step: int, entry: str, version: int | None, reason: str, review: str = ""
) -> Fate:
    named = entry or getattr(edit, "id", "") or ", ".join(getattr(edit, "ids", ()))
    return Fate(what, step, named, edit.op, version, getattr(edit, "text", None) or "", reason, review)
