"""Selective unlearning: rebuild a run as if some of its sources had never existed (ACE, section 5).

The log of edits is replayed without the edits from forgotten sources and without later edits that depend on these
edits. An entry of mixed origin, with edits from forgotten and from other sources, is removed too, unless the caller
keeps such entries (`keep_mixed`). An entry that is kept is rebuilt without the forgotten edits. Rows (traces, lessons,
model calls, reviews, ...) are removed if they name a forgotten source or quote a forgotten text.

After the removal, the run and the bytes of the files of the run are read again. This check counts the rows that still
name a forgotten source, and the stored texts that quote a forgotten task, lesson or entry word for word. The remaining
run is also searched for rare words of the forgotten texts (`core.shingles`), which a model may have copied into new
sentences. Matches are reported, or removed as well. Paraphrases are not detected.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any, AnyStr

from sqlalchemy import Table

from practicum.core.edits import CONVERSATION, Applied, Delete, Edit, Entry, Merge, Update, Vote, entry_json
from practicum.core.errors import StoreError, UsageError
from practicum.core.shingles import Rarity, grams, pieces
from practicum.core.trust import MARK, markers
from practicum.core.words import strings
from practicum.engine.admission import edit_texts
from practicum.session.corrections import LETTER
from practicum.session.identity import namesakes
from practicum.session.legs import is_note
from practicum.session.records import change_run
from practicum.store import schema
from practicum.store.copy import copy_run
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE
from practicum.store.raw import pieces_in
from practicum.store.scope import Transaction
from practicum.store.snapshot import delete_snapshot
from practicum.store.versions import Version, read_versions, rebuild, version_row
from practicum.tasks.stored import StoredTasks

MIN_CHARS = 12
"""Minimum length of a forgotten text that is searched for word for word. Shorter texts occur in many unrelated texts by
chance."""

PIECE = 48
"""Length (bytes) of the pieces of a forgotten text that are searched for in the files. SQLite stores a long text in
several places of a file."""

PART = 1_000
"""Number of interactions that are read at a time."""

SHOWN = 5
"""Maximum number of rare words that are reported for an entry."""

WORDS = "rare words"
"""Source that is assigned to edits with rare words of the forgotten texts, so that these edits are removed like edits
from a forgotten source."""

RECORDS = {
    table: table.c[key]
    for table, key in (
        (schema.journal, "place"), (schema.attempts, "place"), (schema.lessons, "lesson_id"),
        (schema.reviews, "id"), (schema.names, "name"), (schema.interactions, "id"), (schema.outcomes, "id"),
    )
}  # fmt: skip
"""Tables whose rows are removed one by one, each with its key column."""


@dataclass(frozen=True, slots=True)
class RareWordMatches:
    """Entries and rows with rare words of the forgotten texts.

    `entries` are the entries, each with the rare words in it. `rows` is the number of rows by table. For the table
    `versions`, edits are counted in place of rows: an edit counts if its reason has rare words, or if its text has rare
    words and the edited entry is not among `entries`.
    """

    entries: tuple[tuple[Entry, tuple[str, ...]], ...]
    rows: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.entries or self.rows)


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """Report of a removal.

    `removed` are the entries that the last version no longer has. `restored` are the entries that the last version has
    again, or has with another text. `mixed_origin` are kept entries that had a forgotten source. `edits` and `rows` are
    the numbers of removed edits and rows. `left` is the number of forgotten rows and texts that the run still holds;
    `left` must be 0. `alike` are entries and rows with rare words of the forgotten texts: copies, or the same words by
    chance. `namesakes` are sources that stay because they come from an earlier run, whose context this run started
    with; in the earlier run these sources had a name that is forgotten in this run.
    """

    removed: tuple[Entry, ...]
    restored: tuple[Entry, ...]
    mixed_origin: tuple[Entry, ...]
    edits: int
    rows: int
    left: int
    alike: RareWordMatches
    namesakes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        entries = {"removed": self.removed, "restored": self.restored, "mixed_origin": self.mixed_origin}
        matches = [{**entry_json(e), "words": words} for e, words in self.alike.entries]
        return {
            **{name: [*map(entry_json, some)] for name, some in entries.items()},
            "edits": self.edits, "rows": self.rows, "left": self.left,
            "alike": {"entries": matches, "rows": self.alike.rows}, "namesakes": [*self.namesakes],
        }  # fmt: skip


def forget(
    store: Store, *, tasks: Sequence[str] = (), sources: Sequence[str] = (), tags: Sequence[str] = (),
    entries: Sequence[str] = (), keep_mixed: bool = False, alike: bool = False, copy_to: Path | None = None,
    stay: Collection[str] = (),
) -> ForgetReport:  # fmt: skip
    """Remove permanently from a run everything that was derived from these tasks, sources, tags or entries. Return a
    report.

    Entries, votes, traces, lessons, vectors, journal rows and the tasks themselves are removed in one transaction.
    After the transaction, the run's file is scrubbed, and the logs of the run's models are emptied. With `alike`,
    everything else with rare words of the removed texts is removed as well. The run is first copied to the new folder
    `copy_to`, if set. If one of the tasks is the outcome of an interaction, the interaction is removed too, unless its
    id is in `stay`.

    After an interruption, the next process that opens the run for writing finishes the removal. A repeated call then
    reports that nothing more was removed. Raises UsageError for an unknown name, and StoreError while another process
    reads the file, or if the file cannot be written.
    """
    if not (tasks or sources or tags or entries):
        raise UsageError("settings.missing", "nothing to forget: pass tasks, sources, tags or entries")
    run = _Rows(store)
    old, old_corrections = read_versions(store), read_versions(store, schema.corrections)
    names = [f"task:{t}" for t in tasks] + list(sources) + [f"tag:{t}" for t in tags]
    try:
        forgotten = _sources(run, [*old, *old_corrections], names, frozenset(f"task:{id}" for id in stay))
        unknown_ids = [id for id in entries if not any(a.id == id for v in (*old, *old_corrections) for a in v.applied)]
        if unknown_ids:
            raise UsageError(
                "entry.unknown",
                f"no entry {unknown_ids[0]!r} in any version: practicum show {store.folder} lists the current entries",
                entry=unknown_ids[0],
            )
    except UsageError:
        if not store.has_forgotten:
            raise
        return ForgetReport((), (), (), 0, 0, 0, RareWordMatches((), {}))
    ids = frozenset(entries)
    new = filtered(old, forgotten, ids, keep_mixed)
    words = _rare_words(run, old, new, forgotten, ids)
    if alike:
        marked = _with_edits(
            old, lambda edit: replace(edit, sources=(WORDS,)) if _words_in(words, edit_texts(edit)) else edit
        )
        new = filtered(marked, forgotten | {WORDS}, ids, keep_mixed)
        new = _with_edits(new, lambda edit: replace(edit, reason="") if _words_in(words, [edit.reason]) else edit)
    new_corrections = filtered(old_corrections, forgotten, ids, keep_mixed)
    texts = _ForgottenTexts(
        run, old, new, forgotten, {*_logged_texts(old_corrections)}.difference(_logged_texts(new_corrections))
    )
    rare = words if alike else frozenset[str]()
    quoting = _quoting(new_corrections, texts, rare)
    new_corrections = filtered(new_corrections, frozenset(), quoting, keep_mixed)
    before, after = (
        {e.id: e for e in chain(rebuild(of), rebuild(of_corrections, letter=LETTER))}
        for of, of_corrections in ((old, old_corrections), (new, new_corrections))
    )
    if copy_to is not None:
        # The partial copy has a fixed name, so that after a kill the next call removes that copy.
        partial_copy = copy_to.with_name(f".{copy_to.name}")
        shutil.rmtree(partial_copy, ignore_errors=True)
        copy_run(store, partial_copy)
        partial_copy.rename(copy_to)
    removed = _remove(run, new, new_corrections, forgotten, ids | quoting, texts, rare)
    try:
        store.finish_forgetting()
    except StoreError as error:
        if error.code != "store.unwritable":
            raise
        raise StoreError(
            "forget.incomplete",
            f"the records are removed, but their bytes may remain in the files: {error}. The next command that writes "
            "to the space removes the bytes",
        ) from error
    matches = _rare_word_matches(run, new, new_corrections, words)
    left = _count_left(run, forgotten, ids, texts)
    if alike:
        # The database file was rewritten, so the file holds only the current rows, which are counted above. Other files
        # may be logs.
        files = (path for path in store.all_files() if not path.name.startswith(DATABASE_FILE))
        logs = (path.read_bytes().decode(errors="ignore") for path in files)
        left += len(matches.entries) + sum(matches.rows.values()) + sum(bool(_words_in(words, [log])) for log in logs)
    pairs = [(before.get(entry.id), entry) for entry in after.values()]
    return ForgetReport(
        removed=tuple(e for e in before.values() if e.id not in after),
        restored=tuple(e for was, e in pairs if was is None or was.text != e.text),
        mixed_origin=tuple(e for was, e in pairs if was is not None and forgotten & set(was.sources)),
        edits=sum(len(v.applied) for v in (*old, *old_corrections))
        - sum(len(v.applied) for v in (*new, *new_corrections)),
        rows=removed,
        left=left,
        alike=matches,
        namesakes=namesakes(names, _named_sources(run, [*new, *new_corrections])),
    )


def filtered(
    versions: Sequence[Version], sources: frozenset[str], ids: frozenset[str], keep_mixed: bool
) -> list[Version]:
    """Return the versions without edits from `sources` and without the entries `ids`; version numbers stay the same.

    An edit has an effect only in its version and in the descendants of that version. After a rollback to an earlier
    version, the entry that was edited has no text from the edit. So the entry is not of mixed origin, even if the edit
    is forgotten.
    """
    removed = ids if keep_mixed else ids | _mixed(versions, sources)
    after: dict[int | None, _Losses] = {None: _Losses(removed)}
    result = []
    for version in versions:
        lost = after[version.version] = replace(after[version.parent])
        applied = [
            left for done in version.applied if (left := _remaining_edit(done, sources, lost, keep_mixed)) is not None
        ]
        result.append(replace(version, applied=tuple(applied)))
    return result


def _mixed(versions: Sequence[Version], sources: frozenset[str]) -> frozenset[str]:
    """Return the ids of the entries of the last version that an edit from a forgotten source added, updated or
    merged."""
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
class _Losses:
    """Losses of the log up to one version: the ids of removed entries, and of entries whose later texts depend on
    removed edits."""

    removed: frozenset[str]
    reworded: frozenset[str] = frozenset()


def _remaining_edit(done: Applied, sources: frozenset[str], lost: _Losses, keep_mixed: bool) -> Applied | None:
    """Return the edit in the form that stays in the log, or None if the edit is dropped. If later edits of the entry
    depend on the dropped edit, the id of the entry is added to `lost`."""
    edit = done.edit
    if isinstance(edit, Merge):
        return _remaining_merge(done, edit, sources, lost)
    if done.id in lost.removed or (isinstance(edit, Update) and done.id in lost.reworded):
        return None
    if not sources & set(edit.sources):
        return done
    if isinstance(edit, Vote | Delete):
        return None
    if keep_mixed and _has_other_origin(edit.sources, sources):
        return replace(done, edit=_without(edit, sources))
    if isinstance(edit, Update):
        lost.reworded |= {done.id}
    else:
        lost.removed |= {done.id}
    return None


def _remaining_merge(done: Applied, edit: Merge, sources: frozenset[str], lost: _Losses) -> Applied | None:
    """Return the merge of the remaining entries.

    A merge whose text depends on lost texts is dropped, so that the entries of the merge stay separate.
    """
    left = tuple(id for id in edit.ids if id not in lost.removed)
    if edit.text is None:
        if sources & set(edit.sources) and not _has_other_origin(edit.sources, sources):
            return None
        return Applied(_without(replace(edit, ids=left), sources), left[0]) if len(left) > 1 else None
    if not (sources & set(edit.sources) or len(left) < len(edit.ids) or lost.reworded & set(edit.ids)):
        return done
    lost.reworded |= set(left)
    return None


def _has_other_origin(edit_sources: Sequence[str], sources: frozenset[str]) -> bool:
    """Return whether an edit has an origin that is not among the forgotten `sources`.

    Tags, conversations and trust marks are not origins. A task is not an origin if the edit also names attempts.
    """
    others = [s for s in edit_sources if s not in sources and not s.startswith(("tag:", CONVERSATION, MARK))]
    if any(s.startswith("attempt:") for s in edit_sources):
        others = [s for s in others if not s.startswith("task:")]
    return bool(others)


def _without(edit: Edit, sources: frozenset[str]) -> Any:
    """Return the edit without forgotten sources. If the edit names a forgotten source, the ids of the edit's lessons
    are removed too, because these lessons may be forgotten."""
    if not sources & set(edit.sources):
        return edit
    return replace(edit, sources=tuple(s for s in edit.sources if s not in sources), lessons=())


@dataclass
class _Rows:
    store: Store

    def of(self, table: Table) -> list[Any]:
        return self.store.rows(self.store.select(table))

    def records(self) -> Iterator[tuple[Table, str, Any]]:
        """Yield the rows that are removed one by one, each with its table and its key."""
        for table, key in RECORDS.items():
            for row in self.asked() if table is schema.interactions else self.of(table):
                yield table, getattr(row, key.name), row

    def tasks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the id and the fields of each task, interactions included.

        The tasks are read again on each call, because there may be more tasks than fit in memory.
        """
        for row in self.asked():
            yield row.id, {"meta": {}, **json.loads(row.data)}
        for data in map(json.loads, self.stored()):
            yield data["id"], data

    def stored(self) -> Iterator[str]:
        """Yield each task of the run as JSON."""
        return chain.from_iterable(StoredTasks(self.store, split).data() for split in ("train", "val", "test"))

    def ids(self) -> Iterator[str]:
        """Yield the id of each task of the run."""
        return chain.from_iterable(StoredTasks(self.store, split).ids() for split in ("train", "val", "test"))

    def asked(self) -> Iterator[Any]:
        """Yield the interactions, read in parts, since there may be more interactions than fit in memory."""
        i, last = schema.interactions, -1
        while rows := self.store.rows(self.store.select(i).where(i.c.number > last).order_by(i.c.number).limit(PART)):
            yield from rows
            last = rows[-1].number


