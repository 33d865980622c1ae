"""Selective unlearning: rebuild a run as if some of what it learned from had never been there (ACE, section 5).

The log of edits is replayed without every edit that has a forgotten source, and without the later edits of what those
made. Entries of mixed origin go too, unless they are kept; then they stand as they would without the forgotten edits.
Records of what happened (traces, lessons, journal rows) go where they name a forgotten source or quote a forgotten
text. The proof reads the run again: its rows, and the bytes of its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Table, delete, select

from practicum.core.edits import Applied, Delete, Edit, Entry, Merge, Update, Vote
from practicum.core.errors import UsageError
from practicum.store import schema
from practicum.store.database import INDEX_FILE, Store
from practicum.store.snapshot import delete_snapshot
from practicum.store.versions import Version, read_versions, rebuild, version_row

SHORTEST = 12
"""Characters from which a text is searched for; a shorter one is found in much that has nothing to do with it."""

PIECE = 48
"""Bytes looked for at a time, since SQLite keeps a long text in several places."""

RECORDS: tuple[tuple[Table, str], ...] = (
    (schema.journal, "answer"),
    (schema.rollouts, "data"),
    (schema.lessons, "data"),
)
"""What happened, by table, and the column with its words."""


@dataclass(frozen=True, slots=True)
class Report:
    """What went. `left` counts the traces of it still found in the run afterwards, which must be 0."""

    removed: tuple[Entry, ...]
    restored: tuple[Entry, ...]
    kept_mixed: tuple[Entry, ...]
    edits: int
    rows: int
    left: int


def forget(
    store: Store, run_id: str, *, tasks: Sequence[str] = (), sources: Sequence[str] = (), tags: Sequence[str] = (),
    entries: Sequence[str] = (), keep_mixed: bool = False,
) -> Report:  # fmt: skip
    """Take what came from these tasks, sources, tags or entries out of a run, for good, and prove it.

    Entries, votes, traces, lessons, vectors, journal rows and the tasks themselves go, in one transaction; then the
    file is scrubbed. Raises UsageError where nothing of the kind is known, and StoreError where another process
    reads the file.
    """
    old = read_versions(store, run_id)
    wanted = _wanted(store, run_id, old, tasks, sources, tags)
    missing = [id for id in entries if not any(a.id == id for v in old for a in v.applied)]
    if missing:
        raise UsageError(f"there never was an entry {missing[0]!r} in this run")
    new = filtered(old, wanted, frozenset(entries), keep_mixed)
    before, after = rebuild(old), rebuild(new)
    forgotten = _Words(store, run_id, old, new, wanted)
    rows = _remove(store, run_id, new, wanted, forgotten)
    store.scrub()
    changed = [(before.get(entry.id), entry) for entry in after]
    return Report(
        removed=tuple(e for e in before if e.id not in after),
        restored=tuple(e for was, e in changed if was is None or was.text != e.text),
        kept_mixed=tuple(e for was, e in changed if was is not None and wanted & set(was.sources)),
        edits=sum(len(v.applied) for v in old) - sum(len(v.applied) for v in new),
        rows=rows,
        left=_left(store, run_id, wanted, frozenset(entries), forgotten),
    )


def filtered(
    versions: Sequence[Version], sources: frozenset[str], ids: frozenset[str], keep_mixed: bool
) -> list[Version]:
    """The same versions without what came from `sources` and without the entries `ids`; numbers stay as they were.

    What an edit did holds in the versions that descend from it: an entry that a rollback took back to what it was
    before a forgotten edit is not of mixed origin.
    """
    gone = ids if keep_mixed else ids | _mixed(versions, sources)
    after: dict[int | None, _Lost] = {None: _Lost(gone)}
    kept = []
    for version in versions:
        lost = after[version.version] = replace(after[version.parent])
        applied = [left for done in version.applied if (left := _kept(done, sources, lost, keep_mixed)) is not None]
        kept.append(replace(version, applied=tuple(applied)))
    return kept


def _mixed(versions: Sequence[Version], sources: frozenset[str]) -> frozenset[str]:
    """Entries of the last version in whose words or provenance a forgotten source had a part."""
    after: dict[int | None, set[str]] = {None: set()}
    for version in versions:
        mixed = after[version.version] = set(after[version.parent])
        for done in version.applied:
            edit = done.edit
            if isinstance(edit, Vote | Delete):
                continue
            if sources & set(edit.sources) or (isinstance(edit, Merge) and mixed & set(edit.ids)):
                mixed.add(done.id)
    return frozenset(after[versions[-1].version]) if versions else frozenset()


@dataclass
class _Lost:
    """What the log lost up to one version: entries that are gone, and those whose later words rest on lost ones."""

    gone: frozenset[str]
    reworded: frozenset[str] = frozenset()


def _kept(done: Applied, sources: frozenset[str], lost: _Lost, keep_mixed: bool) -> Applied | None:
    """The edit as it stays in the log, or None; what its loss takes with it is noted in `lost`."""
    edit = done.edit
    if isinstance(edit, Merge):
        return _kept_merge(done, edit, sources, lost)
    if done.id in lost.gone:
        return None
    if isinstance(edit, Update) and done.id in lost.reworded:
        return None
    if not sources & set(edit.sources):
        return done
    if isinstance(edit, Vote | Delete):
        return None
    if keep_mixed and _elsewhere(edit.sources, sources):
        return replace(done, edit=_without(edit, sources))
    if isinstance(edit, Update):
        lost.reworded |= {done.id}
    else:
        lost.gone |= {done.id}
    return None


def _kept_merge(done: Applied, edit: Merge, sources: frozenset[str], lost: _Lost) -> Applied | None:
    """A merge of what is left. One whose text rests on lost words is dropped: its parts stay apart as they were."""
    left = tuple(id for id in edit.ids if id not in lost.gone)
    if edit.text is None:
        if sources & set(edit.sources) and not _elsewhere(edit.sources, sources):
            return None
        return Applied(_without(replace(edit, ids=left), sources), left[0]) if len(left) > 1 else None
    tainted = sources & set(edit.sources) or len(left) < len(edit.ids) or lost.reworded & set(edit.ids)
    if not tainted:
        return done
    lost.reworded |= set(left)
    return None


def _elsewhere(found: Sequence[str], sources: frozenset[str]) -> bool:
    """Whether something not forgotten stands behind these sources. Tags, and a task beside its own rollouts, name
    what the rollouts are about and are no origin of their own."""
    left = [s for s in found if s not in sources and not s.startswith("tag:")]
    if any(s.startswith("rollout:") for s in found):
        left = [s for s in left if not s.startswith("task:")]
    return bool(left)


def _without(edit: Edit, sources: frozenset[str]) -> Any:
    """The edit without forgotten sources. Its lessons go unnamed, since some of them may be forgotten too."""
    if not sources & set(edit.sources):
        return edit
    return replace(edit, sources=tuple(s for s in edit.sources if s not in sources), lessons=())


def _wanted(
    store: Store, run_id: str, versions: Sequence[Version], tasks: Sequence[str], sources: Sequence[str],
    tags: Sequence[str],
) -> frozenset[str]:  # fmt: skip
    """Source names as entries carry them; each must be known, so that a slip of the pen forgets nothing in silence.

    A tag stands for the tasks that carry it, a task for its rollouts and for every trace of it.
    """
    asked = [f"task:{t}" for t in tasks] + list(sources) + [f"tag:{t}" for t in tags]
    by_task = {f"task:{id}": _names(data) for id, data in _tasks(store, run_id)}
    named = [tuple(json.loads(row.sources)) for table, _ in RECORDS for row in _rows(store, run_id, table)]
    known = {s for some in named for s in some} | {s for some in by_task.values() for s in some} | set(by_task)
    known |= {s for v in versions for a in v.applied for s in a.edit.sources}
    for name in asked:
        if name not in known:
            raise UsageError(f"nothing in this run was learned from {name!r}")
    wanted = set(asked)
    wanted |= {task for task, its in by_task.items() if wanted & its}
    rollouts = [tuple(json.loads(row.sources)) for row in _rows(store, run_id, schema.rollouts)]
    wanted |= {s for some in rollouts if wanted & set(some) for s in some if s.startswith("rollout:")}
    return frozenset(wanted)


def _names(data: dict[str, Any]) -> set[str]:
    """What else a task is called by: its tags and, where several traces are of one task, that task's own id."""
    tags, own = data["meta"].get("tags", ()), data["meta"].get("own_id")
    names = {f"tag:{tag}" for tag in ((tags,) if isinstance(tags, str) else tags)}
    return names if own is None else names | {f"task:{own}"}


