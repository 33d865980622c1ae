"""Everything learned is an entry; a context is an immutable value of entries, changed by deltas of small edits.

`Context.apply` is pure and total: each edit is applied or comes back refused with a reason. Entries live in pages of
64 in the order of birth, so that an edit replaces one page and shares all others: applying a delta does not depend
on how much was learned before, and a page keeps its rendering and its digest for as long as it is unchanged.
(ACE, section 3.1: incremental delta updates, merged by plain code.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, assert_never

from practicum.errors import ContextFileError

T = TypeVar("T")

PAGE = 64
"""Entries a page: small enough that rewriting one is nothing, large enough that there are few of them."""


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


@dataclass(frozen=True, slots=True)
class Delta:
    """A small set of edits, applied in order."""

    edits: tuple[Edit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.edits)

    def __add__(self, other: Delta) -> Delta:
        return Delta(self.edits + other.edits)


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


class Page:
    """Up to 64 entries by number; never changed once made. Keeps what was rendered of it."""

    def __init__(self, entries: dict[int, Entry]) -> None:
        self.entries = entries
        self._shown: dict[object, Any] = {}

    def shown(self, how: Callable[[Iterable[Entry]], T]) -> T:
        """What `how` makes of these entries, computed once for each `how`."""
        try:
            made: T = self._shown[how]
        except KeyError:
            made = self._shown[how] = how(self.entries.values())
        return made


def _page_digest(entries: Iterable[Entry]) -> bytes:
    """Of what can be shown: counters and provenance do not change what an agent sees."""
    sha = hashlib.sha256()
    for e in entries:
        sha.update(repr((e.id, e.section, e.text, e.key, sorted(e.data.items()))).encode())
    return sha.digest()


@dataclass(frozen=True)
class Context:
    """All entries at one version. `next_number` only grows, so an id is never used twice."""

    pages: tuple[Page, ...] = ()
    version: int = 0
    next_number: int = 0
    size: int = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Entry]:
        """Entries in the order of birth."""
        for page in self.pages:
            yield from page.entries.values()

    def get(self, id: str) -> Entry | None:
        """The entry with this id, or None."""
        number = _number(id)
        if number is None or not 0 <= number // PAGE < len(self.pages):
            return None
        return self.pages[number // PAGE].entries.get(number)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get(id) is not None

    def in_section(self, section: str) -> list[Entry]:
        """Entries of one section, oldest first."""
        return [e for e in self if e.section == section]

    @cached_property
    def digest(self) -> str:
        """Names what this context can show: equal for two versions that differ only in counters."""
        sha = hashlib.sha256()
        for page in self.pages:
            if page.entries:
                sha.update(page.shown(_page_digest))
        return sha.hexdigest()[:16]

    def apply(self, delta: Delta) -> Outcome:
        """The next context, what was applied and what was refused. A delta of which nothing applies changes nothing."""
        draft = _Draft(self)
        applied: list[Applied] = []
        refused: list[Refused] = []
        for edit in delta.edits:
            outcome = draft.take(edit)
            if isinstance(outcome, Applied):
                applied.append(outcome)
            else:
                refused.append(Refused(edit, outcome))
        return Outcome(draft.done() if applied else self, tuple(applied), tuple(refused))

    def replay(self, log: Iterable[Applied], version: int | None = None) -> Context:
        """The context after edits that were applied once before, with the ids they got then.

        Edits of entries that are not there (because what made them was left out) have no effect.
        """
        draft = _Draft(self)
        for done in log:
            draft.take(done.edit, id=done.id)
        made = draft.done()
        return replace(made, version=self.version + 1 if version is None else version)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a delta."""

    context: Context
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]


def _number(id: str) -> int | None:
    """The number in an id, or None where it is not one of ours ("e7", not "e07" or "E7")."""
    digits = id[1:]
    if id[:1] != "e" or not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and digits != "0"):
        return None
    return int(digits)


