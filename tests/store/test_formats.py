"""The format of a store: how it is made, migrated, and refused where it is another one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from needs import needs
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


def test_migrations_are_applied_once_in_order_and_whole_or_not_at_all(tmp_path: Path, store_url: str | None) -> None:
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


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE albums (title TEXT)")


def with_pragma(name: str, value: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA {name} = {value}")

    return change


OTHERS = {
    "newer": with_pragma("user_version", schema.FORMAT.newest + 1),
    "below zero": with_pragma("user_version", -5),
    "without a number": with_pragma("user_version", 0),
    "of an earlier practicum": with_pragma("application_id", 0),
    "of another program": foreign,
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_store_of_another_format_is_refused(tmp_path: Path, other: str) -> None:
    Store.create(tmp_path / "run").close()
    OTHERS[other](tmp_path / "run" / DATABASE_FILE)
    run = tmp_path / "run"
    served = partial(Database.at, run, run, create=True)
    for way in (*(partial(way, run) for way in (Store.open, Store.read, Store.open_shared, Store.create)), served):
        with pytest.raises(StoreError) as refused:
            way()
        assert refused.value.code == "store.unknown_format"


@pytest.mark.parametrize("file", EARLIER_FILES)
def test_a_folder_of_an_earlier_practicum_is_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(b"SQLite format 3")
    served = partial(Database.at, tmp_path, tmp_path, create=True)
    for way in (*(partial(way, tmp_path) for way in (Store.open, Store.read, Store.open_shared, Store.create)), served):
        with pytest.raises(StoreError) as refused:
            way()
        assert refused.value.code == "store.unknown_format"
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.postgres
@pytest.mark.parametrize("change", ["UPDATE practicum.format SET version = 99", "DROP TABLE practicum.format"])
def test_a_database_of_another_format_is_refused(tmp_path: Path, postgresql: str, change: str) -> None:
    Store.create(tmp_path / "run", postgresql).close()
    psycopg = needs("psycopg", "postgres")
    with psycopg.connect(postgresql, autocommit=True) as db:
        db.execute(change)
    for way in (Store.open, Store.read, Store.open_shared):
        with pytest.raises(StoreError) as refused:
            way(tmp_path / "run")
        assert refused.value.code == "store.unknown_format"
