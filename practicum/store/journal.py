"""What was already done and paid for. Every effect is a row under its place, on disk before its result is used.

A place is a path such as "step 3/attempt/t17/agent". On resume an effect whose place has a row is not done again;
a row made of another prompt, model or setting names the place and stops the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sqlalchemy import Integer, func, literal_column, select

from practicum.core.errors import AgentError, JournalMismatch, ProviderError, WindowError
from practicum.core.types import Usage
from practicum.store import schema
from practicum.store.database import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One effect: what was asked (as a digest), what came of it, what it cost."""

    place: str
    role: str
    digest: str
    answer: str
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    ok: bool = True
    sources: tuple[str, ...] = ()


def digest(*parts: Any) -> str:
    """Names what was asked. Parts are strings or JSON values, hashed with their lengths."""
    sha = hashlib.sha256()
    for part in parts:
        raw = (part if isinstance(part, str) else json.dumps(part, sort_keys=True, ensure_ascii=False)).encode()
        sha.update(len(raw).to_bytes(8, "big"))
        sha.update(raw)
    return sha.hexdigest()[:32]


def dump_failure(error: Exception) -> str:
    """A failed effect as the journal keeps it."""
    return json.dumps([not isinstance(error, AgentError), str(error)], ensure_ascii=False)


def load_failure(answer: str) -> AgentError | ProviderError:
    """A failed effect that the journal kept."""
    lost, text = json.loads(answer)
    return ProviderError(text) if lost else AgentError(text)


class Notebook(Protocol):
    """The part of a Run that keeps notes for a resume."""

    def recall(self, name: str) -> Any: ...

    def note(self, name: str, value: Any) -> None: ...


async def noting_refusal(at: Notebook, name: str, do: Callable[[], Awaitable[T]]) -> T:
    """What `do` comes to, for who goes on without it where that raises WindowError. What was refused once is not asked
    again: a resume must not get an answer that nothing was built on."""
    refused = at.recall(f"{name} refused")
    if refused is None:
        try:
            return await do()
        except WindowError as error:
            refused = str(error)
            at.note(f"{name} refused", refused)
    raise WindowError(refused)


NOTE_ROLE = "noted"
"""The role of what cost nothing but cannot be made anew: how long a step took, which attempt came first."""


BLOCK = 128
"""Rows read together: a resume asks for them about in the order they were written in."""

ROW = literal_column("rowid", Integer)
"""The number that SQLite gives a row, in the order of writing."""


class Journal:
    """The journal of one run. `hits` counts the effects it saved.

    Rows are read when one of their block is asked for, each once: a query asked of a long run needs next to none.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id
        self.hits = 0
        ((last,),) = store.rows(select(func.max(ROW)).select_from(schema.journal))
        # What this sitting writes lies behind it.
        self._last: int = last or 0
        self._known: dict[str, JournalRow] = {}
        self._read: set[int] = set()

    @property
    def before(self) -> Usage:
        """What was paid so far, earlier sittings included."""
        return sum(self.by_role().values(), Usage())

    def find(self, place: str, digest: str) -> JournalRow | None:
        """What is known of this place. Raises JournalMismatch where it was another question."""
        known = self._taken(place)
        if known is None:
            return None
        if known.digest != digest:
            raise JournalMismatch(
                f"the journal answers another question at '{place}': the program, its prompts or its settings changed "
                "since this run began; start a new run (its context can be the seed: --seed-playbook RUN)"
            )
        self.hits += known.role != NOTE_ROLE
        return known

    def _taken(self, place: str) -> JournalRow | None:
        """The record of a place, as an earlier sitting left it, which is asked for once."""
        if place in self._known or len(self._read) == -(-self._last // BLOCK):
            return self._known.pop(place, None)
        table = schema.journal
        mine = table.c.run_id == self.run_id
        found = self.store.rows(select(ROW).select_from(table).where(mine, table.c.place == place, self._last >= ROW))
        block = (found[0][0] - 1) // BLOCK if found else None
        if block is None or block in self._read:
            return None
        self._read.add(block)
        first, last = block * BLOCK + 1, min((block + 1) * BLOCK, self._last)
        # Not by the run, or SQLite would look at all its rows.
        rows = self.store.rows(select(table).where(ROW.between(first, last)))
        self._known.update((row.place, _record(row)) for row in rows if row.run_id == self.run_id)
        return self._known.pop(place)

    def by_role(self, sitting: bool = False) -> dict[str, Usage]:
        """What each role has cost so far: in this `sitting`, or earlier ones included."""
        table = schema.journal
        columns = (table.c.calls, table.c.input_tokens, table.c.cached_tokens, table.c.output_tokens, table.c.usd)
        unpriced = func.count() - func.count(table.c.usd)
        query = select(table.c.role, unpriced, *map(func.sum, columns)).group_by(table.c.role).order_by(func.min(ROW))
        mine = query.where(table.c.run_id == self.run_id, table.c.calls > 0)
        found = self.store.rows(mine.where(self._last < ROW) if sitting else mine)
        return {r[0]: Usage(r[2], r[3], r[4], r[5], None if r[1] else r[6]) for r in found}

    async def write(self, *records: JournalRow) -> None:
        """Put rows on the disk, all of them or none."""
        await self.store.write(schema.journal, [self._row(record) for record in records])

    def post(self, record: JournalRow) -> None:
        """Put a row on the disk soon, before anything that is written later."""
        self.store.post(schema.journal, [self._row(record)])

    def _row(self, record: JournalRow) -> dict[str, Any]:
        usage = record.usage
        return {
            "run_id": self.run_id,
            "place": record.place,
            "role": record.role,
            "digest": record.digest,
            "ok": int(record.ok),
            "answer": record.answer,
            "calls": usage.calls,
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "usd": usage.usd,
            "seconds": record.seconds,
            "sources": json.dumps(record.sources),
        }


def _record(row: Any) -> JournalRow:
    usage = Usage(row.calls, row.input_tokens, row.cached_tokens, row.output_tokens, row.usd)
    sources = tuple(json.loads(row.sources))
    return JournalRow(row.place, row.role, row.digest, row.answer, usage, row.seconds, bool(row.ok), sources)
