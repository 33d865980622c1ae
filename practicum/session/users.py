"""The data of one end user: everything that is kept, written out or removed, with what was learned from it.

A user's data are the interactions that were asked with the user's name, and what follows from them: outcomes,
corrections, the scores that were credited, the versions of sessions, and what the run of the space learned. A report on
a session is one on its last interaction, and teaches what was asked in all of them. Where others took part in a
session, their interactions and reports stay. What was learned from the whole session is removed, and learned anew from
what is left of it.

A removal is a row of `erasures` and goes through stages, each of which may be repeated. One transaction writes the row
and removes the user's rows. Then the run forgets, the file of the service is written anew, logs are emptied, and what
is left is counted. A removal that was interrupted is finished from its row: at the next start, by the next call or
command, and by a service that runs. Until the run has forgotten, the row holds the ids of the interactions; then it
holds keyed digests of them, and in the end counts alone. It never holds the user's name.
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
"""The states of an erasure: the user's rows are removed; the run has forgotten, too; no byte is left in any file."""

QUOTED = "what it said was removed with a user's data"
"""In place of the text of an alarm that may quote a user."""

ID = "i[0-9a-f]{13,}-[0-9a-f]{12}"
"""The id of an interaction, as `outcomes.new_id` gives it."""

READ = 1_000
"""Rows that are read at a time."""


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What was removed of a user in a space. `again` counts the outcomes of sessions with others that wait to be
    learned from again; `entries` and `records` what the run of the space lost, and `alike` what it still has that has
    rare words of the user. `left` counts what is still there, which must be 0."""

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
        """Plain values, without the texts that were removed."""
        return {**asdict(self), "state": "done"}


class Unfinished(StoreError):
    """A removal that is recorded, and goes on later. `name` and `id` are those of the space; `shows`: it may still
    show what was learned from the user."""

    def __init__(self, space: str, id: str, shows: bool, why: Exception) -> None:
        # What others say may quote what was read.
        reason = str(why) if isinstance(why, PracticumError | OSError) else f"a bug in practicum ({type(why).__name__})"
        super().__init__(
            "user.removal_unfinished",
            f"the removal of a user's data from space {space} is recorded and not finished: {reason}; it goes on at "
            "the next start, or when it is asked for again",
        )
        self.name, self.id, self.shows = space, id, shows


@dataclass(frozen=True)
class KeptOfUser:
    """What a space keeps of a user: the ids of the interactions, the corrections of these and the user's notes, and the
    sessions (`pins` are what versions are kept by). `shared` are outcomes of others that are about a session with the
    user."""

    ids: frozenset[str]
    corrections: tuple[Correction, ...]
    pins: frozenset[str]
    shared: frozenset[str]


@dataclass(frozen=True)
class _Erasure:
    """A row of `erasures` that is not done."""

    number: int
    state: str
    user: str
    data: Mapping[str, Any]

    def write(self, store: Store, data: Mapping[str, Any], **values: Any) -> None:
        """Write the row anew, with these values."""
        t = schema.erasures
        row = store.update(t).where(t.c.number == self.number).values(data=json.dumps(data), **values)
        store.change(lambda at: at.run(row))


@contextmanager
def spaces_of(path: Path, user: str, space: str | None = None) -> Iterator[list[Store]]:
    """The spaces at a path that keep something of a user, or in which the user's removal is not finished, by name: of
    a store all, or this `space` alone; otherwise the space that the path names. Removals in other spaces that were
    interrupted are finished first. Raises Unknown if there is no such space, and NotARun if there is none at all."""
    folder, named = located(path)
    if named is None and read_elsewhere(folder) is None:
        refuse_links(folder)
        database = Database.at(folder, folder)
        names = database.names() if space is None else [space]
        ids = {row.name: row.space for row in database.rows(database.named_as(names))}
        stores = [database.store(name, ids[name]) for name in names if name in ids]
    else:
        store = Store.beside(path)
        database, stores = store.database, [store] if space in (None, store.name) else []
    with closing(database):
        found = [store for store in stores if _knows(store, user)]
        for other in unfinished_spaces(database):
            # A removal that is asked for again goes on with its own stages, and says what was removed.
            if other.space not in {store.space for store in found}:
                with suppress(RunBusy):
                    erase(other)
        if not found:
            raise nothing_of(user, space)
        yield found


def _knows(store: Store, user: str) -> bool:
    """Whether a space keeps something of a user."""
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
    """All that is kept of a user in a space: one item for each row, and for what was learned. Raises Unknown if that is
    nothing."""
    # What waits to be written counts too.
    store.change(lambda at: None)
    found, mine = _find(store, user), _mine(store, user)
    if found is None:
        raise nothing_of(user)
    i, o, s = schema.interactions, schema.outcomes, schema.sessions
    queries: dict[str, Any] = {
        "interaction": store.select(i).where(i.c.user == user).order_by(i.c.number),
        "outcome": store.select(o).where(o.c.id.in_(mine)).order_by(o.c.id),
        "session": store.select(s).order_by(s.c.session),
    }
    for what, query in queries.items():
        for row in store.rows(query):
            if what != "session" or row.session in found.pins:
                yield _item(what, store.name, row)
    for one in found.corrections:
        yield {"what": "correction", "space": store.name, "id": one.id, **asdict(one)}
    with as_stored(store.folder):
        yield from _learned(store, found)


def forget_user(store: Store, user: str, *, alike: bool = False) -> Forgotten:
    """Remove a user's data from a space for good, and look for what is left. With `alike`, all else that the
    space learned and that shares distinctive words with it is removed too.

    A removal of the space that was interrupted is finished first. Raises Unknown if nothing is kept of the user,
    RunBusy if another process writes what the space learns (ask again), Unfinished if something cannot be removed now,
    and another StoreError if nothing could be recorded and nothing is removed.
    """
    done = erase(store, user, alike)
    if done is None:
        raise nothing_of(user, store.name)
    return done


def unfinished_spaces(database: Database) -> list[Store]:
    """The spaces in which a removal is not finished."""
    t = schema.erasures
    begun = {row.space for row in database.rows(select(t.c.space).where(t.c.state != DONE))}
    return [database.store(name, id) for id, name in sorted(database.names_of(begun).items(), key=lambda one: one[1])]


def _mine(at: Store | Transaction, user: str) -> Any:
    """The ids of a user's interactions."""
    i = schema.interactions
    return at.select(i.c.id).where(i.c.user == user)


