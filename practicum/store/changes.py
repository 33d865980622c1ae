"""Changes between two texts, and between two contexts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.store.versions import diff_contexts

MOST_WORDS = 2_000
"""Maximum length (words, spaces and signs) of a text in which changed words are marked. The comparison of longer texts
would take seconds."""

IN_TEXT = ("answer", "steps", "comment")
"""Fields of an entry's data that are part of the text `Entry.solved`."""

Piece = tuple[str, bool]
"""Part of a text, and whether the part is marked as changed."""


def marked(old: str, new: str) -> tuple[list[Piece], list[Piece]]:
    """Split both texts into pieces. In each text, mark the pieces that the other text does not have in the same
    place."""
    before, after = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (old, new))
    if max(len(before), len(after)) > MOST_WORDS:
        return [(old, False)], [(new, False)]
    removed: list[Piece] = []
    added: list[Piece] = []
    for op, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        removed.append(("".join(before[a:b]), op != "equal"))
        added.append(("".join(after[c:d]), op != "equal"))
    return [piece for piece in removed if piece[0]], [piece for piece in added if piece[0]]


@dataclass(frozen=True)
class EntryChange:
    """An entry that was added (`old` is None), removed (`new` is None) or changed. `minus` are the pieces of the old
    text, `plus` the pieces of the new text."""

    old: Entry | None
    new: Entry | None
    minus: Sequence[Piece] = ()
    plus: Sequence[Piece] = ()

    @property
    def entry(self) -> Entry:
        """Entry after the change or, if the entry was removed, before the change."""
        entry = self.new or self.old
        assert entry is not None
        return entry

    @property
    def word(self) -> str:
        """Kind of the change, as a word."""
        return "added" if self.old is None else "removed" if self.new is None else "changed"

    @property
    def fields(self) -> list[tuple[str, Any, Any]]:
        """Changed fields of the entry's data, as (name, old value, new value). Only fields whose values are texts or
        numbers are included, and the fields in IN_TEXT are left out."""
        old, new = (entry.data if entry is not None else {} for entry in (self.old, self.new))
        names = [name for name in {**old, **new} if name not in IN_TEXT and old.get(name) != new.get(name)]
        return [
            (name, old.get(name), new.get(name)) for name in names
            if all(type(data.get(name)) in (str, int, float, type(None)) for data in (old, new))
        ]  # fmt: skip


def changes(old: Context, new: Context) -> list[EntryChange]:
    """Return the changes from one context to another, oldest entry first."""
    return in_pieces(*diff_contexts(old, new))


def in_pieces(
    added: Sequence[Entry], removed: Sequence[Entry], changed: Sequence[tuple[Entry, Entry]]
) -> list[EntryChange]:
    """Convert the difference of two contexts into changes, oldest entry first. The text of a solved task includes its
    answer."""
    all_changes = [EntryChange(None, e, plus=[(e.solved, False)]) for e in added]
    all_changes += [EntryChange(e, None, minus=[(e.solved, False)]) for e in removed]
    all_changes += [EntryChange(before, after, *marked(before.solved, after.solved)) for before, after in changed]
    return sorted(all_changes, key=lambda change: change.entry.number)
