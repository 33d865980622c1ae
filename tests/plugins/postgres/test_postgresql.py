"""Runs in a PostgreSQL database: one writer, lost connections, kills, wrong use, and copies to files and back."""

from __future__ import annotations

from needs import needs
from rows import execute, put

needs("psycopg", "postgres")

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from helpers import Launcher, run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres import PASSWORD, database, server_alone, server_url
from refusals import refused
from sqlalchemy import func, select

from practicum.core.context import seed_context
from practicum.core.errors import RunBusy, StoreAway
from practicum.plugins.postgres import database as postgresql
from practicum.plugins.postgres.database import LockHeld, PostgresqlLease
from practicum.plugins.postgres.store import PostgresqlBackend
from practicum.session.records import create_seed, load_context
from practicum.store import schema
from practicum.store.copy import copy_run
from practicum.store.database import Database, Store
from practicum.store.dialects import ROW
from practicum.store.folder import DATABASE_FILE, STORE_FILE

pytestmark = pytest.mark.postgres


def text_row(text: str, n: int = 0, run: str = "run") -> dict[str, Any]:
    return {"space": run, "key": b"%d" % n, "text": text}


def texts(store: Store) -> list[str]:
    table = schema.texts
    return [row.text for row in store.rows(select(table.c.text).where(table.c.space == store.space))]