def _tasks(store: Store, run_id: str) -> list[tuple[str, dict[str, Any]]]:
    return [(row.task_id, json.loads(row.data)) for row in _rows(store, run_id, schema.tasks)]


def _rows(store: Store, run_id: str, table: Table) -> list[Any]:
    return store.rows(select(table).where(table.c.run_id == run_id))


class _Words:
    """The forgotten texts that can be searched for: those that are no part of a text that stays."""

    def __init__(
        self, store: Store, run_id: str, old: Sequence[Version], new: Sequence[Version], wanted: frozenset[str]
    ) -> None:
        lost: set[str] = set()
        stays: set[str] = set(_said(new))
        for id, data in _tasks(store, run_id):
            (lost if f"task:{id}" in wanted else stays).update(_strings(data))
        for row in _rows(store, run_id, schema.lessons):
            if wanted & set(json.loads(row.sources)):
                lost.add(json.loads(row.data)["text"])
        lost.update(_said(old))
        stays.update(row.config for row in _rows(store, run_id, schema.runs))
        kept = "\0".join(stays)
        # Most of the old log is in the new one word for word: only what is not is searched for.
        self.texts = sorted(text for text in lost - stays if len(text) >= SHORTEST and text not in kept)
        self._forms = [form for text in self.texts for form in _forms(text)]

    def quoted_in(self, words: str) -> bool:
        """Whether one of them is part of `words`, as it is or inside JSON."""
        return any(form in words for form in self._forms)

    def pieces(self) -> set[bytes]:
        """Them as bytes, in pieces short enough to lie on one page of the file."""
        return {piece for form in self._forms for piece in _cut(form.encode(errors="replace"))}


