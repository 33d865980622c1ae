"""The index of a run in its database: lost, killed, changed by another node, filtered."""

from __future__ import annotations

from needs import needs

needs("psycopg", "postgres")

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from helpers import asynchronous
from indexed import Run
from runs import Words
from sqlalchemy import make_url

from practicum.core.edits import Add, Delete, Update
from practicum.plugins.postgres import pgvector as index_in_database
from practicum.plugins.postgres.database import URL_VARIABLE
from practicum.retrieval.search import VISIBLE, Filter, Retriever
from practicum.retrieval.vectors import Vectors
from practicum.session.amend import replace_embedder
from practicum.session.forget import forget
from practicum.store.database import Store
from practicum.store.snapshot import read_context

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ADDS = [Add("memories", f"text {n}", sources=(f"task:t{n % 2}", f"tag:t{n % 3}")) for n in range(200)]


@contextmanager
def connected(url: str) -> Iterator[psycopg.Cursor[tuple[object, ...]]]:
    """The database as its administrator."""
    with psycopg.connect(url.partition("?")[0], autocommit=True, options="-c search_path=practicum,public") as db:
        yield db.cursor()


def tables(url: str) -> list[str]:
    """The tables of all indexes."""
    with connected(url) as db:
        return [str(row[0]) for row in db.execute("SELECT tablename FROM pg_tables WHERE tablename ~ '^index_'")]


@pytest.fixture
def run(tmp_path: Path, pgvector: str) -> Iterator[Run]:
    """A run with an index."""
    run = Run(tmp_path / "run", ADDS, pgvector)
    asyncio.run(run.save())
    yield run
    run.store.close()


def first(run: Run, text: str, where: Filter = VISIBLE) -> str:
    return asyncio.run(run.matches(text, where))[0][0]