def terminate(url: str) -> None:
    """End every other connection to the database, as a server does that restarts."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_the_folder_has_no_password_and_a_changed_address_is_refused(tmp_path: Path, postgresql: str) -> None:
    folder = tmp_path / "run"
    create_seed(folder, seed_context([("rules", "one")]), store=postgresql)
    assert not (folder / DATABASE_FILE).exists()
    assert all(PASSWORD not in file.read_text() for file in folder.iterdir())
    assert [entry.text for entry in load_context(folder)] == ["one"]
    copied = tmp_path / "copied"
    copied.mkdir()
    values = json.loads((folder / STORE_FILE).read_text())
    for changed in ({"store": "postgresql://postgres@evil.example/db"}, {"space": "other"}, {"mark": None}):
        (copied / STORE_FILE).write_text(json.dumps(values | changed))
        for way in (Store.open, Store.read, Store.open_shared):
            with refused("run.untrusted"):
                way(copied)
    for broken in ("", "[]", '{"store": 1}'):
        (copied / STORE_FILE).write_text(broken)
        with refused("store.unreadable"):
            Store.read(copied)


@pytest.mark.slow
def test_a_password_comes_from_the_environment(tmp_path: Path, postgresql: str, launcher: Launcher) -> None:
    create_seed(tmp_path / "run", seed_context([("rules", "one")]), store=postgresql)
    for url, code in ((postgresql, 0), (postgresql.replace(PASSWORD, "secret-but-wrong"), 1)):
        done = launcher.run(["show", "run"], tmp_path, PRACTICUM_STORE=url)
        assert (done.code, "[e0] (rules) one" in done.out) == (code, code == 0)
        assert ("password authentication failed" in done.err) == (code == 1)
        assert "secret-but-wrong" not in done.err


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://user:hidden@127.0.0.1:9/db", "store.unreachable"),
        ("mysql://user:hidden@host/db", "store.invalid_address"),
        ("postgresql://user:hidden@host:port/db", "store.invalid_address"),
        ("hidden", "store.invalid_address"),
    ],
)
def test_a_wrong_address_is_refused_without_its_password_and_leaves_no_folder(
    tmp_path: Path, url: str, code: str
) -> None:
    with refused(code) as raised:
        Store.create(tmp_path / "run", url)
    assert "hidden" not in str(raised.value)
    assert not (tmp_path / "run" / STORE_FILE).exists()


def test_a_name_is_taken_once_and_another_machine_connects_to_it(tmp_path: Path, postgresql: str) -> None:
    create_seed(tmp_path / "one" / "run", seed_context([("rules", "mine")]), store=postgresql)
    with refused("run.exists"):
        Store.create(tmp_path / "two" / "run", postgresql)
    with refused("run.exists"):
        Store.create(tmp_path / "one" / "run", postgresql)
    Store.create(tmp_path / "three", postgresql, "a group/run").close()
    assert names(postgresql) == ["a group/run", "run"]
    with refused("run.not_found"):
        Store.connect(tmp_path / "four", postgresql, "none")
    Store.connect(tmp_path / "four", postgresql, "run").close()
    assert [entry.text for entry in load_context(tmp_path / "four")] == ["mine"]
    with refused("file.exists"):
        Store.connect(tmp_path / "four", postgresql, "run")


def names(url: str) -> list[str]:
    """The spaces of a database that are live, or reserved."""
    database = Database(Path(), PostgresqlBackend(postgresql.parse_url(url), create=False))
    return sorted(row.name for row in database.rows(select(schema.spaces.c.name)))


@pytest.mark.slow
def test_a_run_is_removed_with_all_its_rows_unless_it_is_being_written(tmp_path: Path, postgresql: str) -> None:
    for name in ("removed", "other"):
        create_seed(tmp_path / name, seed_context([("rules", name)]), store=postgresql)
    with Store.open(tmp_path / "removed"):
        busy = run_command(["store", "remove", postgresql, "removed", "--yes"], tmp_path)
    assert (busy.code, "another process is writing to" in busy.err) == (1, True)
    reviewing = Store.open_shared(tmp_path / "removed")
    done = run_command(["store", "remove", postgresql, "removed", "--yes", "--json"], tmp_path)
    assert done.json == {"name": "removed", "rows": {"versions": 1}}
    assert PASSWORD not in done.out + done.err + busy.err
    with refused("space.unknown"):
        put(reviewing, schema.names, [{"space": "removed", "name": "late", "version": 0}])
    reviewing.close()
    assert names(postgresql) == ["other"]
    with psycopg.connect(postgresql) as db:
        others = "WHERE space NOT IN (SELECT space FROM practicum.spaces)"
        for table in schema.metadata.tables:
            assert db.execute(f"SELECT count(*) FROM practicum.{table} {others}").fetchone() == (0,)
    assert [entry.text for entry in load_context(tmp_path / "other")] == ["other"]


@pytest.mark.slow
def test_a_writer_continues_after_it_lost_its_connections(tmp_path: Path, postgresql: str) -> None:
    with Store.create(tmp_path / "run", postgresql) as store:
        for n, do in enumerate(
            (
                lambda row: asyncio.run(store.write(schema.texts, [row])),
                lambda row: put(store, schema.texts, [row]),
                lambda row: store.post(schema.texts, [row]),
            )
        ):
            terminate(postgresql)
            do(text_row(f"text {n}", n))
            terminate(postgresql)
            asyncio.run(store.flush())
            assert len(texts(store)) == n + 1
        # A write takes the lock again; an empty flush after the connection ended does not write.
        asyncio.run(store.write(schema.texts, [text_row("last", 9)]))
        with pytest.raises(RunBusy):
            Store.open(tmp_path / "run")


@pytest.mark.slow
def test_rows_wait_while_the_server_does_not_notice_the_end_of_the_connection(
    tmp_path: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.create(tmp_path / "run", postgresql) as store, Store.create(tmp_path / "other", postgresql) as other:
        terminate(postgresql)
        take, asked = PostgresqlLease._locked, list[PostgresqlLease]()

        def locked(lease: PostgresqlLease) -> Any:
            asked.append(lease)
            if len(asked) <= 3:
                raise LockHeld
            return take(lease)

        monkeypatch.setattr(PostgresqlLease, "_locked", locked)
        with pytest.raises(StoreAway):
            put(store, schema.texts, [text_row("not waited for", 1)])
        asyncio.run(store.write(schema.texts, [text_row("waited for", 2)]))
        asyncio.run(other.write(schema.texts, [text_row("other", 3)]))
        assert (texts(store), texts(other), len(asked)) == (["waited for"], ["other"], 5)
        with refused("store.busy"):
            Store.open(tmp_path / "run")


@pytest.mark.slow
def test_a_full_disk_of_the_server_stops_the_run_clearly(tmp_path: Path, postgresql: str) -> None:
    store = Store.create(tmp_path / "run", postgresql)
    with psycopg.connect(postgresql, autocommit=True) as db:
        db.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
        )
        db.execute("CREATE TRIGGER f BEFORE INSERT ON practicum.texts FOR EACH ROW EXECUTE FUNCTION full_disk()")
    for _ in range(2):
        with refused("store.unreadable"):
            asyncio.run(store.write(schema.texts, [text_row("x")]))
    store.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with database(server_url()) as url, Store.create(tmp_path_factory.mktemp("shared") / "run", url) as store:
        yield store


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab\0\x1a01é𝄞"), max_size=6), max_size=5, unique=True))
def test_any_text_comes_back_and_texts_are_ordered_as_in_sqlite(shared: Store, samples: list[str]) -> None:
    table = schema.names
    rows = [{"space": "run", "name": text, "version": n} for n, text in enumerate(samples)]
    execute(shared, shared.delete(table))
    put(shared, table, rows)
    stored = [row.name for row in shared.rows(select(table.c.name).order_by(table.c.name))]
    plain = [text for text in samples if not set("\0\x1a") & set(text)]
    assert [text for text in stored if text in plain] == sorted(plain, key=lambda text: text.encode())
    assert {(row.name, row.version) for row in shared.rows(select(table))} == {(r["name"], r["version"]) for r in rows}


@pytest.mark.slow
def test_a_copy_there_and_back_is_the_same_and_keeps_the_order(tmp_path: Path, postgresql: str) -> None:
    create_seed(tmp_path / "run", seed_context([("rules", f"rule {n}") for n in range(150)]))
    same = {"space": "run", "role": "agent", "digest": "d", "ok": 1, "answer": "nul \0", "sources": "[]"}
    same |= {"calls": 1, "input_tokens": 1, "cached_tokens": 0, "output_tokens": 1}
    calls = [{**same, "place": f"step {n}", "usd": n / 7, "seconds": 0.1 * n} for n in range(1200)]
    with Store.open(tmp_path / "run") as store:
        put(store, schema.journal, calls)
        put(store, schema.journal, calls[:1])
        put(store, schema.vectors, [{"space": "run", "embedder": "e", "key": b"\0\xff", "vector": bytes(range(256))}])
        (tmp_path / "run" / "report.html").write_text("kept")
        there = copy_run(store, tmp_path / "there", postgresql)
        with refused("run.exists"):
            copy_run(store, tmp_path / "elsewhere" / "there", postgresql)
        order = [row.place for row in store.rows(select(schema.journal.c.place).order_by(ROW))]
    with Store.open(tmp_path / "there") as store:
        back = copy_run(store, tmp_path / "back")
    assert there == back
    assert (there.rows["journal"], there.entries, order[-1]) == (1200, 150, "step 0")
    assert (tmp_path / "back" / "report.html").read_text() == "kept"
    with Store.read(tmp_path / "back") as store:
        assert [row.place for row in store.rows(select(schema.journal.c.place).order_by(ROW))] == order
        assert {row.answer for row in store.rows(select(schema.journal.c.answer))} == {"nul \0"}


@pytest.mark.slow
def test_a_copy_that_differs_is_removed(tmp_path: Path, postgresql: str) -> None:
    create_seed(tmp_path / "run", seed_context([("rules", "one")]))
    Store.create(tmp_path / "first", postgresql).close()
    with psycopg.connect(postgresql, autocommit=True) as db:
        db.execute(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.applied = NEW.applied || ' '; RETURN NEW; END $$"
        )
        db.execute("CREATE TRIGGER s BEFORE INSERT ON practicum.versions FOR EACH ROW EXECUTE FUNCTION spoil()")
    with Store.open(tmp_path / "run") as store, refused("store.copy_failed"):
        copy_run(store, tmp_path / "there", postgresql)
    assert not (tmp_path / "there").exists()
    assert names(postgresql) == ["first"]


@pytest.mark.slow
def test_two_writers_never_hold_a_run_at_once(tmp_path: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.plugins.postgres.database.BUSY_SECONDS", 0.05)
    Store.create(tmp_path / "run", postgresql).close()

    def acquire_often() -> int:
        held = 0
        for _ in range(8):
            with suppress(RunBusy), Store.open(tmp_path / "run") as store:
                # The name of the holder is unique: a second holder could not write it.
                store.change(lambda at: at.insert(schema.names, {"name": "holder", "version": os.getpid()}))
                execute(store, store.delete(schema.names))
                held += 1
        return held

    with ThreadPoolExecutor(3) as threads:
        counts = [threads.submit(acquire_often) for _ in range(3)]
        assert sum(count.result() for count in counts) >= 3
    with Store.read(tmp_path / "run") as store:
        assert store.rows(select(func.count()).select_from(schema.names))[0][0] == 0


WRITE = """
import asyncio, sys
from pathlib import Path
from practicum.store import schema
from practicum.store.database import Database, Store

