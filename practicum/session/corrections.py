"""Corrections and notes: entries that hold from the next request on.

A correction says what should have been answered to a request. A note is what an agent wants to remember: it is about no
answer, and holds in the same way. Each is an entry, made and removed by edits like any other, and waits for review like
any other if it is not the operator's own. Their versions are a line of their own beside those of the playbook: a
session stays on the version of the playbook that it began with, a canary compares two, and learning works on one for
minutes. A correction holds in all of them at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from sqlalchemy import func, or_

from practicum.core.context import Context
from practicum.core.edits import Add, Applied, Delete, Entry
from practicum.core.screen import Flag, flags, steers
from practicum.core.trust import Trust, markers, trust_of
from practicum.core.views import behind, indented
from practicum.core.words import one_line
from practicum.engine.door import Held
from practicum.session.records import HELD
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.reviews import APPROVED, REJECTED
from practicum.store.scope import Transaction
from practicum.store.versions import EDITS, Version, read_versions, rebuild, version_row
from practicum.tasks.scoring.rules import normalise

LETTER = "c"
"""The ids of corrections and notes begin with it."""

SECTION, NOTE_SECTION, GENERAL_SECTION = "corrections", "notes", "general notes"
"""The sections: corrections, notes about something, notes that always matter."""

BY_REVIEW = "approved in review"
"""Begins the reason of an edit that a person approved."""

WITHDRAWN = "withdrawn"
"""Begins the reason why one holds no longer that nothing replaced."""

TASK, USER = "task:", "user:"
"""How the sources begin that name the interaction of a correction, and the user of a note."""


@dataclass(frozen=True)
class Correction:
    """What should have been answered: the right answer as `target`, or what was said about the answer as `comment`.
    `query` is the text of the request of an `interaction`, and `question` what it asks. A note has what is to be
    remembered as `comment`, and as `query` what it is about; if that is empty, it always matters. `user` is the user
    whose note it is."""

    number: int
    query: str
    target: str = ""
    comment: str = ""
    trust: Trust = "own"
    note: bool = False
    question: str = ""
    interaction: str = ""
    user: str | None = None

    @classmethod
    def of(cls, number: int, made: Entry | Add) -> Correction:
        """The correction that an entry or its edit holds."""
        named = {start: source.removeprefix(start) for source in made.sources for start in (TASK, USER)
                 if source.startswith(start)}  # fmt: skip
        trust, user = trust_of(made.sources), named.get(USER)
        if made.section != SECTION:
            about = str(made.data.get("about", ""))
            return cls(number, about, comment=made.text, trust=trust, note=True, user=user)
        target, comment = str(made.data.get("answer", "")), str(made.data.get("comment", ""))
        query = str(made.data.get("query", made.text))
        return cls(number, query, target, comment, trust, False, made.text, named.get(TASK, ""))

    @property
    def id(self) -> str:
        return f"{LETTER}{self.number}"

    def edit(self) -> Add:
        """The edit that makes its entry."""
        sources = (
            *([TASK + self.interaction] if self.interaction else ()),
            *([USER + self.user] if self.user is not None else ()), *markers(self.trust),
        )  # fmt: skip
        if self.note:
            data = {"about": self.query} if self.query else {}
            return Add(self.section, self.comment, self.searched if self.query else "", data, sources=sources)
        known = {"query": self.query, "answer": self.target, "comment": self.comment}
        data = {name: text for name, text in known.items() if text and (name, text) != ("query", self.asked)}
        return Add(SECTION, self.asked, data=data, sources=sources)

    @property
    def asked(self) -> str:
        """The question, or the whole text while no question is known."""
        return self.question or self.query

    @cached_property
    def is_quotable(self) -> bool:
        """Whether its question may be shown to who did not ask the very same: it does not steer a model."""
        return self.note or not steers(self.asked)

    @property
    def section(self) -> str:
        return SECTION if not self.note else NOTE_SECTION if self.query else GENERAL_SECTION

    @property
    def searched(self) -> str:
        """The text that it is found by."""
        return f"{self.query}\n{self.comment}".strip() if self.note else self.asked

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What the filter finds in the texts that a model is shown."""
        return tuple(flags("\n".join(filter(None, (self.asked, self.target, self.comment)))))

    @property
    def held(self) -> Held:
        """Its edit as one that waits for review."""
        return Held((self.edit(),), self.trust, self.flags)

    @property
    def key(self) -> tuple[bool, str]:
        """Equal for corrections of the same request, and for the same notes: the later one replaces the earlier."""
        return self.note, normalise(self.searched)

    @property
    def text(self) -> str:
        """The text that a model is shown."""
        if self.note:
            return behind(f"- About {one_line(self.query, 200)}:" if self.query else "-", self.comment)
        said = [behind("Right answer:", self.target)] if self.target else []
        said += [behind("What was wrong:", self.comment)] if self.comment else []
        return f"{behind('- Request:', self.asked)}\n{indented(chr(10).join(said))}"


