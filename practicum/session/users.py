"""Export and removal of the data of one end user: all stored data about the user, and the lessons from these data.

A user's data are the interactions under the user's name and their consequences: outcomes, corrections, credited scores,
versions pinned by sessions, and lessons of the run. A report on a session is stored with the session's last
interaction, and is about the questions of all interactions of the session. If other users took part in a session, the
interactions and reports of the other users stay. Lessons from the whole session are removed, and the rest of the
session is learned from again.

A removal is a row of `erasures` and goes through stages that can be repeated. One transaction writes the row and
removes the user's rows. After the transaction, the lessons are removed from the run (`session.forget`), the database
file is rewritten (`Store.scrub`), logs are emptied, and the remaining data are counted. An interrupted removal is
finished from the data in the row: at the next start, by the next call or command, and by a running service. Until the
lessons are removed from the run, the row holds the ids of the interactions. After that, the row holds keyed digests of
these ids, and at the end only counts. The row never holds the user's name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sqlalchemy import select

from practicum.core.edits import entry_json
from practicum.core.errors import PracticumError, RunBusy, StoreError
from practicum.core.installation import derived_key
from practicum.session.corrections import LETTER, USER, Correction, every_correction
from practicum.session.forget import forget
from practicum.session.outcomes import LEARNED, WAITING, Interaction, Unknown, shown_items
from practicum.session.rollout import next_number
from practicum.store import schema
from practicum.store.database import Database, Store, as_stored
from practicum.store.folder import empty_log, located, read_elsewhere, refuse_links
from practicum.store.raw import matches_in
from practicum.store.scope import Transaction
from practicum.store.versions import EDITS, read_versions, rebuild

REMOVED, FORGOTTEN, DONE = "removed", "forgotten", "done"
"""States of an erasure: the user's rows are removed; the lessons are removed from the run too; the bytes are removed
from all files."""

ALARM_TEXT = "the text of this alarm was removed with a user's data"
"""Replacement for the text of an alarm that may quote a user."""

ID = "i[0-9a-f]{13,}-[0-9a-f]{12}"
"""Pattern of the id of an interaction, as `outcomes.new_id` creates it."""

READ = 1_000
"""Number of rows that are read at a time."""


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """Report of the removal of a user's data from a space.

    `again` is the number of outcomes of shared sessions that wait to be learned from again; `entries` and `records` are
    the numbers of entries and records that were removed from the run of the space. `alike` is the number of remaining
    entries and records with rare words of the user's texts. `left` is the number of the user's rows and texts that
    still exist; `left` must be 0.
    """

    space: str
    user: str
    interactions: int = 0
    outcomes: int = 0
    corrections: int = 0
    sessions: int = 0
    again: int = 0
    entries: int = 0
    records: int = 0
    alike: int = 0
    left: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return plain values, without the removed texts."""
        return {**asdict(self), "state": "done"}


class Unfinished(StoreError):
    """Error of a removal that is recorded but not finished. The removal continues later.

    `name` and `id` are the space's name and id. If `shows` is true, the space may still show lessons from the user.
    """

    def __init__(self, space: str, id: str, shows: bool, why: Exception) -> None:
        # Messages of other libraries may quote stored data.
        reason = str(why) if isinstance(why, PracticumError | OSError) else f"a bug in practicum ({type(why).__name__})"
        super().__init__(
            "user.removal_unfinished",
            f"the removal of a user's data from space {space} is recorded and not finished: {reason}; the removal "
            "continues at the next start, or when you request the removal again",
        )
        self.name, self.id, self.shows = space, id, shows


@dataclass(frozen=True)
class StoredUserData:
    """Stored data of a user in a space.

    `ids` are the ids of the user's interactions, and `corrections` are the corrections of these interactions, and the
    user's notes. `pins` are the keys by which sessions with only this user pin versions. `shared` are the ids of other
    users' interactions that have an outcome about a session with this user.
    """

    ids: frozenset[str]
    corrections: tuple[Correction, ...]
    pins: frozenset[str]
    shared: frozenset[str]


