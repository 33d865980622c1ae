"""A small wholesaler's database, in memory, with conventions that no text mentions: they are learned from failures.

`World` is the environment of one attempt (`--agent tools:warehouse:World`). `score` compares the state it ends in with
the state that the task's own solution leads to (`--scorer warehouse:score`); its note, which learning sees, lists the
differences. The solutions are in the tasks' `meta`, which no model is shown.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any

from practicum.core.types import Score, Task, Trace

TABLES = {
    "customers": ("id", "name", "phone", "level"),
    "products": ("id", "name", "price"),
    "orders": ("id", "customer", "product", "quantity", "total", "status", "day", "approved_by"),
    "movements": ("id", "product", "place", "quantity", "day"),
    "audit": ("id", "code", "ref", "day"),
}
TEXTS = ("name", "phone", "approved_by", "place", "code")
CUSTOMERS = (
    "NORDLICHT CAFE", "MEYER PRINTING", "OSK LOGISTICS", "HARBOUR CLINIC", "BLUE DOOR HOSTEL", "TILDA KRAMER",
    "LINDEN SCHOOL", "PAPER & PINE", "VOSS ARCHITECTS", "RIVERSIDE LIBRARY", "ANTON BERGER", "GREEN FORK CATERING",
)  # fmt: skip
PRODUCTS = (
    ("desk lamp", 3450), ("office chair", 18900), ("paper A4", 499), ("stapler", 1275), ("whiteboard", 8990),
    ("filing box", 650), ("label printer", 12400), ("wall clock", 2190), ("coat stand", 5625), ("cash box", 2799),
)  # fmt: skip
ALLOWED = (
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
)  # fmt: skip
"""Operations that a statement may use. None of them reads or writes a file."""

ROWS = 20
"""Maximum number of rows that the tool shows."""

STEPS = 20_000_000
"""Maximum number of steps of SQLite's virtual machine for a statement, which may otherwise never end."""


class World:
    """A database in its state of every morning."""

    def __init__(self, task: Task) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        for table, columns in TABLES.items():
            rest = ", ".join(f"{column} {'TEXT' if column in TEXTS else 'NUMERIC'}" for column in columns[1:])
            self.db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {rest})")
        for table, rows in morning().items():
            self.db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(TABLES[table]))})", rows)
        self.db.set_authorizer(lambda action, *about: sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY)
        self.db.set_progress_handler(lambda: 1, STEPS)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self.db.close()

    @property
    def tools(self) -> list[Any]:
        return [self.sql]

    def sql(self, query: str) -> str:
        """Run SQL (SQLite) on the database.

        Args:
            query: a SELECT, INSERT, UPDATE or DELETE statement, or several with a semicolon after each
        """
        return "\n".join(map(self._run, statements(query))) or "no statement was given"

    def _run(self, statement: str) -> str:
        done = self.db.execute(statement)
        if done.description is None:
            return f"ok, {done.rowcount} {'row' if done.rowcount == 1 else 'rows'} changed"
        rows = done.fetchall()
        head = " | ".join(column[0] for column in done.description)
        shown = [" | ".join("NULL" if value is None else str(value) for value in row) for row in rows[:ROWS]]
        more = [f"({len(rows)} rows, the first {ROWS} shown)"] if len(rows) > ROWS else []
        return "\n".join([head, *shown, *more]) if rows else "no rows"

    def state(self) -> dict[str, list[list[Any]]]:
        """All rows of all tables, in the order of their ids."""
        return {table: [list(row) for row in self.db.execute(f"SELECT * FROM {table} ORDER BY id")] for table in TABLES}


def statements(query: str) -> Iterator[str]:
    """The statements of a query, split at the semicolons that end one."""
    rest = ""
    for piece in query.split(";"):
        rest += f"{piece};"
        if sqlite3.complete_statement(rest):
            if rest.strip("; \n\t"):
                yield rest
            rest = ""
    if rest:
        yield rest.removesuffix(";")


def morning() -> dict[str, list[tuple[Any, ...]]]:
    """The rows that every day begins with."""
    customers = [
        (i, name, f"+49{30 + i}{5550100 + 37 * i}", "B" if i % 3 else "A") for i, name in enumerate(CUSTOMERS, 11)
    ]
    products = [(i, name, price) for i, (name, price) in enumerate(PRODUCTS, 201)]
    orders = []
    for i in range(30):
        product, quantity = products[i * 7 % len(products)], i % 4 + 1
        day = 20250301 + i % 12
        orders.append(
            (1001 + i, 11 + i * 5 % len(customers), product[0], quantity, product[2] * quantity, 1, day, None)
        )
    return {"customers": customers, "products": products, "orders": orders}


def score(task: Task, answer: str, trace: Trace) -> Score:
    """Score 1 if the database equals the result of the solution. The answer is not compared."""
    with World(task) as right:
        for statement in task.meta["solution"]:
            right.sql(statement)
        wrong = differences(right.state(), trace.data["state"])
    return Score(float(not wrong), not wrong, "; ".join(wrong))


def differences(right: dict[str, list[list[Any]]], state: dict[str, list[list[Any]]]) -> list[str]:
    """Return the differences of a state from the right one. Old rows are compared by id, new rows by value."""
    old_rows = morning()
    notes: list[str] = []
    for table, columns in TABLES.items():
        old = {row[0] for row in old_rows.get(table, ())}
        notes += _changed(
            table, columns, {r[0]: r for r in right[table] if r[0] in old}, {r[0]: r for r in state[table]}
        )
        expected = Counter(tuple(r[1:]) for r in right[table] if r[0] not in old)
        there = Counter(tuple(r[1:]) for r in state[table] if r[0] not in old)
        notes += [
            f"{table} should have a new row {_row(columns, r)} and has none" for r in (expected - there).elements()
        ]
        notes += [f"{table} should not have the new row {_row(columns, r)}" for r in (there - expected).elements()]
    return notes


def _changed(table: str, columns: tuple[str, ...], right: dict[int, Any], state: dict[int, Any]) -> list[str]:
    notes = []
    for id, row in right.items():
        if id not in state:
            notes.append(f"row {id} of {table} was deleted and should still be there")
            continue
        notes += [
            f"{column} of row {id} of {table} is {value!r} and should be {should!r}"
            for column, should, value in zip(columns, row, state[id], strict=True)
            if should != value
        ]
    return notes


def _row(columns: tuple[str, ...], values: tuple[Any, ...]) -> str:
    fields = (f"{column}={value!r}" for column, value in zip(columns[1:], values, strict=True) if value is not None)
    return f"({', '.join(fields)})"