async def write(store, first):
    for n in range(first, 100_000):
        await store.write(schema.texts, [{"space": "run", "key": b"%d" % n, "text": str(n)}])
        print(n, flush=True)

with Store.open(Path(sys.argv[1])) as store:
    print("open", flush=True)
    asyncio.run(write(store, int(sys.argv[2])))
"""


def started(folder: Path, url: str, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITE, str(folder), str(first)]
    return subprocess.Popen(command, env={**os.environ, "PRACTICUM_STORE": url}, stdout=subprocess.PIPE, text=True)


KILLS = int(os.environ.get("PRACTICUM_TEST_KILLS", "2"))


@pytest.mark.slow
@pytest.mark.durable
def test_kills_of_the_client_lose_nothing_acknowledged(tmp_path: Path, postgresql: str) -> None:
    folder = tmp_path / "run"
    Store.create(folder, postgresql).close()
    acknowledged: list[str] = []
    for kill in range(KILLS):
        with started(folder, postgresql, 1000 * kill) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            lines = [writer.stdout.readline() for _ in range(5 + kill % 7)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
            acknowledged += [line.strip() for line in lines if line.endswith("\n")]
        with Store.read(folder) as store:
            assert {*acknowledged} <= {*texts(store)}
    assert len(acknowledged) >= 5 * KILLS


@pytest.mark.slow
@pytest.mark.durable
def test_kills_of_the_server_lose_nothing_acknowledged_and_the_writer_continues(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with server_alone() as server:
        url = server.url.render_as_string(hide_password=False)
        Store.create(folder, url).close()
        acknowledged: list[str] = []
        with started(folder, url, 0) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            for kill in range(KILLS):
                acknowledged += [writer.stdout.readline().strip() for _ in range(5 + kill % 7)]
                server.kill()
                server.start()
                acknowledged.append(writer.stdout.readline().strip())
            writer.send_signal(signal.SIGKILL)
            acknowledged += [line.strip() for line in writer.stdout.readlines() if line.endswith("\n")]
        with Store.read(folder) as store:
            assert {*acknowledged} <= {*texts(store)}
        assert len(acknowledged) >= 6 * KILLS