def _said(versions: Sequence[Version]) -> Iterator[str]:
    """Every text in the log."""
    for version in versions:
        for done in version.applied:
            for name in ("text", "key", "data"):
                yield from _strings(getattr(done.edit, name, None))


def _strings(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)


def _forms(text: str) -> set[str]:
    """A text as it may stand in a row: plain, or escaped by JSON once or (JSON inside JSON) twice."""
    once = {json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True)}
    return {text} | once | {json.dumps(form, ensure_ascii=False)[1:-1] for form in once}


def _cut(raw: bytes) -> Iterable[bytes]:
    if len(raw) <= PIECE:
        return (raw,)
    return (raw[start : start + PIECE] for start in range(0, len(raw) - PIECE + 1, PIECE // 2))


def _remove(store: Store, run_id: str, versions: Sequence[Version], wanted: frozenset[str], words: _Words) -> int:
    """Take the rows out and put the log in that is left, whole or not at all; returns how many rows went."""
    statements: list[Any] = []
    for table, column in RECORDS:
        key = next(c for c in table.primary_key.columns if c.name != "run_id")
        for row in _rows(store, run_id, table):
            place = getattr(row, key.name)
            if _about(place, row.sources, wanted) or words.quoted_in(getattr(row, column)):
                statements.append(delete(table).where(table.c.run_id == run_id, key == place))
    table = schema.tasks
    ids = {id for id, _ in _tasks(store, run_id) if f"task:{id}" in wanted}
    statements += [delete(table).where(table.c.run_id == run_id, table.c.task_id == id) for id in sorted(ids)]
    rows = len(statements)
    table = schema.steps
    for row in _rows(store, run_id, table):
        data = json.loads(row.data)
        data["tasks"] = [id for id in data.get("tasks", ()) if f"task:{id}" not in wanted]
        # What a sampler says of sizes stays; what it says of tasks, and the reasons of resolutions, may tell more.
        data["sampled"] = {k: v for k, v in data.get("sampled", {}).items() if k in ("size", "fit")}
        data["fates"] = []
        data["evidence"] = {}
        # The refused edits of a step may say what is forgotten; their number stays in `data`.
        values = {"data": json.dumps(data), "refused": "[]"}
        statements.append(table.update().where(table.c.run_id == run_id, table.c.step == row.step).values(values))
    table = schema.versions
    for version in versions:
        same = (table.c.run_id == run_id) & (table.c.version == version.version)
        statements.append(table.update().where(same).values(version_row(run_id, version)))
    # Caches, of a run that does not go on: no need to ask whose words and vectors they hold.
    statements += [delete(schema.vectors), *delete_snapshot(run_id)]
    (store.folder / INDEX_FILE).unlink(missing_ok=True)
    state = {"state": "forgotten", "result": None}
    statements.append(schema.runs.update().where(schema.runs.c.run_id == run_id).values(state))
    store.execute(*statements)
    return rows


def _about(place: str, sources: str, wanted: frozenset[str]) -> bool:
    """Whether a row names a forgotten source, lies at a forgotten rollout's place, or at that of a job on a forgotten
    task ("2.t1"), where what it is about may not have been named."""
    if wanted & set(json.loads(sources)):
        return True
    above = place.split("/")
    jobs = (job for number, _, job in (name.partition(".") for name in above) if number.isdigit())
    if any(f"task:{job.replace('%2F', '/').replace('%25', '%')}" in wanted for job in jobs):
        return True
    return any(f"rollout:{'/'.join(above[:n])}" in wanted for n in range(1, len(above) + 1))


def _left(store: Store, run_id: str, wanted: frozenset[str], ids: frozenset[str], words: _Words) -> int:
    """Traces left: edits and rows that name what is forgotten or quote it, and its words in the bytes of the files."""
    versions = read_versions(store, run_id)
    edits = [a for v in versions for a in v.applied]
    left = sum(1 for a in edits if wanted & set(a.edit.sources) or ids & {a.id, *getattr(a.edit, "ids", ())})
    left += sum(1 for id, _ in _tasks(store, run_id) if f"task:{id}" in wanted)
    left += len(store.rows(select(schema.vectors.c.key)))
    stays = ["\0".join(_column(store, run_id, schema.versions, "applied"))]
    stays += _column(store, run_id, schema.tasks, "data") + _column(store, run_id, schema.runs, "config")
    stays += _column(store, run_id, schema.steps, "data")
    for table, column in RECORDS:
        for row in _rows(store, run_id, table):
            text = getattr(row, column)
            left += _about(row[1], row.sources, wanted) or words.quoted_in(text)
            stays.append(text)
    left += sum(words.quoted_in(text) for text in _said(versions))
    # A piece that is also part of what stays proves nothing; what stays was looked at text by text.
    known = "\0".join(stays).encode(errors="replace")
    pieces = [piece for piece in words.pieces() if piece not in known]
    for path in sorted(p for p in store.folder.iterdir() if p.is_file()):
        raw = path.read_bytes()
        left += sum(piece in raw for piece in pieces)
    return left


def _column(store: Store, run_id: str, table: Table, name: str) -> list[str]:
    return [getattr(row, name) or "" for row in _rows(store, run_id, table)]
