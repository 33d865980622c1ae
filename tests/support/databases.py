"""Databases for tests that make thousands: their tables are copied, and their statements compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from practicum.store import migrations, sqlite

COMPILED: dict[Any, Any] = {}
MIGRATE, MIGRATIONS = migrations.migrate, migrations.MIGRATIONS


@cache
def tables() -> tuple[str, ...]:
    """The statements that make what the migrations make of an empty database."""
    engine = create_engine("sqlite://")
    with engine.connect() as db:
        MIGRATE(db, "")
        made = db.execute(text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")).scalars().all()
        version = db.execute(text("PRAGMA user_version")).scalar_one()
    engine.dispose()
    return (*made, f"PRAGMA user_version = {version}")


def migrate(db: Connection, folder: str) -> None:
    """As `migrations.migrate`, faster where the database is empty and no test changed the migrations."""
    empty = db.execute(text("SELECT count(*) FROM sqlite_master")).scalar_one() == 0
    if not empty or migrations.MIGRATIONS is not MIGRATIONS:
        MIGRATE(db, folder)
        return
    for statement in tables():
        db.connection.driver_connection.execute(statement)


@cache
def dialect() -> Any:
    """The one dialect of all databases, since statements are compiled for a dialect."""
    made = create_engine("sqlite://")
    made.connect().close()
    made.dispose()
    return made.dialect


def engine(*given: Any, **how: Any) -> Engine:
    """As `create_engine`, with statements that are compiled once for all databases."""
    made = create_engine(*given, **how, execution_options={"compiled_cache": COMPILED})
    made.dialect = dialect()
    return made


@contextmanager
def quick() -> Iterator[None]:
    """Databases open quickly in this block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "migrate", migrate)
        patch.setattr(sqlite, "create_engine", engine)
        yield
