"""Spaces that share a database, in a file and on a server: leases, writes that fail, and names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from helpers import wait_until
from refusals import refused
from rows import put
from sqlalchemy import make_url, select

from practicum.store import schema
from practicum.store.database import Database, Store
from practicum.store.scope import Transaction
from practicum.store.spaces import remove_space, reserve_space, take_token

TEXTS = schema.texts
BROKEN = {"version": 1, "parent": 0, "step": 1, "next_number": 2, "applied": None}

Opens = Callable[[], Database]


@pytest.fixture
def opens(tmp_path: Path, shared_url: str | None) -> Iterator[Opens]:
    """Opens the same database, as another process would."""
    opened = list[Database]()

    def open() -> Database:
        place = tmp_path if shared_url is None else make_url(shared_url)
        opened.append(Database.at(place, tmp_path / f"node{len(opened)}", create=True))
        return opened[-1]

    def clear(at: Transaction) -> None:
        for space in database.rows(select(schema.spaces.c.space)):
            remove_space(at.db, space.space)

    database = open()
    database.do(clear).result()
    opened.clear()
    yield open
    for each in (database, *opened):
        each.close()


def live(database: Database, name: str) -> Store:
    """A new space that is live and empty."""
    with database.create(name) as store:
        store.change(lambda at: at.run(at.update(schema.spaces).values(state="live")))
    return database.named(name)


def text(n: int) -> dict[str, Any]:
    return {"key": b"%d" % n, "text": f"text {n}"}


def texts(store: Store) -> set[str]:
    return {row.text for row in store.rows(store.select(TEXTS.c.text))}


def write(store: Store, *rows: dict[str, Any]) -> None:
    asyncio.run(store.write(TEXTS, rows))


def breaks(at: Transaction) -> None:
    at.insert(schema.versions, BROKEN)


@contextmanager
def together(database: Database) -> Iterator[None]:
    """Calls in this block are written in one transaction."""
    began, go = Event(), Event()

    def hold(at: Transaction) -> None:
        began.set()
        assert go.wait(10)

    held = database.do(hold)
    assert began.wait(10)
    try:
        yield
    finally:
        go.set()
    held.result()


def test_a_lease_of_one_space_does_not_hold_up_another(opens: Opens) -> None:
    here, there = opens(), opens()
    one, other = live(here, "one"), live(here, "other")
    with refused("store.unwritable"):  # without the lease, no rows of learning
        write(one, text(9))
    with one.leased() as held:
        write(held, text(1))
        with refused("store.busy"):
            there.named("one").leased()
        assert there.named("one").is_written
        with there.named("other").leased() as second:
            write(second, text(2))
        # Short writes need no lease.
        put(there.named("one"), TEXTS, [text(3)])
    assert (texts(one), texts(other)) == ({"text 1", "text 3"}, {"text 2"})
    assert not there.named("one").is_written
    there.named("one").leased().close()


def test_rows_of_a_space_are_separate_and_are_removed_with_it(opens: Opens) -> None:
    database = opens()
    one, other = live(database, "one"), live(database, "other")
    put(one, TEXTS, [text(1)])
    put(other, TEXTS, [text(1)])
    assert one.change(lambda at: at.run(at.delete(TEXTS))) == 1
    assert (texts(one), texts(other)) == (set(), {"text 1"})
    put(one, TEXTS, [text(2)])
    one.remove()
    assert (database.names(), texts(one), texts(other)) == (["other"], set(), {"text 1"})
    with refused("space.unknown"):
        put(one, TEXTS, [text(3)])
    database.writer.post(one.space, TEXTS, text(4))
    database.do(lambda at: None).result()
    assert (database.writer.unwritten, database.writer.late, texts(one)) == (0, 1, set())
    again = live(database, "one")
    assert again.space != one.space
    assert texts(again) == set()


def test_a_holder_that_lost_its_lease_is_refused_and_others_are_not(opens: Opens) -> None:
    database = opens()
    one, other = live(database, "one").leased(), live(database, "other").leased()
    write(one, text(1))
    # Another process takes the lease while its holder is cut off.
    database.do(lambda at: take_token(at.db, one.space)).result()
    with together(database):
        rows = [one._put(TEXTS, [text(2)]), other._put(TEXTS, [text(3)])]
        changes = [store.do(lambda at: at.put(TEXTS, text(4))) for store in (one, other)]
    for late in (rows[0], changes[0]):
        with refused("store.busy"):
            late.result()
    assert (rows[1].result(), changes[1].result()) == (None, None)
    with refused("store.busy"):
        write(one, text(5))
    assert (texts(one), texts(other)) == ({"text 1"}, {"text 3", "text 4"})
    for store in (one, other):
        store.close()


def test_a_failing_change_undoes_only_itself(opens: Opens) -> None:
    database = opens()
    store, leased = live(database, "one"), live(database, "other").leased()

    def fails(at: Transaction) -> None:
        at.put(TEXTS, text(1))
        raise KeyError("another error")

    with together(database):
        before = store.do(lambda at: at.put(TEXTS, text(3)))
        for n in (5, 6):
            database.writer.post(store.space, TEXTS, text(n))
        database.writer.post(store.space, TEXTS, {"key": b"x", "text": None})
        failed, broken, rows = store.do(fails), store.do(breaks), leased._put(schema.versions, [BROKEN])
        after = store.do(lambda at: at.rows(at.select(TEXTS.c.text)))
    assert before.result() is None
    with pytest.raises(KeyError):
        failed.result()
    for each in (broken, rows):
        with refused("store.unwritable"):
            each.result()
    assert "text 3" in [row.text for row in after.result()]
    store.change(lambda at: None)
    assert texts(store) == {"text 3", "text 5", "text 6"}
    assert (database.writer.unwritten, database.writer.lost) == (0, 1)
    leased.close()


def test_posted_rows_wait_for_a_database_that_cannot_be_written_to(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = opens()
    store = live(database, "one")

    def fails(*_: object) -> None:
        raise database.backend.failure("write to", OSError("full"))

    monkeypatch.setattr(database.backend, "begin", fails)
    database.writer.post(store.space, TEXTS, text(1))
    failed = store.do(lambda at: at.put(TEXTS, text(2)))
    assert failed.exception() is not None
    assert database.writer.failing is not None
    assert (database.writer.unwritten, texts(store)) == (1, set())
    monkeypatch.undo()
    store.change(lambda at: at.put(TEXTS, text(3)))
    assert database.writer.failing is None
    assert (database.writer.unwritten, texts(store)) == (0, {"text 1", "text 3"})


def test_one_space_has_a_name_that_several_reserve_at_once(opens: Opens) -> None:
    databases = [opens() for _ in range(3)]
    reserved = [database.do(lambda at: reserve_space(at.db, "one").space) for database in databases for _ in range(5)]
    assert len({future.result() for future in reserved}) == 1
    assert len(databases[0].rows(select(schema.spaces))) == 1


def test_a_change_is_seen_by_all_readers(opens: Opens) -> None:
    here, there = opens(), opens()
    one, other = live(here, "one"), live(here, "other")
    seen = there.named("one")
    # On a server, the reader has to listen first.
    wait_until(lambda: seen.changes() == seen.changes())
    for version in range(2):
        before = seen.changes()
        put(other, schema.names, [{"name": "prod", "version": version}])
        put(one, TEXTS, [text(version)])
        assert seen.changes() == before
        put(one, schema.names, [{"name": "prod", "version": version}])
        wait_until(lambda before=before: seen.changes() != before)
