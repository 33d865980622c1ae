"""Differences between SQLite and PostgreSQL: texts, the order of rows, upserts and a few functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Dialect, Float, Insert, Integer, String, Table, Text, TypeDecorator
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

ROW_ORDER = "row_order"
"""PostgreSQL's column with the number of a row, in the order of writing. In SQLite, `rowid` is this number."""

TWIN = "in PostgreSQL"
"""Key in the `info` of a table whose form in PostgreSQL differs from its form in SQLite. The value is the form in
PostgreSQL."""

_ESCAPED = str.maketrans({"\0": "\x1a0", "\x1a": "\x1a1"})


class _PostgresqlText(TypeDecorator[str]):
    """Text column of PostgreSQL, which cannot contain NUL: NUL is escaped with the substitute character. Texts are
    ordered by their code points, as in SQLite."""

    impl = Text(collation="C")
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None else value.translate(_ESCAPED) if "\0" in value or "\x1a" in value else value

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or "\x1a" not in value:
            return value
        return value.replace("\x1a0", "\0").replace("\x1a1", "\x1a")


NAME = String().with_variant(_PostgresqlText(), "postgresql")
"""Short text, such as an id."""

TEXT = Text().with_variant(_PostgresqlText(), "postgresql")
"""Any text, including NUL."""


class _Row(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True


ROW = _Row()
"""Number of a row, in the order of writing. A replaced row gets a new number."""


class unindexed(FunctionElement[str]):
    """Column that SQLite must not use for an index lookup, because the index of another column finds fewer rows."""

    type = String()
    inherit_cache = True


class array_length(FunctionElement[int]):
    """Number of items of a JSON list that is stored as text."""

    type = Integer()
    inherit_cache = True


class score_value(FunctionElement[float]):
    """Value of the score in the data of an attempt; None without a score."""

    type = Float()
    inherit_cache = True


class next_interaction(FunctionElement[int]):
    """Number of a new interaction: in SQLite the highest number plus one, in PostgreSQL the next number of the column's
    sequence."""

    type = BigInteger()
    inherit_cache = True


def _write_as(element: type[FunctionElement[Any]], sqlite: str, postgresql: str) -> None:
    """Define the SQL for an element in each database. {} is replaced by the arguments of the element."""
    for sql, dialects in ((sqlite, ()), (postgresql, ("postgresql",))):
        compiles(element, *dialects)(
            lambda element, compiler, sql=sql, **how: sql.format(compiler.process(element.clauses, **how))
        )


_write_as(_Row, "rowid", ROW_ORDER)
_write_as(unindexed, "{} || ''", "{}")
_write_as(array_length, "json_array_length({})", "json_array_length(CAST({} AS JSON))")
_write_as(score_value, "json_extract({}, '$.score.value')", "(CAST({} AS JSON) #>> '{{score,value}}')::float")
_write_as(next_interaction, "(SELECT coalesce(max(number), 0) + 1 FROM interactions)", "DEFAULT")


@cache
def upsert(table: Table, dialect: str) -> Insert:
    """Return the statement that inserts rows, and replaces existing rows with the same keys. A replaced row gets a new
    number (`ROW`), as if it was written last."""
    if dialect == "sqlite":
        return table.insert().prefix_with("OR REPLACE")
    from sqlalchemy.dialects import postgresql

    new = postgresql.insert(table.info.get(TWIN, table))
    keys = [column.name for column in table.primary_key]
    # In a table with the column ROW_ORDER, this column is updated too: a replaced row gets the next number of the
    # sequence.
    values = {column.name: column for column in new.excluded if column.name not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=values)


def insert_new(table: Table, dialect: str) -> Any:
    """Return the statement that inserts the rows whose keys do not exist, and ignores the other rows."""
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table).on_conflict_do_nothing()


def insert_adding(table: Table, dialect: str, sums: Sequence[str]) -> Any:
    """Return the statement that inserts rows. If a row with the same keys exists, the numbers in the columns `sums` are
    added to the existing row instead."""
    if dialect == "sqlite":
        new: Any = sqlite.insert(table)
    else:
        from sqlalchemy.dialects import postgresql

        new = postgresql.insert(table)
    added = {name: table.c[name] + new.excluded[name] for name in sums}
    return new.on_conflict_do_update(index_elements=[column.name for column in table.primary_key], set_=added)
