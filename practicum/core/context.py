"""A context: an immutable value that contains entries. Applying a delta gives the next context.

`Context.apply` is pure and total: each edit is either applied, or refused with a reason (ACE, section 3.1: incremental
delta updates, merged by plain code). Entries are stored in pages of 64 in the order of birth. An edit replaces one
page, and the next context shares all other pages with the context before it, so the cost of a delta does not depend on
the number of entries, and the rendering and the digest of a page are computed only once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, Protocol, TypeVar, assert_never

from practicum.core.edits import (
    RETIRED,
    Add,
    Applied,
    Delete,
    Delta,
    Edit,
    Entry,
    Merge,
    Refused,
    Update,
    Vote,
    ordered_union,
)
from practicum.core.errors import ContextFileError, StoreError
from practicum.core.html import card, table
from practicum.core.trust import Trust, markers
from practicum.core.visible import lines
from practicum.core.words import quantity

T = TypeVar("T")

SHOWN = 20
"""Maximum number of entries that a notebook shows of a context."""

PAGE = 64
"""Entries per page: small enough that rewriting a page is cheap, large enough that a context has few pages."""


MOST_ENTRIES = 1 << 24
"""Upper bound (exclusive) of entry numbers. A crafted id with a larger number would fill the memory with empty
pages."""


class PageSource(Protocol):
    """Source that pages are read from on first access."""

    def page(self, index: int) -> dict[int, Entry]: ...


class Page:
    """Up to 64 entries by number. A page never changes, and caches its renderings.

    `origin` is the source from which the entries of the page can be read; None if the entries are only in memory.
    """

    __slots__ = ("_entries", "_index", "_renderings", "origin")

    def __init__(self, entries: dict[int, Entry] | None, like: Page | None = None) -> None:
        """Create a page. `like` is a page that differs from the new page only in counters or sources; the new page
        shares the renderings of `like`."""
        self._entries = entries
        self._index = 0
        self._renderings: dict[object, Any] = {} if like is None else like._renderings
        self.origin: PageSource | None = None

    @classmethod
    def stored(cls, origin: PageSource, index: int) -> Page:
        """Return a page that is read from `origin` on first access."""
        page = cls(None)
        page.origin, page._index = origin, index
        return page

    @property
    def entries(self) -> dict[int, Entry]:
        """Entries by number, in the order of birth."""
        self._entries = self.peek()
        return self._entries

    def peek(self) -> dict[int, Entry]:
        """Return the entries by number. Entries that have to be read from `origin` are not kept in memory."""
        if self._entries is None:
            assert self.origin is not None
            return self.origin.page(self._index)
        return self._entries

    def rendered(self, render: Callable[[Iterable[Entry]], T]) -> T:
        """Return the result of `render` for the entries of the page, computed once. `render` must not read counters,
        versions or sources."""
        try:
            rendering: T = self._renderings[render]
        except KeyError:
            rendering = self._renderings[render] = render(self.entries.values())
        return rendering


def _sections(entries: Iterable[Entry]) -> frozenset[str]:
    return frozenset(e.section for e in entries)


def _page_digest(entries: Iterable[Entry]) -> bytes:
    """Digest the content that an agent can see: no counters, sources or hidden entries."""
    sha = hashlib.sha256()
    for e in entries:
        if e.hidden:
            continue
        sha.update(repr((e.id, e.section, e.text, e.key, sorted(e.data.items()))).encode())
    return sha.digest()


@dataclass(frozen=True)
class Context:
    """All entries at one version. `next_number` only grows, so no id is reused. An id is `letter` and then a number."""

    pages: tuple[Page, ...] = ()
    version: int = 0
    next_number: int = 0
    size: int = 0
    letter: str = "e"

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<Context version {self.version}: {quantity(len(self), 'entry')}>"

    def _repr_html_(self) -> str:
        """Return the first entries as a table, for notebooks."""
        shown = [e for page in self.pages[: -(-SHOWN // PAGE)] for e in page.entries.values()][:SHOWN]
        rows = [(e.id, e.section, e.solved, e.helpful, e.harmful, e.uses) for e in shown]
        below = f"and {len(self) - len(rows):,} more" if len(rows) < len(self) else ""
        entries = table(("id", "section", "text", "helpful", "harmful", "used"), rows, below) if rows else ""
        return card(f"Context, version {self.version}: {quantity(len(self), 'entry')}", {}, entries)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in the order of birth."""
        for page in self.pages:
            yield from page.entries.values()

    def __reversed__(self) -> Iterator[Entry]:
        """Yield the entries, the newest first."""
        for page in reversed(self.pages):
            yield from reversed(page.entries.values())

    def get(self, id: str) -> Entry | None:
        number = _number(id, self.letter)
        if number is None or number // PAGE >= len(self.pages):
            return None
        return self.pages[number // PAGE].entries.get(number)

    def issued(self, id: str) -> bool:
        """Whether an entry with this id is or was in the context."""
        number = _number(id, self.letter)
        return number is not None and number < self.next_number

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get(id) is not None

    def in_section(self, section: str) -> list[Entry]:
        """Return the entries of one section, oldest first."""
        pages = self._pages_by_section.get(section, ())
        return [e for page in pages for e in page.entries.values() if e.section == section]

    @cached_property
    def _pages_by_section(self) -> dict[str, list[Page]]:
        pages: dict[str, list[Page]] = {}
        for page in self.pages:
            for section in page.rendered(_sections):
                pages.setdefault(section, []).append(page)
        return pages

    def rendered(self, render: Callable[[Iterable[Entry]], T]) -> list[T]:
        """Return the result of `render` for each page with entries, computed once (see `Page.rendered`)."""
        if render not in self._renderings:
            self._renderings[render] = [page.rendered(render) for page in self.pages if page.entries]
        renderings: list[T] = self._renderings[render]
        return renderings

    @cached_property
    def _renderings(self) -> dict[object, Any]:
        return {}

    @cached_property
    def digest(self) -> str:
        """Digest of the visible content: equal for versions that differ only in counters."""
        sha = hashlib.sha256()
        for page in self.pages:
            if any(not e.hidden for e in page.entries.values()):
                sha.update(page.rendered(_page_digest))
        return sha.hexdigest()[:16]

    @property
    def helpful(self) -> int:
        """Total helpful votes of all entries, called total helpful hits in Combee, figure 2."""
        return sum(entry.helpful for entry in self)

    def marked(self, trust: Trust) -> Context:
        """Return the context with the trust of each entry lowered to at most `trust`."""
        marks = markers(trust)

        def page(old: Page) -> Page:
            entries = ((n, replace(e, sources=ordered_union((e.sources, marks)))) for n, e in old.entries.items())
            return Page(dict(entries), old)

        return replace(self, pages=tuple(map(page, self.pages)))

    def apply(self, delta: Delta) -> ApplyResult:
        """Return the next context, the applied edits and the refused edits. If no edit can be applied, the next context
        is this context.

        The last result is cached, because several wrappers of an `update` each apply the same edits to this context.
        """
        if not self._last or self._last[0][0] != delta.edits:
            self._last[:] = [(delta.edits, self._applied(delta.edits))]
        return self._last[0][1]

    @cached_property
    def _last(self) -> list[tuple[tuple[Edit, ...], ApplyResult]]:
        """The edits of the last `apply`, with their result; empty before the first `apply`."""
        return []

    def _applied(self, edits: Sequence[Edit]) -> ApplyResult:
        draft = _Draft(self, self.version + 1)
        applied: list[Applied] = []
        refused: list[Refused] = []
        for edit in edits:
            try:
                applied.append(draft.take(edit))
            except _Refusal as refusal:
                refused.append(Refused(edit, str(refusal)))
        return ApplyResult(draft.finish() if applied else self, tuple(applied), tuple(refused), draft.refs)

    def replay(self, log: Iterable[Applied], version: int | None = None) -> Context:
        """Return the context after the edits of a log. Added entries get the ids that the log records.

        If the log lacks the edit that added an entry, the other edits of that entry have no effect.
        """
        draft = _Draft(self, self.version + 1 if version is None else version)
        for applied in log:
            if _number(applied.id, self.letter) is None:
                raise StoreError(
                    "store.damaged", f"the log of edits is damaged: {applied.id[:40]!r} is not an entry id"
                )
            with suppress(_Refusal):
                draft.take(applied.edit, id=applied.id)
        return draft.finish()


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """Context after a delta, with the applied and refused edits. `refs` maps the refs of added entries to their ids."""

    context: Context
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]
    refs: Mapping[str, str] = field(default_factory=dict)


