"""Statements about the rows of one space. The column `space` of the tables is known here and in this package alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    FromClause,
    Select,
    Table,
    Update,
    and_,
    delete,
    select,
    update,
)

from practicum.store import schema
from practicum.store.dialects import insert_adding, insert_new, upsert

RowValues = Mapping[str, Any]
"""A row by the names of its columns, without its space."""

SHOWS = frozenset({
    schema.spaces, schema.versions, schema.names, schema.snapshots, schema.corrections, schema.rollouts,
    schema.outcomes,
})  # fmt: skip
"""The tables that decide what a space shows, and what it learns next: a change of them is announced to all who have the
space open."""


class Scope:
    """Makes statements about the rows of the space with this id."""

    def __init__(self, space: str) -> None:
        self.space = space

    def mine(self, table: FromClause, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
        """The condition that a row of a table or an alias is of this space, and meets these conditions."""
        return and_(table.c.space == self.space, *conditions)

    def select(self, *columns: Any) -> Select[Any]:
        """A query of tables or of columns. It has the rows of this space alone; a table that only a join names needs
        `mine`."""
        query = select(*columns)
        return query.where(*(self.mine(table) for table in query.get_final_froms() if "space" in table.c))

    def update(self, table: Table) -> Update:
        """The statement that changes rows."""
        return update(table).where(self.mine(table))

    def delete(self, table: Table) -> Delete:
        """The statement that deletes rows."""
        return delete(table).where(self.mine(table))

    def of_space(self, rows: Iterable[RowValues]) -> list[dict[str, Any]]:
        """Rows to be written, with their space."""
        return [{**row, "space": self.space} for row in rows]


class Transaction(Scope):
    """A transaction, in which rows of one space are read and written. `shows` tells whether it changed what the space
    shows; what is `added` to the sums is written at its end."""

    def __init__(self, db: Connection, space: str, now: Callable[[Connection], float]) -> None:
        super().__init__(space)
        self.db = db
        self.shows = False
        self.added: list[Mapping[str, Any]] = []
        self._now = now

    def of(self, space: str) -> Transaction:
        """The same transaction, for the rows of another space."""
        return Transaction(self.db, space, self._now)

    def now(self) -> float:
        """Seconds since 1970, by the one clock of all nodes."""
        return self._now(self.db)

    def rows(self, query: Any) -> Sequence[Any]:
        """The rows of a query, as named tuples."""
        return self.db.execute(query).all()

    def first(self, query: Any) -> Any:
        """The first row of a query; None if there is none."""
        return self.db.execute(query).first()

    def run(self, statement: Update | Delete) -> int:
        """Change or delete rows; returns how many."""
        self.shows |= statement.table in SHOWS
        return self.db.execute(statement).rowcount

    def insert(self, table: Table, *rows: RowValues) -> None:
        """Insert rows, none of which may be there."""
        self._write(table, table.insert(), rows)

    def insert_new(self, table: Table, *rows: RowValues) -> None:
        """Insert those rows whose keys are not there."""
        self._write(table, insert_new(table, self.db.dialect.name), rows)

    def put(self, table: Table, *rows: RowValues) -> None:
        """Insert rows, or replace those with the same keys."""
        self._write(table, upsert(table, self.db.dialect.name), rows)

    def add(self, table: Table, sums: Sequence[str], *rows: RowValues) -> None:
        """Insert rows, or add their numbers in the columns `sums` to those of the rows with the same keys."""
        self._write(table, insert_adding(table, self.db.dialect.name, sums), rows)

    def count(self, sums: Mapping[str, Any]) -> None:
        """Add numbers to the sums by the hour, at the end of the transaction (see `sums.add_to_hours`)."""
        self.added.append({**sums, "space": self.space})

    def _write(self, table: Table, statement: Any, rows: Sequence[RowValues]) -> None:
        if rows:
            self.shows |= table in SHOWS
            self.db.execute(statement, self.of_space(rows))


def is_empty(at: Transaction) -> bool:
    """Whether a space has no row in any table, but for that of its name: it was reserved, and nothing was written."""
    tables = [table for table in schema.metadata.tables.values() if table is not schema.spaces]
    return all(at.first(at.select(table.c.space).limit(1)) is None for table in tables)
