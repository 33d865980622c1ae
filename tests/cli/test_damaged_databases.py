"""Databases with arbitrary content: every reading command ends with a result or an error of practicum."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import client, make_tasks
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from refusals import refused

import practicum
from practicum.cli.tree import root
from practicum.core.context import MOST_ENTRIES
from practicum.core.errors import PracticumError
from practicum.session.records import load_context
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE

READING: tuple[tuple[str, ...], ...] = (
    ("show", "RUN"), ("show", "RUN", "--entry", "e1"), ("space", "monitor", "RUN"), ("export", "RUN"),
    ("space", "rollback", "RUN", "0", "--yes"), ("space", "forget", "RUN", "--task", "t1", "--yes", "--no-copy"),
)  # fmt: skip

VALUES: list[Any] = [
    None, 0, -1, 2**63 - 1, -(2**63), 1.5, float("inf"), b"\xff\x00", "", "x", "null", "[]", "{}", "[1]", '{"a": 1}',
    '"s"', "1e999", "NaN", '"\\ud800"', "[" * 100_000, '{"a":' * 50_000, f"e{10**12}", '{"errors": [1], "scores": 5}',
    json.dumps([{"edit": {"op": "add", "section": "s", "text": "t"}, "id": f"e{10**12}"}]),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with rows in every table."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    how: dict[str, Any] = {"val": make_tasks(1, 20), "test": make_tasks(1, 30), "settings": {"rounds": 2}}
    practicum.run_sync(
        practicum.learn(make_tasks(2), out=folder, parts=practicum.Parts(clients={"agent": client()}), **how)
    )

    async def use() -> None:
        async with practicum.open(folder) as space:
            await space.report(await space.show("hello"), answer="a", score=1)
            space.name("prod")

    practicum.run_sync(use())
    with Store.open(folder) as store:
        store.scrub()
    return folder


def every_command(run: Path) -> None:
    """Each reading command ends with a result or an error of practicum's own."""
    for command in READING:
        with tempfile.TemporaryDirectory() as name:
            copy = shutil.copytree(run, Path(name) / "run")
            try:
                root()([str(copy) if word == "RUN" else word for word in command], standalone_mode=False)
            except PracticumError:
                continue


def put(run: Path, table: str, column: str, row: int, value: Any) -> None:
    column_of_key = "number" if table == "entries" else "rowid"
    with closing(sqlite3.connect(run / DATABASE_FILE)) as db, db:
        rows = [key for (key,) in db.execute(f"SELECT {column_of_key} FROM {table}")]
        if rows:
            query = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {column_of_key} = ?"
            try:
                db.execute(query, [value, rows[row % len(rows)]])
            except sqlite3.IntegrityError:
                return  # the schema forbids it


def columns() -> list[tuple[str, str]]:
    from practicum.store.schema import metadata

    return [(table.name, column) for table in metadata.sorted_tables for column in map(str, table.c.keys())]


@pytest.mark.slow
@settings(
    max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@example(changes=[(("versions", "version"), 0, b"\xff\x00")])
@example(changes=[(("versions", "parent"), 0, b"\xff\x00")])
@example(changes=[(("versions", "next_number"), 3, b"\xff\x00")])
@example(changes=[(("journal", "role"), 0, b"\xff\x00")])
@example(changes=[(("journal", "seconds"), 0, float("inf"))])
@example(changes=[(("spaces", "result"), 0, '{"errors": [1], "scores": 5}')])
@given(
    st.lists(st.tuples(st.sampled_from(columns()), st.integers(0, 50), st.sampled_from(VALUES)), min_size=1, max_size=3)
)
def test_any_value_in_any_column(run: Path, changes: list[tuple[tuple[str, str], int, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        copy = shutil.copytree(run, Path(name) / "run")
        for (table, column), row, value in changes:
            put(copy, table, column, row, value)
        every_command(copy)


@pytest.mark.slow
@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(st.integers(), st.sampled_from([1, 4, 30, 300]))
def test_any_bytes_in_the_file(run: Path, seed: int, count: int) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory() as name:
        copy = shutil.copytree(run, Path(name) / "run")
        raw = bytearray((copy / DATABASE_FILE).read_bytes())
        for _ in range(count):
            raw[random.randrange(len(raw) if random.random() < 0.8 else 4096)] = random.randrange(256)
        (copy / DATABASE_FILE).write_bytes(raw)
        every_command(copy)


def test_values_that_would_take_all_memory_or_never_end_are_refused(run: Path, tmp_path: Path) -> None:
    for number, (table, column, value) in enumerate((
        ("versions", "parent", 7), ("versions", "next_number", 2**62), ("versions", "applied", VALUES[-1]),
        ("versions", "applied", "[" * 100_000), ("spaces", "config", "[" * 100_000),
    )):  # fmt: skip
        copy = shutil.copytree(run, tmp_path / str(number))
        put(copy, table, column, 0, value)
        with refused("store.damaged"):
            len(load_context(copy, 0))


def test_the_number_of_an_entry_is_bounded_in_a_playbook_too(tmp_path: Path) -> None:
    playbook = {"entries": [{"id": f"e{MOST_ENTRIES}", "section": "s", "text": "t"}]}
    (tmp_path / "p.json").write_text(json.dumps(playbook))
    with pytest.raises(PracticumError):
        load_context(tmp_path / "p.json")
