"""One end user's data: all that is kept of a user, written out or removed, with what was learned from it.

A user's data are the interactions that were asked with the user's name, and what follows from them: outcomes,
corrections, the scores that were credited, the versions of sessions, and what the run of the space learned. A report on
a session is one on its last interaction, and teaches what was asked in all of them. Where others took part in a
session, their interactions and reports stay. What was learned from the whole session is removed, and learned anew from
what is left of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, func, literal, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from practicum.core.edits import entry_json
from practicum.core.errors import RunBusy, StoreError
from practicum.core.words import strings
from practicum.serve import answers, tables
from practicum.serve.feedback import LEARNED, WAITING, Interaction, Unknown, shown_items
from practicum.serve.log import DATABASE_FILE, Database, Log
from practicum.session.forget import MIN_CHARS, ForgetReport, forget
from practicum.store import schema
from practicum.store.database import Store, as_stored
from practicum.store.dialects import upsert
from practicum.store.folder import is_run
from practicum.store.versions import EDITS, read_versions, rebuild

if TYPE_CHECKING:
    from practicum.serve.service import Service
    from practicum.serve.space import Space

LOG = "llama.log"
"""The log of the embedded model, beside the service's database and in the runs."""

ID = re.compile(rb"i[0-9a-f]{13,}-[0-9a-f]{12}")
"""The id of an interaction, as `service.new_id` gives it."""

READ = 1_000
"""Rows that are read at a time."""


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What was removed of a user in a space. `again` counts the outcomes of sessions with others that wait to be
    learned from again, and `run` says what the run of the space lost, if it had learned anything. `left` counts what is
    still there, which must be 0."""

    space: str
    user: str
    interactions: int
    outcomes: int
    corrections: int
    sessions: int
    again: int
    run: ForgetReport | None
    left: int

    def as_json(self) -> answers.Forgotten:
        """Plain values, without the texts that were removed."""
        run = self.run
        return {
            "space": self.space,
            "user": self.user,
            "interactions": self.interactions,
            "outcomes": self.outcomes,
            "corrections": self.corrections,
            "sessions": self.sessions,
            "again": self.again,
            "left": self.left,
            "entries": 0 if run is None else len(run.removed) + len(run.restored),
            "records": 0 if run is None else run.rows,
            "alike": 0 if run is None else len(run.alike.entries) + sum(run.alike.rows.values()),
        }


@dataclass(frozen=True)
class _Found:
    """What is known of a user in a space: the ids of the interactions and what stands for notes, the sessions (`pins`
    are what versions are kept by), and all texts. `shared` are outcomes of others that are about a session with the
    user."""

    ids: frozenset[str]
    pins: frozenset[str]
    shared: frozenset[str]
    texts: tuple[str, ...]

    @property
    def taught(self) -> frozenset[str]:
        """The outcomes that a run may have learned from."""
        return self.ids | self.shared


# For a service that runs


async def export_user(service: Service, space: str, user: str) -> list[dict[str, Any]]:
    """All that is kept of a user in a space, as plain values. Raises Unknown if that is nothing, UnknownSpace, and
    StoreError if it cannot be read."""
    await service.space(space)
    return await asyncio.to_thread(lambda: [*exported(service.log, service.folder(space), space, user)])


async def forget_user(service: Service, space: str, user: str, *, text: bool = False) -> Forgotten:
    """Remove a user's data from a space for good, and look for what is left. With `text`, whatever the space learned
    that has rare words of it is removed too.

    A round of learning is interrupted, and goes on afterwards. The space serves all the time. Raises Unknown if nothing
    is kept of the user, UnknownSpace, RunBusy if another node or process writes what the space learns (ask again), and
    StoreError if something cannot be removed.
    """
    # It ends even if nobody waits for it any longer: half of it would leave the service without its learner.
    return await asyncio.shield(_forget_served(service, await service.space(space), user, text))


async def _forget_served(service: Service, space: Space, user: str, text: bool) -> Forgotten:
    # Imported here, since the command line forgets without a service.
    from practicum.serve.learner import Learner

    async with service.forgetting:
        learns = service.learner.is_alive()
        await asyncio.to_thread(service.learner.stop)
        try:
            found = await asyncio.to_thread(_find, service.log, space.name, user)
            return await asyncio.to_thread(
                _forget, service.log, space.folder, space.name, user, found, text,
                erase=lambda: service.call_soon(_erase_served(service, space, user, found)),
                rewritten=space.read_versions,
            )  # fmt: skip
        finally:
            if learns and not service.stopping:
                service.learner = Learner(service)
                service.learner.start()


async def _erase_served(service: Service, space: Space, user: str, found: _Found) -> dict[str, int]:
    """Remove a user's rows, and what the service has of them in memory."""
    # Beside no feedback, which may be about what is removed.
    async with space.lock:
        change = partial(_erase, space=space.name, user=user, found=found)
        removed = await asyncio.wrap_future(service.log.do(change, space.name))
        for key, known in [*service._recent.items()]:
            if known.user == user and key.startswith(f"{space.name} "):
                del service._recent[key]
    space.conversations.forget(found.pins)
    if space.rollout is not None:
        space.rollout.sessions.difference_update(found.pins)
    await service.read_messages(space)
    # Its corrections and what waits, as after a change by another node.
    await service.refresh(space)
    return removed