@dataclass(frozen=True)
class _Erasure:
    """Removal that is not finished, as a row of `erasures`."""

    number: int
    state: str
    user: str
    data: Mapping[str, Any]

    def write(self, store: Store, data: Mapping[str, Any], **values: Any) -> None:
        """Replace the data of the row, and the columns named in `values`."""
        t = schema.erasures
        row = store.update(t).where(t.c.number == self.number).values(data=json.dumps(data), **values)
        store.change(lambda at: at.run(row))


@contextmanager
def spaces_of(path: Path, user: str, space: str | None = None) -> Iterator[list[Store]]:
    """Open the spaces at a path that store data of a user, or in which the removal of these data is not finished.

    If the path is a store, all spaces of the store are searched, or only `space`. Otherwise the path names the only
    space. Interrupted removals in other spaces are finished first. Raises Unknown if no space matches, and NotARun if
    the path holds no space.
    """
    folder, named = located(path)
    if named is None and read_elsewhere(folder) is None:
        refuse_links(folder)
        database = Database.at(folder, folder)
        names = database.names() if space is None else [space]
        ids = {row.name: row.space for row in database.rows(database.named_as(names))}
        stores = [database.store(name, ids[name]) for name in names if name in ids]
    else:
        store = Store.open_shared(path)
        database, stores = store.database, [store] if space in (None, store.name) else []
    with closing(database):
        matching_stores = [store for store in stores if _has_data_of(store, user)]
        for other in unfinished_spaces(database):
            # An unfinished removal in a matching space is left to the caller, who continues and reports the removal.
            if other.space not in {store.space for store in matching_stores}:
                with suppress(RunBusy):
                    erase(other)
        if not matching_stores:
            raise unknown_user(user, space)
        yield matching_stores


def _has_data_of(store: Store, user: str) -> bool:
    """Return whether a space stores data of a user."""
    i, c, r, e = schema.interactions, schema.corrections, schema.reviews, schema.erasures
    source = json.dumps(USER + user, ensure_ascii=False)
    queries = (
        store.select(i.c.id).where(i.c.user == user),
        store.select(c.c.version).where(c.c.applied.contains(source, autoescape=True)),
        store.select(r.c.id).where(r.c.data.contains(source, autoescape=True)),
        store.select(e.c.number).where(e.c.user == _digest(user), e.c.state != DONE),
    )
    return any(store.rows(query.limit(1)) for query in queries)


def export_user(store: Store, user: str) -> Iterator[dict[str, Any]]:
    """Yield the stored data of a user in a space: one item for each row and for each lesson, entry and edit. Raises
    Unknown if no data of the user are stored."""
    # Include rows that wait to be written.
    store.change(lambda at: None)
    data, own_ids = _find_data(store, user), _ids_of(store, user)
    if data is None:
        raise unknown_user(user)
    i, o, s = schema.interactions, schema.outcomes, schema.sessions
    queries: dict[str, Any] = {
        "interaction": store.select(i).where(i.c.user == user).order_by(i.c.number),
        "outcome": store.select(o).where(o.c.id.in_(own_ids)).order_by(o.c.id),
        "session": store.select(s).order_by(s.c.session),
    }
    for kind, query in queries.items():
        for row in store.rows(query):
            if kind != "session" or row.session in data.pins:
                yield _item(kind, store.name, row)
    for one in data.corrections:
        yield {"type": "correction", "space": store.name, "id": one.id, **asdict(one)}
    with as_stored(store.folder):
        yield from _learned(store, data)


def forget_user(store: Store, user: str, *, alike: bool = False) -> Forgotten:
    """Remove a user's data permanently from a space, and count the user's rows and texts that still exist.

    With `alike`, everything else that the space learned and that shares distinctive words with the user's data is
    removed too. An interrupted removal in the space is finished first. Raises Unknown if no data of the user are
    stored, RunBusy if another process writes lessons of the space (try again), Unfinished if some data cannot be
    removed now, and another StoreError if the removal could not be recorded, so that nothing was removed.
    """
    done = erase(store, user, alike)
    if done is None:
        raise unknown_user(user, store.name)
    return done


