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
from helpers import asynchronous
from refusals import refused
from rows import execute, put
from sqlalchemy import Connection, event, select

from practicum.core.context import Context
from practicum.session.records import create_seed
from practicum.store import schema
from practicum.store.database import Store


def vector(key: bytes, value: bytes = b"v") -> dict[str, Any]:
    return {"space": "run", "embedder": "x", "key": key, "vector": value}


def keys(store: Store) -> set[bytes]:
    return {row.key for row in store.rows(select(schema.vectors))}


def test_an_existing_run_or_file_is_not_replaced_by_a_store(tmp_path: Path) -> None:
    create_seed(tmp_path / "run", Context())
    with refused("run.exists"):
        Store.create(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with refused("store.unwritable"):
        Store.create(tmp_path / "file")


def test_a_file_system_without_locks_is_readable_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(tmp_path / "there") as store:
        put(store, schema.vectors, [vector(b"1")])

    def flock(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    for way in (lambda: Store.create(tmp_path / "new"), lambda: Store.open(tmp_path / "there")):
        with refused("store.unwritable"):
            way()
    with Store.read(tmp_path / "there") as store:
        assert keys(store) == {b"1"}


BROKEN = {"space": "r", "version": 1, "parent": 0, "step": 1, "next_number": 2, "applied": None}


def test_an_error_of_a_write_is_raised_where_it_is_awaited_and_that_of_a_posted_row_by_the_next_calls(
    tmp_path: Path,
) -> None:
    row = {"space": "r", "lesson_id": "x", "step": 1, "sources": "[]", "data": "half a pair: \ud800"}
    with refused("store.unwritable"), Store.create(tmp_path / "a") as store:
        asyncio.run(store.write(schema.lessons, [row]))
    store = Store.create(tmp_path / "b")
    store.post(schema.versions, [BROKEN])
    for call in (
        lambda: asyncio.run(store.flush()),
        lambda: store.post(schema.vectors, [vector(b"x")]),
        lambda: put(store, schema.vectors, [vector(b"x")]),
        lambda: execute(store, store.delete(schema.steps)),
    ):
        with refused("store.unwritable"):
            call()
    assert not keys(store)
    store.close()


def test_an_error_of_a_posted_row_is_raised_at_the_end_unless_the_block_failed(tmp_path: Path) -> None:
    with refused("store.unwritable"), Store.create(tmp_path / "a") as store:
        store.post(schema.versions, [BROKEN])
    with pytest.raises(ValueError, match="of the block"), Store.create(tmp_path / "b") as store:  # noqa: PT012
        store.post(schema.versions, [BROKEN])
        raise ValueError("of the block")


@pytest.mark.durable
@asynchronous
async def test_writes_that_wait_share_a_commit(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        commits = 0
        first, go = threading.Event(), threading.Event()

        def hold(_: Connection) -> None:
            nonlocal commits
            commits += 1
            first.set()
            assert go.wait(10)

        event.listen(store.database.backend.engine, "commit", hold)
        one = asyncio.create_task(store.write(schema.vectors, [vector(b"first")]))
        await asyncio.to_thread(first.wait, 10)
        rest = [asyncio.create_task(store.write(schema.vectors, [vector(b"%d" % n)])) for n in range(50)]
        await asyncio.sleep(0)
        assert not one.done()
        go.set()
        await asyncio.gather(one, *rest)
        assert commits == 2
        assert len(keys(store)) == 51


@asynchronous
async def test_close_writes_the_queue_also_of_a_cancelled_caller(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c=d%20#e"
    store = Store.create(folder)
    waiting = [asyncio.ensure_future(store.write(schema.vectors, [vector(b"%d" % n)])) for n in range(20)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    store.close()
    await asyncio.gather(*waiting[1:])
    with Store.read(folder) as store:
        assert keys(store) >= {b"%d" % n for n in range(1, 20)}


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