# For a store


def spaces_of(log: Log, user: str) -> list[str]:
    """The spaces that keep something of a user. Raises Unknown if none does."""
    i, c = tables.interactions, tables.corrections
    asked = select(i.c.run_id).where(i.c.user == user)
    noted = select(c.c.run_id).where(c.c.interaction == tables.note_by(user))
    spaces = {row.run_id for query in (asked, noted) for row in log.rows(query.distinct())}
    if not spaces:
        raise Unknown(f"nothing is kept of a user {user!r:.300}: give the user that the requests were sent with")
    return sorted(spaces)


def exported(log: Log, folder: Path, space: str, user: str) -> Iterator[dict[str, Any]]:
    """All that is kept of a user in a space whose run is in `folder`: one item for each row, and for what was learned.
    Raises Unknown if that is nothing."""
    found, mine = _find(log, space, user), _mine(space, user)
    i, o, c, s = tables.interactions, tables.outcomes, tables.corrections, tables.sessions
    queries: dict[str, Any] = {
        "interaction": select(i).where(i.c.run_id == space, i.c.user == user).order_by(i.c.number),
        "outcome": select(o).where(o.c.run_id == space, o.c.id.in_(mine)).order_by(o.c.id),
        "correction": select(c).where(c.c.run_id == space, c.c.interaction.in_(mine)).order_by(c.c.number),
        "session": select(s).where(s.c.run_id == space).order_by(s.c.session),
    }
    for what, query in queries.items():
        for row in log.rows(query):
            if what != "session" or row.session in found.pins:
                yield _item(what, space, row)
    if is_run(folder):
        with as_stored(folder), Store.read(folder) as store:
            yield from _learned(store, space, found)


def forget_stored(log: Log, folder: Path, space: str, user: str, *, text: bool = False) -> Forgotten:
    """Remove a user's data from a space that no service has open, and whose run is in `folder`. Raises as
    `forget_user` does."""
    found = _find(log, space, user)
    change = partial(_erase, space=space, user=user, found=found)
    return _forget(
        log, folder, space, user, found, text, erase=lambda: log.do(change, space).result(), rewritten=lambda: None
    )


def _mine(space: str, user: str) -> Any:
    """The ids of a user's interactions, and what stands for one of a user's notes."""
    i = tables.interactions
    return select(i.c.id).where(i.c.run_id == space, i.c.user == user).union_all(select(literal(tables.note_by(user))))


def _find(log: Log, space: str, user: str) -> _Found:
    # What waits to be written counts too.
    log.do(lambda db: None).result()
    i, o, c = tables.interactions, tables.outcomes, tables.corrections
    ids, sessions, pins, texts = set[str](), set[str](), set[str](), list[str]()
    for row in log.rows(select(i).where(i.c.run_id == space, i.c.user == user)):
        data = json.loads(row.data)
        pin = data.pop("pin")
        ids.add(row.id)
        sessions |= {row.session} - {None}
        pins.add(pin)
        texts += strings(data)
    noted = select(c.c.number).where(c.c.run_id == space, c.c.interaction == tables.note_by(user))
    if not ids and not log.rows(noted.limit(1)):
        raise Unknown(
            f"nothing is kept of a user {user!r:.300} in space {space}: give the user that the requests were sent with"
        )
    ids.add(tables.note_by(user))
    mine = _mine(space, user)
    for query in (
        select(o.c.data).where(o.c.run_id == space, o.c.id.in_(mine)),
        select(c.c.data).where(c.c.run_id == space, c.c.interaction.in_(mine)),
    ):
        texts += chain.from_iterable(strings(json.loads(row.data)) for row in log.rows(query))
    shared, others = set[str](), set[str]()
    for session in sessions:
        theirs = (i.c.run_id == space) & (i.c.session == session) & i.c.user.is_distinct_from(user)
        both = select(i.c.id, o.c.data).outerjoin(o, (o.c.run_id == i.c.run_id) & (o.c.id == i.c.id))
        for row in log.rows(both.where(theirs)):
            others.add(session)
            if row.data is not None and "session" in json.loads(row.data):
                shared.add(row.id)
    long = dict.fromkeys(text for text in texts if len(text) >= MIN_CHARS)
    return _Found(frozenset(ids), frozenset(pins - others), frozenset(shared), tuple(long))


