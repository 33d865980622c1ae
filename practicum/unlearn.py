"""Selective unlearning: rebuild a run as if some of what it learned from had never been there (ACE, section 5).

The log of edits is replayed without every edit that has a forgotten source, and without the later edits of what those
made. Entries of mixed origin go too, unless they are kept; then they stand as they would without the forgotten edits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, select

from practicum.context import Applied, Context, Entry, Merge, Vote
from practicum.errors import UsageError
from practicum.history import Version, read_versions, rebuild, version_row
from practicum.store import schema
from practicum.store.store import FILE, Store

Forgotten = Callable[[Sequence[str]], bool]


@dataclass(frozen=True, slots=True)
class Report:
    """What went. `left` counts the traces of it still found in the file afterwards, which must be 0."""

    removed: tuple[Entry, ...]
    restored: tuple[Entry, ...]
    kept_mixed: tuple[Entry, ...]
    edits: int
    rows: int
    left: int


def filtered(
    versions: Sequence[Version], sources: frozenset[str], ids: frozenset[str], keep_mixed: bool
) -> list[Version]:
    """The same versions without what came from `sources` and without the entries `ids`; numbers stay as they were."""
    gone = set(ids) | (set() if keep_mixed else _touched(versions, sources))
    kept = []
    for version in versions:
        applied = tuple(a for a in (_kept(done, sources, gone, keep_mixed) for done in version.applied) if a)
        kept.append(replace(version, applied=applied))
    return kept


def _touched(versions: Sequence[Version], sources: frozenset[str]) -> set[str]:
    """Entries whose words a forgotten source had any part in: by adding, updating, or being merged in."""
    touched: set[str] = set()
    for version in versions:
        for done in version.applied:
            edit = done.edit
            if isinstance(edit, Vote):
                continue
            if sources & set(edit.sources) or (isinstance(edit, Merge) and touched & set(edit.ids)):
                touched.add(done.id)
    return touched


def _kept(done: Applied, sources: frozenset[str], gone: set[str], keep_mixed: bool) -> Applied | None:
    """The edit as it stays in the log, or None. What a dropped edit made is gone, and so are later edits of it."""
    edit = done.edit
    if isinstance(edit, Merge) and gone & set(edit.ids):
        left = tuple(id for id in edit.ids if id not in gone)
        # What was merged from several origins cannot be taken apart again where the model wrote a text for it.
        if edit.text is not None:
            gone.update(edit.ids)
        elif len(left) > 1:
            return Applied(replace(edit, ids=left), left[0])
        return None
    if done.id in gone:
        return None
    mine = set(edit.sources)
    if not mine & sources:
        return done
    if keep_mixed and any(s.startswith("task:") for s in mine - sources):
        return replace(done, edit=replace(edit, sources=tuple(s for s in edit.sources if s not in sources)))
    if not isinstance(edit, Vote):
        if keep_mixed and edit.op == "update":
            return None
        gone.add(done.id)
    return None


def forget(
    store: Store, run_id: str, *, tasks: Sequence[str] = (), sources: Sequence[str] = (), tags: Sequence[str] = (),
    entries: Sequence[str] = (), keep_mixed: bool = False,
) -> Report:  # fmt: skip
    """Take what came from these tasks, sources, tags or entries out of a run, for good, and prove it.

    Entries, votes, traces, lessons, vectors, journal rows and the tasks themselves go; the file is scrubbed. Raises
    UsageError where nothing of the kind is known.
    """
    versions = read_versions(store, run_id)
    before = rebuild(versions)
    wanted = _wanted(store, run_id, versions, tasks, sources, tags)
    missing = [id for id in entries if not any(a.id == id for v in versions for a in v.applied)]
    if missing:
        raise UsageError(f"there never was an entry {missing[0]!r} in this run")
    after_versions = filtered(versions, wanted, frozenset(entries), keep_mixed)
    after = rebuild(after_versions)
    texts = _texts_of(store, run_id, wanted) | _lost_texts(versions, after_versions)
    rows = _remove_rows(store, run_id, wanted, texts)
    store.put(schema.versions, [version_row(run_id, v) for v in after_versions])
    store.change(schema.runs.update().where(schema.runs.c.run_id == run_id).values(state="forgotten", result=None))
    store.scrub()
    removed = tuple(e for e in before if e.id not in after)
    restored = tuple(e for e in after if (old := before.get(e.id)) is None or old.text != e.text)
    mixed = tuple(e for e in after if (old := before.get(e.id)) is not None and wanted & set(old.sources))
    edits = sum(len(v.applied) for v in versions) - sum(len(v.applied) for v in after_versions)
    return Report(removed, restored, mixed, edits, rows, _still_there(store, after, wanted, texts))


def _wanted(
    store: Store, run_id: str, versions: Sequence[Version], tasks: Sequence[str], sources: Sequence[str],
    tags: Sequence[str],
) -> frozenset[str]:  # fmt: skip
    """Source names as entries carry them; each must be known, so that a slip of the pen forgets nothing in silence."""
    asked = [f"task:{t}" for t in tasks] + list(sources) + [f"tag:{t}" for t in tags]
    listed = select(schema.rollouts.c.sources).where(schema.rollouts.c.run_id == run_id)
    rollouts = [tuple(json.loads(row.sources)) for row in store.rows(listed)]
    known = {s for some in rollouts for s in some}
    known |= {s for v in versions for a in v.applied for s in a.edit.sources}
    for name in asked:
        if name not in known:
            raise UsageError(f"nothing in this run was learned from {name!r}")
    # A tag or trace stands for the rollouts that carry it: what they alone left behind goes with it.
    wanted = set(asked)
    for some in rollouts:
        if wanted & set(some):
            wanted |= {s for s in some if s.startswith("rollout:")}
    return frozenset(wanted)


def _texts_of(store: Store, run_id: str, wanted: frozenset[str]) -> set[str]:
    """What the forgotten tasks asked."""
    ids = {name.removeprefix("task:") for name in wanted if name.startswith("task:")}
    table = schema.tasks
    rows = store.rows(select(table.c.task_id, table.c.data).where(table.c.run_id == run_id))
    return {json.loads(row.data)["input"] for row in rows if row.task_id in ids}


def _lost_texts(before: Sequence[Version], after: Sequence[Version]) -> set[str]:
    """What only the forgotten edits said."""

    def said(versions: Sequence[Version]) -> set[str]:
        edits = [done.edit for version in versions for done in version.applied]
        return {text for edit in edits if (text := getattr(edit, "text", None))}

    return said(before) - said(after)


def _remove_rows(store: Store, run_id: str, wanted: frozenset[str], texts: set[str]) -> int:
    from practicum.embed import text_key

    removed = 0
    statements: list[Any] = []
    for table in (schema.journal, schema.rollouts, schema.lessons):
        key = next(c for c in table.primary_key.columns if c.name != "run_id")
        rows = store.rows(select(key, table.c.sources).where(table.c.run_id == run_id))
        doomed = [row[0] for row in rows if wanted & set(json.loads(row.sources))]
        statements += [delete(table).where(table.c.run_id == run_id, key == name) for name in doomed]
        removed += len(doomed)
    ids = [name.removeprefix("task:") for name in wanted if name.startswith("task:")]
    tasks = schema.tasks
    statements.append(delete(tasks).where(tasks.c.run_id == run_id, tasks.c.task_id.in_(ids)))
    statements.append(delete(schema.vectors).where(schema.vectors.c.key.in_([text_key(t) for t in texts])))
    # The refused edits of a step may quote what is forgotten; numbers stay.
    statements.append(schema.steps.update().where(schema.steps.c.run_id == run_id).values(refused="[]"))
    store.change(*statements)
    return removed + len(ids)


def _still_there(store: Store, after: Context, wanted: frozenset[str], texts: set[str]) -> int:
    """Traces left: entries that name a forgotten source, and forgotten texts found in the bytes of the file."""
    named = sum(1 for entry in after if wanted & set(entry.sources))
    raw = (store.folder / FILE).read_bytes()
    needles = [json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts if len(text) >= 12]
    return named + sum(needle in raw for needle in needles)
