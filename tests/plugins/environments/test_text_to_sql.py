"""Questions about SQLite databases: their file format, and the scorer that runs queries from a model.

A fake package registers both, so that the tests need no new installation of practicum."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packages
import pytest
from fenced import needs_fences
from refusals import refused

from practicum.core.types import Score, Task, Trace
from practicum.plugins.environments.text_to_sql import run_sql
from practicum.plugins.environments.text_to_sql.scorer import sql_of
from practicum.tasks.formats import FORMATS, Dataset, convert
from practicum.tasks.load import require_meta
from practicum.tasks.sandbox.runner import Limits, Sandbox
from practicum.tasks.scoring.registry import SCORERS, load_scorer, meta_fault

PLUGINS = "practicum.plugins.environments.text_to_sql"
ROW = {"db_id": "pets", "question": "How old is Rex?", "query": "SELECT age FROM pet WHERE name = 'Rex'"}
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"


@pytest.fixture(scope="module", autouse=True)
def _registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("packages")
    packages.install(folder, "sql_scorers", "", SCORERS.name, sql=f"{PLUGINS}.scorer:SCORER")
    packages.install(folder, "sql_formats", "", FORMATS.name, text_to_sql=f"{PLUGINS}.tasks:TextToSql")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "database" / "pets" / "pets.sqlite"
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE pet (name TEXT, age INT, secret TEXT)")
    connection.executemany(
        "INSERT INTO pet VALUES (?, ?, 'zebra')", [("Rex", 3), ("Tom", 5), ("Ann", 3), (b"\xff".decode("latin-1"), 9)]
    )
    connection.execute("UPDATE pet SET name = CAST(x'ff' AS TEXT) WHERE age = 9")
    connection.commit()
    connection.close()
    return path


def read(folder: Path, row: dict[str, Any]) -> Dataset:
    (folder / "dev.json").write_text(json.dumps([row]))
    return convert(folder / "dev.json", "text_to_sql")


def rows(database: Path, query: str) -> set[tuple[Any, ...]]:
    return run_sql.rows_of(str(database), query)


def score(database: Path, target: str, answer: str) -> Score:
    task = Task("t", "How?", target, {"database": str(database)})
    return asyncio.run(load_scorer("sql", None)(task, Trace(answer)))


# ---- format


def test_a_question_has_the_schema_of_its_database(tmp_path: Path, database: Path) -> None:
    bird = {"db_id": "pets", "question": "Who?", "evidence": "old is 5", "SQL": "SELECT 1", "question_id": 7}
    spider, streamed = (read(tmp_path, row) for row in (ROW, bird))
    assert (spider.format, spider.scorer, spider.choices) == ("text_to_sql", "sql", ())
    assert all(FORMATS.load("text_to_sql").fits(row) for row in (ROW, bird))
    assert not FORMATS.load("text_to_sql").fits({"question": "Who?", "query": "SELECT 1"})
    (task,) = spider.tasks
    assert task.input == "CREATE TABLE pet (name TEXT, age INT, secret TEXT);\n\nQuestion: How old is Rex?"
    assert (task.id, task.target) == ("dev-1", ROW["query"])
    assert task.meta == {"database": str(database), "tags": ["pets"]}
    (task,) = streamed.tasks
    assert (task.id, task.target) == ("7", "SELECT 1")
    assert task.input.endswith("\n\nEvidence: old is 5\n\nQuestion: Who?")


def test_the_folder_of_the_databases_may_have_the_name_of_an_archive(tmp_path: Path, database: Path) -> None:
    (tmp_path / "database").rename(tmp_path / "dev_databases")
    (task,) = read(tmp_path, ROW).tasks
    assert task.meta["database"] == str(tmp_path / "dev_databases" / "pets" / "pets.sqlite")


def test_a_missing_or_damaged_database_and_a_name_outside_the_folder_are_refused(
    tmp_path: Path, database: Path
) -> None:
    with refused("tasks.not_found") as caught:
        read(tmp_path, {**ROW, "db_id": "cars"})
    assert str(tmp_path / "database" / "cars" / "cars.sqlite") in str(caught.value)
    for name in ("../pets", "*", "", "a/b", "pets\n"):
        with refused("tasks.invalid_field"):
            read(tmp_path, {**ROW, "db_id": name})
    database.write_bytes(b"no database, but text. " * 100)
    with refused("tasks.unreadable"):
        read(tmp_path, ROW)


def test_a_schema_that_is_not_utf8_is_readable(tmp_path: Path, database: Path) -> None:
    database.write_bytes(database.read_bytes().replace(b"secret", b"secr\xfft"))
    (task,) = read(tmp_path, ROW).tasks
    assert "secr\ufffdt" in task.input


# ---- scorer


def test_the_query_is_the_last_block_of_sql_or_the_whole_answer() -> None:
    for answer, query in (
        ("SELECT 1\n", "SELECT 1"),
        ("So:\n```sql\nSELECT 1\n```\nor better\n```SQL\nSELECT 2;\n```", "SELECT 2;"),
        ("```\nSELECT 3\n```", "SELECT 3"),
        ("```sql\nSELECT 4\n```\nprints\n```\n4\n```", "SELECT 4"),
    ):
        assert sql_of(answer) == query


@needs_fences
def test_equal_sets_of_rows_are_right(database: Path) -> None:
    target = "SELECT name FROM pet WHERE age < 9"
    for answer, value in (
        (target, 1.0),
        ("```sql\nSELECT name FROM pet WHERE age < 9 ORDER BY name DESC;\n```", 1.0),
        ("SELECT name FROM pet WHERE age < 9 UNION ALL SELECT 'Rex'", 1.0),  # repeated rows do not count
        ("SELECT name FROM pet WHERE age < 5", 0.0),
        ("SELECT name, age FROM pet WHERE age < 9", 0.0),
    ):
        result = score(database, target, answer)
        assert (result.value, result.correct, result.stopped) == (value, value == 1.0, False), answer
    assert score(database, "SELECT 1 WHERE 0", "SELECT age FROM pet WHERE age > 99").correct
    assert not score(database, "SELECT 1 WHERE 0", "").correct
    assert score(database, "SELECT 3.0", "SELECT DISTINCT age FROM pet WHERE age = 3").correct


@needs_fences
def test_a_failure_of_the_answer_is_its_note_and_a_failure_of_the_target_is_marked(database: Path) -> None:
    failed = score(database, "SELECT 1", "SELECT * FROM dog")
    assert (failed.value, failed.untestable, failed.note) == (0.0, False, "the query fails: no such table: dog")
    failed = score(database, "SELECT * FROM dog", "SELECT * FROM dog")
    assert (failed.value, failed.untestable) == (0.0, True)


@needs_fences
def test_a_query_that_needs_much_memory_is_stopped(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{PLUGINS}.scorer._sandbox", lambda: Sandbox(Limits(memory_mb=100)))
    tables = [f"t{n} AS (SELECT 1 x FROM t{n - 1} a, t{n - 1} b)" for n in range(1, 22)]  # doubles while it is compiled
    stopped = score(database, "SELECT 1", f"WITH t0 AS (SELECT 1 x), {', '.join(tables)} SELECT count(*) FROM t21")
    assert (stopped.value, stopped.stopped, stopped.untestable) == (0.0, True, False)


@needs_fences
def test_a_task_without_a_database_is_refused_before_its_attempt(tmp_path: Path, database: Path) -> None:
    assert meta_fault("sql", {"database": str(database)}) is None
    other = database.with_name("cookies.sqlite")
    other.write_bytes(database.read_bytes())
    relative = "database/pets/pets.sqlite"
    for path in (None, 3, "", relative, str(other), str(database.parent), str(tmp_path / "x" / "x.sqlite")):
        with refused("tasks.missing_field"):
            require_meta([Task("t", "q", "SELECT 1", {"database": path})], "sql", "t.jsonl")
    with refused("tasks.missing_field"):
        require_meta([Task("t", "q", "SELECT 1")], "sql", "t.jsonl")


# ---- queries of a model


def test_rows_are_read_as_a_set(database: Path) -> None:
    assert rows(database, "SELECT age FROM pet") == {(3,), (5,), (9,)}
    assert rows(database, "SELECT name FROM pet WHERE age = 9") == {("\udcff",)}
    assert rows(database, "SELECT count(*), max(age), lower('A') FROM pet;") == {(4, 9, "a")}
    for query in ("", "-- nothing", "SELECT 1; SELECT 2", "SELECT ?", "SELECT '\0'", "SELECT '\ud800'", "SELEC"):
        with pytest.raises((sqlite3.Error, sqlite3.Warning, ValueError)):
            rows(database, query)


def test_a_query_may_only_read(database: Path, tmp_path: Path) -> None:
    before, elsewhere = database.read_bytes(), tmp_path / "new.sqlite"
    for query in (
        f"ATTACH '{elsewhere}' AS other",
        f"VACUUM INTO '{elsewhere}'",
        "DELETE FROM pet",
        "UPDATE pet SET age = 1",
        "DROP TABLE pet",
        "CREATE TABLE dog (name TEXT)",
        "CREATE TEMP TABLE dog (name TEXT)",
        "CREATE VIRTUAL TABLE temp.dog USING fts5(name)",
        "PRAGMA journal_mode = WAL",
        "PRAGMA user_version",
        "SELECT * FROM pragma_table_info('pet')",
        "BEGIN",
        "SELECT load_extension('x')",
        "SELECT fts3_tokenizer('x')",
    ):
        with pytest.raises((run_sql.Stopped, sqlite3.OperationalError)):
            rows(database, query)
    assert database.read_bytes() == before
    assert {path.name for path in tmp_path.rglob("*")} == {"database", "pets", "pets.sqlite"}


def test_no_error_quotes_a_value_of_the_database(database: Path) -> None:
    for call in ("json_extract('{}', secret)", "secret -> secret", "json(secret)", "1 LIKE 'a' ESCAPE secret"):
        with pytest.raises((run_sql.Stopped, sqlite3.Error)) as caught:
            rows(database, f"SELECT {call} FROM pet")
        assert "zebra" not in str(caught.value)
    with pytest.raises(run_sql.Stopped):
        rows(database, "SELECT * FROM pet, json_each('{}', secret)")


def test_a_query_without_end_and_a_huge_result_are_stopped(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_sql, "STEPS", 1_000_000)
    with pytest.raises(run_sql.Stopped):
        rows(database, ENDLESS.format("count(*)"))
    monkeypatch.setattr(run_sql, "ROWS", 500)
    assert len(rows(database, f"{ENDLESS.format('x')} LIMIT 500")) == 500
    with pytest.raises(run_sql.Stopped):
        rows(database, f"{ENDLESS.format('x')} LIMIT 501")
    with pytest.raises(run_sql.Stopped):  # the same row again and again
        rows(database, ENDLESS.format("1"))
    monkeypatch.setattr(run_sql, "BYTES", 5_000)
    with pytest.raises(run_sql.Stopped):
        rows(database, f"{ENDLESS.format(chr(39) + 'x' * 100 + chr(39))} LIMIT 60")
    with pytest.raises(sqlite3.Error):
        rows(database, "SELECT group_concat(printf('%.*c', 900000, 'x')) FROM pet")
