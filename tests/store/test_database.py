"""The run folder: one writer, a full disk, commits in groups."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from rows import execute, put
from sqlalchemy import Connection, event, select

from practicum.core.context import Context
from practicum.session.records import create_seed
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE


def vector(key: bytes, value: bytes = b"v") -> dict[str, Any]:
    return {"space": "run", "embedder": "x", "key": key, "vector": value}


def keys(store: Store) -> set[bytes]:
    return {row.key for row in store.rows(select(schema.vectors))}


async def write_all(store: Store, *rows: dict[str, Any]) -> None:
    await asyncio.gather(*(store.write(schema.vectors, [row]) for row in rows))


def test_rows_are_seen_by_other_readers_and_after_reopening(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c=d%20#e"
    with Store.create(folder) as store:
        asyncio.run(write_all(store, vector(b"1"), vector(b"2")))
        asyncio.run(write_all(store, vector(b"2", b"again")))
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
    (tmp_path / "run" / DATABASE_FILE).write_bytes(b"not a database, but long enough to be looked at" * 9)
    with refused("store.damaged"):
        Store.read(tmp_path / "run")


def test_a_file_system_without_locks_is_readable_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(tmp_path / "there") as store:
        asyncio.run(write_all(store, vector(b"1")))

    def flock(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    for way in (lambda: Store.create(tmp_path / "new"), lambda: Store.open(tmp_path / "there")):
        with refused("store.unwritable"):
            way()
    with Store.read(tmp_path / "there") as store:
        assert keys(store) == {b"1"}


def test_an_error_of_a_write_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    row = {"space": "r", "lesson_id": "x", "step": 1, "sources": "[]", "data": "half a pair: \ud800"}
    with refused("store.unwritable"), Store.create(tmp_path) as store:
        asyncio.run(store.write(schema.lessons, [row]))


BROKEN = {"space": "r", "version": 1, "parent": 0, "step": 1, "next_number": 2, "applied": None}


def test_an_error_of_a_posted_row_is_raised_by_the_next_calls(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    store.post(schema.versions, [BROKEN])
    calls = [
        lambda: asyncio.run(store.flush()),
        lambda: store.post(schema.vectors, [vector(b"x")]),
        lambda: put(store, schema.vectors, [vector(b"x")]),
        lambda: execute(store, store.delete(schema.steps)),
    ]
    for call in calls:
        with refused("store.unwritable"):
            call()
    assert not keys(store)
    store.close()


def test_an_error_of_a_posted_row_is_raised_at_the_end_unless_the_block_failed(tmp_path: Path) -> None:
    with refused("store.unwritable"), Store.create(tmp_path / "a") as store:
        store.post(schema.versions, [BROKEN])

    def fails() -> None:
        with Store.create(tmp_path / "b") as store:
            store.post(schema.versions, [BROKEN])
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        fails()


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
            cancelled = asyncio.create_task(store.write(schema.vectors, [vector(b"cancelled")]))
            await asyncio.sleep(0)
            cancelled.cancel()
            await store.write(schema.vectors, [vector(b"other")])

        asyncio.run(work())
        assert b"other" in keys(store)


def test_close_writes_the_queue(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        waiting = [asyncio.ensure_future(store.write(schema.vectors, [vector(b"%d" % n)])) for n in range(20)]
        await asyncio.sleep(0)
        store.close()
        await asyncio.gather(*waiting)

    asyncio.run(work(Store.create(tmp_path)))
    with Store.open(tmp_path) as store:
        assert len(keys(store)) == 20


def test_scrubbing_leaves_no_byte_and_fails_while_a_reader_holds_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert secret[:23] not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert keys(store) == {b"t"}
