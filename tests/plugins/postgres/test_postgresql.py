"""Runs in a PostgreSQL database: one writer, lost connections, kills, wrong use, and copies to files and back."""

from __future__ import annotations

from needs import needs

needs("psycopg", "postgres")

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from helpers import Launcher, run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres import PASSWORD, server_alone
from refusals import refused
from rows import execute, put
from sqlalchemy import select

from practicum.core.context import seed_context
from practicum.core.errors import RunBusy, StoreAway
from practicum.plugins.postgres.database import URL_VARIABLE, LockHeld, PostgresqlLease, parse_url
from practicum.plugins.postgres.store import PostgresqlBackend
from practicum.session.records import create_seed, load_context
from practicum.store import schema
from practicum.store.copy import copy_run
from practicum.store.database import Database, Store
from practicum.store.dialects import ROW
from practicum.store.folder import DATABASE_FILE, STORE_FILE

pytestmark = pytest.mark.postgres


def text_row(text: str, n: int = 0) -> dict[str, Any]:
    return {"space": "run", "key": b"%d" % n, "text": text}


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


def test_a_name_is_taken_once_and_a_folder_has_no_password_and_no_other_address(
    tmp_path: Path, postgresql: str
) -> None:
    create_seed(tmp_path / "run", seed_context([("rules", "one")]), store=postgresql)
    for folder in ("run", "elsewhere/run"):
        with refused("run.exists"):
            Store.create(tmp_path / folder, postgresql)
    Store.create(tmp_path / "three", postgresql, "a group/run").close()
    assert names(postgresql) == ["a group/run", "run"]
    connected = tmp_path / "connected"
    with refused("run.not_found"):
        Store.connect(connected, postgresql, "none")
    Store.connect(connected, postgresql, "run").close()
    with refused("file.exists"):
        Store.connect(connected, postgresql, "run")
    for folder in (tmp_path / "run", connected):
        assert not (folder / DATABASE_FILE).exists()
        assert all(PASSWORD not in file.read_text() for file in folder.iterdir())
        assert [entry.text for entry in load_context(folder)] == ["one"]
    values = json.loads((connected / STORE_FILE).read_text())
    for changed in ({"store": "postgresql://postgres@evil.example/db"}, {"space": "other"}, {"mark": None}):
        (connected / STORE_FILE).write_text(json.dumps(values | changed))
        for way in (Store.open, Store.read, Store.open_shared):
            with refused("run.untrusted"):
                way(connected)
    for broken in ("", "[]", '{"store": 1}'):
        (connected / STORE_FILE).write_text(broken)
        with refused("store.unreadable"):
            Store.read(connected)


@pytest.mark.slow
def test_a_password_comes_from_the_environment(tmp_path: Path, postgresql: str, launcher: Launcher) -> None:
    create_seed(tmp_path / "run", seed_context([("rules", "one")]), store=postgresql)
    for url, code in ((postgresql, 0), (postgresql.replace(PASSWORD, "secret-but-wrong"), 1)):
        done = launcher.run(["show", "run"], tmp_path, PRACTICUM_STORE=url)
        assert (done.code, "[e0] (rules) one" in done.out) == (code, code == 0)
        assert ("password authentication failed" in done.err) == (code == 1)
        assert "secret-but-wrong" not in done.err


def test_a_wrong_address_is_refused_without_its_password_and_leaves_no_folder(tmp_path: Path) -> None:
    for url, code in (
        ("postgresql://user:hidden@127.0.0.1:9/db", "store.unreachable"),
        ("mysql://user:hidden@host/db", "store.invalid_address"),
        ("postgresql://user:hidden@host:port/db", "store.invalid_address"),
        ("hidden", "store.invalid_address"),
    ):
        with refused(code) as raised:
            Store.create(tmp_path / "run", url)
        assert "hidden" not in str(raised.value)
        assert not (tmp_path / "run" / STORE_FILE).exists()


def names(url: str) -> list[str]:
    """The spaces of a database that are live, or reserved."""
    database = Database(Path(), PostgresqlBackend(parse_url(url), create=False))
    return sorted(row.name for row in database.rows(select(schema.spaces.c.name)))


@pytest.mark.slow
def test_a_run_is_removed_with_all_its_rows_unless_it_is_being_written(tmp_path: Path, postgresql: str) -> None:
    for name in ("removed", "other"):
        create_seed(tmp_path / name, seed_context([("rules", name)]), store=postgresql)
    command = ["store", "remove", postgresql, "removed", "--yes", "--json"]
    with Store.open(tmp_path / "removed"):
        busy = run_command(command, tmp_path)
    assert busy.json["error"]["code"] == "store.busy"
    done = run_command(command, tmp_path)
    assert done.json == {"name": "removed", "rows": {"versions": 1}}
    assert PASSWORD not in done.out + done.err + busy.err
    assert names(postgresql) == ["other"]
    with psycopg.connect(postgresql) as db:
        for table in schema.metadata.tables:
            others = f"SELECT count(*) FROM practicum.{table} WHERE space NOT IN (SELECT space FROM practicum.spaces)"
            assert db.execute(others).fetchone() == (0,)
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