def _find(at: Store | Transaction, user: str) -> KeptOfUser | None:
    """What is known of a user; None if that is nothing."""
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
        theirs = (i.c.session == session) & i.c.user.is_distinct_from(user)
        both = select(i.c.id, o.c.data).outerjoin(o, at.mine(o, o.c.id == i.c.id)).where(at.mine(i, theirs))
        for row in at.rows(both):
            others.add(session)
            if row.data is not None and "session" in json.loads(row.data):
                shared.add(row.id)
    return KeptOfUser(frozenset(ids), corrections, frozenset(pins - others), frozenset(shared))


def nothing_of(user: str, space: str | None = None) -> Unknown:
    """The error for a user of whom nothing is kept."""
    where = "" if space is None else f" in space {space}"
    return Unknown(
        "user.unknown",
        f"nothing is kept of a user {user!r:.300}{where}: give the user that the requests were sent with",
    )


def _digest(text: str) -> str:
    """Short for a name or an id, for those alone who have the key of this installation."""
    return blake2b(text.encode(errors="surrogatepass"), key=derived_key("erasures"), digest_size=12).hexdigest()


def erase(
    space: Store, user: str | None = None, alike: bool = False, *,
    clean: Callable[[KeptOfUser], None] = lambda found: None, rewritten: Callable[[], None] = lambda: None,
) -> Forgotten | None:  # fmt: skip
    """Finish all removals of a space that are recorded, after that of a `user` was recorded; returns what was removed
    of the user, None if nothing is kept. `clean` and `rewritten` bring what is in memory up to date, once the rows are
    removed, and what was learned. Raises as `forget_user` does, but for Unknown."""
    done, digest = dict[str, Forgotten](), None if user is None else _digest(user)
    try:
        with space.leased() as store:
            if user is not None and (found := store.change(partial(_record, user=user, alike=alike))) is not None:
                clean(found)
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
            raise StoreError("store.unwritable", f"{error}; nothing is recorded or removed: ask again") from error
        raise
    return None if digest is None else done.get(digest)