def _row_sources(table: Table, row: Any) -> set[str]:
    """Return the sources that a row names."""
    if table is schema.reviews:
        return {source for edit in json.loads(row.data)["edits"] for source in edit["sources"]}
    if table in (schema.interactions, schema.outcomes):
        return {f"task:{row.id}"}
    return set(json.loads(row.sources)) if "sources" in table.c else set()


def _sources(run: _Rows, versions: Sequence[Version], names: Sequence[str], stay: frozenset[str]) -> frozenset[str]:
    """Return all sources that these names include: for a tag or a trust mark, the tasks that have the tag or mark; for
    a task, the attempts at the task and the traces of the task.

    Raises UsageError for an unknown name, so that a misspelled name is not silently ignored.
    """
    requested, of_tasks, forgotten = set(names), set[str](), set(names)
    for id, data in run.tasks():
        if matches := requested & {f"task:{id}", *_aliases(data)}:
            of_tasks |= matches
            # A task from an interaction is one revision of the interaction's outcome. All revisions are removed.
            forgotten |= {f"task:{id}", *(own for own in _shared_name(data) if own not in stay)}
    for id, data in run.tasks():
        forgotten |= {f"task:{id}"} if forgotten & {*_shared_name(data)} else set()
    existing = of_tasks | _named_sources(run, versions)
    if unknown := [name for name in names if name not in existing]:
        before = " or ".join(map(repr, namesakes(unknown[:1], existing)))
        hint = f"; if you mean the source of an earlier run with this name, pass {before}" if before else ""
        raise UsageError("source.unknown", f"nothing in this run was learned from {unknown[0]!r}{hint}")
    for row in run.of(schema.attempts):
        of_attempt = json.loads(row.sources)
        if forgotten & set(of_attempt):
            forgotten |= {source for source in of_attempt if source.startswith("attempt:")}
    return frozenset(forgotten)


