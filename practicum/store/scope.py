"""SQL statements about the rows of one space: the rows whose column `space` has the id of the space."""

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
"""Values of a row by column name, without its space."""

SHOWS = frozenset({
    schema.spaces, schema.versions, schema.names, schema.snapshots, schema.corrections, schema.rollouts,
    schema.outcomes,
})  # fmt: skip
"""Tables that determine the content that a space shows, and the data that the space learns from next. A change in one
of these tables is announced to all processes that have the space open."""


class Scope:
    """Builder of statements about the rows of the space with this id."""

    def __init__(self, space: str) -> None:
        self.space = space

    def mine(self, table: FromClause, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
        """Return the condition that a row of a table or an alias belongs to this space, and meets all `conditions`."""
        return and_(table.c.space == self.space, *conditions)

    def select(self, *columns: Any) -> Select[Any]:
        """Build a query of tables or columns, limited to rows of this space. For a table that only occurs in a join,
        the caller must add the condition `mine`."""
        query = select(*columns)
        return query.where(*(self.mine(table) for table in query.columns_clause_froms if "space" in table.c))

    def update(self, table: Table) -> Update:
        """Build the statement that updates rows of this space."""
        return update(table).where(self.mine(table))

    def delete(self, table: Table) -> Delete:
        """Build the statement that deletes rows of this space."""
        return delete(table).where(self.mine(table))

    def of_space(self, rows: Iterable[RowValues]) -> list[dict[str, Any]]:
        """Return rows with the id of this space added."""
        return [{**row, "space": self.space} for row in rows]


class Transaction(Scope):
    """Transaction that reads and writes rows of one space. `shows` is set if the transaction changes the content
    that the space shows. At the end of the transaction, the numbers in `added` are added to the hourly sums (table
    `hours`)."""

    def __init__(self, db: Connection, space: str, now: Callable[[Connection], float]) -> None:
        super().__init__(space)
        self.db = db
        self.shows = False
        self.added: list[Mapping[str, Any]] = []
        self._now = now

    def of(self, space: str) -> Transaction:
        """Return the same transaction for rows of another space."""
        return Transaction(self.db, space, self._now)

    def now(self) -> float:
        """Return the seconds since 1970, by the clock that all nodes share."""
        return self._now(self.db)

    def rows(self, query: Any) -> Sequence[Any]:
        """Return the rows of a query, as named tuples."""
        return self.db.execute(query).all()

    def first(self, query: Any) -> Any:
        """Return the first row of a query, or None."""
        return self.db.execute(query).first()

    def run(self, statement: Update | Delete) -> int:
        """Update or delete rows. Returns the number of updated or deleted rows."""
        self.shows |= statement.table in SHOWS
        return self.db.execute(statement).rowcount

    def insert(self, table: Table, *rows: RowValues) -> None:
        """Insert rows whose keys must not exist."""
        self._write(table, table.insert(), rows)

    def insert_new(self, table: Table, *rows: RowValues) -> None:
        """Insert the rows whose keys do not exist, and ignore the other rows."""
        self._write(table, insert_new(table, self.db.dialect.name), rows)

    def put(self, table: Table, *rows: RowValues) -> None:
        """Insert rows, or replace rows with the same keys."""
        self._write(table, upsert(table, self.db.dialect.name), rows)

    def add(self, table: Table, sums: Sequence[str], *rows: RowValues) -> None:
        """Insert rows. If a row with the same keys exists, add the numbers in the columns `sums` to the existing row
        instead."""
        self._write(table, insert_adding(table, self.db.dialect.name, sums), rows)

    def count(self, sums: Mapping[str, Any]) -> None:
        """Add numbers to the hourly sums at the end of the transaction (see `sums.add_to_hours`)."""
        self.added.append({**sums, "space": self.space})

    def _write(self, table: Table, statement: Any, rows: Sequence[RowValues]) -> None:
        if rows:
            self.shows |= table in SHOWS
            self.db.execute(statement, self.of_space(rows))


def is_empty(at: Transaction) -> bool:
    """Whether a space has no rows except its row in `spaces`: the name was reserved, but nothing was written."""
    tables = [table for table in schema.metadata.tables.values() if table is not schema.spaces]
    return all(at.first(at.select(table.c.space).limit(1)) is None for table in tables)
