"""Entries, and the closed set of edits that change them.

Everything learned is an entry. A delta is a few edits, instead of a rewrite of the whole context (ACE, section 3.1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from practicum.core.trust import Trust, trust_of
from practicum.core.types import Step
from practicum.core.words import one_line

CONVERSATION = "conversation:"
"""Prefix of a source that names a conversation, such as `conversation:c1`. The entries with the same conversation
source are the turns of one conversation, in the order in which they were added."""


RETIRED = ".retired "
"""Beginning of the section of a retired entry, before the name of the section that it was in."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One learned item: a playbook bullet, a memory or an episode.

    `id` is "e" and a number that is never reused. `key` is the text that is embedded; if it is empty, `text` is
    embedded. `born` is the version that added the entry, or that took it back from retirement. `changed` is the version
    that last changed the content of the entry. `sources` name the origins of the entry ("task:t1", "attempt:...",
    "tag:..."). `failing` counts the harmful votes since the last helpful vote or the last change of the content: many
    of them in a row show that an entry that once helped is outdated.
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
    failing: int = 0

    def __repr__(self) -> str:
        votes = f" (+{self.helpful}/-{self.harmful}, used {self.uses})"
        return f"<Entry {self.id} in {self.section}{votes}: {one_line(self.text)!r}>"

    @property
    def number(self) -> int:
        """Number in the id, from 0. A later entry has a higher number, so numbers give the order of birth."""
        return int(self.id[1:])

    @property
    def trust(self) -> Trust:
        """The lowest trust level among the sources of the entry. An approval in a review does not raise this level."""
        return trust_of(self.sources)

    @property
    def hidden(self) -> bool:
        """Whether only the learner sees the entry, and the agent does not: the name of the section begins with a
        dot."""
        return self.section.startswith(".")

    @property
    def retired(self) -> bool:
        """Whether the entry is retired: agents and learners no longer see it, but it keeps its id, its votes and its
        sources. An edit that moves it to another section takes it back: it then starts again, without votes."""
        return self.section.startswith(RETIRED)

    @property
    def conversation(self) -> str:
        """Source that names the conversation, if the entry is a turn of a conversation; otherwise empty."""
        return next((source for source in self.sources if source.startswith(CONVERSATION)), "")

    @property
    def solved(self) -> str:
        """Text of the entry, followed by the other content that a prompt can show: the result of the function
        `solved`."""
        return solved(self.text, self.data)

    @property
    def content(self) -> tuple[str, str, Mapping[str, Any]]:
        """Text, section and data of the entry, without its votes and sources."""
        return self.text, self.section, self.data

    @property
    def embedded_text(self) -> str:
        """Text that is embedded: `key`, or `text` if `key` is empty."""
        return self.key or self.text


def solved(text: str, data: Mapping[str, Any]) -> str:
    """Return the text of an entry, followed by the other content that a prompt can show: the steps and the answer of a
    solved task, or the answer of a correction and the comment on the wrong answer. A review shows the returned text,
    and two edits with the same returned text count as equal."""
    steps = [Step(kind, part).line for kind, part in data.get("steps", ())]
    answer = [f"→ {data['answer']}"] if "answer" in data else []
    wrong = [f"wrong: {data['comment']}"] if "comment" in data else []
    if steps and answer:
        return "\n".join([text, *steps, *answer])
    return "\n".join([" ".join([text, *answer]), *wrong])


@dataclass(frozen=True, slots=True)
class Add:
    """Add an entry. The new entry has no id yet, so later edits of the delta can name the new entry by `ref`."""

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
    """Replace the text, section, key or data of an entry. A field that is None keeps its current value."""

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
    """Merge entries into the oldest of these entries: counters are summed and sources joined. If `text` is None, the
    oldest entry keeps its text."""

    ids: tuple[str, ...]
    text: str | None = None
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["merge"] = "merge"


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an entry. Its id is not reused."""

    id: str
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["delete"] = "delete"


@dataclass(frozen=True, slots=True)
class Vote:
    """Add to the counters of an entry: `helpful` (how often the entry helped), `harmful` (how often it harmed) and
    `uses` (how often an agent relied on it). The numbers to add must not be negative."""

    id: str
    helpful: int = 0
    harmful: int = 0
    uses: int = 0
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["vote"] = "vote"


Edit = Add | Update | Merge | Delete | Vote


def retire(entry: Entry, reason: str, name: str = "") -> Update:
    """Return the edit that retires an entry. `name` is the name of the entry in a delta that adds it."""
    return Update(name or entry.id, section=f"{RETIRED}{entry.section}", reason=reason)


def changed_entries(edit: Edit) -> tuple[str, ...]:
    """Return the ids of the entries whose content an edit changes or removes."""
    match edit:
        case Merge():
            return edit.ids
        case Update() | Delete():
            return (edit.id,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """Decision on a lesson that led to no edit: `entry` is the id of the entry that already covers the lesson; if
    `entry` is empty, the lesson was dropped."""

    lesson: str
    entry: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A few edits, applied in order. `resolutions` list the lessons that led to no edit, `evidence` has measurements
    for or against the delta as JSON values, and `refused` are edits that were removed from the delta before it was
    applied."""

    edits: tuple[Edit, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.edits)

    @property
    def deleted(self) -> set[str]:
        """Ids of the entries that the delta deletes or retires."""
        return {
            edit.id
            for edit in self.edits
            if isinstance(edit, Delete) or (isinstance(edit, Update) and (edit.section or "").startswith(RETIRED))
        }

    @property
    def covered(self) -> set[str]:
        """Ids of the lessons that an edit of the delta writes into an entry, or that an entry already covers.

        A lesson that only leads to votes or deletions is not covered, because these edits can show that an entry is
        wrong, but do not correct the entry. An entry that the delta deletes covers no lesson.
        """
        deleted = self.deleted
        lessons = {r.lesson for r in self.resolutions if r.entry and r.entry not in deleted}
        for edit in self.edits:
            if isinstance(edit, Add | Update | Merge) and deleted.isdisjoint(changed_entries(edit)):
                lessons.update(edit.lessons)
        return lessons

    def __add__(self, other: Delta) -> Delta:
        evidence = {**self.evidence, **other.evidence}
        refused = self.refused + other.refused
        return Delta(self.edits + other.edits, self.resolutions + other.resolutions, evidence, refused)


@dataclass(frozen=True, slots=True)
class Applied:
    """Edit that took effect. `id` is the id of the entry that the edit added, changed or removed. In `edit`, every ref
    is replaced by an id."""

    edit: Edit
    id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Edit that could not be applied, with the reason."""

    edit: Edit
    reason: str


def ordered_union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return all names of several groups without duplicates, in the order of first occurrence."""
    return tuple(dict.fromkeys(name for group in groups for name in group))


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain JSON values."""
    values = {field.name: getattr(entry, field.name) for field in fields(entry)}
    values |= {"data": dict(entry.data), "trust": entry.trust}
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
