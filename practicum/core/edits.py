"""Everything learned is an entry; what changes entries is a closed set of small edits, gathered in a delta.

(ACE, section 3.1: incremental delta updates in place of rewriting the whole.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing learned: a playbook bullet, a memory, an episode.

    `id` is "e" and a number that is never reused. `key` is the text its embedding is made from (the text itself
    where empty). `born` and `changed` are the versions that made it and last changed what it says.
    """

    id: str
    section: str
    text: str
    key: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    helpful: int = 0
    harmful: int = 0
    uses: int = 0
    born: int = 0
    changed: int = 0
    sources: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Place in the order of birth, from 0."""
        return int(self.id[1:])

    @property
    def hidden(self) -> bool:
        """Whether it is kept for the learner and not shown to the agent: its section begins with a dot."""
        return self.section.startswith(".")

    @property
    def embedded(self) -> str:
        """The text this entry is found by."""
        return self.key or self.text


@dataclass(frozen=True, slots=True)
class Add:
    """A new entry. `ref` is a name by which later edits of the same delta may mean it, before it has an id."""

    section: str
    text: str
    key: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    helpful: int = 0
    harmful: int = 0
    ref: str = ""
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["add"] = "add"


@dataclass(frozen=True, slots=True)
class Update:
    """Another text, section, key or data for one entry; None leaves as it is."""

    id: str
    text: str | None = None
    section: str | None = None
    key: str | None = None
    data: Mapping[str, Any] | None = None
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["update"] = "update"


@dataclass(frozen=True, slots=True)
class Merge:
    """Several entries become the oldest of them: counters add up, provenance joins; `text` None keeps the oldest's."""

    ids: tuple[str, ...]
    text: str | None = None
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["merge"] = "merge"


@dataclass(frozen=True, slots=True)
class Delete:
    """One entry goes; its id stays taken."""

    id: str
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["delete"] = "delete"


@dataclass(frozen=True, slots=True)
class Vote:
    """Counts for one entry, each 0 or more: times it helped, times it harmed, times an agent relied on it."""

    id: str
    helpful: int = 0
    harmful: int = 0
    uses: int = 0
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["vote"] = "vote"


Edit = Add | Update | Merge | Delete | Vote


def targets(edit: Edit) -> tuple[str, ...]:
    """The entries whose words an edit changes or takes away."""
    match edit:
        case Merge():
            return edit.ids
        case Update() | Delete():
            return (edit.id,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of a lesson that no edit names: `entry` says it already, or it was dropped (`entry` empty); why."""

    lesson: str
    entry: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A small set of edits, applied in order; `resolutions` account for the lessons that led to none. `evidence`
    holds, as JSON values, what was found for or against the delta."""

    edits: tuple[Edit, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.edits)

    @property
    def gone(self) -> set[str]:
        """The entries it deletes."""
        return {edit.id for edit in self.edits if isinstance(edit, Delete)}

    @property
    def covered(self) -> set[str]:
        """The lessons that it puts into an entry, or that an entry says already.

        Votes and deletions do not count: that an entry is wrong does not yet say what is right. Nor does an entry that
        takes a lesson in, or says it already, where the delta deletes it.
        """
        gone = self.gone
        named = {
            resolution.lesson for resolution in self.resolutions if resolution.entry and resolution.entry not in gone
        }
        for edit in self.edits:
            if isinstance(edit, Add | Update | Merge) and gone.isdisjoint(targets(edit)):
                named.update(edit.lessons)
        return named

    def __add__(self, other: Delta) -> Delta:
        return Delta(
            self.edits + other.edits, self.resolutions + other.resolutions, {**self.evidence, **other.evidence}
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """An edit that took effect. `id` is the entry it made, changed or removed; in `edit` every ref is an id."""

    edit: Edit
    id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An edit that could not be applied, and why."""

    edit: Edit
    reason: str


def ordered_union(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Provenance of several, each name once, in order of first mention."""
    return tuple(dict.fromkeys(name for some in names for name in some))


def entry_json(entry: Entry) -> dict[str, Any]:
    """An entry as plain JSON values."""
    return {
        "id": entry.id,
        "section": entry.section,
        "text": entry.text,
        "key": entry.key,
        "data": json.loads(json.dumps(dict(entry.data))),
        "helpful": entry.helpful,
        "harmful": entry.harmful,
        "uses": entry.uses,
        "born": entry.born,
        "changed": entry.changed,
        "sources": list(entry.sources),
    }