def unfinished_spaces(database: Database) -> list[Store]:
    """Return the spaces with a removal that is not finished."""
    t = schema.erasures
    begun = {row.space for row in database.rows(select(t.c.space).where(t.c.state != DONE))}
    return [database.store(name, id) for id, name in sorted(database.names_of(begun).items(), key=lambda one: one[1])]


def _ids_of(at: Store | Transaction, user: str) -> Any:
    """Return a query of the ids of a user's interactions."""
    i = schema.interactions
    return at.select(i.c.id).where(i.c.user == user)


def _find_data(at: Store | Transaction, user: str) -> StoredUserData | None:
    """Return the stored data of a user, or None if no data are stored."""
    i, o = schema.interactions, schema.outcomes
    ids, sessions, pins = set[str](), set[str](), set[str]()
    for row in at.rows(at.select(i.c.id, i.c.session, i.c.data).where(i.c.user == user)):
        ids.add(row.id)
        sessions |= {row.session} - {None}
        pins.add(json.loads(row.data)["pin"])
    every = every_correction(at)
    corrections = tuple(one for _, one in sorted(every.items()) if one.interaction in ids or one.user == user)
    if not ids and not corrections:
        return None
    shared, others = set[str](), set[str]()
    for session in sessions:
        by_others = (i.c.session == session) & i.c.user.is_distinct_from(user)
        both = select(i.c.id, o.c.data).outerjoin(o, at.mine(o, o.c.id == i.c.id)).where(at.mine(i, by_others))
        for row in at.rows(both):
            others.add(session)
            if row.data is not None and "session" in json.loads(row.data):
                shared.add(row.id)
    return StoredUserData(frozenset(ids), corrections, frozenset(pins - others), frozenset(shared))


def unknown_user(user: str, space: str | None = None) -> Unknown:
    """Return the error for a user without stored data."""
    where = "" if space is None else f" in space {space}"
    return Unknown(
        "user.unknown",
        f"no data of a user {user!r:.300} is stored{where}: pass the user that the requests were sent with",
    )


def _digest(text: str) -> str:
    """Return a short digest of a name or an id. Only this installation's key can reproduce the digest."""
    return blake2b(text.encode(errors="surrogatepass"), key=derived_key("erasures"), digest_size=12).hexdigest()


def erase(
    space: Store, user: str | None = None, alike: bool = False, *,
    clean: Callable[[StoredUserData], None] = lambda data: None, rewritten: Callable[[], None] = lambda: None,
) -> Forgotten | None:  # fmt: skip
    """Record the removal of the data of a `user` (None: record no removal), and finish all recorded removals of a
    space.

    Returns the report on the user, or None if no data are stored. Two callbacks update the data in memory: `clean`
    after the rows are removed, and `rewritten` after the lessons are removed from the run. Raises the errors that
    `forget_user` raises, except Unknown.
    """
    done, digest = dict[str, Forgotten](), None if user is None else _digest(user)
    try:
        with space.leased() as store:
            if user is not None and (user_data := store.change(partial(_record, user=user, alike=alike))) is not None:
                clean(user_data)
            try:
                for one in _unfinished(store):
                    if one.state == REMOVED:
                        _forget_learned(store, one)
            finally:
                rewritten()
            if unfinished := _unfinished(store):
                store.scrub()
                empty_log(store.files)
            for one in unfinished:
                done[one.user] = Forgotten(space=space.name, user=user or "", **_finish(store, one))
    except RunBusy:
        raise
    except Exception as error:
        states = {one.user: one.state for one in _unfinished(space)}
        if digest in states or (digest is None and states):
            raise Unfinished(space.name, space.space, REMOVED in states.values(), error) from error
        if type(error) is StoreError:
            raise StoreError("store.unwritable", f"{error}; nothing is recorded or removed: try again") from error
        raise
    return None if digest is None else done.get(digest)


def _unfinished(store: Store) -> list[_Erasure]:
    t = schema.erasures
    rows = store.rows(store.select(t).where(t.c.state != DONE).order_by(t.c.number))
    return [_Erasure(row.number, row.state, row.user, json.loads(row.data)) for row in rows]


