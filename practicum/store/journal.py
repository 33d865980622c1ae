"""The journal: effects that are done and paid for. Every effect is a row, which is on disk before its result is used.

The key of a row is the place of the effect, such as "step 3/attempt/t17/agent". A resumed run does not repeat an effect
that has a row. If the row was created from a different prompt, model or setting, the run stops with an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from sqlalchemy import Select, func, select

from practicum.core.errors import AgentError, JournalMismatch, OutputError, ProviderError, RequestError, WindowError
from practicum.core.types import Prompt, Turn, Usage
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.store.flight import key_of
from practicum.store.schema import IN_FLIGHT, USAGE, text_key
from practicum.store.scope import Scope

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One effect: the digest of its request, the answer and its cost.

    `prompt` is the input of a model or an agent; the prompt is only stored for people who inspect the run. `number` is
    the position of the row in the order of writing.
    """

    place: str
    role: str
    digest: str
    answer: str
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    ok: bool = True
    sources: tuple[str, ...] = ()
    prompt: Prompt | None = None
    number: int = field(default=0, compare=False)

    @property
    def silent(self) -> bool:
        """Whether the row is a reply without text. The reply was paid for but is not ok, so a resume after an outage
        sends the same request again."""
        return not self.ok and self.usage.calls > 0


def digest(*parts: Any) -> str:
    """Return a digest of a request. Parts are strings or JSON values, hashed with their lengths."""
    sha = hashlib.sha256()
    for part in parts:
        raw = (part if isinstance(part, str) else json.dumps(part, sort_keys=True, ensure_ascii=False)).encode()
        sha.update(len(raw).to_bytes(8, "big"))
        sha.update(raw)
    return sha.hexdigest()[:32]


Failure = AgentError | OutputError | ProviderError
FAILURES: tuple[type[Failure], ...] = (WindowError, RequestError, ProviderError, OutputError, AgentError)
"""Failures that are journaled. Subclasses precede their base classes."""


def dump_failure(error: Failure) -> str:
    """Return a failure as the `answer` of a row."""
    kind = next(kind for kind in FAILURES if isinstance(error, kind))
    return json.dumps([kind.__name__, error.code, str(error)], ensure_ascii=False)


def load_failure(answer: str) -> Failure:
    name, code, text = json.loads(answer)
    return next(kind for kind in FAILURES if kind.__name__ == name)(code, text)


def request_error(code: str, text: str) -> RequestError:
    """Return the error for a request that the provider refused."""
    return (WindowError if code == "window.exceeded" else RequestError)(code, text)


class RunNotes(Protocol):
    """The methods of `Run` that write a note and read it in a resumed run."""

    def recall(self, name: str) -> Any: ...

    def note(self, name: str, value: Any) -> None: ...


