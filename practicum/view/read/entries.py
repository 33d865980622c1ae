"""Reader of the entries of a run: the history of one entry, and the merges of entries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from practicum.core.edits import Applied, Edit, Merge
from practicum.core.errors import UsageError
from practicum.session.corrections import LETTER, read_corrections
from practicum.store import schema
from practicum.store.changes import Piece, marked
from practicum.store.versions import EDITS, EntryEvent
from practicum.view.read.naming import Names
from practicum.view.read.parts import EntryStory
from practicum.view.read.run import StoredRun


@dataclass(frozen=True)
class TextChange:
    """An edit of an entry. `text`: the text after the edit; None: the edit does not change the text. `minus` and
    `plus`: the texts before and after the edit, in pieces that mark the differences; empty if the text is unchanged."""

    event: EntryEvent
    text: str | None
    minus: Sequence[Piece] = ()
    plus: Sequence[Piece] = ()

    @property
    def edit(self) -> Edit:
        return self.event.done.edit


class Entries:
    """Reader of the history of entries, corrections and notes."""

    def __init__(self, run: StoredRun, names: Names) -> None:
        self.run, self.names, self.store, self.folder = run, names, run.store, run.folder

    def one(self, id: str) -> EntryStory:
        """Return one entry, correction or note (such as c5) with its history. Raises UsageError if the id was never
        used."""
        events = self.events(id)
        if not events:
            raise UsageError(
                "entry.unknown",
                f"{self.folder} has never had an entry {id!r}: list the entries with practicum show {self.folder}",
                entry=id,
            )
        now = (read_corrections(self.store) if id.startswith(LETTER) else self.run.context()).get(id)
        edited = dict.fromkeys(source for event in events for source in event.done.edit.sources)
        sources = tuple(edited) if now is None else now.sources
        return EntryStory(id, now, events, sources, self.names.attempts_of(sources))

    def events(self, id: str) -> tuple[EntryEvent, ...]:
        """Return all edits of an entry, including a merge of the entry into another entry, oldest first."""
        return tuple(
            EntryEvent(row.version, row.step, done, self.lost(row.version, done)) for row, done in self._edits(id)
        )

    def history(self, id: str) -> list[TextChange]:
        """Return all edits of an entry with the changes of its text, oldest first."""
        text, history = "", list[TextChange]()
        for event in self.events(id):
            edit = event.done.edit
            new = getattr(edit, "text", None)
            minus: Sequence[Piece] = ()
            plus: Sequence[Piece] = ()
            if new is not None and new != text:
                minus, plus = marked(text, new) if text else ((), [(new, False)])
                text = new
            history.append(TextChange(event, new, minus, plus))
        return history

    def _edits(self, id: str, until: int | None = None) -> Iterator[tuple[Any, Applied]]:
        """Yield each edit of an entry with the row of the version that the edit created, oldest first. `until`: the
        last version to read. Only edits that name the entry are parsed, because a version may have 10,000 edits."""
        table, name = schema.corrections if id.startswith(LETTER) else schema.versions, json.dumps(id)
        query = self.store.select(table.c.version, table.c.step, table.c.applied)
        query = query.where(table.c.applied.contains(name, autoescape=True))
        if until is not None:
            query = query.where(table.c.version <= until)
        for row in self.store.rows(query.order_by(table.c.version)):
            named = [raw for raw in from_json(row.applied) if _names(raw, id)]
            for done in EDITS.validate_python(named):
                yield row, done

    def lost(self, version: int, done: Applied) -> Mapping[str, str]:
        """Return id → last text of each entry that the edit `done` merged into another entry. `version`: the version
        that this edit created. A text that was forgotten is empty."""
        return {id: self._last_text(version, id) for id in getattr(done.edit, "ids", ()) if id != done.id}

    def _last_text(self, version: int, id: str) -> str:
        texts = (getattr(done.edit, "text", None) for _, done in self._edits(id, version) if done.id == id)
        return next((text for text in reversed([*texts]) if text is not None), "")

    def merges(self, step: int | None = None) -> Iterator[EntryEvent]:
        """Yield the merges of entries in one step or in all steps, with the texts of the entries that the merges
        removed."""
        table = schema.versions
        query = self.store.select(table.c.version, table.c.step, table.c.applied)
        query = query.where(table.c.applied.contains('"op":"merge"', autoescape=True))
        if step is not None:
            query = query.where(table.c.step == step)
        for row in self.store.rows(query.order_by(table.c.version)):
            for done in EDITS.validate_json(row.applied):
                if isinstance(done.edit, Merge):
                    yield EntryEvent(row.version, row.step, done, self.lost(row.version, done))


def _names(raw: Mapping[str, Any], id: str) -> bool:
    """Whether a stored edit changes an entry, or merges the entry into another entry."""
    return raw["id"] == id or id in raw["edit"].get("ids", ())
