"""Databases and commands for tests that make thousands: tables are copied, statements and commands are made once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from practicum.cli import tree
from practicum.store import schema, sqlite

COMPILED: dict[Any, Any] = {}
FORMAT = schema.FORMAT


@cache
def tables() -> tuple[str, ...]:
    """The statements that make the tables of a run."""
    engine = create_engine("sqlite://")
    with engine.connect() as db:
        FORMAT.create(db)
        statements = (
            db.execute(text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")).scalars().all()
        )
    engine.dispose()
    return tuple(statements)


def create(db: Connection) -> None:
    """As `FORMAT.create`, faster."""
    for statement in tables():
        db.connection.driver_connection.execute(statement)


@cache
def dialect() -> Any:
    """The one dialect of all databases, since statements are compiled for a dialect."""
    engine = create_engine("sqlite://")
    engine.connect().close()
    engine.dispose()
    return engine.dialect


def engine(*args: Any, **how: Any) -> Engine:
    """As `create_engine`, with statements that are compiled once for all databases."""
    created = create_engine(*args, **how, execution_options={"compiled_cache": COMPILED})
    created.dialect = dialect()
    return created


@contextmanager
def quick() -> Iterator[None]:
    """Databases open quickly in this block, and commands begin quickly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "build", cache(tree.build))
        patch.setattr(schema, "FORMAT", replace(FORMAT, create=create))
        patch.setattr(sqlite, "create_engine", engine)
        yield
