"""Rows that a test writes to a store itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table

from practicum.store.database import Store


def put(store: Store, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert or replace rows of the space of an open store."""
    with store.transaction() as at:
        at.put(table, *rows)


def execute(store: Store, *statements: Any) -> None:
    """Run statements in one transaction."""
    with store.transaction() as at:
        for statement in statements:
            at.run(statement)
