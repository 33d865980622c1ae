"""Entries, and the closed set of edits that change them.

Everything learned is an entry. A delta gathers a few edits, where others rewrite the whole context (ACE, section 3.1).
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
"""How a source begins that names a conversation. Its entries are turns in the order of birth."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing learned: a playbook bullet, a memory, an episode.

    `id` is "e" and a number that is never reused. `key` is the text its embedding is made from, or empty if that is
    `text`. `born` is the version that added it, `changed` the version that last changed its content. `sources` name
    what it was learned from ("task:t1", "attempt:...", "tag:...").
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

    def __repr__(self) -> str:
        votes = f" (+{self.helpful} -{self.harmful}, used {self.uses})"
        return f"<Entry {self.id} in {self.section}{votes}: {one_line(self.text)!r}>"

    @property
    def number(self) -> int:
        """Its place in the order of birth, from 0."""
        return int(self.id[1:])

    @property
    def trust(self) -> Trust:
        """The trust of its origin: the least of its sources, whoever approved it."""
        return trust_of(self.sources)

    @property
    def hidden(self) -> bool:
        """Whether only the learner sees it, and not the agent: its section begins with a dot."""
        return self.section.startswith(".")

    @property
    def conversation(self) -> str:
        """The source that names the conversation it is a turn of, or empty."""
        return next((source for source in self.sources if source.startswith(CONVERSATION)), "")

    @property
    def solved(self) -> str:
        """The text and, where it is a solved task, the steps that solved it and its answer."""
        return solved(self.text, self.data)

    @property
    def content(self) -> tuple[str, str, Mapping[str, Any]]:
        """What it says, apart from its votes and its origin."""
        return self.text, self.section, self.data

    @property
    def embedded_text(self) -> str:
        """The text its embedding is made from."""
        return self.key or self.text


def solved(text: str, data: Mapping[str, Any]) -> str:
    """A text and, where it is a solved task, the steps that solved it and its answer, or, where it corrects an answer,
    what was wrong: all that a prompt would show, and so what a review shows and knows an edit by."""
    steps = [Step(kind, said).line for kind, said in data.get("steps", ())]
    answer = [f"→ {data['answer']}"] if "answer" in data else []
    wrong = [f"wrong: {data['comment']}"] if "comment" in data else []
    if steps and answer:
        return "\n".join([text, *steps, *answer])
    return "\n".join([" ".join([text, *answer]), *wrong])


@dataclass(frozen=True, slots=True)
class Add:
    """Add an entry. Later edits of the same delta can name it by `ref`, since it has no id yet."""

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
    """Replace the text, section, key or data of an entry; None keeps the present value."""

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
    """Merge entries into the oldest of them: counters are summed and sources joined. None keeps the oldest's text."""

    ids: tuple[str, ...]
    text: str | None = None
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["merge"] = "merge"


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an entry. Its id is not given out again."""

    id: str
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["delete"] = "delete"


@dataclass(frozen=True, slots=True)
class Vote:
    """Add to the counters of an entry: how often it helped, harmed, and was relied on. No count is negative."""

    id: str
    helpful: int = 0
    harmful: int = 0
    uses: int = 0
    sources: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    reason: str = ""
    op: Literal["vote"] = "vote"


Edit = Add | Update | Merge | Delete | Vote


def changed_entries(edit: Edit) -> tuple[str, ...]:
    """The ids of the entries whose content an edit changes or removes."""
    match edit:
        case Merge():
            return edit.ids
        case Update() | Delete():
            return (edit.id,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a lesson was settled without an edit: `entry` already covers it, or (`entry` empty) it was dropped."""

    lesson: str
    entry: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A few edits, applied in order. `resolutions` account for the lessons that led to no edit, `evidence` holds what
    was measured for or against the delta, as JSON values, and `refused` are edits that a guard took out."""

    edits: tuple[Edit, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.edits)

    @property
    def deleted(self) -> set[str]:
        """The ids of the entries it deletes."""
        return {edit.id for edit in self.edits if isinstance(edit, Delete)}

    @property
    def covered(self) -> set[str]:
        """The lessons that it puts into an entry, or that an entry already covers.

        Votes and deletions do not count: that an entry is wrong does not yet say what is right. An entry that the delta
        deletes covers nothing.
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
    """An edit that took effect. `id` is the entry it made, changed or removed; in `edit` every ref is an id."""

    edit: Edit
    id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An edit that could not be applied, and why."""

    edit: Edit
    reason: str


def ordered_union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """All names of several groups, each once, in the order of first mention."""
    return tuple(dict.fromkeys(name for group in groups for name in group))


def entry_json(entry: Entry) -> dict[str, Any]:
    """An entry as plain JSON values."""
    values = {field.name: getattr(entry, field.name) for field in fields(entry)}
    values |= {"data": dict(entry.data), "trust": entry.trust}
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
