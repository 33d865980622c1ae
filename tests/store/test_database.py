"""The run folder: one writer, formats, a full disk, commits in groups."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from rows import execute, put
from sqlalchemy import Connection, event, select

from practicum.core.context import Context
from practicum.core.errors import StoreError
from practicum.session.records import create_seed
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE


def vector(key: bytes, value: bytes = b"v", run: str = "run") -> dict[str, Any]:
    return {"space": run, "embedder": "x", "key": key, "vector": value}


def keys(store: Store) -> set[bytes]:
    return {row.key for row in store.rows(select(schema.vectors))}


async def write_all(store: Store, rows: Sequence[dict[str, Any]]) -> None:
    await asyncio.gather(*(store.write(schema.vectors, [row]) for row in rows))


@pytest.mark.parametrize("name", ["run", "a b?c=d%20#e"])
def test_written_rows_are_seen_by_other_readers_and_after_reopening(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    with Store.create(folder) as store:
        asyncio.run(write_all(store, [vector(b"1"), vector(b"2")]))
        asyncio.run(write_all(store, [vector(b"2", b"again")]))
        with Store.read(folder) as reader:
            assert keys(reader) == {b"1", b"2"}
    assert (folder / DATABASE_FILE).is_file()
    with Store.open(folder) as store:
        assert {(r.key, r.vector) for r in store.rows(select(schema.vectors))} == {(b"1", b"v"), (b"2", b"again")}


def test_a_wrong_folder_is_refused(tmp_path: Path) -> None:
    with refused("run.not_found"):
        Store.open(tmp_path)
    with refused("run.not_found"):
        Store.read(tmp_path / "nowhere")
    create_seed(tmp_path / "run", Context())
    with refused("run.exists"):
        Store.create(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with refused("store.unwritable"):
        Store.create(tmp_path / "file")
    (tmp_path / "run" / DATABASE_FILE).write_bytes(b"not a database at all, but long enough to be looked at" * 9)
    with refused("store.damaged"):
        Store.read(tmp_path / "run")


HOLD = """
import sys
from pathlib import Path
from practicum.store.database import Store
with Store.open(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.durable
def test_a_folder_that_another_process_writes_to_is_refused(tmp_path: Path) -> None:
    Store.create(tmp_path).close()
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with refused("store.busy"):
            Store.open(tmp_path)
        Store.read(tmp_path).close()
        other.kill()
    Store.open(tmp_path).close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_refused(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of a network have none. What is there can be read."""
    with Store.create(tmp_path / "there") as store:
        asyncio.run(write_all(store, [vector(b"1")]))

    def flock(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    for make in (lambda: Store.create(tmp_path / "new"), lambda: Store.open(tmp_path / "there")):
        with refused("store.unwritable"):
            make()
    with Store.read(tmp_path / "there") as store:
        assert keys(store) == {b"1"}


FILL = """
import asyncio, resource, sys
from pathlib import Path
from practicum.core.errors import StoreError
from practicum.store import schema
from practicum.store.database import Store

async def fill(store):
    for n in range(1000):
        await store.write(schema.vectors, [{"space": "run", "embedder": "x", "key": b"%d" % n, "vector": b"v" * 2000}])
        print(n, flush=True)

def say(what, do):
    try:
        do()
    except StoreError as error:
        print(what, error)

def work():
    with Store.create(Path(sys.argv[1])) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, 800_000))
        say("failed:", lambda: asyncio.run(fill(store)))
        say("still:", lambda: asyncio.run(fill(store)))

