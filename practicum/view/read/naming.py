"""Ids of attempts: `3.t17` is the attempt at task t17 in step 3, `test.t9` is the attempt at task t9 in the final
evaluation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Any

from practicum.core.errors import PracticumError, UsageError
from practicum.core.types import Attempt
from practicum.methods.blocks.scaling import number_of, place_of_all
from practicum.session.records import ATTEMPT, last_report
from practicum.store import schema
from practicum.store.database import DAMAGED
from practicum.store.dialects import ROW
from practicum.store.versions import read_parents
from practicum.view.read.parts import AttemptLine, top_place
from practicum.view.read.run import StoredRun, below, keep, under


@dataclass(frozen=True)
class EvaluationScope:
    """Evaluation of a context, identified by values that the place of each attempt of the evaluation contains: the
    split of the tasks, the digest of the context, and the number of the repeat (from 0)."""

    split: str
    digest: str
    repeat: str

    @classmethod
    def at(cls, place: str) -> EvaluationScope:
        return cls(*place.split("/")[0].removeprefix("evaluate ").rsplit(" ", 2))

    @property
    def place(self) -> str:
        return f"evaluate {self.split} {self.digest} {self.repeat}"


NUMBERED = re.compile(r"[.~]\d+$")
"""End of a task id, such as `.2` or `~2`, that looks like the number in the id of an attempt."""

LISTED = 8
"""Maximum number of ids in an error message."""

Named = list[tuple[Attempt, list[str]]]
"""Main attempts of a step or an evaluation, each with the ids of all attempts of its group.