def _named_sources(run: _Rows, versions: Sequence[Version]) -> set[str]:
    """Return all sources that rows and edits name."""
    recorded = (_row_sources(table, row) for table, _, row in run.records())
    return set[str]().union(*recorded, *(done.edit.sources for version in versions for done in version.applied))


def _aliases(data: dict[str, Any]) -> set[str]:
    """Return other names of a task: its tags, its trust mark and, if several traces share one task, the id of the
    shared task."""
    tags = data["meta"].get("tags", ())
    names = {f"tag:{tag}" for tag in ((tags,) if isinstance(tags, str) else tags)}
    return names | {*markers(data.get("trust", "own")), *_shared_name(data)}


def _shared_name(data: dict[str, Any]) -> list[str]:
    """Return the name that several attempts at one task share, as a list of at most one name."""
    own = data["meta"].get("own_id")
    return [] if own is None else [f"task:{own}"]


def _rare_words(
    run: _Rows, old: Sequence[Version], new: Sequence[Version], forgotten: frozenset[str], ids: frozenset[str]
) -> frozenset[str]:
    """Return the rare words (pieces, see `core.shingles`) of the forgotten tasks, and of the lessons and entries that
    come only from forgotten sources.

    Left out are pieces that also occur in the operator's own texts or in another task. A piece of a lesson or entry is
    also left out if many other lessons and entries contain the piece.
    """
    own_texts = [text for row in run.of(schema.spaces) for text in _nested_texts([row.config or ""])]
    own_texts += [json.loads(row.data)["feedback"]["text"] for row in run.of(schema.attempts)]
    raw, learned, others = set[str](), set[str](), set[str]()
    interaction_ids = {row.id for row in run.asked()}

    def texts_of_tasks(of_forgotten: bool) -> Iterator[str]:
        for id, data in run.tasks():
            if (f"task:{id}" in forgotten) == of_forgotten:
                # The other fields of an interaction may come from an answer, and therefore from lessons.
                yield from strings(data["query"] if id in interaction_ids else data)

    raw.update(texts_of_tasks(of_forgotten=True))
    for row in run.of(schema.lessons):
        data, sources = json.loads(row.data), json.loads(row.sources)
        # Left out are texts that practicum itself writes into a lesson's data: single words, and the trace's name.
        texts = [data["text"], *(text for text in strings({**data["data"], "trace": ""}) if " " in text)]
        if not forgotten & {*sources}:
            others.update(texts)
        elif not _has_other_origin(sources, forgotten):
            learned.update(texts)
    for done in (done for version in old for done in version.applied):
        edit, texts = done.edit, edit_texts(done.edit)[:1]
        if done.id in ids or (forgotten & {*edit.sources} and not _has_other_origin(edit.sources, forgotten)):
            learned.update(texts)
        elif not any(source.startswith(("task:", "attempt:")) for source in edit.sources):
            own_texts += texts
        elif not forgotten & {*edit.sources}:
            others.update(texts)
    words = {piece for text in learned for piece in pieces(text)}
    words = {*Rarity(others).rare(words)}.union(*map(pieces, raw))
    for text in chain(dict.fromkeys(own_texts), texts_of_tasks(of_forgotten=False) if words else ()):
        words -= grams(text)
    return frozenset(words)