def _number(id: str, letter: str) -> int | None:
    """Return the number in an id, or None if the id is not in canonical form ("e7", not "e07" or "E7")."""
    try:
        number = int(id[1:])
    except ValueError:
        return None
    return number if 0 <= number < MOST_ENTRIES and id == f"{letter}{number}" else None


class _Refusal(Exception):
    """Reason why an edit is refused."""


class _Draft:
    """Context that is being changed. Pages are copied on their first change."""

    def __init__(self, base: Context, version: int) -> None:
        self.pages = base.pages
        self.version = version
        self.next_number = base.next_number
        self.size = base.size
        self.letter = base.letter
        self.changed_pages: dict[int, dict[int, Entry]] = {}
        self.rerendered: set[int] = set()
        self.refs: dict[str, str] = {}

    def take(self, edit: Edit, id: str | None = None) -> Applied:
        """Apply one edit, or raise _Refusal. `id` is the id for an added entry; if it is None, the entry gets the next
        free id."""
        match edit:
            case Add():
                return self._add(edit, id)
            case Merge():
                return self._merge(edit)
            case Update():
                old = self._find(edit.id)
                self._put(self._updated(old, edit))
            case Delete():
                old = self._find(edit.id)
                self._remove(old)
            case Vote():
                old = self._find(edit.id)
                self._put(_voted(old, edit), rerender=False)
            case _:
                assert_never(edit)
        # The logged edit names the entry by id, not by ref.
        return Applied(edit if edit.id == old.id else replace(edit, id=old.id), old.id)

    def finish(self) -> Context:
        pages = list(self.pages)
        if self.changed_pages:
            pages.extend(Page({}) for _ in range(max(self.changed_pages) + 1 - len(pages)))
        for index, entries in self.changed_pages.items():
            pages[index] = Page(entries, like=None if index in self.rerendered else pages[index])
        return Context(tuple(pages), self.version, self.next_number, self.size, self.letter)

    def _page(self, index: int) -> dict[int, Entry]:
        """Return the copy of a page that this draft changes; make the copy on first use."""
        if index not in self.changed_pages:
            self.changed_pages[index] = dict(self.pages[index].entries) if index < len(self.pages) else {}
        return self.changed_pages[index]

    def _find(self, id: str) -> Entry:
        number = _number(self.refs.get(id, id), self.letter)
        if number is not None and number < self.next_number:
            index = number // PAGE
            entries = self.changed_pages.get(index)
            if entries is None:
                entries = self.pages[index].entries if index < len(self.pages) else {}
            if number in entries:
                return entries[number]
        raise _Refusal(f"no entry has the id {id!r}")

    def _put(self, entry: Entry, rerender: bool = True) -> None:
        number = entry.number
        self._page(number // PAGE)[number] = entry
        if rerender:
            self.rerendered.add(number // PAGE)

    def _remove(self, entry: Entry) -> None:
        number = entry.number
        del self._page(number // PAGE)[number]
        self.rerendered.add(number // PAGE)
        self.size -= 1

    def _add(self, edit: Add, id: str | None) -> Applied:
        _check(edit.text, edit.section)
        if edit.helpful < 0 or edit.harmful < 0:
            raise _Refusal("counts cannot be negative")
        if id is not None and _number(id, self.letter) is None:
            raise _Refusal(f"{id[:40]!r} is not an entry id")
        if edit.ref and (edit.ref in self.refs or _number(edit.ref, self.letter) is not None):
            raise _Refusal(f"the ref {edit.ref!r} is already used")
        new = Entry(
            id or f"{self.letter}{self.next_number}", edit.section, edit.text, edit.key, edit.data, edit.helpful,
            edit.harmful, 0, self.version, self.version, edit.sources,
        )  # fmt: skip
        self._put(new)
        self.next_number = max(self.next_number, new.number + 1)
        self.size += 1
        if not edit.ref:
            return Applied(edit, new.id)
        self.refs[edit.ref] = new.id
        return Applied(replace(edit, ref=""), new.id)

    def _updated(self, old: Entry, edit: Update) -> Entry:
        text = old.text if edit.text is None else edit.text
        section = old.section if edit.section is None else edit.section
        key = old.key if edit.key is None else edit.key
        data = old.data if edit.data is None else edit.data
        _check(text, section)
        if (text, section, key, data) == (old.text, old.section, old.key, old.data):
            raise _Refusal(f"the edit does not change {old.id}")
        sources, retired = ordered_union((old.sources, edit.sources)), section.startswith(RETIRED)
        if old.retired and not retired:  # with its votes and its age the entry would be retired again at once
            return Entry(old.id, section, text, key, data, born=self.version, changed=self.version, sources=sources)
        failing = old.failing if (text, data) == (old.text, old.data) and retired else 0
        return Entry(
            old.id, section, text, key, data, old.helpful, old.harmful,
            old.uses, old.born, self.version, sources, failing,
        )  # fmt: skip

    def _merge(self, edit: Merge) -> Applied:
        parts = {entry.id: entry for entry in map(self._find, edit.ids)}
        if len(parts) < 2:
            raise _Refusal("a merge needs at least two entries")
        first, *others = entries = sorted(parts.values(), key=lambda e: e.number)
        # The key belongs to the old text and does not fit a new text.
        text, key, changed = (
            (first.text, first.key, first.changed) if edit.text is None else (edit.text, "", self.version)
        )
        _check(text, first.section)
        helpful, harmful = sum(e.helpful for e in entries), sum(e.harmful for e in entries)
        uses = sum(e.uses for e in entries)
        sources = ordered_union([*(e.sources for e in entries), edit.sources])
        new = Entry(
            first.id, first.section, text, key, first.data, helpful, harmful,
            uses, first.born, changed, sources, min(e.failing for e in entries),
        )  # fmt: skip
        self._put(new, rerender=edit.text is not None)
        for entry in others:
            self._remove(entry)
        return Applied(replace(edit, ids=tuple(e.id for e in entries)), first.id)


def _voted(old: Entry, edit: Vote) -> Entry:
    if edit.helpful < 0 or edit.harmful < 0 or edit.uses < 0:
        raise _Refusal("counts cannot be negative")
    if not (edit.helpful or edit.harmful or edit.uses):
        raise _Refusal("all counts are 0")
    return Entry(
        old.id, old.section, old.text, old.key, old.data, old.helpful + edit.helpful, old.harmful + edit.harmful,
        old.uses + edit.uses, old.born, old.changed, old.sources,
        (0 if edit.helpful else old.failing) + edit.harmful,
    )  # fmt: skip


def _check(text: str, section: str) -> None:
    """Raise _Refusal if an entry cannot have this text or section."""
    if not text.strip():
        raise _Refusal("the text is empty")
    if not section.strip():
        raise _Refusal("the section is empty")
    if len(lines(section)) > 1:
        raise _Refusal("the section has more than one line")


def seed_context(entries: Iterable[tuple[str, str]]) -> Context:
    """Return a context at version 0 with hand-written (section, text) pairs, to start a run from."""
    return initial_context([Add(section, text, sources=("seed",)) for section, text in entries])


def initial_context(edits: Iterable[Add], ids: Iterable[str] = ()) -> Context:
    """Return the context at version 0 with the entries that these edits add. `ids` are the ids of the entries, in the
    order of `edits`; without `ids`, the entries are numbered from 0. Raises ContextFileError if an entry is refused."""
    draft = _Draft(Context(), 0)
    numbered = enumerate(zip_longest(edits, ids), 1)
    # Entries are stored in the order of their ids.
    ordered = sorted(numbered, key=lambda item: _number(item[1][1] or "", "e") or 0) if ids else numbered
    for number, (edit, id) in ordered:
        try:
            draft.take(edit, id)
        except _Refusal as refusal:
            raise ContextFileError("playbook.invalid_entry", f"entry {number} cannot be used: {refusal}") from None
    return draft.finish()