say("at the end:", work)
"""


@pytest.mark.slow
@pytest.mark.durable
def test_a_full_disk_fails_loudly_and_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILL, str(tmp_path)], capture_output=True, text=True, check=True)
    *written, failed, still, end = done.stdout.splitlines()
    assert len(written) > 20
    why = failed.removeprefix("failed: ")
    assert why.startswith(f"cannot write to {tmp_path}: ")
    assert "is the disk full" in why
    assert (still, end) == (f"still: {why}", f"at the end: {why}")
    with Store.open(tmp_path) as store:
        assert keys(store) >= {n.encode() for n in written}


def test_an_error_of_a_write_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    row = {"space": "r", "lesson_id": "x", "step": 1, "sources": "[]", "data": "half a pair: \ud800"}
    with refused("store.unwritable"), Store.create(tmp_path) as store:
        asyncio.run(store.write(schema.lessons, [row]))


BROKEN = {"space": "r", "version": 1, "parent": 0, "step": 1, "next_number": 2, "applied": None}


def test_an_error_of_a_posted_row_is_raised_by_the_next_call(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    store.post(schema.versions, [BROKEN])
    wrong = [
        lambda: asyncio.run(store.flush()),
        lambda: store.post(schema.vectors, [vector(b"x")]),
        lambda: put(store, schema.vectors, [vector(b"x")]),
        lambda: execute(store, store.delete(schema.steps)),
    ]
    for do in wrong:
        with refused("store.unwritable"):
            do()
    assert not keys(store)
    store.close()


@pytest.mark.parametrize("error", [None, ValueError("something else")])
def test_an_error_of_a_posted_row_is_raised_at_the_end_unless_another_was(
    tmp_path: Path, error: Exception | None
) -> None:
    def work() -> None:
        with Store.create(tmp_path) as store:
            store.post(schema.versions, [BROKEN])
            if error is not None:
                raise error

    with pytest.raises(
        type(error or StoreError("store.unwritable", "")), match="something else" if error else "cannot write"
    ):
        work()


@pytest.mark.durable
def test_writes_that_wait_share_a_commit(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        commits = 0
        first, go = threading.Event(), threading.Event()

        def hold(_: Connection) -> None:
            nonlocal commits
            commits += 1
            first.set()
            assert go.wait(10)

        event.listen(store.database.backend.engine, "commit", hold)

        async def work() -> None:
            one = asyncio.create_task(store.write(schema.vectors, [vector(b"first")]))
            await asyncio.to_thread(first.wait, 10)
            rest = [asyncio.create_task(store.write(schema.vectors, [vector(b"%d" % n)])) for n in range(50)]
            await asyncio.sleep(0)
            assert not one.done()
            go.set()
            await asyncio.gather(one, *rest)

        asyncio.run(work())
        assert commits == 2
        assert len(keys(store)) == 51


def test_a_cancelled_caller_does_not_stop_the_others(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:

        async def work() -> None:
            gone = asyncio.create_task(store.write(schema.vectors, [vector(b"gone")]))
            await asyncio.sleep(0)
            gone.cancel()
            await store.write(schema.vectors, [vector(b"stays")])

        asyncio.run(work())
        assert b"stays" in keys(store)


def test_close_writes_what_is_queued(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        waiting = [asyncio.ensure_future(store.write(schema.vectors, [vector(b"%d" % n)])) for n in range(20)]
        await asyncio.sleep(0)
        store.close()
        await asyncio.gather(*waiting)

    asyncio.run(work(Store.create(tmp_path)))
    with Store.open(tmp_path) as store:
        assert len(keys(store)) == 20


def test_scrubbing_leaves_no_byte_and_says_when_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.store.sqlite.BUSY_SECONDS", 0.01)
    secret = b"the secret that must go" * 300
    with Store.create(tmp_path) as store:
        put(store, schema.vectors, [vector(b"s", secret), vector(b"t")])
        with Store.read(tmp_path) as reader, reader.database.backend.engine.connect() as db:
            seen = db.execute(select(schema.vectors))
            execute(store, schema.vectors.delete().where(schema.vectors.c.key == b"s"))
            with refused("forget.incomplete"):
                store.scrub()
            seen.close()
        store.scrub()
        held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert secret[:23] not in held
        assert keys(store) == {b"t"}


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_folder_can_be_read(tmp_path: Path) -> None:
    Store.create(tmp_path).close()
    tmp_path.chmod(0o555)
    with Store.read(tmp_path) as store:
        assert keys(store) == set()
    tmp_path.chmod(0o755)


def test_a_store_may_be_closed_while_another_thread_looks_for_changes(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run"):
        pass
    for _ in range(20):
        store, looked = Store.read(tmp_path / "run"), threading.Event()

        def look(store: Store = store, looked: threading.Event = looked) -> None:
            while True:
                store.changes()
                looked.set()

        with ThreadPoolExecutor() as threads:
            looking = threads.submit(look)
            looked.wait()
            store.close()
            assert "is closed" in str(looking.exception())