async def noting_refusal(at: RunNotes, name: str, do: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `do`. If `do` raises WindowError, note the error, so that a resumed run raises it without a
    new call: a resumed run must not get an answer where the first run got an error."""
    refused = at.recall(f"{name} refused")
    if refused is None:
        try:
            return await do()
        except WindowError as error:
            refused = str(error)
            at.note(f"{name} refused", refused)
    raise WindowError("window.exceeded", refused)


NOTE_ROLE = "noted"
"""Role of notes: values that cost nothing, but that a resumed run cannot compute again, such as the duration of a
step."""

REMOVED = "[removed from this run by practicum space forget]"
"""Placeholder in a prompt for a text that the run had to forget."""

MOST_TEXTS = 2**16
"""Maximum number of stored texts whose keys are in memory (80 bytes each). Beyond it, all keys are dropped, and a text
that occurs again is also stored again."""

ROWS_PER_BLOCK = 128
"""Number of rows that are read together, because a resumed run looks rows up in about the order of writing."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Record of an outage: the provider failed until the run stopped. `number` is the position of the outage's row in
    the order of writing. For `again` and `lost`, see `note_outage`."""

    number: int
    again: Sequence[str]
    lost: Sequence[str]

    def covers(self, row: JournalRow) -> bool:
        """Whether the outage covers a row: the row was written before the outage was recorded, and the place of the row
        is in `again` or below a place in `again`. Notes below a place in `again` stay valid, so the outage does not
        cover them."""
        below = row.role != NOTE_ROLE
        return row.number < self.number and any(
            row.place == place or (below and row.place.startswith(f"{place}/")) for place in self.again
        )


class Journal:
    """The journal of one run. `hits` counts the effects that were not repeated, because an earlier process wrote their
    rows. A journal without a store stores nothing; it is for work that is never resumed, such as the answer to a query.

    Rows are read on demand, in blocks, each block once. So a query to a long run reads few blocks.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self._scope = Scope("") if store is None else store
        self.hits = 0
        # The position of the last row of earlier processes, the number of rows of earlier processes that are not read
        # yet, and the outages.
        self._last, self._unread, self._outages = (0, 0, []) if store is None else self._read_begin()
        self._new_outages = 0
        # Keys of the requests that this process sent in batches, or collects from batches.
        self.batched: set[str] = set()
        self._unused: dict[str, JournalRow] = {}
        self._texts: set[bytes] = set()
        self._read: set[int] = set()

    def _read_begin(self) -> tuple[int, int, list[Outage]]:
        """Return the position of the last row, the count of all rows, and the outages."""
        condition = self._scope.mine(schema.journal)
        ((last, unread),) = self._rows(select(func.max(ROW), func.count()).select_from(schema.journal).where(condition))
        return last or 0, unread, [Outage(row.number, **json.loads(row.answer)) for row in self._read_outages()]

    def _rows(self, query: Select[*tuple[Any, ...]]) -> list[Any]:
        return [] if self.store is None else self.store.rows(query)

    @property
    def before(self) -> Usage:
        """Usage in the journal so far, by this process and all earlier processes of the run."""
        return sum(self.by_role().values(), Usage())

    def find(self, place: str, digest: str) -> JournalRow | None:
        """Return the row of a place. None if the effect must be performed: the place has no row, or an outage
        invalidated the row. Raises JournalMismatch if the row has another digest."""
        row = self._take(place)
        if row is None:
            return None
        if any(outage.covers(row) for outage in self._outages) and (
            not row.ok or row.digest != digest or row.role == NOTE_ROLE
        ):
            if row.usage.calls:
                self.post(replace(row, place=f"{place} (before outage {len(self._outages)})"))
            return None
        if row.digest != digest:
            raise JournalMismatch(
                "journal.mismatch",
                f"the journal has the result of a different request at '{place}': the program, its prompts or its "
                "settings changed since this run began; start a new run (with `seed_context`, the new run starts from "
                "the context of this run)",
            )
        self.hits += row.role != NOTE_ROLE
        return row

    def _take(self, place: str) -> JournalRow | None:
        """Return the row that an earlier process wrote at a place; None without such a row, or if this method has
        already returned the row."""
        if place in self._unused or not self._unread:
            return self._unused.pop(place, None)
        table = schema.journal
        condition = self._scope.mine(table, table.c.place == place, self._last >= ROW)
        numbers = self._rows(select(ROW).select_from(table).where(condition))
        block = (numbers[0][0] - 1) // ROWS_PER_BLOCK if numbers else None
        if block is None or block in self._read:
            return None
        self._read.add(block)
        first, last = block * ROWS_PER_BLOCK + 1, min((block + 1) * ROWS_PER_BLOCK, self._last)
        rows = self._rows(self._scope.select(table, ROW.label("number")).where(ROW.between(first, last)))
        self._unread -= len(rows)
        self._unused.update((row.place, _journal_row(row)) for row in rows)
        return self._unused.pop(place)

    def _read_outages(self) -> list[Any]:
        table = schema.journal
        noted = table.c.place.startswith("outage ") & (table.c.role == NOTE_ROLE)
        return self._rows(self._scope.select(table.c.answer, ROW.label("number")).where(noted).order_by(ROW))

    def note_refused(self, model: str, name: str, instead: str | None) -> None:
        """Note that a model's server refused the parameter `name`, and that `instead` replaces the parameter from now
        on (None: it is omitted)."""
        place = f"refused {name} as {instead} by {model}"
        self.post(JournalRow(place, NOTE_ROLE, NOTE_ROLE, json.dumps([model, name, instead])))

    def refused(self) -> list[tuple[str, str, str | None]]:
        """Return the arguments of all calls of `note_refused`, in order, including the calls in earlier processes."""
        table = schema.journal
        noted = table.c.place.startswith("refused ") & (table.c.role == NOTE_ROLE)
        rows = self._rows(self._scope.select(table.c.answer, ROW).where(noted).order_by(ROW))
        return [tuple(json.loads(row.answer)) for row in rows]

    async def note_batch(self, id: str, batch: Any, keys: Sequence[str]) -> None:
        """Write to disk that the requests with these keys (`flight.key_of`, in hexadecimal digits) were sent in a
        batch. `batch` is a JSON value from which the results can be read later."""
        value = json.dumps({"batch": batch, "keys": [*keys]})
        await self.write(JournalRow(f"{schema.BATCH}{id}", NOTE_ROLE, NOTE_ROLE, value))
        self.batched.update(keys)

    def take_batch(self, key: str) -> Any:
        """Return the batch in which an earlier process sent a request, or None if the request was not sent in a batch,
        has an answer in the journal, or was taken before."""
        if (batch := self.earlier_batches.pop(key, None)) is not None:
            self.batched.add(key)
        return batch

    @cached_property
    def earlier_batches(self) -> dict[str, Any]:
        """Batches in which earlier processes sent requests, by the keys of the requests that have no answer yet."""
        earlier = {} if self.store is None else self.store.batched()
        t = schema.journal.c
        for place, digest in self._rows(self._scope.select(t.place, t.digest).where(t.calls > 0)) if earlier else ():
            earlier.pop(key_of(place, digest).hex(), None)
        return earlier

    @property
    def lost_last(self) -> frozenset[str]:
        """Places at which the provider failed at the end of an earlier process of the run."""
        return frozenset(place for outage in self._outages for place in outage.lost)

    @property
    def again(self) -> list[str]:
        """Places that this resume tries again, because the provider failed there until an earlier process stopped."""
        return [place for outage in self._outages for place in outage.again]

    def note_outage(self, *, again: Sequence[str] = (), lost: Sequence[str] = ()) -> None:
        """Note that the provider failed until the run stopped. At and below the places in `again`, a resume retries
        failures; if a request has changed at such a place, the resume sends the changed request instead of raising
        JournalMismatch. `lost` are the places at which the provider failed when the run stopped."""
        self._new_outages += 1
        place, value = (
            f"outage {len(self._outages) + self._new_outages}",
            json.dumps({"again": [*again], "lost": [*lost]}),
        )
        self.post(JournalRow(place, NOTE_ROLE, NOTE_ROLE, value))

    def by_role(self, this_process: bool = False) -> dict[str, Usage]:
        """Return the usage of each role, in all processes of the run or only in this process."""
        table = schema.journal
        unpriced = func.count() - func.count(table.c.usd)
        sums = [func.sum(table.c[name]) for name in USAGE]
        query = self._scope.select(table.c.role, unpriced, *sums).group_by(table.c.role).order_by(func.min(ROW))
        calls = query.where(table.c.calls > 0)
        sums_by_role = self._rows(calls.where(self._last < ROW) if this_process else calls)
        return {
            role: Usage(int(calls), int(read), int(cached), int(output), None if unpriced else usd, int(written))
            for role, unpriced, calls, read, cached, output, usd, written in sums_by_role
        }

    def results(self, prefix: str = "") -> tuple[dict[str, int], dict[str, int]]:
        """Return the counts of results and of failures by role, at places that begin with `prefix`. Notes and calls in
        flight are excluded."""
        table = schema.journal
        effects = table.c.role.not_in((NOTE_ROLE, IN_FLIGHT))
        counted = self._scope.select(table.c.role, table.c.ok, func.count()).group_by("role", "ok")
        counts = self._rows(counted.where(effects, table.c.place.startswith(prefix)))
        done, failed = ({role: n for role, ok, n in counts if bool(ok) == succeeded} for succeeded in (True, False))
        return done, failed

    async def write(self, *rows: JournalRow) -> None:
        """Write rows to disk atomically."""
        if self.store is None:
            return
        for row in rows:
            if row.prompt is not None:
                self._store_prompt(self.store, row.place, row.prompt)
        await self.store.write(schema.journal, [self.row_values(row) for row in rows])

    def post(self, row: JournalRow) -> None:
        """Write a row to disk soon, before anything that is written later."""
        if self.store is not None:
            self.store.post(schema.journal, [self.row_values(row)])

    def _store_prompt(self, store: Store, place: str, prompt: Prompt) -> None:
        """Store a prompt as the keys of its texts. Each text is stored once, because most texts occur in several
        prompts."""
        new: dict[bytes, str] = {}

        def key(text: str) -> str:
            raw = text_key(text)
            if raw not in self._texts:
                new[raw] = text
            return raw.hex()

        turns = [[key(turn.user), key(turn.assistant)] for turn in prompt.turns]
        parts = {
            "system": key(prompt.system), "pages": [*map(key, prompt.pages)], "turns": turns, "user": key(prompt.user)
        }  # fmt: skip
        if len(self._texts) >= MOST_TEXTS:
            self._texts.clear()
        self._texts.update(new)
        store.post(schema.texts, [{"key": raw, "text": text} for raw, text in new.items()])
        store.post(schema.prompts, [{"place": place, "parts": json.dumps(parts)}])

    def prompt(self, place: str) -> Prompt | None:
        """Return the prompt at a place; None if no prompt was stored there. A text that was removed from the run is
        replaced by REMOVED."""
        table = schema.prompts
        rows = self._rows(self._scope.select(table.c.parts).where(table.c.place == place))
        if not rows:
            return None
        parts = json.loads(rows[0].parts)
        keys = {parts["system"], parts["user"], *parts["pages"], *(key for turn in parts["turns"] for key in turn)}
        stored = schema.texts
        query = self._scope.select(stored).where(stored.c.key.in_([bytes.fromhex(key) for key in keys]))
        texts: dict[str, str] = {row.key.hex(): row.text for row in self._rows(query)}

        def text(key: str) -> str:
            return texts.get(key, REMOVED)

        turns = tuple(Turn(text(user), text(assistant)) for user, assistant in parts["turns"])
        return Prompt(text(parts["system"]), text(parts["user"]), tuple(map(text, parts["pages"])), turns)

    def row_values(self, row: JournalRow) -> dict[str, Any]:
        return {
            **{name: getattr(row, name) for name in ("place", "role", "digest", "answer", "seconds")},
            **{name: getattr(row.usage, name) for name in USAGE},
            "ok": int(row.ok),
            "sources": json.dumps(row.sources),
        }


def _journal_row(row: Any) -> JournalRow:
    usage = Usage(*(getattr(row, name) for name in USAGE))
    sources = tuple(json.loads(row.sources))
    return JournalRow(
        row.place, row.role, row.digest, row.answer, usage, row.seconds, bool(row.ok), sources, number=row.number
    )
