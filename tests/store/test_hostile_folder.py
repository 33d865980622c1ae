"""Run folders of an attacker: opening one changes and executes nothing. And the permissions of a run's files."""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
from contextlib import closing
from pathlib import Path

import pytest
from refusals import refused

from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.files import append_private, write_atomic
from practicum.session.forget import forget
from practicum.session.records import create_seed, load_context, update_run
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE

SECRET = "The passphrase is heron."


@pytest.fixture
def run(tmp_path: Path) -> Path:
    create_seed(tmp_path / "run", initial_context([Add("rules", SECRET)]))
    return tmp_path / "run"


def change(run: Path, sql: str) -> None:
    with closing(sqlite3.connect(run / DATABASE_FILE)) as db:
        db.executescript(sql)


def not_opened(run: Path, message: str) -> None:
    for way in (Store.read, Store.open, Store.open_shared):
        with refused("store.unsafe") as caught:
            way(run)
        assert message in str(caught.value)


EXECUTING = {
    "CREATE TRIGGER t AFTER UPDATE ON spaces BEGIN DELETE FROM versions; END": "has the trigger 't'",
    "ALTER TABLE spaces RENAME TO r; CREATE VIEW spaces AS SELECT * FROM r": "has the view 'spaces'",
    "CREATE VIRTUAL TABLE v USING fts5(x)": "has the table 'v'",
    "CREATE INDEX i ON spaces (hex(config))": "has the index 'i'",
    "CREATE INDEX i ON spaces (state) WHERE state LIKE '%%%%%%%%a'": "has the index 'i'",
    "ALTER TABLE spaces ADD COLUMN more TEXT AS (hex(config))": "has the table 'spaces'",
    "ALTER TABLE spaces ADD COLUMN more TEXT CHECK (config LIKE '%%%')": "has the table 'spaces'",
}


def test_a_database_that_executes_statements_is_not_opened(run: Path) -> None:
    whole = (run / DATABASE_FILE).read_bytes()
    for sql, message in EXECUTING.items():
        (run / DATABASE_FILE).write_bytes(whole)
        change(run, sql)
        not_opened(run, message)


def test_a_space_named_like_a_path_is_not_opened(run: Path) -> None:
    for name in ("../../elsewhere", "..", ""):
        change(run, f"UPDATE spaces SET name = '{name}'")
        not_opened(run, "its space name")
    assert not (run.parent / "elsewhere").exists()


def test_a_recovered_database_with_another_table_opens(run: Path) -> None:
    change(run, "CREATE TABLE lost_and_found (rootpgno INTEGER, c0 DEFAULT (1)); CREATE INDEX l ON lost_and_found (c0)")
    with Store.open(run) as store:
        update_run(store, state="edited")
    assert [entry.text for entry in load_context(run)] == [SECRET]


def test_a_link_in_a_run_folder_is_not_followed(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    before = (run / DATABASE_FILE).read_bytes()
    outside.write_bytes(before)
    for name in (f"{DATABASE_FILE}-wal", "lock", "index.0.7", "llama.log", DATABASE_FILE):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside)
        not_opened(run, f"its {name} is a symbolic link")
        (run / name).unlink()
        if name != DATABASE_FILE:
            os.mkfifo(run / name)
            not_opened(run, f"its {name} is not a regular file")
            (run / name).unlink()
    assert outside.read_bytes() == before
    (tmp_path / "log").symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="symbolic"):
        append_private(tmp_path / "log")
    assert not (tmp_path / "new").exists()


def test_a_journal_deletes_no_file_that_it_names(run: Path, tmp_path: Path) -> None:
    """Where a journal names a "super-journal", SQLite deletes that file."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    crafted = tmp_path / "crafted.sqlite"
    with closing(sqlite3.connect(crafted, isolation_level=None)) as db:
        db.executescript("CREATE TABLE t (x); PRAGMA cache_size = 1; BEGIN")
        db.executemany("INSERT INTO t VALUES (?)", [["x" * 500]] * 2000)
        journal = Path(f"{crafted}-journal").read_bytes()
        (run / DATABASE_FILE).write_bytes(crafted.read_bytes())
    name = os.fsencode(victim)
    checksum = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
    tail = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">II", len(name), checksum)
    (run / f"{DATABASE_FILE}-journal").write_bytes(journal + tail + bytes.fromhex("d9d505f920a163d7"))
    not_opened(run, f"its {DATABASE_FILE}-journal names another file")
    assert victim.read_text() == "precious"
    # The attack is real: SQLite itself deletes the file.
    with closing(sqlite3.connect(run / DATABASE_FILE)) as db:
        db.execute("SELECT count(*) FROM t").fetchone()
    assert not victim.exists()


def modes(folder: Path) -> dict[str, str]:
    return {path.name: stat.filemode(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}


def test_the_files_of_a_run_are_private_and_an_export_obeys_the_umask(tmp_path: Path) -> None:
    run, before = tmp_path / "run", os.umask(0)
    try:
        create_seed(run, initial_context([Add("rules", SECRET, sources=("task:t1",))]))
        with Store.open(run) as store, Store.read(run) as reading:
            reading.changes()
            update_run(store, state="edited")
            assert modes(run).items() >= {f"{DATABASE_FILE}{end}": "-rw-------" for end in ("", "-wal", "-shm")}.items()
            forget(store, sources=["task:t1"], copy_to=tmp_path / "copy")
        append_private(run / "llama.log").close()
        os.umask(0o027)
        write_atomic(tmp_path / "export.md", "text")
        write_atomic(tmp_path / "kept.json", "text", private=True)
    finally:
        os.umask(before)
    for folder in (run, tmp_path / "copy"):
        assert stat.filemode(folder.stat().st_mode) == "drwx------"
        assert {*modes(folder).values()} == {"-rw-------"}
    assert modes(tmp_path) == {"export.md": "-rw-r-----", "kept.json": "-rw-------"}