def before_inserts(url: str, table: str, body: str) -> None:
    """Have the server run this code before each insert into a table."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
        db.execute(f"CREATE TRIGGER t BEFORE INSERT ON practicum.{table} FOR EACH ROW EXECUTE FUNCTION f()")


@pytest.mark.slow
def test_a_full_disk_of_the_server_stops_the_run_clearly(tmp_path: Path, postgresql: str) -> None:
    store = Store.create(tmp_path / "run", postgresql)
    before_inserts(postgresql, "texts", "RAISE 'No space left on device' USING ERRCODE = '53100';")
    for _ in range(2):
        with refused("store.unreadable"):
            asyncio.run(store.write(schema.texts, [text_row("x")]))
    store.close()


def test_any_text_comes_back_and_texts_are_ordered_as_in_sqlite(tmp_path: Path, postgresql: str) -> None:
    table = schema.names

    @settings(max_examples=8, deadline=None)
    @given(st.lists(st.text(st.sampled_from("ab\0\x1a01é𝄞"), max_size=6), max_size=5, unique=True))
    def check(samples: list[str]) -> None:
        execute(store, store.delete(table))
        put(store, table, [{"name": text, "version": n} for n, text in enumerate(samples)])
        rows = store.rows(select(table).order_by(table.c.name))
        plain = [row.name for row in rows if not set("\0\x1a") & set(row.name)]
        assert plain == sorted(plain, key=lambda text: text.encode())
        assert {(row.name, row.version) for row in rows} == {(text, n) for n, text in enumerate(samples)}

    with Store.create(tmp_path / "run", postgresql) as store:
        check()


@pytest.mark.slow
def test_a_copy_there_and_back_is_the_same_and_one_that_differs_is_removed(tmp_path: Path, postgresql: str) -> None:
    create_seed(tmp_path / "run", seed_context([("rules", f"rule {n}") for n in range(150)]))
    same = {"space": "run", "role": "agent", "digest": "d", "ok": 1, "answer": "nul \0", "sources": "[]"}
    same |= {"calls": 1, "input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "cache_write_tokens": 0}
    calls = [{**same, "place": f"step {n}", "usd": n / 7, "seconds": 0.1 * n} for n in range(1200)]
    in_order = select(schema.journal.c.place, schema.journal.c.answer).order_by(ROW)
    with Store.open(tmp_path / "run") as store:
        put(store, schema.journal, calls)
        put(store, schema.journal, calls[:1])
        put(store, schema.vectors, [{"space": "run", "embedder": "e", "key": b"\0\xff", "vector": bytes(range(256))}])
        (tmp_path / "run" / "report.html").write_text("kept")
        there = copy_run(store, tmp_path / "there", postgresql)
        with refused("run.exists"):
            copy_run(store, tmp_path / "elsewhere" / "there", postgresql)
        before_inserts(postgresql, "versions", "NEW.applied = NEW.applied || ' '; RETURN NEW;")
        with refused("store.copy_failed"):
            copy_run(store, tmp_path / "spoiled", postgresql)
        rows = store.rows(in_order)
    assert not (tmp_path / "spoiled").exists()
    assert names(postgresql) == ["there"]
    with Store.open(tmp_path / "there") as store:
        assert copy_run(store, tmp_path / "back") == there
    assert (there.rows["journal"], there.entries) == (1200, 150)
    assert (tmp_path / "back" / "report.html").read_text() == "kept"
    with Store.read(tmp_path / "back") as store:
        assert store.rows(in_order) == rows
    assert (rows[-1].place, {row.answer for row in rows}) == ("step 0", {"nul \0"})


WRITE = """
import asyncio, sys
from pathlib import Path
from practicum.store import schema
from practicum.store.database import Store

async def write(store, first):
    for n in range(first, 100_000):
        await store.write(schema.texts, [{"space": "run", "key": b"%d" % n, "text": str(n)}])
        print(n, flush=True)

with Store.open(Path(sys.argv[1])) as store:
    print("open", flush=True)
    asyncio.run(write(store, int(sys.argv[2])))
"""


KILLS = int(os.environ.get("PRACTICUM_TEST_KILLS", "2"))


@pytest.mark.slow
@pytest.mark.durable
def test_kills_of_the_server_and_of_the_client_lose_nothing_acknowledged(tmp_path: Path) -> None:
    folder, acknowledged = tmp_path / "run", list[str]()
    with server_alone() as server:
        url = server.url.render_as_string(hide_password=False)
        Store.create(folder, url).close()
        for kill in range(KILLS):
            command = [sys.executable, "-c", WRITE, str(folder), str(1000 * kill)]
            env = {**os.environ, URL_VARIABLE: url}
            with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as writer:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "open\n"
                acknowledged += [writer.stdout.readline().strip() for _ in range(5 + kill % 7)]
                server.kill()
                server.start()
                acknowledged += [writer.stdout.readline().strip() for _ in range(3)]  # it goes on
                writer.send_signal(signal.SIGKILL)
                acknowledged += [line.strip() for line in writer.stdout.readlines() if line.endswith("\n")]
            with Store.read(folder) as store:
                assert {*acknowledged} <= {*texts(store)}
        assert len({*acknowledged}) >= 8 * KILLS