A group contains the attempts that were made together at one task. The main attempt of a group is the chosen attempt, or
the first attempt if no attempt was chosen."""


class Names:
    """Ids of the attempts of a run, with lookup by id or place."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self._named: dict[int, Named] = {}

    def attempts_of(self, sources: Iterable[str]) -> tuple[str, ...]:
        """Return the ids of the attempts among the sources of a lesson, an edit or a call."""
        places = [source.removeprefix("attempt:") for source in sources if source.startswith("attempt:")]
        ids = self.run.part("the attempts", lambda: [self.id_at(place) for place in places])
        return tuple(dict.fromkeys(id for id in ids or () if id is not None))

    @property
    def splits(self) -> list[str]:
        """Splits that have stored attempts: train first, then the splits of evaluations."""
        learned = self.run.store.select(schema.attempts.c.step).where(schema.attempts.c.step > 0)
        evaluated = sorted({self.split(one) for one in self.evaluations()})
        return [*(["train"] if self.run.store.rows(learned.limit(1)) else []), *evaluated]

    @cached_property
    def _final(self) -> int:
        """Version that the final evaluation scored; the last version if no report names an existing version."""
        last, parents = last_report(self.run.store).get("version"), self._parents
        return last if last in parents else max(parents, default=0)

    @cached_property
    def _parents(self) -> dict[int, int | None]:
        """Version → parent version; empty if the versions are damaged, so that attempts can still be read."""
        with suppress(PracticumError, *DAMAGED):
            return read_parents(self.run.store)
        return {}

    @cached_property
    def evaluated(self) -> dict[str, int]:
        """Digest of an evaluated context → the first version with this context. Covers version 0, the version
        of the final evaluation, and every validated version."""
        parents = self._parents
        versions = {0, self._final}
        with suppress(PracticumError, *DAMAGED):
            versions |= {step.version for step in self.run.steps() if step.val is not None}
        by_digest: dict[str, int] = {}
        for version in sorted(versions & parents.keys()):
            if digest := self._digest(version):
                by_digest.setdefault(digest, version)
        return by_digest

    def _digest(self, version: int) -> str:
        """Return the digest of the context at a version; empty if the version is damaged, so that attempts can still be
        read."""
        with suppress(PracticumError, *DAMAGED):
            return self.run.context(version).digest
        return ""

    @cached_property
    def _final_digest(self) -> str:
        return self._digest(self._final)

    @cached_property
    def _tests(self) -> set[str]:
        """Digests of the contexts that were evaluated on the test tasks."""
        return {one.digest for one in self.evaluations() if one.split == "test"}

    def evaluations(self) -> Iterator[EvaluationScope]:
        """Yield all evaluations with stored attempts. Each evaluation takes one lookup in the index of places."""
        table, after = schema.attempts, "evaluate "
        while True:
            rows = self.run.store.rows(
                self.run.store.select(table.c.place)
                .where(below(table, after, "evaluate!"))
                .order_by(table.c.place)
                .limit(1)
            )
            if not rows:
                return
            one = EvaluationScope.at(rows[0].place)
            yield one
            after = f"{one.place}0"  # the character after the slash

    def split(self, one: EvaluationScope) -> str:
        """Return the split of an evaluation; "before" for the test of version 0, if the final evaluation tested another
        context."""
        if (
            one.split == "test"
            and self.run.config.before
            and len(self._tests) > 1
            and self.evaluated.get(one.digest) == 0
        ):
            return "before" if one.digest != self._final_digest else "test"
        return one.split

    def label(self, one: EvaluationScope) -> str:
        """Return the first part of the ids of an evaluation's attempts, such as "val5"."""
        split, version = self.split(one), self.evaluated.get(one.digest)
        again = "" if one.repeat == "0" else f"~{int(one.repeat) + 1}"
        if split == "before" or (split == "test" and (len(self._tests) == 1 or one.digest == self._final_digest)):
            return split + again
        return f"{split}-{one.digest[:8]}{again}" if version is None else f"{split}{version}{again}"

    def ids_of(self, scope: int | EvaluationScope, attempt: Attempt) -> list[str]:
        """Return the ids of all attempts of the group whose main attempt is `attempt`.

        In an evaluation, each task occurs once, so `attempt` determines the ids. In a step, or if the id of the task
        ends with a number (see NUMBERED), the ids also depend on the other groups of the step or evaluation. In these
        cases, the method reads the other groups too."""
        if isinstance(scope, EvaluationScope) and not NUMBERED.search(attempt.task.id):
            return self.ids(scope, [attempt])[0][1]
        return next(ids for one, ids in self.scope(scope) if one.place == attempt.place)

    def at(self, place: str) -> tuple[int | EvaluationScope, Attempt, list[str]] | None:
        """Return the main attempt stored at a place, with its step or evaluation and the ids of its group. None if no
        main attempt is stored at the place."""
        table = schema.attempts
        for row in self.run.store.rows(
            self.run.store.select(table.c.place, table.c.step, table.c.data).where(table.c.place == place)
        ):
            scope, attempt = row.step or EvaluationScope.at(row.place), ATTEMPT.validate_json(row.data)
            return scope, attempt, self.ids_of(scope, attempt)
        return None

    def ids(self, scope: int | EvaluationScope, attempts: Sequence[Attempt]) -> Named:
        """Return the main attempts of a step or an evaluation, each with the ids of its group. If a task has two
        groups, `~2` follows the id of the task in the ids of the second group."""
        label = f"{scope}" if isinstance(scope, int) else self.label(scope)
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

    def scope(self, scope: int | EvaluationScope) -> Named:
        """Read the main attempts of a step or an evaluation, each with the ids of its group."""
        if isinstance(scope, int) and scope in self._named:
            return self._named[scope]
        table = schema.attempts
        if isinstance(scope, int):
            rows = self.run.of_step(table, scope, table.c.data)
        else:
            rows = self.run.store.rows(
                self.run.store.select(table.c.data).where(under(table, scope.place)).order_by(ROW)
            )
        named = self.ids(scope, [ATTEMPT.validate_json(row.data) for row in rows])
        if isinstance(scope, int) and named:
            keep(self._named, scope, named)
        return named

    def lines(self, scope: int | EvaluationScope, attempt: Attempt, ids: Sequence[str]) -> list[AttemptLine]:
        members = in_order(attempt)
        return [
            AttemptLine(
                id=id,
                split=self.split(scope) if isinstance(scope, EvaluationScope) else "train",
                step=None if isinstance(scope, EvaluationScope) else scope,
                version=self.evaluated.get(scope.digest) if isinstance(scope, EvaluationScope) else None,
                task=one.task.id,
                input=one.task.text,
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

    def find(self, id: str) -> tuple[int | EvaluationScope, Attempt, list[str]]:
        """Find the group of the attempt with this id or place. Return the step or evaluation, the main attempt and the
        ids of the group. Raises UsageError, with similar ids, if no attempt has this id or place."""
        scopes: list[int | EvaluationScope] = []
        if "/" in id and (row := self.row_near(id)) is not None:
            scopes.append(row.step or EvaluationScope.at(row.place))
        label = id.partition(".")[0]
        if label.isdecimal():
            scopes.append(int(label))
        else:
            scopes += [one for one in self.evaluations() if label in (self.label(one), self._alias(one))]
        for scope in scopes:
            place = "" if isinstance(scope, int) else f"{scope.place}/{id.partition('.')[2]}"
            if place and (match := self.at(place)) is not None and id in match[2]:
                return match
        close: list[str] = []
        for scope in scopes:
            for attempt, ids in self.scope(scope):
                if id in ids or any(id == member.place for member in attempt.group):
                    return scope, attempt, ids
                if label == "before" and f"test{id.removeprefix('before')}" in ids:
                    return scope, attempt, [f"before{own.removeprefix('test')}" for own in ids]
                close += ids
        raise UsageError("attempt.unknown", self._no_attempt(id, close))

    def _alias(self, one: EvaluationScope) -> str:
        """Return a second label that ids of an evaluation's attempts may begin with: "before" for the test of version
        0, otherwise the result of `label`. If nothing was learned, the test of version 0 is the test before learning
        and also the test after learning."""
        first = self.run.config.before and one.split == "test" and self.evaluated.get(one.digest) == 0
        return "before" if first else self.label(one)

    def _no_attempt(self, id: str, close: Sequence[str]) -> str:
        problem = f"no attempt {id!r} in {self.run.folder}"
        if similar := get_close_matches(id, close, LISTED, 0.5):
            return f"{problem}; did you mean {', '.join(similar)}?"
        if at_task := self._at_task(id):
            more = ", …" if len(at_task) > LISTED else ""
            return f"{problem}; attempts at task {id}: {', '.join(at_task[:LISTED])}{more}"
        return f"{problem}: list the attempts with practicum show {self.run.folder} --attempts"

    def _at_task(self, task: str) -> list[str]:
        """Return the ids of up to LISTED + 1 attempts at a task."""
        table = schema.attempts
        named = table.c.data.contains(f'"id":{json.dumps(task, ensure_ascii=False)}', autoescape=True)
        rows = self.run.rows(table, table.c.place, table.c.step, where=[named])
        ids_at_task = (
            ids[0]
            for row in rows
            for attempt, ids in self.scope(row.step or EvaluationScope.at(row.place))
            if attempt.place == row.place and attempt.task.id == task
        )
        return [*islice(ids_at_task, LISTED + 1)]

    def row_near(self, place: str) -> Any:
        """Return a stored row of attempts near a place. Each row contains a group.

        The first of these rows that is stored is returned: a row at the place; a row below the place; a row at the task
        of the place; a row of the step, or in an evaluation of the task, that contains the place. None if no such row
        is stored."""
        table = schema.attempts
        columns = self.run.store.select(table.c.place, table.c.step)
        for query in (
            columns.where(table.c.place == place),
            columns.where(under(table, place)).limit(1),
            columns.where(under(table, place_of_all(place))).limit(1),
            columns.where(under(table, top_place(place))).limit(1),
        ):
            if rows := self.run.store.rows(query):
                return rows[0]
        return None

    def id_at(self, place: str) -> str | None:
        """Return the id of the attempt that a place belongs to (see `_member`); None if no such attempt is stored."""
        row = self.row_near(place)
        if row is None:
            return None
        near = self.at(row.place)
        one = None if near is None else _member(place, near[1], near[2])
        if one is None:
            named = self.scope(row.step or EvaluationScope.at(row.place))
            one = next((id for attempt, ids in named if (id := _member(place, attempt, ids)) is not None), None)
        return one


def _member(place: str, attempt: Attempt, ids: Sequence[str]) -> str | None:
    """Return the id of the first attempt in the group of `attempt` to which a place belongs. These places belong to an
    attempt: the place of the attempt, the place that all attempts of the group share, and the place of the attempt's
    twin. None if the place belongs to no attempt of the group."""
    for id, member in zip(ids, in_order(attempt), strict=True):
        if place in (member.place, place_of_all(member.place), _twin_place(member.place)):
            return id
    return None


def in_order(attempt: Attempt) -> list[Attempt]:
    """Return the attempts of the group of `attempt`, ordered by number. Scores count the attempt with number 1."""
    return sorted(attempt.group, key=number_of) if attempt.choice else list(attempt.group)


def _twin_place(place: str) -> str:
    """Return the place of the twin of an attempt: the attempt at the same task with the annotated playbook."""
    head, _, rest = place.partition("/plain/")
    return f"{head}/annotated/{rest.rpartition('/')[2]}"