class Reader:
    """The latest version of a run, read by another node. Every search is by the index, or by comparing all entries."""

    def __init__(self, store: Store) -> None:
        self.retriever, self.context = Retriever(Vectors(Words(), store), 1), read_context(store)

    def first(self, text: str, by_index: bool = True) -> str:
        (match,) = asyncio.run(self.retriever.nearest(self.context, text, 1)).matches
        assert (len(self.retriever.vectors.texts) < len(ADDS) // 2) is by_index
        return match.entry.id


def test_an_index_that_is_lost_or_of_another_snapshot_is_built_again(run: Run, pgvector: str) -> None:
    run.edit([Delete("e7"), Add("memories", "quite new")])
    asyncio.run(run.save())
    for spoil in ('DROP TABLE "{table}"', "UPDATE indexes SET last = 0", "DELETE FROM indexes"):
        with connected(pgvector) as db:
            (table,) = [name for name in tables(pgvector) if not name.endswith("_counts")]
            db.execute(spoil.format(table=table))
        run.open()
        assert first(run, "quite new") == "e200"
        assert first(run, "text 7") != "e7"
        assert 0 < len(run.retriever.vectors.texts) < len(ADDS) // 2
        with connected(pgvector) as db:
            assert db.execute("SELECT first, last, entries FROM indexes").fetchall() == [(1, 1, 200)]


KILLED = """
import asyncio, os, sys
from pathlib import Path
from indexed import Run
from practicum.core.edits import Add, Delete
from practicum.plugins.postgres import pgvector

def killed(*args, **kwargs):
    os.kill(os.getpid(), 9)

run = Run.again(Path(sys.argv[1]))
if sys.argv[2] != "_add":
    run.edit([Delete("e7"), Add("memories", "quite new")])
if sys.argv[2] == "snapshot":
    asyncio.run(run.retriever.save(run.context))
    killed()
setattr(pgvector, sys.argv[2], killed)
asyncio.run(run.save())
"""


def killed_before(step: str, folder: Path, url: str) -> Run:
    """The run after a process that built its index (`_add`), or changed it, was killed before this step."""
    values = {"PYTHONPATH": os.pathsep.join(sys.path), URL_VARIABLE: url}
    done = subprocess.run([sys.executable, "-c", KILLED, folder, step], env=os.environ | values, check=False)
    assert done.returncode == -signal.SIGKILL
    return Run.again(folder)


@pytest.mark.parametrize("before", ["_count", "snapshot"])
def test_a_change_that_is_killed_loses_nothing(tmp_path: Path, pgvector: str, before: str) -> None:
    run = Run(tmp_path, ADDS, pgvector)
    asyncio.run(run.save())
    run.store.close()
    run = killed_before(before, tmp_path, pgvector)
    # The version of the snapshot: the index may have a later state.
    old = read_context(run.store, 0)
    assert asyncio.run(run.retriever.nearest(old, "text 7", 1)).matches[0].entry.id == "e7"
    assert 0 < len(run.retriever.vectors.texts) < len(ADDS) // 2
    search = asyncio.run(run.retriever.nearest(old, "quite new", 300))
    assert {match.entry.id for match in search.matches} <= {f"e{n}" for n in range(200)}
    for _ in range(2):
        assert first(run, "quite new") == "e200"
        assert first(run, "text 7") != "e7"
        assert first(run, "text 7", Filter(tags=("t1",))) != "e7"
        assert run.retriever.vectors.embedded <= 2
        asyncio.run(run.save())
    run.store.close()


def test_a_build_that_is_killed_leaves_nothing(tmp_path: Path, pgvector: str) -> None:
    Run(tmp_path, ADDS, pgvector).store.close()
    run = killed_before("_add", tmp_path, pgvector)
    assert tables(pgvector) == []
    asyncio.run(run.save())
    assert first(run, "text 7") == "e7"
    run.store.close()


def test_another_node_finds_the_entries_of_its_version_while_the_index_changes(
    tmp_path: Path, run: Run, pgvector: str
) -> None:
    with Store.connect(tmp_path / "node", pgvector, run.store.name) as store:
        node = Reader(store)
        assert node.first("text 7") == "e7"
        run.edit([Delete("e7"), Update("e8", "changed"), Add("memories", "quite new")])
        asyncio.run(run.retriever.save(run.context))
        assert (node.first("text 7"), node.first("text 8")) == ("e7", "e8")
        assert node.first("quite new") != "e200"
        before = tables(pgvector)
        run.store.remove_index()
        assert (node.first("text 7"), node.first("text 8")) == ("e7", "e8")
        assert len(tables(pgvector)) == 2
        assert not {*before} & {*tables(pgvector)}


def test_a_role_that_may_only_read_searches_the_index_and_builds_none(tmp_path: Path, run: Run, pgvector: str) -> None:
    role = f"reader_{uuid4().hex[:8]}"
    url = make_url(pgvector).set(username=role, password="only-for-tests").render_as_string(hide_password=False)
    with connected(pgvector) as db:
        db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'only-for-tests'")
        try:
            db.execute(f"GRANT USAGE ON SCHEMA practicum TO {role}")
            db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA practicum TO {role}")
            Store.connect(tmp_path / "node", url, run.store.name).close()
            for by_index in (True, False):
                with Store.read(tmp_path / "node") as store:
                    assert Reader(store).first("text 7", by_index) == "e7"
                run.store.remove_index()
            assert tables(pgvector) == []
        finally:
            db.execute(f"DROP OWNED BY {role}")
            db.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("way", ["by HNSW", "few", "sparse"])
@asynchronous
async def test_each_way_of_searching_finds_the_same_as_comparing_all(
    tmp_path: Path, pgvector: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_in_database, "FEW", 2**20 if way == "few" else 0)
    monkeypatch.setattr(index_in_database, "SPARSE", 2**20 if way == "sparse" else 0)
    adds = [Add("memories", f"word{n % 7} word{n % 11} text {n}", sources=(f"tag:t{n % 3}",)) for n in range(300)]
    run = Run(tmp_path, adds, pgvector)
    await run.save()
    with connected(pgvector) as db:
        # Otherwise the server reads few rows without an index.
        database = make_url(pgvector).database
        db.execute(f'ALTER DATABASE "{database}" SET enable_seqscan = off')
    run.edit([Delete("e7"), Delete("e12"), Update("e9", section="notes")])
    run.store.database.backend.engine.dispose()
    for where in (VISIBLE, Filter(tags=("t1",)), Filter(section="notes"), Filter(section="memories", tags=("t0",))):
        for text in ("word3 text 7", "text 9"):
            assert await run.matches(text, where) == await run.fresh(tmp_path / uuid4().hex, text, where)
    run.store.close()


def test_forgetting_reembedding_and_removal_delete_the_index(run: Run, pgvector: str) -> None:
    before = {*tables(pgvector)}
    assert forget(run.store, sources=["task:t1"]).left == 0
    assert tables(pgvector) == []
    run.context = read_context(run.store)
    run.open()
    asyncio.run(run.save())
    assert not before & {*tables(pgvector)}
    asyncio.run(replace_embedder(run.store, Words()))
    assert tables(pgvector) == []
    run.context = read_context(run.store)
    asyncio.run(run.save())
    assert len(tables(pgvector)) == 2
    run.store.remove()
    assert tables(pgvector) == []