def _nested_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, also in JSON inside a text."""
    for text in strings(value):
        if text.startswith(("{", "[")):
            try:
                yield from _nested_texts(json.loads(text))
                continue
            except (ValueError, RecursionError):
                pass  # not JSON, but text like any other
        yield text


def _words_in(words: frozenset[str], texts: Iterable[str]) -> frozenset[str]:
    """Return the words that occur in these texts."""
    return frozenset(chain.from_iterable(words & grams(text) for text in texts)) if words else frozenset()


def _row_texts(table: Table, row: Any) -> Iterator[str]:
    return _nested_texts([value for column in table.c if isinstance(value := getattr(row, column.name), str)])


def _with_edits(versions: Sequence[Version], change: Callable[[Edit], Edit]) -> list[Version]:
    return [replace(v, applied=tuple(replace(done, edit=change(done.edit)) for done in v.applied)) for v in versions]


def _rare_word_matches(
    run: _Rows, versions: Sequence[Version], corrections: Sequence[Version], words: frozenset[str]
) -> RareWordMatches:  # fmt: skip
    """Search every stored text, except the operator's own, for these words. Return the entries and rows with at least
    one of these words."""
    held = chain(rebuild(versions), rebuild(corrections, letter=LETTER))
    matches = [(e, _words_in(words, [e.section, e.text, e.key, *_nested_texts(e.data)])) for e in held]
    entries = {e.id: (e, tuple(sorted(has, key=len)[-SHOWN:])) for e, has in matches if has}
    rows: Counter[str] = Counter()
    for done in (done for version in (*versions, *corrections) for done in version.applied):
        texts = [] if done.id in entries else edit_texts(done.edit)
        rows["versions"] += bool(_words_in(words, [done.edit.reason, *texts]))
    stored = chain(run.records(), ((schema.steps, "", row) for row in run.of(schema.steps)))
    for table, _, row in stored if words else ():
        rows[table.name] += bool(_words_in(words, _row_texts(table, row)))
    for row in run.of(schema.texts) if words else ():
        rows["prompts"] += bool(_words_in(words, [row.text]))
    return RareWordMatches(tuple(entries.values()), dict(+rows))


class _ForgottenTexts:
    """Forgotten texts to search for, without texts that are part of a remaining text."""

    def __init__(
        self, run: _Rows, old: Sequence[Version], new: Sequence[Version], forgotten: frozenset[str], corrected: set[str]
    ) -> None:  # fmt: skip
        """Collect the texts; `corrected` are the texts of forgotten corrections."""
        lost, stays = {*_logged_texts(old), *corrected}, set(_logged_texts(new))
        for id, data in run.tasks():
            # The id of a task, and the id of its interaction, are names and not texts.
            lost.update({*strings(data)} - {id, data["meta"].get("own_id")} if f"task:{id}" in forgotten else ())
        for row in run.of(schema.lessons):
            if forgotten & set(json.loads(row.sources)):
                lost.add(json.loads(row.data)["text"])
        stays.update(row.config or "" for row in run.of(schema.spaces))
        # Most texts of the old log are also in the new log. Only texts that are not in the new log are searched for.
        texts = sorted(_not_contained((text for text in lost - stays if len(text) >= MIN_CHARS), ["\0".join(stays)]))
        others = (strings(data) for id, data in run.tasks() if f"task:{id}" not in forgotten)
        texts = _not_contained(texts, map("\0".join, others))
        self._forms: list[str] = []
        for text in texts:
            # In a row, a text is plain, or escaped once by JSON, or twice (JSON inside JSON).
            once = {json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True)}
            self._forms += {text} | once | {json.dumps(form, ensure_ascii=False)[1:-1] for form in once}

    def quoted_in(self, text: str) -> bool:
        """Return whether one of the forgotten texts is part of this text, plain or inside JSON."""
        return any(form in text for form in self._forms)

    def pieces(self) -> set[bytes]:
        """Return the texts as bytes, in pieces that are short enough to be on one page of the database file."""
        pieces = set()
        for raw in (form.encode(errors="replace") for form in self._forms):
            pieces |= {raw[start : start + PIECE] for start in range(0, max(len(raw) - PIECE, 0) + 1, PIECE // 2)}
        return pieces


def _logged_texts(versions: Sequence[Version]) -> Iterator[str]:
    """Yield the texts, keys and data texts of all edits in the log."""
    for version in versions:
        for done in version.applied:
            yield from strings([getattr(done.edit, name, None) for name in ("text", "key", "data")])


def _remove(
    run: _Rows, versions: Sequence[Version], corrections: Sequence[Version], forgotten: frozenset[str],
    ids: frozenset[str], texts: _ForgottenTexts, words: frozenset[str],
) -> int:  # fmt: skip
    """Delete the forgotten rows and replace the log in one transaction. Return the number of deleted rows."""
    statements: list[Any] = []
    notes: list[Any] = []
    update, delete = run.store.update, run.store.delete
    removed_keys: set[str] = set()
    for table, key, row in run.records():
        if table is schema.journal and is_note(key):
            # The note of a leg stays, because a later leg must not reuse the number and the places of this leg.
            note = json.loads(row.answer)
            note["tasks"] = [id for id in note["tasks"] if f"task:{id}" not in forgotten]
            notes.append(update(table).where(RECORDS[table] == key).values(answer=json.dumps(note)))
        elif (
            _holds(table, key, row, forgotten, texts)
            or _words_in(words, _row_texts(table, row))
            or _is_review_of(table, key, ids)
        ):
            statements.append(delete(table).where(RECORDS[table] == key))
            removed_keys.add(key)
    for id in sorted({id for id, _ in run.tasks() if f"task:{id}" in forgotten}):
        statements.append(delete(schema.tasks).where(schema.tasks.c.task_id == id))
    deleted = len(statements)
    statements += notes
    for row in run.of(schema.steps):
        data = json.loads(row.data)
        data["tasks"] = [id for id in data["tasks"] if f"task:{id}" not in forgotten]
        # These data are removed, because they may quote forgotten texts: the sampler's data on tasks, the reasons of
        # resolutions and the refused edits. The sampler's data on sizes and the number of refused edits stay in `data`.
        data["sampled"] = {k: v for k, v in data["sampled"].items() if k in ("size", "fit")}
        data |= {"fates": [], "evidence": {}}
        changed = update(schema.steps).values(data=json.dumps(data), refused="[]")
        statements.append(changed.where(schema.steps.c.step == row.step))
    for table, log in ((schema.versions, versions), (schema.corrections, corrections)):
        for version in log:
            number = table.c.version == version.version
            statements.append(update(table).where(number).values(version_row(version)))
    statements += _without_prompts(run, forgotten, removed_keys, texts, words)
    run.store.remove_index()

    def change(at: Transaction) -> None:
        for statement in statements:
            at.run(statement)
        # The caches are deleted completely: after a removal, no resume repeats the steps from the journal.
        at.run(at.delete(schema.vectors))
        delete_snapshot(at)
        change_run(at, learning=schema.FORGETTING, result=None)

    run.store.change(change)
    return deleted


def _without_prompts(
    run: _Rows, forgotten: frozenset[str], removed_keys: set[str], texts: _ForgottenTexts, words: frozenset[str]
) -> Iterator[Any]:
    """Yield the statements that delete the prompts of forgotten rows, the texts that only these prompts used, and every
    text that contains a forgotten text.

    References to the deleted texts are removed from the other prompts. Otherwise an old reference would protect a
    deleted text from the next deletion if the text is stored again.
    """

    prompts, text_table, store = schema.prompts, schema.texts, run.store
    stays, lost = dict[str, set[str]](), set[str]()
    for row in run.of(prompts):
        if row.place in removed_keys or _is_about(row.place, set(), forgotten):
            yield store.delete(prompts).where(prompts.c.place == row.place)
        else:
            stays[row.place] = {*strings(json.loads(row.parts))}
    named = set[str]().union(*stays.values())
    for row in run.of(text_table):
        if row.key.hex() not in named or texts.quoted_in(row.text) or _words_in(words, [row.text]):
            lost.add(row.key.hex())
            yield store.delete(text_table).where(text_table.c.key == row.key)
    for row in run.of(prompts):
        if dropped := lost & stays.get(row.place, set()):
            parts = re.sub("|".join(dropped), "", row.parts)
            yield store.update(prompts).where(prompts.c.place == row.place).values(parts=parts)


def _quoting(corrections: Sequence[Version], texts: _ForgottenTexts, words: frozenset[str]) -> frozenset[str]:
    """Return the ids of corrections that quote forgotten texts. Corrections from sources that are not forgotten can
    quote forgotten texts, because questions of other users may repeat a forgotten text."""
    edits = [done for version in corrections for done in version.applied]
    texts_by_edit = ((done.id, edit_texts(done.edit)) for done in edits)
    return frozenset(id for id, own in texts_by_edit if texts.quoted_in("\0".join(own)) or _words_in(words, own))


def _is_review_of(table: Table, key: Any, ids: frozenset[str]) -> bool:
    """Return whether a row is the review of one of these corrections or notes."""
    return table is schema.reviews and key in ids


def _holds(table: Table, key: str, row: Any, forgotten: frozenset[str], texts: _ForgottenTexts) -> bool:
    """Return whether a row is about a forgotten source or quotes a forgotten text."""
    raw = "\0".join(value for column in table.c if isinstance(value := getattr(row, column.name), str))
    return _is_about(str(key), _row_sources(table, row), forgotten) or texts.quoted_in(raw)


def _is_about(place: str, sources: set[str], forgotten: frozenset[str]) -> bool:
    """Return whether a row names a forgotten source, or has a place below a forgotten attempt or below a job on a
    forgotten task ("2.t1"). The place is checked because some rows of a job do not name the task as a source."""
    if forgotten & sources:
        return True
    above = place.split("/")
    jobs = (job for number, _, job in (name.partition(".") for name in above) if number.isdigit())
    if any(f"task:{job.replace('%2F', '/').replace('%25', '%')}" in forgotten for job in jobs):
        return True
    return any(f"attempt:{'/'.join(above[:n])}" in forgotten for n in range(1, len(above) + 1))


def _count_left(run: _Rows, forgotten: frozenset[str], ids: frozenset[str], texts: _ForgottenTexts) -> int:
    """Count the edits and rows that still name a forgotten source or quote a forgotten text, and the pieces of
    forgotten texts in the files."""
    versions = [*read_versions(run.store), *read_versions(run.store, schema.corrections)]
    edits = [done for version in versions for done in version.applied]
    left = sum(1 for a in edits if forgotten & set(a.edit.sources) or ids & {a.id, *getattr(a.edit, "ids", ())})
    left += sum(f"task:{id}" in forgotten for id, _ in run.tasks())
    left += len(run.store.rows(run.store.select(schema.vectors.c.key)))
    left += sum(texts.quoted_in(text) for text in _logged_texts(versions))
    left += sum(
        _holds(table, key, row, forgotten, texts) or _is_review_of(table, key, ids) for table, key, row in run.records()
    )
    shown = [row.text for row in run.of(schema.texts)]
    left += sum(map(texts.quoted_in, shown))
    # Pieces that are also part of a remaining text prove nothing. The remaining texts were checked one by one above.
    # The row of a removal in progress names the removed sources, and is checked at the end.
    tables = (schema.versions, schema.corrections, schema.spaces, schema.steps, schema.erasures, *RECORDS)
    stays = (str(value) for table in tables for row in run.of(table) for value in row if isinstance(value, str))
    remaining = ["\0".join([*shown, *stays]).encode(errors="replace")]
    tasks = (f"{data}\0{id}".encode(errors="replace") for data, id in zip(run.stored(), run.ids(), strict=True))
    pieces = _not_contained(texts.pieces(), chain(remaining, tasks))
    matches = pieces_in(run.store.all_files(), pieces)
    # Other spaces of the database may contain the same texts independently.
    return left + len([*filterfalse(run.store.in_other_spaces(matches).__contains__, matches)])


def _not_contained(texts: Iterable[AnyStr], others: Iterable[AnyStr]) -> list[AnyStr]:
    """Return the texts that are not contained in any of the `others`."""
    left = list(texts)
    for other in others:
        if not left:
            break
        left = [text for text in left if text not in other]
    return left