def _forget(
    log: Log, folder: Path, space: str, user: str, found: _Found, text: bool, *,
    erase: Callable[[], Mapping[str, int]], rewritten: Callable[[], None],
) -> Forgotten:  # fmt: skip
    """Forget in the run first: as long as the interactions are there, whoever is interrupted can begin anew."""
    with log.database.alone(f"learning in {space}") as mine:
        if not mine:
            raise RunBusy(f"another node learns in space {space}: ask again when its round is over")
        run = _forget_in_run(folder, found, text) if is_run(folder) else None
        rewritten()
        removed = erase()
        _scrub(log.database)
        logs = [path for path in (folder / LOG, folder.parent.parent / LOG) if _quotes(path, found.texts)]
        for path in logs:
            # llama.cpp appends to it.
            os.truncate(path, 0)
        left = _count_left(log, folder, space, found) + (run.left if run is not None else 0)
    return Forgotten(space=space, user=user, again=len(found.shared), run=run, left=left, **removed)


def _forget_in_run(folder: Path, found: _Found, text: bool) -> ForgetReport | None:
    with as_stored(folder), Store.open(folder) as store:
        if sources := _sources(store, found.taught):
            return forget(store, store.run_id, sources=sorted(sources), text=text)
        # It may have been handed over what was withdrawn since. And whoever has it open reads everything anew.
        store.scrub()
    return None


def _sources(store: Store, taught: frozenset[str]) -> set[str]:
    """What a run calls these outcomes: each of their revisions is a task, and so is the request of one that was held
    out."""
    o, t = schema.outcomes.c, schema.tasks.c
    names = {f"task:{row[0]}" for query in (store.select(o.id), store.select(t.task_id)) for row in store.rows(query)}
    for table in (schema.journal, schema.rollouts, schema.lessons):
        names.update(*(json.loads(row.sources) for row in store.rows(store.select(table.c.sources))))
    for row in store.rows(store.select(schema.reviews.c.data)):
        names.update(*(edit["sources"] for edit in json.loads(row.data)["edits"]))
    names.update(*(done.edit.sources for version in read_versions(store, store.run_id) for done in version.applied))
    return _of(names, taught)


def _of(sources: Iterable[str], taught: frozenset[str]) -> set[str]:
    """Those of some sources that are outcomes of these ids: "task:ID" or "task:ID.REVISION"."""
    return {name for name in sources if name.startswith("task:") and name[5:].partition(".")[0] in taught}


def _erase(db: Connection, space: str, user: str, found: _Found) -> dict[str, int]:
    """Remove the rows of a user, in a transaction beside which nobody changes the space."""
    if db.dialect.name == "sqlite":
        # From now on for this connection.
        db.execute(text("PRAGMA secure_delete=ON"))
    i, o, c, s, a = tables.interactions, tables.outcomes, tables.corrections, tables.sessions, tables.alarms
    mine, shown = _mine(space, user), set[str]()
    for row in db.execute(select(i).where(i.c.run_id == space, i.c.user == user)):
        shown.update(shown_items(db, space, _interaction(row), False))
    of_user = {
        "corrections": delete(c).where(c.c.run_id == space, c.c.interaction.in_(mine)),
        "outcomes": delete(o).where(o.c.run_id == space, o.c.id.in_(mine)),
        "interactions": delete(i).where(i.c.run_id == space, i.c.user == user),
    }
    removed = {name: db.execute(statement).rowcount for name, statement in of_user.items()}
    for id in found.shared:
        again = (o.c.run_id == space) & (o.c.id == id) & o.c.state.in_((LEARNED, WAITING))
        db.execute(update(o).where(again).values(state=WAITING, revision=o.c.revision + 1))
    for pin in found.pins:
        db.execute(delete(s).where(s.c.run_id == space, s.c.session == pin))
    for row in db.execute(select(a.c.number, a.c.text).where(a.c.run_id == space)).all():
        # What a failure of learning says may quote an answer.
        if any(each in row.text for each in found.texts):
            db.execute(delete(a).where(a.c.run_id == space, a.c.number == row.number))
    _count_credits(db, space, shown)
    corrected = db.execute(select(tables.spaces.c.corrected).where(tables.spaces.c.run_id == space)).scalar() or 0
    db.execute(upsert(tables.spaces, db.dialect.name), {"run_id": space, "corrected": corrected + 1})
    return {**removed, "sessions": len(found.pins)}