def _forget_learned(store: Store, erasure: _Erasure) -> None:
    """Remove a user's lessons from a space, and store the data for the next stages in the row."""
    data = erasure.data
    with as_stored(store.folder):
        sources = _sources(store, frozenset(data["ids"]) | frozenset(data["shared"]))
        log = [done for one in read_versions(store, schema.corrections) for done in one.applied]
        logged_ids = {done.id for done in log}
        # In a session with other users, the corrections of the other users stay.
        sources |= _outcome_sources((source for done in log for source in done.edit.sources), frozenset(data["ids"]))
        notes, options = logged_ids.intersection(data["notes"]), {"alike": data["alike"], "stay": data["shared"]}
        try:
            taught = bool(sources or notes)
            run = forget(store, sources=sorted(sources), entries=sorted(notes), **options) if taught else None
        except StoreError:
            if store.is_forgetting:
                # No lesson from the user is shown any more, but some bytes may remain.
                row_data = {"counts": {"left": 0, **data["counts"]}, "ids": [*map(_digest, data["ids"])]}
                erasure.write(store, row_data, state=FORGOTTEN)
            raise
    learned_entries = (
        [] if run is None else [one for one in (*run.removed, *run.restored) if not one.id.startswith(LETTER)]
    )
    lost = {} if run is None else {
        "entries": len(learned_entries), "records": run.rows, "left": run.left,
        "alike": len(run.alike.entries) + sum(run.alike.rows.values()),
    }  # fmt: skip
    counts = {**data["counts"], **lost}
    counts["left"] = counts.get("left", 0) + _rows_left(store, sorted(data["ids"]))
    erasure.write(store, {"counts": counts, "ids": [*map(_digest, data["ids"])]}, state=FORGOTTEN)


def _finish(store: Store, erasure: _Erasure) -> dict[str, int]:
    """Count the user's remaining ids in files, and reduce the row to the counts.

    The database file was rewritten by `Store.scrub`, so the file holds no bytes of removed rows.
    """
    ids, counts = {*erasure.data["ids"]}, dict(erasure.data["counts"])
    counts["left"] += sum(_digest(id) in ids for id in matches_in(store.all_files(), ID))
    erasure.write(store, counts, state=DONE, user=None, ended=store.change(lambda at: at.now()))
    return counts


def _sources(store: Store, taught: frozenset[str]) -> set[str]:
    """Return the sources by which a run names the outcomes of the interactions `taught`. Each revision of an outcome is
    a task, and so is the request of a held-out outcome."""
    names = {f"task:{row.task_id}" for row in store.rows(store.select(schema.tasks.c.task_id))}
    for table in (schema.journal, schema.attempts, schema.lessons):
        names.update(*(json.loads(row.sources) for row in store.rows(store.select(table.c.sources))))
    for row in store.rows(store.select(schema.reviews.c.data)):
        names.update(*(edit["sources"] for edit in json.loads(row.data)["edits"]))
    names.update(*(done.edit.sources for version in read_versions(store) for done in version.applied))
    return _outcome_sources(names, taught)


def _outcome_sources(sources: Iterable[str], taught: frozenset[str]) -> set[str]:
    """Return the sources that are outcomes of these ids: "task:ID" or "task:ID.REVISION"."""
    return {name for name in sources if name.startswith("task:") and name[5:].partition(".")[0] in taught}