class CorrectionsInEffect(Protocol):
    """The corrections and notes of a space that are in effect: as a service has them in memory, or as they are
    stored."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Correction]: ...

    def __contains__(self, number: object) -> bool: ...

    def get(self, number: int) -> Correction | None: ...

    def entry(self, id: str) -> Entry | None: ...


# Reading


def read_corrections(at: Transaction | Store) -> Context:
    """The corrections and notes that hold, as entries."""
    return rebuild(read_versions(at, schema.corrections), letter=LETTER)


def last_version(at: Transaction | Store) -> int:
    """The number of the last version of corrections; 0 if there is none yet."""
    ((last,),) = at.rows(at.select(func.max(schema.corrections.c.version)))
    return last or 0


def added_in(at: Transaction | Store, texts: Iterable[str]) -> Iterator[Correction]:
    """The corrections and notes of the versions whose edits have one of these texts, such as ids or sources."""
    t = schema.corrections
    quoted = [json.dumps(text, ensure_ascii=False) for text in texts]
    if not quoted:
        return
    having = or_(*(t.c.applied.contains(text, autoescape=True) for text in quoted))
    for row in at.rows(at.select(t.c.applied).where(having).order_by(t.c.version)):
        yield from added(EDITS.validate_json(row.applied))


def added(applied: Iterable[Applied]) -> Iterator[Correction]:
    """The corrections and notes that edits added."""
    for done in applied:
        if isinstance(done.edit, Add):
            yield Correction.of(int(done.id[1:]), done.edit)


def same_as(new: Correction, context: Context) -> list[int]:
    """The numbers of those of a context that a new one replaces: of the equal request, or with the equal note."""
    return [e.number for e in context if Correction.of(e.number, e).key == new.key]


def reviewed(
    at: Transaction | Store, number: int | None = None, source: str | None = None
) -> Iterator[tuple[str, Correction]]:
    """The corrections and notes (of this number, or with this source) that wait for review or were decided about, each
    with its state as one to review."""
    t = schema.reviews
    found = at.select(t.c.id, t.c.state, t.c.data).where(t.c.id.startswith(LETTER))
    found = found if number is None else found.where(t.c.id == f"{LETTER}{number}")
    if source is not None:
        found = found.where(t.c.data.contains(json.dumps(source, ensure_ascii=False), autoescape=True))
    for row in at.rows(found):
        yield from ((row.state, one) for one in _of_review(row))


def page_of_reviewed(
    at: Transaction | Store, state: str, beyond: int | None, limit: int, newest: bool
) -> tuple[list[Correction], int]:
    """Of those in a state of a review, some beyond a number, in the order of their numbers or the `newest` first, and
    how many there are in all."""
    t = schema.reviews
    mine = t.c.id.startswith(LETTER) & (t.c.state == state)
    ((total,),) = at.rows(at.select(func.count(t.c.id)).where(mine))
    length = func.length(t.c.id)
    order = (length.desc(), t.c.id.desc()) if newest else (length, t.c.id)
    if beyond is not None:
        # Of ids of one length, the order of the texts is that of the numbers.
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
    """All corrections and notes by their numbers: those that hold or held, wait or were rejected."""
    t = schema.corrections
    found = {one.number: one for _, one in reviewed(at)}
    for row in at.rows(at.select(t.c.applied)):
        found |= {one.number: one for one in added(EDITS.validate_json(row.applied))}
    return found


# Writing


def next_correction(at: Transaction) -> int:
    """The number of a new correction or note. That of a removed one is not given again: who has its id would decide on
    another text."""
    t = schema.spaces
    at.run(at.update(t).values(numbered=t.c.numbered + 1))
    return int(at.first(at.select(t.c.numbered))[0])


def hold(at: Transaction, last: int, new: Correction | None, gone: Sequence[int], reason: str = "") -> Version:
    """Write the version after `last`: one correction or note holds, and others that it replaces, or that are withdrawn,
    hold no longer."""
    sources, why = (new.edit().sources, f"replaced by {new.id}") if new else ((), reason)
    applied = [Applied(Delete(f"{LETTER}{n}", sources, reason=why), f"{LETTER}{n}") for n in gone]
    if new is not None:
        applied.append(Applied(replace(new.edit(), reason=reason), new.id))
    ((numbered,),) = at.rows(at.select(schema.spaces.c.numbered))
    made = Version(last + 1, last or None, 0, numbered + 1, tuple(applied))
    at.insert(schema.corrections, version_row(made))
    return made


def write_review(at: Transaction, correction: Correction, state: str, reason: str = "") -> None:
    """Let a correction or a note wait for review, or note what was decided about it."""
    waits = HELD.dump_python(correction.held, mode="json")
    data = json.dumps({**waits, "base": 0}, ensure_ascii=False)
    at.put(schema.reviews, {"id": correction.id, "step": 0, "state": state, "reason": reason, "data": data})


def decide(
    at: Transaction, last: int, correction: Correction, gone: Sequence[int], approved: bool, reason: str = ""
) -> Version | None:
    """Let one that waits for review hold in place of those that are `gone`, or reject it, also one that holds; returns
    the version after `last` with that, None if the same hold as before."""
    if approved:
        write_review(at, correction, APPROVED, BY_REVIEW)
        return hold(at, last, correction, gone, BY_REVIEW)
    write_review(at, correction, REJECTED, reason or WITHDRAWN)
    why = f"{WITHDRAWN}: {reason}" if reason else WITHDRAWN
    return hold(at, last, None, gone, why) if gone else None
