"""Versions of a run's context: stored as the applied edits, and rebuilt by replaying them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Table

from practicum.core.context import SHOWN, Context
from practicum.core.edits import Add, Applied, Entry, Merge, Update, Vote
from practicum.core.errors import StoreError, UsageError
from practicum.core.html import card, table
from practicum.core.skills import PART, file_of
from practicum.core.words import quantity
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.scope import Transaction

EDITS: TypeAdapter[tuple[Applied, ...]] = TypeAdapter(tuple[Applied, ...])


@dataclass(frozen=True, slots=True)
class Version:
    """A version, stored as edits. `parent` is the version to which the edits were applied; for a rollback, the version
    that was restored. `step` is the step of learning that created the version."""

    version: int
    parent: int | None
    step: int
    next_number: int
    applied: tuple[Applied, ...]

    def __repr__(self) -> str:
        start = "" if self.parent is None else f", from version {self.parent}"
        return f"<Version {self.version}{start}, step {self.step}: {quantity(len(self.applied), 'edit')}>"

    def _repr_html_(self) -> str:
        """Return the first edits as a table, for notebooks."""
        edits = [(done.edit.op, done.id, getattr(done.edit, "text", None), done.edit.reason) for done in self.applied]
        below = f"and {len(edits) - SHOWN:,} more" if len(edits) > SHOWN else ""
        return card(repr(self), {}, table(("edit", "entry", "text", "reason"), edits[:SHOWN], below) if edits else "")


def version_row(version: Version) -> dict[str, Any]:
    columns = ("version", "parent", "step", "next_number")
    plain = {name: getattr(version, name) for name in columns}
    return {**plain, "applied": EDITS.dump_json(version.applied).decode()}


def seed_version(context: Context) -> Version:
    """Return the first version: the context that a run starts from."""
    added = [
        Applied(Add(e.section, e.text, e.key, e.data, e.helpful, e.harmful, sources=e.sources), e.id) for e in context
    ]
    used = [Applied(Vote(e.id, uses=e.uses), e.id) for e in context if e.uses]
    return Version(0, None, 0, context.next_number, (*added, *used))


def read_versions(store: Store | Transaction, table: Table = schema.versions, after: int = -1) -> list[Version]:
    """Return the versions of a space with numbers above `after`, oldest first. `table` is the table of versions of the
    playbook or of the corrections."""
    rows = store.rows(store.select(table).where(table.c.version > after).order_by(table.c.version))
    for row in rows:
        if not isinstance(row.next_number, int):
            raise StoreError(
                "store.damaged",
                f"the versions of this run are damaged: version {row.version} has an invalid number of entries",
            )
    return [Version(r.version, r.parent, r.step, r.next_number, EDITS.validate_json(r.applied)) for r in rows]


def read_edits(store: Store, version: int) -> tuple[Applied, ...]:
    table = schema.versions
    (row,) = store.rows(store.select(table.c.applied).where(table.c.version == version))
    return EDITS.validate_json(row.applied)


def read_parents(store: Store) -> dict[int, int | None]:
    """Return the parent of each version, by the number of the version."""
    return {
        row.version: row.parent for row in store.rows(store.select(schema.versions.c.version, schema.versions.c.parent))
    }


def lineage(parents: Mapping[int, int | None], version: int | None = None) -> list[int]:
    """Return the ancestors of a version (None: the last), oldest first, with the version itself. Raises UsageError if
    the version does not exist."""
    if version is not None and version not in parents:
        raise UsageError(
            "version.unknown",
            f"no version {version}: this run has versions 0 to {max(parents)}",
            version=version,
            last=max(parents),
        )
    line = [max(parents) if version is None else version]
    while (parent := parents[line[-1]]) is not None:
        _check_parent(line[-1], parent, parents)
        line.append(parent)
    return line[::-1]


def _check_parent(version: int, parent: int, versions: Mapping[int, object]) -> None:
    """Raise StoreError if the parent of a version is the version itself, a later version, or missing."""
    if not isinstance(parent, int) or parent >= version or parent not in versions:
        raise StoreError(
            "store.damaged", f"the versions of this run are damaged: version {version} cannot have the parent {parent}"
        )


def original(store: Store, version: int | None = None) -> int:
    """Return the version whose edits made the context of `version` (None: the last): if `version` is a rollback, the
    version that it restored, otherwise `version` itself. A rollback to a rollback is followed further."""
    table, versions = schema.versions.c, read_parents(store)
    copies = store.select(table.version, table.parent).where(table.applied == "[]", table.parent.is_not(None))
    parents = {row.version: row.parent for row in store.rows(copies)}
    number = max(versions, default=0) if version is None else version
    while number in parents:
        _check_parent(number, parents[number], versions)
        number = parents[number]
    return number


def rebuild(versions: Sequence[Version], version: int | None = None, letter: str = "e") -> Context:
    """Return the context at a version (None: the last), with ids that begin with `letter`. New ids continue after the
    highest id ever used."""
    if not versions:
        return Context(letter=letter)
    by_number = {v.version: v for v in versions}
    line = lineage({v.version: v.parent for v in versions}, version)
    context = Context(letter=letter)
    for number in line:
        context = context.replay(by_number[number].applied, number)
    return replace(context, next_number=max(context.next_number, by_number[line[-1]].next_number))


@dataclass(frozen=True, slots=True)
class EntryEvent:
    """Edit of an entry (`done`), with the version and the step in which the edit was made. If the edit is a merge,
    `lost` maps the ids of the entries that the merge removed to their texts."""

    version: int
    step: int
    done: Applied
    lost: Mapping[str, str] = field(default_factory=dict)


def entry_history(versions: Sequence[Version], id: str) -> list[EntryEvent]:
    """Return every edit of an entry, oldest first, including a merge of the entry into another entry."""
    return [
        EntryEvent(v.version, v.step, done)
        for v in versions
        for done in v.applied
        if done.id == id or id in getattr(done.edit, "ids", ())
    ]


Difference = tuple[list[Entry], list[Entry], list[tuple[Entry, Entry]]]
"""Entries that were added, removed, and changed (before, after)."""


def diff_contexts(old: Context, new: Context) -> Difference:
    """Return the difference between two contexts of one run."""
    return diff_entries({e.id: e for e in old}, {e.id: e for e in new})


def diff_runs(old: Sequence[Version], new: Sequence[Version]) -> Difference:
    """Return the difference between the last contexts of two runs.

    Entries with the same id match if they had the same text at some time, for example if one run started from the
    context of the other run. Of the remaining entries, entries with the same text match. Of the entries that then
    remain, entries with the same id and similar texts match, for example after a playbook file was edited. Parts of a
    skill have new ids after each import, so they match by their file and similar texts.
    """
    before, after = ({e.id: e for e in rebuild(versions)} for versions in (old, new))
    had, has = _texts(old), _texts(new)
    same = {id: id for id in after if id in before and had[id] & has[id]}
    unmatched: dict[str, list[Entry]] = {}
    for entry in before.values():
        if entry.id not in same:
            unmatched.setdefault(entry.text, []).append(entry)
    for id, entry in after.items():
        if id not in same and (candidates := unmatched.get(entry.text)):
            candidates.sort(key=lambda e: e.section != entry.section)
            same[id] = candidates.pop(0).id
    matched = set(same.values())
    rest: dict[object, list[Entry]] = {}
    for entry in before.values():
        for key in (entry.id, file_of(entry)) if entry.id not in matched else ():
            rest.setdefault(key, []).append(entry)
    for id, entry in after.items():
        similar = () if id in same else (*rest.get(id, ()), *rest.get(file_of(entry) or "", ()))
        for one in similar:
            if one.id not in matched and SequenceMatcher(None, one.text, entry.text).ratio() >= SIMILAR:
                same[id] = one.id
                matched.add(one.id)
                break
    return diff_entries(before, after, same)


SIMILAR = 0.6
"""Minimum similarity of the texts of two entries with the same id or file for the entries to match: the ratio of
`SequenceMatcher`, between 0 and 1."""


def _texts(versions: Sequence[Version]) -> dict[str, set[str]]:
    """Return all texts that each entry ever had, by the id of the entry."""
    texts: dict[str, set[str]] = {}
    for version in versions:
        for done in version.applied:
            if isinstance(done.edit, Add | Update | Merge) and done.edit.text is not None:
                texts.setdefault(done.id, set()).add(done.edit.text)
    return texts


def diff_entries(
    before: Mapping[str, Entry], after: Mapping[str, Entry], same: Mapping[str, str] | None = None
) -> Difference:
    """Return the difference between two sets of entries. `before` and `after` map ids to entries. `same` maps the id of
    an entry in `after` to the id of the same entry in `before`; None: entries with equal ids are the same."""
    same = {id: id for id in after if id in before} if same is None else same
    matched = set(same.values())
    both = [(before[same[id]], entry) for id, entry in after.items() if id in same]
    return (
        [entry for id, entry in after.items() if id not in same],
        [entry for id, entry in before.items() if id not in matched],
        [(b, a) for b, a in both if _content(b) != _content(a)],
    )


def _content(entry: Entry) -> tuple[str, str, dict[str, Any]]:
    """Return the content of an entry for a comparison. The place in a file of a skill is left out, because a change of
    one part moves the parts after it."""
    return entry.text, entry.section, {key: value for key, value in entry.data.items() if key != PART}
