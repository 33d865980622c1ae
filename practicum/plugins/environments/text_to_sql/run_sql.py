"""Script that compares the rows of two SQL queries on a SQLite database: of the target, and of the answer of a model.

It runs in the sandbox and uses only the standard library. The database is opened read-only, and queries are limited in
operations, functions, steps, rows and bytes. Standard input is the job as JSON: the path of the database and the two
queries. Standard output has one JSON object per line; rows are never printed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

STEPS = 50_000_000  # maximum number of instructions of SQLite's virtual machine that a query may execute
ROWS = 100_000  # maximum number of rows of a result
BYTES = 32_000_000  # maximum size of a result
INTERVAL = 10_000  # steps between two checks

LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
"""Limits of SQLite for a value, a query, a compiled query and attached databases."""

OPERATIONS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}

FUNCTIONS = """
abs avg ceil ceiling char coalesce concat concat_ws count cume_dist date datetime dense_rank exp first_value floor
format glob group_concat hex ifnull iif instr julianday lag last_value lead length like ln log log10 log2 lower ltrim
max min mod nth_value ntile nullif percent_rank pi pow power printf quote rank replace round row_number rtrim sign
sqrt strftime string_agg substr substring sum time timediff total trim trunc typeof unicode unixepoch upper
"""
"""Functions that a query may call. Not listed: functions with side effects, and functions whose error messages quote
their arguments, such as json_extract."""


class Stopped(Exception):
    """A query exceeds a limit or uses a forbidden operation."""


def connect(database: str) -> sqlite3.Connection:
    """Open a database read-only. Nothing is written to the folder of the database."""
    location = f"{Path(database).absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(location, uri=True, isolation_level=None)
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def rows_of(database: str, query: str) -> set[tuple[Any, ...]]:
    """Return the distinct rows of a query. Raises Stopped for a query that is stopped, and sqlite3.Error,
    sqlite3.Warning or ValueError for a query that fails."""
    checks = iter(range(STEPS // INTERVAL))
    functions, refusals = {*FUNCTIONS.split()}, []

    def authorize(operation: int, _: str | None, name: str | None, *__: str | None) -> int:
        if operation in OPERATIONS or (operation == sqlite3.SQLITE_FUNCTION and (name or "").lower() in functions):
            return sqlite3.SQLITE_OK
        refusals.append(operation)
        return sqlite3.SQLITE_DENY

    with closing(connect(database)) as connection:
        connection.set_authorizer(authorize)
        connection.set_progress_handler(lambda: next(checks, None) is None, INTERVAL)
        try:
            return _limited_rows(connection.execute(query))
        except sqlite3.Error as error:
            if refusals:
                raise Stopped(f"{error}: a query may only read the database, with common functions") from None
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise Stopped(f"stopped after {STEPS:,} steps") from None
            raise


def _limited_rows(cursor: sqlite3.Cursor) -> set[tuple[Any, ...]]:
    if cursor.description is None:
        raise ValueError("not a query")
    rows, size = set(), 0
    for number, row in enumerate(cursor, 1):
        size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
        if number > ROWS or size > BYTES:
            raise Stopped(f"stopped after {ROWS:,} rows or {BYTES:,} bytes")
        rows.add(row)
    return rows


def main(job: dict[str, str]) -> None:
    """Print, for the target and the answer, why the query failed, or whether the rows of both are equal."""
    results = []
    for name in ("target", "answer"):
        try:
            results.append(rows_of(job["database"], job[name]))
        except (Stopped, sqlite3.Error, sqlite3.Warning, ValueError) as error:
            print(json.dumps({name: str(error), "stopped": isinstance(error, Stopped)}))
            return
        print(json.dumps({name: ""}), flush=True)
    print(json.dumps({"equal": results[0] == results[1]}))


if __name__ == "__main__":
    main(json.load(sys.stdin))
