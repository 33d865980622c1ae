"""Reader of the calls of a run: all calls, the calls of a step, the calls about an attempt, or one call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement

from practicum.core.errors import UsageError
from practicum.core.types import Attempt, Usage
from practicum.methods.blocks.scaling import place_of_all
from practicum.store import schema
from practicum.store.dialects import ROW
from practicum.store.journal import NOTE_ROLE
from practicum.view.read.naming import Names
from practicum.view.read.parts import CallStory, top_place
from practicum.view.read.run import StoredRun, under


class StoredCalls:
    """Reader of the calls of a run. The prompt and the answer of a call are only read when they are used."""

    def __init__(self, run: StoredRun, names: Names) -> None:
        self.run, self.names = run, names
        self.store, self.journal = run.store, run.journal

    def attempts_of(self, sources: Iterable[str]) -> tuple[str, ...]:
        """Return the ids of the attempts among the sources of a call."""
        return self.names.attempts_of(sources)

    def every(self, step: int | None = None, role: str | None = None) -> Iterator[CallStory]:
        """Yield the calls of a step, or of the whole run, in the order in which they ended."""
        table = schema.journal
        where = [table.c.role != NOTE_ROLE] + ([] if role is None else [table.c.role == role])
        if step is not None:
            where.append(self._at_step(step))
        return map(self._call, self.run.rows(table, *self._call_columns, where=where))

    def page(self, role: str | None, after: int, limit: int) -> list[CallStory]:
        """Return up to `limit` calls of a role (None: all roles) that ended after the call with the number `after`."""
        table = schema.journal
        query = self.store.select(ROW.label("number"), *self._call_columns).where(after < ROW)
        query = query.where(table.c.role != NOTE_ROLE if role is None else table.c.role == role)
        return [self._call(row) for row in self.store.rows(query.order_by(ROW).limit(limit))]

    def one(self, id: str) -> CallStory:
        """Return one call, by its id or place. Raises UsageError if the call does not exist."""
        table = schema.journal
        this = ROW.in_([int(id)]) if id.isdecimal() else table.c.place == id
        query = self.store.select(ROW.label("number"), *self._call_columns)
        for row in self.store.rows(query.where(this).where(table.c.role != NOTE_ROLE)):
            return self._call(row)
        raise UsageError(
            "call.unknown",
            f"no call {id!r} in {self.run.folder}: list the calls with practicum show {self.run.folder} --calls",
        )

    def about(
        self, attempt: Attempt, one: Attempt, members: Sequence[Attempt]
    ) -> tuple[list[CallStory], list[CallStory], list[CallStory], list[CallStory]]:
        """Return the calls about the attempt `one` as four lists: the calls made during the attempt, the calls that
        judged the attempt, the calls that reflected on the attempt, and the calls that turned the lessons from the
        attempt into edits.

        `members`: all attempts of the group of `one`. `attempt`: the main attempt of this group (see
        `naming.Named`)."""
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
        # The row of a whole attempt repeats the data of the attempt's turns. Leave this row out if the turns have rows.
        in_turns = {f"{call.place.partition('/turn ')[0]}/agent" for call in calls if "/turn " in call.place}
        return [call for call in calls if call.place not in in_turns], judging, reflecting, updating

    def _calls_of_scope(self, place: str) -> Iterator[CallStory]:
        """Yield all calls of the step that contains a place. In learning without a barrier, yield the calls of the
        attempt; in an evaluation, the calls of the task."""
        table = schema.journal
        query = self.store.select(ROW.label("number"), *self._call_columns)
        query = query.where(under(table, top_place(place)), table.c.role != NOTE_ROLE)
        return map(self._call, self.store.rows(query.order_by(ROW)))

    @property
    def _call_columns(self) -> tuple[Any, ...]:
        t = schema.journal.c
        return (t.place, t.role, t.ok, t.seconds, t.sources, *(t[name] for name in schema.USAGE))

    def _call(self, row: Any) -> CallStory:
        usage = Usage(*(getattr(row, name) for name in schema.USAGE))
        # A user's agent, tools and scorers do not use a model of the run.
        used_model = row.calls or (not row.ok and row.role != "score" and self._asks_agent)
        model = self.run.config.roles.get(row.role, self.run.config.model or "") if used_model else ""
        return CallStory(
            f"{row.number}", row.place, row.role, model, bool(row.ok), usage, row.seconds,
            tuple(json.loads(row.sources)), self,
        )  # fmt: skip

    @property
    def _asks_agent(self) -> bool:
        """Whether the agent is a model of the run."""
        return self.run.config.agent == "chat" or self.run.config.agent.startswith("tools:")

    def _at_step(self, step: int) -> ColumnElement[bool]:
        """Return the condition that the place of a call is in a step.

        In learning without a barrier, the condition is that the place of the call is in an attempt of the step, or in
        the group of lessons from which the delta of the step was made.
        Raises UsageError if the step does not exist."""
        table = schema.journal
        data = next((one for one in self.run.steps() if one.step == step), None)
        if data is None:
            raise UsageError("step.unknown", f"{self.run.folder} has no step {step}", step=step)
        tops = {top_place(attempt.place) for attempt, _ in self.names.scope(step)} or {f"step {step}"}
        if "group" in data.sampled:
            # If the run continued after a rollback or an edit, the places of attempts and groups begin with a prefix
            # such as `leg 2/`. Take the prefix from an attempt of the step.
            group = f"{min(tops).rpartition('/')[0]}/group {data.sampled['group']}".lstrip("/")
            tops |= {group, f"{group} again"}
        first, *rest = (under(table, top) for top in sorted(tops))
        for condition in rest:
            first = first | condition
        return first


def _updates(place: str) -> bool:
    """Whether the calls at a place turn lessons into edits."""
    return "group " in top_place(place) or "/update/" in place or "/accept/" in place