def _unfinished(store: Store) -> list[_Erasure]:
    t = schema.erasures
    rows = store.rows(store.select(t).where(t.c.state != DONE).order_by(t.c.number))
    return [_Erasure(row.number, row.state, row.user, json.loads(row.data)) for row in rows]


def _forget_learned(store: Store, erasure: _Erasure) -> None:
    """Remove what a space learned from a user, and note in the row what the next stages need."""
    data = erasure.data
    with as_stored(store.folder):
        sources = _sources(store, frozenset(data["ids"]) | frozenset(data["shared"]))
        log = [done for one in read_versions(store, schema.corrections) for done in one.applied]
        known = {done.id for done in log}
        # Of a session with others, their corrections stay.
        sources |= _of((source for done in log for source in done.edit.sources), frozenset(data["ids"]))
        notes, how = known.intersection(data["notes"]), {"alike": data["alike"], "stay": data["shared"]}
        try:
            taught = bool(sources or notes)
            run = forget(store, sources=sorted(sources), entries=sorted(notes), **how) if taught else None
        except StoreError:
            if store.is_forgetting:
                # Nothing of it is shown any more; bytes of it may be left.
                kept = {"counts": {"left": 0, **data["counts"]}, "ids": [*map(_digest, data["ids"])]}
                erasure.write(store, kept, state=FORGOTTEN)
            raise
    learned = [] if run is None else [one for one in (*run.removed, *run.restored) if not one.id.startswith(LETTER)]
    lost = {} if run is None else {
        "entries": len(learned), "records": run.rows, "left": run.left,
        "alike": len(run.alike.entries) + sum(run.alike.rows.values()),
    }  # fmt: skip
    counts = {**data["counts"], **lost}
    counts["left"] = counts.get("left", 0) + _rows_left(store, sorted(data["ids"]))
    erasure.write(store, {"counts": counts, "ids": [*map(_digest, data["ids"])]}, state=FORGOTTEN)


def _finish(store: Store, erasure: _Erasure) -> dict[str, int]:
    """Look for what is left in files, and keep of the removal how much it was. The database was written anew, so it
    holds what its rows hold."""
    ids, counts = {*erasure.data["ids"]}, dict(erasure.data["counts"])
    counts["left"] += sum(_digest(id) in ids for id in matches_in(store.all_files(), ID))
    erasure.write(store, counts, state=DONE, user=None, ended=store.change(lambda at: at.now()))
    return counts


def _sources(store: Store, taught: frozenset[str]) -> set[str]:
    """What a run calls these outcomes: each of their revisions is a task, and so is the request of one that was held
    out."""
    names = {f"task:{row.task_id}" for row in store.rows(store.select(schema.tasks.c.task_id))}
    for table in (schema.journal, schema.attempts, schema.lessons):
        names.update(*(json.loads(row.sources) for row in store.rows(store.select(table.c.sources))))
    for row in store.rows(store.select(schema.reviews.c.data)):
        names.update(*(edit["sources"] for edit in json.loads(row.data)["edits"]))
    names.update(*(done.edit.sources for version in read_versions(store) for done in version.applied))
    return _of(names, taught)


def _of(sources: Iterable[str], taught: frozenset[str]) -> set[str]:
    """Those of some sources that are outcomes of these ids: "task:ID" or "task:ID.REVISION"."""
    return {name for name in sources if name.startswith("task:") and name[5:].partition(".")[0] in taught}


