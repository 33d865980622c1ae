"""The format of a store: created, migrated, and refused if it is unknown."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from refusals import refused
from sqlalchemy import Connection, Engine, create_engine, text

from practicum.core.errors import StoreError
from practicum.store import schema
from practicum.store.database import Database, Store
from practicum.store.folder import DATABASE_FILE, EARLIER_FILES
from practicum.store.migrations import StoreFormat, bring_up_to_date, check


def adds(name: str) -> Callable[[Connection], None]:
    return lambda db: db.execute(text("INSERT INTO applied (name) VALUES (:name)"), {"name": name}) and None


def fails(db: Connection) -> None:
    adds("half")(db)
    raise KeyboardInterrupt


@contextmanager
def opened(engine: Engine) -> Iterator[Connection]:
    with engine.begin() as db:
        if engine.dialect.name == "sqlite":
            db.execute(text("BEGIN IMMEDIATE"))
        yield db


@pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.slow])], indirect=True
)
def test_migrations_are_applied_once_in_order_and_whole_or_not(tmp_path: Path, store_url: str | None) -> None:
    url = f"sqlite:///{tmp_path}/store" if store_url is None else store_url.replace("://", "+psycopg://")
    engine = create_engine(url)
    first = StoreFormat(7, lambda db: db.execute(text("CREATE TABLE applied (name VARCHAR)")) and None)
    third = replace(first, migrations=(adds("a"), adds("b")))

    def bring(format: StoreFormat) -> list[str]:
        with opened(engine) as db:
            bring_up_to_date(db, format, "it")
        with engine.connect() as db:
            check(db, format, "it")
            return [row.name for row in db.execute(text("SELECT name FROM applied"))]

    assert bring(first) == []
    with engine.connect() as db, pytest.raises(StoreError):
        check(db, third, "it")
    for _ in range(2):
        assert bring(third) == ["a", "b"]
    with pytest.raises(KeyboardInterrupt):
        bring(replace(first, migrations=(*third.migrations, adds("c"), fails)))
    assert bring(third) == ["a", "b"]
    assert bring(replace(first, migrations=(*third.migrations, adds("c")))) == ["a", "b", "c"]
    with pytest.raises(StoreError):
        bring(third)
    engine.dispose()


OTHERS = {
    "newer": f"PRAGMA user_version = {schema.FORMAT.newest + 1}",
    "below zero": "PRAGMA user_version = -5",
    "without a number": "PRAGMA user_version = 0",
    "of an earlier practicum": "PRAGMA application_id = 0",
    "of another program": "PRAGMA application_id = 77",
}


def refused_in_every_way(run: Path) -> None:
    served = partial(Database.at, run, run, create=True)
    for way in (*(partial(way, run) for way in (Store.open, Store.read, Store.open_shared, Store.create)), served):
        with refused("store.unknown_format"):
            way()


def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    for name, change in OTHERS.items():
        run = tmp_path / name
        Store.create(run).close()
        with closing(sqlite3.connect(run / DATABASE_FILE)) as db:
            db.execute(change)
        refused_in_every_way(run)
    for name in EARLIER_FILES:
        run = tmp_path / f"run {name}"
        run.mkdir()
        (run / name).write_bytes(b"SQLite format 3")
        refused_in_every_way(run)
        assert [path.name for path in run.iterdir()] == [name]
