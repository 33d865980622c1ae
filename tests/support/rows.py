"""Rows that a test writes to a store itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table

from practicum.store.database import Store
from practicum.store.scope import Transaction


def put(store: Store, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert or replace rows of the space of an open store."""
    store.change(lambda at: at.put(table, *rows))


def execute(store: Store, *statements: Any) -> None:
    """Run statements in one transaction."""

    def change(at: Transaction) -> None:
        for statement in statements:
            at.run(statement)

    store.change(change)