def _record(at: Transaction, user: str, alike: bool) -> KeptOfUser | None:
    """Remove the rows of a user, and record that the rest is to be removed. Returns None, and does nothing, if nothing
    is kept of the user."""
    found = _find(at, user)
    if found is None:
        return None
    i, o, r, s, a = schema.interactions, schema.outcomes, schema.reviews, schema.sessions, schema.alarms
    mine, shown = _mine(at, user), set[str]()
    for row in at.rows(at.select(i).where(i.c.user == user)):
        shown.update(shown_items(at, Interaction.stored(row), False))
    removed = {
        "corrections": len(found.corrections),
        "outcomes": at.run(at.delete(o).where(o.c.id.in_(mine))),
        "interactions": at.run(at.delete(i).where(i.c.user == user)),
    }
    for one in found.corrections:
        at.run(at.delete(r).where(r.c.id == one.id))
    for id in found.shared:
        again = at.update(o).where(o.c.id == id, o.c.state.in_((LEARNED, WAITING)))
        at.run(again.values(state=WAITING, revision=o.c.revision + 1))
    for pin in found.pins:
        at.run(at.delete(s).where(s.c.session == pin))
    # What a failure of learning says may quote an answer, or a part of it.
    at.run(at.update(a).where(a.c.kind == "learning").values(text=QUOTED))
    _count_credits(at, shown)
    counts = {**removed, "sessions": len(found.pins), "again": len(found.shared)}
    notes = [one.id for one in found.corrections]
    data = {
        "ids": sorted(found.ids), "notes": notes, "shared": sorted(found.shared), "alike": alike, "counts": counts,
    }  # fmt: skip
    row = {"number": next_number(at, schema.erasures), "state": REMOVED, "user": _digest(user), "began": at.now()}
    at.insert(schema.erasures, {**row, "data": json.dumps(data)})
    return found


def _count_credits(at: Transaction, items: set[str]) -> None:
    """Count anew what was scored of the requests that were shown these items: sums cannot tell what a session's score
    was counted for."""
    i, o, t = schema.interactions, schema.outcomes, schema.credits
    counted = {item: [0, 0.0] for item in items}
    both = at.select(i, o.c.score, o.c.data.label("report_data")).where(o.c.id == i.c.id, o.c.score.is_not(None))
    for row in at.db.execute(both.execution_options(yield_per=READ)):
        for item in items.intersection(shown_items(at, Interaction.stored(row), "session" in json.loads(row.report_data))):
            counted[item][0] += 1
            counted[item][1] += row.score
    for item, (number, total) in counted.items():
        at.run(at.delete(t).where(t.c.item == item))
        if number:
            at.insert(t, {"item": item, "scored": number, "total": total})


def _rows_left(store: Store, ids: Sequence[str]) -> int:
    """Count the rows that still name these interactions."""
    left = 0
    for column in (schema.interactions.c.id, schema.outcomes.c.id):
        for start in range(0, len(ids), READ):
            left += len(store.rows(store.select(column).where(column.in_(ids[start : start + READ]))))
    return left + sum(one.interaction in {*ids} for one in every_correction(store).values())


# What was learned


def _learned(store: Store, found: KeptOfUser) -> Iterator[dict[str, Any]]:
    """What a run keeps of these outcomes, and the entries and edits that rest on them."""
    taught, versions, space = found.ids | found.shared, read_versions(store), store.name
    for row in store.rows(store.select(schema.tasks)):
        if _of([f"task:{row.task_id}"], taught):
            yield _item("task", space, row)
    for what, table in (("attempt", schema.attempts), ("lesson", schema.lessons)):
        for row in store.rows(store.select(table)):
            if _of(json.loads(row.sources), taught):
                yield _item(what, space, row)
    for row in store.rows(store.select(schema.reviews)):
        if any(_of(edit["sources"], taught) for edit in json.loads(row.data)["edits"]):
            yield _item("review", space, row)
    for version in versions:
        for done in version.applied:
            if _of(done.edit.sources, taught):
                (edit,) = EDITS.dump_python((done,), mode="json")
                yield {"what": "edit", "space": space, "version": version.version, **edit}
    for entry in rebuild(versions):
        if _of(entry.sources, taught):
            yield {"what": "entry", "space": space, **entry_json(entry)}


def _item(what: str, space: str, row: Any) -> dict[str, Any]:
    """A row as plain values."""
    values = {name: value for name, value in row._mapping.items() if name != "space"}
    for name in ("data", "sources"):
        if name in values:
            values[name] = json.loads(values[name])
    return {"what": what, "space": space, **values}
