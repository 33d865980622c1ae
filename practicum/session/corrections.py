"""Corrections and notes: entries that take effect with the next request.

A correction is the right answer to a request, or a comment on a wrong answer. A note is a text that an agent wants to
remember; a note does not refer to an answer. Corrections and notes take effect in the same way. Both are entries, added
and removed by edits. In a space that requires reviews, corrections and notes wait for review, except the operator's
own. Corrections and notes have their own versions, separate from the versions of the playbook, because a session stays
on the playbook version that it began with, a canary compares two playbook versions, and learning takes minutes to make
the next playbook version. A correction takes effect at once, with every playbook version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Protocol

from sqlalchemy import func, or_

from practicum.core.context import Context
from practicum.core.edits import Add, Applied, Delete, Entry
from practicum.core.screen import Flag, flags, steers
from practicum.core.trust import Trust, markers, trust_of
from practicum.core.views import behind, indented
from practicum.core.words import one_line
from practicum.engine.admission import Held
from practicum.session.records import HELD
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.reviews import APPROVED, REJECTED
from practicum.store.scope import Transaction
from practicum.store.versions import EDITS, Version, read_versions, rebuild, version_row
from practicum.tasks.scoring.rules import normalise

LETTER = "c"
"""First letter of the ids of corrections and notes."""

SECTION, NOTE_SECTION, GENERAL_SECTION = "corrections", "notes", "general notes"
"""Sections: corrections, notes about a subject, and notes that always apply."""

BY_REVIEW = "approved in review"
"""First words of the `reason` of an edit that a person approved."""

WITHDRAWN = "withdrawn"
"""First words of the `reason` of an edit that removes a correction or note without a replacement."""

TASK, USER = "task:", "user:"
"""Prefixes of the sources that name the interaction of a correction and the user of a note."""


@dataclass(frozen=True)
class Correction:
    """A correction or a note.

    A correction has the right answer as `target`, or a comment on the wrong answer as `comment`, or both. `query` is
    the text of the request of an `interaction`, and `question` is the question in the text of the request. A note has
    its text as `comment` and its subject as `query`; a note without a subject always applies. `user` is the end user
    who wrote the note. `until` is the last day on which a note is shown; None: a note has no end.
    """

    number: int
    query: str
    target: str = ""
    comment: str = ""
    trust: Trust = "own"
    note: bool = False
    question: str = ""
    interaction: str = ""
    user: str | None = None
    until: date | None = None

    @classmethod
    def of(cls, number: int, source: Entry | Add) -> Correction:
        """Return the correction that is stored in an entry or in the edit that adds the entry."""
        named = {start: marker.removeprefix(start) for marker in source.sources for start in (TASK, USER)
                 if marker.startswith(start)}  # fmt: skip
        trust, user = trust_of(source.sources), named.get(USER)
        if source.section != SECTION:
            about, until = str(source.data.get("about", "")), source.data.get("until")
            last_day = None if until is None else date.fromisoformat(str(until))
            return cls(number, about, comment=source.text, trust=trust, note=True, user=user, until=last_day)
        target, comment = str(source.data.get("answer", "")), str(source.data.get("comment", ""))
        query = str(source.data.get("query", source.text))
        return cls(number, query, target, comment, trust, False, source.text, named.get(TASK, ""))

    @property
    def id(self) -> str:
        return f"{LETTER}{self.number}"

    def edit(self) -> Add:
        """Return the edit that adds the entry of this correction or note."""
        sources = (
            *([TASK + self.interaction] if self.interaction else ()),
            *([USER + self.user] if self.user is not None else ()), *markers(self.trust),
        )  # fmt: skip
        if self.note:
            data = {"about": self.query} if self.query else {}
            data |= {} if self.until is None else {"until": self.until.isoformat()}
            return Add(self.section, self.comment, self.searched if self.query else "", data, sources=sources)
        fields = {"query": self.query, "answer": self.target, "comment": self.comment}
        data = {name: text for name, text in fields.items() if text and (name, text) != ("query", self.asked)}
        return Add(SECTION, self.asked, data=data, sources=sources)

    @property
    def asked(self) -> str:
        """The question, or the whole text if the question is not known."""
        return self.question or self.query

    @cached_property
    def is_quotable(self) -> bool:
        """Whether a model that answers another question may be shown this question. False if the text of the question
        tries to steer a model. Notes are always quotable."""
        return self.note or not steers(self.asked)

    def holds(self, today: date) -> bool:
        """Whether the correction or note is shown on this day."""
        return self.until is None or today <= self.until

    @property
    def section(self) -> str:
        return SECTION if not self.note else NOTE_SECTION if self.query else GENERAL_SECTION

    @property
    def searched(self) -> str:
        """Text that retrieval compares with a query."""
        return f"{self.query}\n{self.comment}".strip() if self.note else self.asked

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Flags that `core.screen` raises on the texts of this correction or note that a model is shown."""
        return tuple(flags("\n".join(filter(None, (self.asked, self.target, self.comment)))))

    @property
    def held(self) -> Held:
        """This correction or note as an edit that waits for review."""
        return Held((self.edit(),), self.trust, self.flags)

    @property
    def key(self) -> tuple[bool, str]:
        """Key that is equal for corrections with the same question, and for notes with the same subject and text. A new
        correction or note replaces an earlier correction or note with an equal key."""
        return self.note, normalise(self.searched)

    @property
    def text(self) -> str:
        """Text of this correction or note that a model is shown."""
        if self.note:
            return behind(f"- About {one_line(self.query, 200)}:" if self.query else "-", self.comment)
        parts = [behind("Right answer:", self.target)] if self.target else []
        parts += [behind("What was wrong:", self.comment)] if self.comment else []
        return f"{behind('- Request:', self.asked)}\n{indented(chr(10).join(parts))}"


