"""Run folders that somebody made to be opened by others: they change and execute nothing; and who may read a run."""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from helpers import client, make_tasks
from runs import Words

import practicum
from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.errors import StoreError
from practicum.core.files import append_private, write_atomic
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Vectors
from practicum.session.amend import save_snapshot
from practicum.session.forget import forget
from practicum.session.records import create_seed, is_own, load_context, read_config, update_run
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE, INDEX_FILES

SECRET = "The passphrase is heron."


@pytest.fixture
def run(tmp_path: Path) -> Path:
    create_seed(tmp_path / "run", initial_context([Add("rules", SECRET)]))
    return tmp_path / "run"


@pytest.fixture
def _lax() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def change(run: Path, sql: str) -> None:
    with closing(sqlite3.connect(run / DATABASE_FILE)) as db:
        db.executescript(sql)


def refused(run: Path, says: str) -> None:
    for way in (Store.read, Store.open, Store.open_shared):
        with pytest.raises(StoreError, match=says):
            way(run)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("CREATE TRIGGER t AFTER UPDATE ON spaces BEGIN DELETE FROM versions; END", "its database has the trigger 't'"),
        ("ALTER TABLE spaces RENAME TO r; CREATE VIEW spaces AS SELECT * FROM r", "its database has the view 'spaces'"),
        ("CREATE VIRTUAL TABLE v USING fts5(x)", "its database has the table 'v'"),
        ("CREATE INDEX i ON spaces (hex(config))", "its database has the index 'i'"),
        ("CREATE INDEX i ON spaces (state) WHERE state LIKE '%%%%%%%%a'", "its database has the index 'i'"),
        ("ALTER TABLE spaces ADD COLUMN more TEXT AS (hex(config))", "its database has the table 'spaces'"),
        ("ALTER TABLE spaces ADD COLUMN more TEXT CHECK (config LIKE '%%%')", "its database has the table 'spaces'"),
    ],
)
def test_a_database_that_does_something_by_itself_is_not_opened(run: Path, sql: str, says: str) -> None:
    change(run, sql)
    refused(run, f"was not opened: {says}, which practicum never creates")


@pytest.mark.parametrize("name", ["../../elsewhere", "/elsewhere", "..", ".", ""])
def test_a_space_whose_name_leads_out_of_the_folder_is_not_opened(run: Path, name: str) -> None:
    change(run, f"UPDATE spaces SET name = '{name}'")
    refused(run, "its space name")
    assert not (run.parent / "elsewhere").exists()


def test_a_table_that_practicum_does_not_use_does_no_harm(run: Path) -> None:
    """A recovered database has one."""
    change(run, "CREATE TABLE lost_and_found (rootpgno INTEGER, c0 DEFAULT (1)); CREATE INDEX l ON lost_and_found (c0)")
    with Store.open(run) as store:
        update_run(store, state="edited")
    assert [entry.text for entry in load_context(run)] == [SECRET]


@pytest.mark.parametrize("name", [DATABASE_FILE, f"{DATABASE_FILE}-wal", "lock", "index.0.7", "llama.log"])
def test_a_link_in_a_run_folder_is_not_followed(run: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes((run / DATABASE_FILE).read_bytes())
    before = outside.read_bytes()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    refused(run, f"was not opened, because its {name} is a symbolic link")
    assert outside.read_bytes() == before
    (run / name).unlink()
    if name != DATABASE_FILE:
        os.mkfifo(run / name)
        refused(run, f"was not opened, because its {name} is not a regular file")


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic"):
        append_private(tmp_path / "log")
    assert not (tmp_path / "outside").exists()


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
    refused(run, f"its {DATABASE_FILE}-journal names another file")
    assert victim.read_text() == "precious"
    # What this is about: SQLite itself does delete it.
    with closing(sqlite3.connect(run / DATABASE_FILE)) as db:
        db.execute("SELECT count(*) FROM t").fetchone()
    assert not victim.exists()


def test_the_index_of_a_run_made_elsewhere_is_not_opened(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.store.snapshot.DUE", 1)
    texts = [f"memory {n} of the {n % 7} lakes" for n in range(40)]

    async def save() -> None:
        with Store.open(run) as store:
            await save_snapshot(store, load_context(run), Retriever(Vectors(Words(), store), many=1))

    async def nearest() -> bool:
        context = load_context(run)
        with Store.read(run) as store:
            is_own(store, read_config(store)[0])
            return (await Retriever(Vectors(Words(), store), many=1).nearest(context, texts[3], 1)).exact

    (run / DATABASE_FILE).unlink()
    create_seed(run, initial_context([Add("memories", text) for text in texts]))
    practicum.run_sync(save())
    assert list(run.glob(INDEX_FILES))
    assert not practicum.run_sync(nearest())
    opened: list[Path] = []
    monkeypatch.setattr("practicum.plugins.index.index.Part.open", opened.append)
    change(run, "UPDATE spaces SET mark = ''")
    practicum.run_sync(nearest())
    assert opened == []


def modes(folder: Path) -> set[str]:
    return {stat.filemode(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}


@pytest.mark.usefixtures("_lax")
def test_what_a_run_keeps_is_its_users_alone(tmp_path: Path) -> None:
    parts = practicum.Parts(clients={"agent": client()})
    run = practicum.run_sync(
        practicum.learn(make_tasks(2), settings={"rounds": 1}, out=tmp_path / "run", parts=parts)
    ).run
    with Store.open(run) as store, Store.read(run) as reading:
        reading.changes()
        update_run(store, state="edited")
        assert {path.name for path in run.iterdir()} >= {DATABASE_FILE, f"{DATABASE_FILE}-wal", f"{DATABASE_FILE}-shm"}
        assert modes(run) == {"-rw-------"}
        forget(store, tasks=["t1"], copy_to=tmp_path / "copy")
    with append_private(run / "llama.log") as log:
        log.write(b"log")
    for folder in (run, tmp_path / "copy"):
        assert stat.filemode(folder.stat().st_mode) == "drwx------"
        assert modes(folder) == {"-rw-------"}


def test_what_a_user_asks_for_is_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "export.md", "text")
        write_atomic(tmp_path / "kept.json", "text", private=True)
    finally:
        os.umask(before)
    assert stat.filemode((tmp_path / "export.md").stat().st_mode) == "-rw-r-----"
    assert stat.filemode((tmp_path / "kept.json").stat().st_mode) == "-rw-------"
    assert {path.name for path in tmp_path.iterdir()} == {"export.md", "kept.json"}