def _record(at: Transaction, user: str, alike: bool) -> StoredUserData | None:
    """Remove the rows of a user, and record that the user's other data must be removed. Return the user's data, or None
    if nothing is stored."""
    user_data = _find_data(at, user)
    if user_data is None:
        return None
    i, o, r, s, a = schema.interactions, schema.outcomes, schema.reviews, schema.sessions, schema.alarms
    own_ids, shown = _ids_of(at, user), set[str]()
    for row in at.rows(at.select(i).where(i.c.user == user)):
        shown.update(shown_items(at, Interaction.stored(row), False))
    removed = {
        "corrections": len(user_data.corrections),
        "outcomes": at.run(at.delete(o).where(o.c.id.in_(own_ids))),
        "interactions": at.run(at.delete(i).where(i.c.user == user)),
    }
    for one in user_data.corrections:
        at.run(at.delete(r).where(r.c.id == one.id))
    for id in user_data.shared:
        reopened = at.update(o).where(o.c.id == id, o.c.state.in_((LEARNED, WAITING)))
        at.run(reopened.values(state=WAITING, revision=o.c.revision + 1))
    for pin in user_data.pins:
        at.run(at.delete(s).where(s.c.session == pin))
    # The text of an alarm about a failed learning step may quote an answer.
    at.run(at.update(a).where(a.c.kind == "learning").values(text=ALARM_TEXT))
    _count_credits(at, shown)
    counts = {**removed, "sessions": len(user_data.pins), "again": len(user_data.shared)}
    notes = [one.id for one in user_data.corrections]
    data = {
        "ids": sorted(user_data.ids), "notes": notes, "shared": sorted(user_data.shared), "alike": alike,
        "counts": counts,
    }  # fmt: skip
    row = {"number": next_number(at, schema.erasures), "state": REMOVED, "user": _digest(user), "began": at.now()}
    at.insert(schema.erasures, {**row, "data": json.dumps(data)})
    return user_data


def _count_credits(at: Transaction, items: set[str]) -> None:
    """Recount the scores of the requests that were shown these items, because the sums do not record which items a
    session's score was counted for."""
    i, o, t = schema.interactions, schema.outcomes, schema.credits
    counted = {item: [0, 0.0] for item in items}
    both = at.select(i, o.c.score, o.c.data.label("report_data")).where(o.c.id == i.c.id, o.c.score.is_not(None))
    for row in at.db.execute(both.execution_options(yield_per=READ)):
        for item in items.intersection(
            shown_items(at, Interaction.stored(row), "session" in json.loads(row.report_data))
        ):
            counted[item][0] += 1
            counted[item][1] += row.score
    for item, (number, total) in counted.items():
        at.run(at.delete(t).where(t.c.item == item))
        if number:
            at.insert(t, {"item": item, "scored": number, "total": total})


def _rows_left(store: Store, ids: Sequence[str]) -> int:
    """Return the number of rows that still name these interactions."""
    left = 0
    for column in (schema.interactions.c.id, schema.outcomes.c.id):
        for start in range(0, len(ids), READ):
            left += len(store.rows(store.select(column).where(column.in_(ids[start : start + READ]))))
    return left + sum(one.interaction in {*ids} for one in every_correction(store).values())


# Lessons


def _learned(store: Store, data: StoredUserData) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run that come from the user's outcomes, and the entries and edits that depend on these
    outcomes."""
    taught, versions, space = data.ids | data.shared, read_versions(store), store.name
    for row in store.rows(store.select(schema.tasks)):
        if _outcome_sources([f"task:{row.task_id}"], taught):
            yield _item("task", space, row)
    for kind, table in (("attempt", schema.attempts), ("lesson", schema.lessons)):
        for row in store.rows(store.select(table)):
            if _outcome_sources(json.loads(row.sources), taught):
                yield _item(kind, space, row)
    for row in store.rows(store.select(schema.reviews)):
        if any(_outcome_sources(edit["sources"], taught) for edit in json.loads(row.data)["edits"]):
            yield _item("review", space, row)
    for version in versions:
        for done in version.applied:
            if _outcome_sources(done.edit.sources, taught):
                (edit,) = EDITS.dump_python((done,), mode="json")
                yield {"type": "edit", "space": space, "version": version.version, **edit}
    for entry in rebuild(versions):
        if _outcome_sources(entry.sources, taught):
            yield {"type": "entry", "space": space, **entry_json(entry)}


def _item(kind: str, space: str, row: Any) -> dict[str, Any]:
    """Return a row as plain values."""
    values = {name: value for name, value in row._mapping.items() if name != "space"}
    for name in ("data", "sources"):
        if name in values:
            values[name] = json.loads(values[name])
    return {"type": kind, "space": space, **values}