class CorrectionsInEffect(Protocol):
    """The corrections and notes of a space that are in effect, in a service's memory or in the store."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Correction]: ...

    def __contains__(self, number: object) -> bool: ...

    def get(self, number: int) -> Correction | None: ...

    def entry(self, id: str) -> Entry | None: ...


# Reading


def read_corrections(at: Transaction | Store) -> Context:
    """Return the corrections and notes in effect, as entries."""
    return rebuild(read_versions(at, schema.corrections), letter=LETTER)


def last_version(at: Transaction | Store) -> int:
    """Return the number of the last version of corrections, or 0 if no version exists."""
    ((last,),) = at.rows(at.select(func.max(schema.corrections.c.version)))
    return last or 0


def added_in(at: Transaction | Store, texts: Iterable[str]) -> Iterator[Correction]:
    """Yield the corrections and notes that were added in versions whose edits contain one of these texts (ids or
    sources)."""
    t = schema.corrections
    quoted = [json.dumps(text, ensure_ascii=False) for text in texts]
    if not quoted:
        return
    having = or_(*(t.c.applied.contains(text, autoescape=True) for text in quoted))
    for row in at.rows(at.select(t.c.applied).where(having).order_by(t.c.version)):
        yield from added(EDITS.validate_json(row.applied))


def added(applied: Iterable[Applied]) -> Iterator[Correction]:
    """Yield the corrections and notes that edits added."""
    for done in applied:
        if isinstance(done.edit, Add):
            yield Correction.of(int(done.id[1:]), done.edit)


def same_as(new: Correction, context: Context) -> list[int]:
    """Return the numbers of the corrections and notes in a context that a new correction or note replaces, because the
    `key` is equal (see `Correction.key`)."""
    return [e.number for e in context if Correction.of(e.number, e).key == new.key]


def reviewed(
    at: Transaction | Store, number: int | None = None, source: str | None = None
) -> Iterator[tuple[str, Correction]]:
    """Yield the review state of each correction and note in the review table, and the correction or note itself. If
    `number` or `source` is set, yield only corrections and notes with this number or source."""
    t = schema.reviews
    query = at.select(t.c.id, t.c.state, t.c.data).where(t.c.id.startswith(LETTER))
    query = query if number is None else query.where(t.c.id == f"{LETTER}{number}")
    if source is not None:
        query = query.where(t.c.data.contains(json.dumps(source, ensure_ascii=False), autoescape=True))
    for row in at.rows(query):
        yield from ((row.state, one) for one in _of_review(row))


def page_of_reviewed(
    at: Transaction | Store, state: str, beyond: int | None, limit: int, newest: bool
) -> tuple[list[Correction], int]:
    """Return a page of the corrections and notes in a review state, and the total number of corrections and notes in
    this state.

    The corrections and notes are in the order of their numbers (5 in the id c5), or with `newest` in the reverse order.
    The page begins after the number `beyond` and has up to `limit` corrections and notes.
    """
    t = schema.reviews
    mine = t.c.id.startswith(LETTER) & (t.c.state == state)
    ((total,),) = at.rows(at.select(func.count(t.c.id)).where(mine))
    length = func.length(t.c.id)
    order = (length.desc(), t.c.id.desc()) if newest else (length, t.c.id)
    if beyond is not None:
        # Ids of equal length sort as texts in the order of their numbers.
        id = f"{LETTER}{beyond}"
        far = (length < len(id), t.c.id < id) if newest else (length > len(id), t.c.id > id)
        mine &= or_(far[0], (length == len(id)) & far[1])
    rows = at.rows(at.select(t.c.id, t.c.data).where(mine).order_by(*order).limit(limit))
    return [one for row in rows for one in _of_review(row)], int(total)


def _of_review(row: Any) -> Iterator[Correction]:
    (edit,) = HELD.validate_json(row.data).edits
    if isinstance(edit, Add):
        yield Correction.of(int(row.id[1:]), edit)


def every_correction(at: Transaction | Store) -> dict[int, Correction]:
    """Return all corrections and notes by number: in effect, replaced, waiting or rejected."""
    t = schema.corrections
    corrections = {one.number: one for _, one in reviewed(at)}
    for row in at.rows(at.select(t.c.applied)):
        corrections |= {one.number: one for one in added(EDITS.validate_json(row.applied))}
    return corrections


# Writing


def next_correction(at: Transaction) -> int:
    """Return the number of a new correction or note.

    The number of a removed correction is not reused. Otherwise a client that still has the id of the removed correction
    would decide about a different text.
    """
    t = schema.spaces
    at.run(at.update(t).values(numbered=t.c.numbered + 1))
    return int(at.first(at.select(t.c.numbered))[0])


def hold(at: Transaction, last: int, new: Correction | None, removed: Sequence[int], reason: str = "") -> Version:
    """Write the version of corrections that follows version `last`. In the new version, `new` is in effect, and the
    `removed` corrections are not."""
    sources, why = (new.edit().sources, f"replaced by {new.id}") if new else ((), reason)
    applied = [Applied(Delete(f"{LETTER}{n}", sources, reason=why), f"{LETTER}{n}") for n in removed]
    if new is not None:
        applied.append(Applied(replace(new.edit(), reason=reason), new.id))
    ((numbered,),) = at.rows(at.select(schema.spaces.c.numbered))
    version = Version(last + 1, last or None, 0, numbered + 1, tuple(applied))
    at.insert(schema.corrections, version_row(version))
    return version


def write_review(at: Transaction, correction: Correction, state: str, reason: str = "") -> None:
    """Store a correction or a note in the review table, in this state."""
    waits = HELD.dump_python(correction.held, mode="json")
    data = json.dumps({**waits, "base": 0}, ensure_ascii=False)
    at.put(schema.reviews, {"id": correction.id, "step": 0, "state": state, "reason": reason, "data": data})


def decide(
    at: Transaction, last: int, correction: Correction, removed: Sequence[int], approved: bool, reason: str = ""
) -> Version | None:
    """Approve a correction that waits for review, or reject a correction that waits or is in effect. Either decision
    takes the `removed` corrections out of effect.

    Returns the version of corrections that follows version `last`, or None if the decision changes no correction in
    effect.
    """
    if approved:
        write_review(at, correction, APPROVED, BY_REVIEW)
        return hold(at, last, correction, removed, BY_REVIEW)
    write_review(at, correction, REJECTED, reason or WITHDRAWN)
    why = f"{WITHDRAWN}: {reason}" if reason else WITHDRAWN
    return hold(at, last, None, removed, why) if removed else None