class _Draft:
    """A context being changed: pages are copied when first touched."""

    def __init__(self, base: Context) -> None:
        self.base = base
        self.version = base.version + 1
        self.next_number = base.next_number
        self.size = base.size
        self.touched: dict[int, dict[int, Entry]] = {}
        self.refs: dict[str, str] = {}

    def take(self, edit: Edit, id: str | None = None) -> Applied | str:
        """Apply one edit, or say why not. `id` is given when an Add is replayed."""
        match edit:
            case Add():
                return self._add(edit, id)
            case Update():
                return self._update(edit)
            case Merge():
                return self._merge(edit)
            case Delete():
                return self._delete(edit)
            case Vote():
                return self._vote(edit)
            case _:
                assert_never(edit)

    def done(self) -> Context:
        pages = list(self.base.pages)
        if self.touched:
            pages.extend(Page({}) for _ in range(max(self.touched) + 1 - len(pages)))
        for index, entries in self.touched.items():
            pages[index] = Page(entries)
        return Context(tuple(pages), self.version, self.next_number, self.size)

    def _page(self, number: int) -> dict[int, Entry]:
        index = number // PAGE
        entries = self.touched.get(index)
        if entries is None:
            pages = self.base.pages
            entries = self.touched[index] = dict(pages[index].entries) if index < len(pages) else {}
        return entries

    def _find(self, id: str) -> Entry | None:
        number = _number(self.refs.get(id, id))
        if number is None or number >= self.next_number:
            return None
        touched = self.touched.get(number // PAGE)
        if touched is not None:
            return touched.get(number)
        index = number // PAGE
        return self.base.pages[index].entries.get(number) if index < len(self.base.pages) else None

    def _put(self, entry: Entry) -> None:
        self._page(entry.number)[entry.number] = entry

    def _add(self, edit: Add, id: str | None) -> Applied | str:
        if not edit.text.strip():
            return "its text is empty"
        if not edit.section.strip():
            return "its section is empty"
        if edit.helpful < 0 or edit.harmful < 0:
            return "counts cannot be negative"
        if edit.ref and (edit.ref in self.refs or _number(edit.ref) is not None):
            return f"its ref {edit.ref!r} is taken"
        number = self.next_number if id is None else int(id[1:])
        self.next_number = max(self.next_number, number + 1)
        made = Entry(
            f"e{number}", edit.section, edit.text, edit.key, edit.data, edit.helpful, edit.harmful,
            0, self.version, self.version, edit.sources,
        )  # fmt: skip
        self._page(number)[number] = made
        self.size += 1
        if edit.ref:
            self.refs[edit.ref] = made.id
        return Applied(replace(edit, ref="") if edit.ref else edit, made.id)

    def _update(self, edit: Update) -> Applied | str:
        old = self._find(edit.id)
        if old is None:
            return f"there is no entry {edit.id!r}"
        if edit.text is not None and not edit.text.strip():
            return "its text is empty (delete the entry instead)"
        if edit.section is not None and not edit.section.strip():
            return "its section is empty"
        new = replace(
            old,
            text=old.text if edit.text is None else edit.text,
            section=old.section if edit.section is None else edit.section,
            key=old.key if edit.key is None else edit.key,
            data=old.data if edit.data is None else edit.data,
            changed=self.version,
            sources=_joined(old.sources, edit.sources),
        )
        if (new.text, new.section, new.key, new.data) == (old.text, old.section, old.key, old.data):
            return f"it changes nothing of {old.id}"
        self._put(new)
        return Applied(replace(edit, id=old.id), old.id)

    def _merge(self, edit: Merge) -> Applied | str:
        found = {id: self._find(id) for id in dict.fromkeys(edit.ids)}
        missing = [id for id, entry in found.items() if entry is None]
        if missing:
            return f"there is no entry {missing[0]!r}"
        entries = sorted({e.id: e for e in found.values() if e is not None}.values(), key=lambda e: e.number)
        if len(entries) < 2:
            return "it names fewer than two entries"
        if edit.text is not None and not edit.text.strip():
            return "its text is empty"
        first = entries[0]
        self._put(
            replace(
                first,
                text=first.text if edit.text is None else edit.text,
                # A key of its own belongs to the text it was made for.
                key=first.key if edit.text is None else "",
                helpful=sum(e.helpful for e in entries),
                harmful=sum(e.harmful for e in entries),
                uses=sum(e.uses for e in entries),
                changed=first.changed if edit.text is None else self.version,
                sources=_joined(*(e.sources for e in entries), edit.sources),
            )
        )
        for entry in entries[1:]:
            del self._page(entry.number)[entry.number]
        self.size -= len(entries) - 1
        return Applied(replace(edit, ids=tuple(e.id for e in entries)), first.id)

    def _delete(self, edit: Delete) -> Applied | str:
        old = self._find(edit.id)
        if old is None:
            return f"there is no entry {edit.id!r}"
        del self._page(old.number)[old.number]
        self.size -= 1
        return Applied(replace(edit, id=old.id), old.id)

    def _vote(self, edit: Vote) -> Applied | str:
        old = self._find(edit.id)
        if old is None:
            return f"there is no entry {edit.id!r}"
        if min(edit.helpful, edit.harmful, edit.uses) < 0:
            return "counts cannot be negative"
        if not (edit.helpful or edit.harmful or edit.uses):
            return "it counts nothing"
        self._put(
            replace(
                old,
                helpful=old.helpful + edit.helpful,
                harmful=old.harmful + edit.harmful,
                uses=old.uses + edit.uses,
            )
        )
        return Applied(replace(edit, id=old.id), old.id)


def _joined(*sources: tuple[str, ...]) -> tuple[str, ...]:
    """Provenance of several, each source once, in order of first mention."""
    return tuple(dict.fromkeys(s for some in sources for s in some))


def seeded(entries: Iterable[tuple[str, str]], source: str = "seed") -> Context:
    """A context of hand-written (section, text) pairs, at version 0: what a run starts from."""
    context = Context()
    for number, (section, text) in enumerate(entries, 1):
        outcome = context.apply(Delta((Add(section, text, sources=(source,)),)))
        if outcome.refused:
            raise ContextFileError(f"entry {number} cannot be used: {outcome.refused[0].reason}")
        context = outcome.context
    return replace(context, version=0)