def _interaction(row: Any) -> Interaction:
    return Interaction(row.id, row.session, row.user, row.version, row.rollout, row.kind, json.loads(row.data))


def _count_credits(db: Connection, space: str, items: set[str]) -> None:
    """Count anew what was scored of the requests that were shown these items: sums cannot tell what a session's score
    was counted for."""
    i, o, t = tables.interactions, tables.outcomes, tables.credits
    counted = {item: [0, 0.0] for item in items}
    both = select(i, o.c.score, o.c.data.label("said")).join(o, (o.c.run_id == i.c.run_id) & (o.c.id == i.c.id))
    scored = both.where(o.c.run_id == space, o.c.score.is_not(None)).execution_options(yield_per=READ)
    for row in db.execute(scored):
        for item in items.intersection(shown_items(db, space, _interaction(row), "session" in json.loads(row.said))):
            counted[item][0] += 1
            counted[item][1] += row.score
    for item, (number, total) in counted.items():
        db.execute(delete(t).where(t.c.run_id == space, t.c.item == item))
        if number:
            db.execute(t.insert().values(run_id=space, item=item, scored=number, total=total))


def _scrub(database: Database) -> None:
    """Let no removed row stay in the service's file. A PostgreSQL server makes their space free, and writes over it
    later."""
    names = [f' "{table.name}"' for table in tables.metadata.sorted_tables] if database.shared else [""]
    stays = "the rows are removed, but bytes of them may stay in the file until a user is forgotten the next time"
    try:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            for name in names:
                db.execute(text(f"VACUUM{name}"))
            busy = not database.shared and db.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
    except SQLAlchemyError as error:
        raise StoreError(f"{database.failure('write to', error)}; {stays}") from error
    if busy:
        raise StoreError(f"another process reads the store; {stays}")


def _count_left(log: Log, folder: Path, space: str, found: _Found) -> int:
    """Count what still names the interactions or quotes them, in rows and in the bytes of files. The database was
    written anew, so it holds what its rows hold."""
    left, ids, top = 0, sorted(found.ids), folder.parent.parent
    for column in (tables.interactions.c.id, tables.outcomes.c.id, tables.corrections.c.interaction):
        for start in range(0, len(ids), READ):
            some = (column.table.c.run_id == space) & column.in_(ids[start : start + READ])
            left += log.rows(select(func.count()).where(some))[0][0]
    left += sum(len(_ids_in(path) & found.ids) for path in top.glob(f"{DATABASE_FILE}*"))
    return left + sum(_quotes(path, found.texts) for path in (folder / LOG, top / LOG))


def _ids_in(path: Path) -> set[str]:
    """The ids of interactions in a file, which may be larger than memory."""
    if not path.stat().st_size:
        return set()
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as raw:
        return {match.group().decode() for match in ID.finditer(raw)}


def _quotes(path: Path, texts: tuple[str, ...]) -> bool:
    """Whether a log has one of these texts."""
    said = path.read_text(errors="replace") if path.is_file() else ""
    return bool(said) and any(text in said for text in texts)


# What was learned


def _learned(store: Store, space: str, found: _Found) -> Iterator[dict[str, Any]]:
    """What a run keeps of these outcomes, and the entries and edits that rest on them."""
    taught, versions = found.taught, read_versions(store, store.run_id)
    for what, table, key in (("outcome of the run", schema.outcomes, "id"), ("task", schema.tasks, "task_id")):
        for row in store.rows(store.select(table)):
            if _of([f"task:{getattr(row, key)}"], taught):
                yield _item(what, space, row)
    for what, table in (("attempt", schema.rollouts), ("lesson", schema.lessons)):
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
    values = {name: value for name, value in row._mapping.items() if name != "run_id"}
    for name in ("data", "sources"):
        if name in values:
            values[name] = json.loads(values[name])
    return {"what": what, "space": space, **values}
