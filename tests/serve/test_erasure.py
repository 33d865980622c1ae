"""A removal of a user's data that is killed, or finds the disk full, is finished later, and leaves no byte."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dying import fill_disk, in_child, killed, moments
from helpers import run_command
from serving import Served, asynchronous, served, until
from sqlalchemy import make_url, select
from users import BEN, EPISODES, SECRETS, files_with, learn, rows, teach, texts

from practicum.core.errors import PracticumError, StoreError
from practicum.serve.erasing import finish_erasures
from practicum.session.forget import forget
from practicum.session.users import DONE, Forgotten, Unfinished, forget_user, spaces_of
from practicum.store import schema
from practicum.store.database import Database, Store
from practicum.store.folder import LOG_FILE

USER = "annamarquardt"
HERS = {"x-practicum-user": USER}
EACH = 5
"""Of so many moments at which a removal can be killed, one is tried."""

MARKS = (*SECRETS, USER, "ANNAMODEL")
"""What only she says or is told, her name, and that of a model that she has."""


async def fill(store: Any, folder: Path) -> list[str]:
    """A service that learned from her and from Ben, and ends. Returns the ids of her interactions."""
    async with served(store, folder=folder, **EPISODES) as at:
        ids = await teach(at, HERS, "quetzal", 5)
        await teach(at, BEN, "albatross", 5)
        await learn(at)
        ids += await teach(at, HERS, "quetzal", 2, 100)
        ids.append((await at.ask("And this quetzal?", HERS, model="ANNAMODEL-ft")).interaction)
        await at.send("POST", "/v1/notes", {"text": "The quetzal eats marzipan."}, HERS)
        space = at.service.spaces["default"]
        assert "quetzal" in texts(at)
    (space.store.files / LOG_FILE).write_text("prompt: the quetzal\nprompt: the quet\\nzal, and its albatross\n")
    return ids


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("filled")
    return folder, in_child(lambda: asyncio.run(fill(folder, folder)))


def left_in(folder: Path, ids: list[str]) -> list[str]:
    return [*files_with(folder, *MARKS, *ids)]


def nothing() -> None:
    """Before her data are removed, nothing happens."""


def offline(store: Path, before: Callable[[], None] = nothing) -> Forgotten:
    """What `practicum space forget STORE --user` does."""
    before()
    with spaces_of(store, USER) as (space,):
        return forget_user(space, USER)


async def _served(store: Path, work: Callable[[Served], Any]) -> Any:
    async with served(store, **{**EPISODES, "learn": False}) as at:
        return await work(at)


async def _delete(at: Served) -> tuple[int, Any]:
    reply = await at.send("DELETE", "/v1/user", {"user": USER})
    return reply.status, reply.json


def online(store: Path, before: Callable[[], None] = nothing) -> tuple[int, Any]:
    """A running service that is asked."""

    async def work(at: Served) -> tuple[int, Any]:
        before()
        return await _delete(at)

    return asyncio.run(_served(store, work))  # type: ignore[no-any-return]


async def _looked_at(at: Served) -> None:
    """Nothing of her is there, and all that is Ben's; a removal is not begun twice."""
    assert not at.service.spaces.unfinished
    assert "quetzal" not in texts(at)
    assert "The albatross team" in texts(at)
    assert len(rows(at, schema.interactions)) == len(rows(at, schema.outcomes)) == 5
    assert (await _delete(at))[0] == 404
    (row,) = rows(at, schema.erasures)
    counts = json.loads(row.data)
    assert (row.state, row.user, counts["left"], counts["interactions"]) == (DONE, None, 0, 8)
    (told,) = (await at.send("GET", "/v1/history")).json["erasures"]
    assert (told["state"], told["ended"] >= told["began"]) == (DONE, True)
    assert set(map(type, counts.values())) == {int}


def finished(store: Path, ids: list[str]) -> None:
    """After a start of the service."""
    asyncio.run(_served(store, _looked_at))
    assert left_in(store, ids) == []


@pytest.mark.slow
@pytest.mark.parametrize("work", [offline, online])
def test_a_removal_that_is_killed_at_any_moment_is_finished(
    work: Callable[..., object], filled: tuple[Path, list[str]], tmp_path: Path
) -> None:
    source, ids = filled
    copy = tmp_path / "store"

    def fresh() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        return shutil.copytree(source, copy, ignore=shutil.ignore_patterns("socket"))

    store = fresh()
    assert {LOG_FILE, "practicum.sqlite"} <= {name.removesuffix("-wal") for name in left_in(store, ids)}
    count, before, after = moments(partial(work, store)), 0, 0
    finished(store, ids)
    assert count >= 25
    for at in range(0, count, EACH):
        store = fresh()
        killed(partial(work, store), at)
        before += bool(left := left_in(store, ids))
        # The same call again, or just a start of the service: but where nothing was recorded, it has to be asked for.
        database = Database.at(store, store)
        begun = database.rows(select(schema.erasures))
        database.close()
        if not begun or (at // EACH % 2 and begun[0].state != DONE):
            again = in_child(partial(offline, store))
            assert (again.interactions, again.left) == (8, 0)
        elif begun[0].state == DONE:
            assert left == []
        finished(store, ids)
        after += bool(left_in(store, ids))
    print(f"{work.__name__}: {count} moments, bytes left after {before} kills, after the next start {after}")


@pytest.mark.slow
@pytest.mark.parametrize("work", [offline, online])
def test_a_full_disk_loses_nothing_and_room_is_all_it_takes(
    work: Callable[..., Any], filled: tuple[Path, list[str]], tmp_path: Path
) -> None:
    source, ids = filled

    def tried(store: Path, room: int) -> str:
        try:
            result = work(store, partial(fill_disk, room))
        except Unfinished:
            return "unfinished"
        except PracticumError:
            return "refused"
        if isinstance(result, Forgotten):
            return "done"
        status, body = result
        assert status in (200, 507), body
        if status == 200:
            return "done"
        said = body["error"]["message"]
        assert "\n" not in said
        return "unfinished" if "is recorded and not finished" in said else "refused"

    seen = dict[str, int]()
    for number in range(0, 18, 2):
        store = shutil.copytree(source, tmp_path / str(number), ignore=shutil.ignore_patterns("socket"))
        how = in_child(partial(tried, store, int(2**15 * 1.3**number)))
        seen[how] = seen.get(how, 0) + 1
        database = Database.at(store, store)
        states = [row.state for row in database.rows(select(schema.erasures))]
        number_left = len(database.rows(select(schema.interactions.c.id)))
        database.close()
        if how == "refused":
            assert (states, number_left) == ([], 13)
            assert in_child(partial(offline, store)).left == 0
        else:
            assert number_left == 5
            assert (states == [DONE]) == (how == "done")
        finished(store, ids)
    assert seen.keys() == {"refused", "unfinished", "done"}
    print(f"{work.__name__}: {seen}")


@pytest.mark.slow
@asynchronous
async def test_a_space_that_could_show_the_user_stays_closed_and_serves_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(tmp_path, tmp_path)
    async with served(tmp_path, **EPISODES) as at:
        assert "The quetzal team" in await at.shown("Which team looks after the quetzal number 3?", BEN)

        def full(*args: Any, **named: Any) -> Any:
            raise StoreError("store.unwritable", "the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr("practicum.session.users.forget", full)
            for _ in range(2):
                status, body = await _delete(at)
                assert (status, "is recorded and not finished" in body["error"]["message"]) == (507, True)
            # Requests go on with nothing that was learned, and nothing can be reported on them.
            sent = await at.shown("Which team looks after the quetzal number 3?", BEN)
            assert sent.strip() == "Which team looks after the quetzal number 3?"
            assert (await at.send("GET", "/v1/playbook")).status == 507
            assert (await at.send("GET", "/ready")).status == 200
            await until(lambda: "erasure" in {row.kind for row in rows(at, schema.alarms)})
            assert [row.kind for row in rows(at, schema.alarms)].count("erasure") == 1
            # Other spaces are made meanwhile.
            assert (await at.send("POST", "/v1/spaces", {"name": "other"})).status == 200
            assert USER not in str(rows(at, schema.alarms) + rows(at, schema.erasures))
        await finish_erasures(at.service)
        assert "The albatross team" in await at.shown("Which team looks after the albatross number 3?", BEN)
        assert "The quetzal team" not in await at.shown("Which team looks after the quetzal number 3?", BEN)
        assert not any(secret in str(rows(at, schema.versions)) for secret in SECRETS)


@pytest.mark.slow
@asynchronous
async def test_where_bytes_alone_are_left_everybody_is_served_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await fill(tmp_path, tmp_path)

    def full(*args: Any) -> None:
        raise StoreError("store.unwritable", "the disk is full")

    monkeypatch.setattr("practicum.store.sqlite.SqliteBackend.scrub", full)
    async with served(tmp_path, **EPISODES) as at:
        assert (await _delete(at))[0] == 507
        assert "The albatross team" in await at.shown("Which team looks after the albatross number 3?", BEN)
        assert "The quetzal team" not in await at.shown("Which team looks after the quetzal number 3?", BEN)
    # So it is after a start that cannot finish it either.
    async with served(tmp_path, **EPISODES) as at:
        assert "The albatross team" in await at.shown("Which team looks after the albatross number 3?", BEN)
        monkeypatch.undo()
        # What she asked since is removed with the rest.
        await at.ask("Where is the quetzal now?", HERS)
        status, body = await _delete(at)
        assert (status, body["state"], body["left"]) == (200, "done", 0)
        assert (await _delete(at))[0] == 404
        # Ben has said the other word, too.
        assert [*files_with(tmp_path, USER, *ids)] == []


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_that_is_killed_leaves_it_to_the_others(postgresql: str, tmp_path: Path) -> None:
    url = make_url(postgresql)

    async def on(name: str, work: Callable[[Served], Any]) -> Any:
        # Each is another node, with a folder of its own.
        async with served(url, folder=tmp_path / name, **{**EPISODES, "learn": False}) as at:
            return await work(at)

    async def started(at: Served) -> None:
        pass

    async def taken_over(at: Served) -> str:
        found = "not recorded"
        if any(row.user == USER for row in rows(at, schema.interactions)):
            status, body = await _delete(at)
            assert (status, body["left"]) == (200, 0)
        else:
            found = rows(at, schema.erasures)[-1].state
        while any(row.state != DONE for row in rows(at, schema.erasures)):
            # The server may not have seen yet that the other node is gone.
            await finish_erasures(at.service)
        await finish_erasures(at.service)
        assert not at.service.spaces.unfinished
        assert "The albatross team" in await at.shown("Which team looks after the albatross number 3?", BEN)
        assert "quetzal" not in texts(at)
        for table in schema.metadata.sorted_tables:
            assert not any(mark in str(rows(at, table)) for mark in MARKS), table.name
        assert (await _delete(at))[0] == 404
        return found

    in_child(lambda: asyncio.run(fill(url, tmp_path / "first")))
    first = moments(lambda: asyncio.run(on("first", started)))
    count = moments(lambda: asyncio.run(on("first", _delete))) - first
    assert count >= 20
    found = dict[str, int]()
    for number, at in enumerate(range(first, first + count, count // 4)):
        in_child(lambda number=number: asyncio.run(fill(url, tmp_path / f"fill{number}")))
        killed(lambda number=number: asyncio.run(on(f"a{number}", _delete)), at)
        state = in_child(lambda number=number: asyncio.run(on(f"b{number}", taken_over)))
        found[state] = found.get(state, 0) + 1
    assert found.keys() >= {"not recorded", DONE}
    print(f"{count} moments of a node, found by the next one: {found}")


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_forgets_is_finished(tmp_path: Path, filled: tuple[Path, list[str]]) -> None:
    source, ids = filled
    with Store.read(source) as store:
        # Of some outcomes nothing is learned.
        tasks = store.rows(store.select(schema.tasks))
        learned = {row.task_id.partition(".")[0]: row.task_id for row in tasks}
    number = next(number for number, id in enumerate(ids) if id in learned)
    name = f"task:{learned[ids[number]]}"

    def fresh(at: int) -> Path:
        run = tmp_path / str(at) / "run"
        return shutil.copytree(source, run, ignore=shutil.ignore_patterns("socket"))

    def forgotten(run: Path) -> int:
        with Store.open(run) as store:
            return forget(store, sources=[name], copy_to=run.with_name("copy")).left

    def marked(run: Path) -> list[str]:
        return [*files_with(run, f"quetzal number {number}?", ids[number])]

    count, before = moments(lambda: forgotten(fresh(0))), 0
    assert count >= 8
    for at in range(0, count, EACH):
        run = fresh(at + 1)
        killed(lambda run=run: forgotten(run), at)
        before += bool(marked(run))
        shutil.rmtree(run.with_name("copy"), ignore_errors=True)
        with Store.read(run) as store:
            ((state,),) = store.rows(store.select(schema.spaces.c.learning))
        # The same call again reports no error, unless all was done, and the next one that it is gone.
        done = run_command(["space", "forget", "run", "--source", name, "--yes", "--no-copy"], run.parent)
        assert done.code == (2 if state == schema.FORGOTTEN else 0), done.err
        assert marked(run) == []
        assert [path.name for path in run.parent.iterdir() if "before" in path.name] in ([], [".run-before-forget"])
        again = run_command(["space", "forget", "run", "--source", name, "--yes", "--no-copy"], run.parent)
        assert (again.code, "nothing in this run was learned from" in again.err) == (2, True)
    print(f"a run: {count} moments, bytes left after {before} kills")


@asynchronous
async def test_the_id_of_a_removed_note_is_not_given_to_another(tmp_path: Path) -> None:
    """Who reviewed hers by its id would decide on somebody else's text."""
    async with served(tmp_path, **EPISODES) as at:
        ids = []
        for user in (HERS, BEN):
            await at.ask("Who feeds it?", user)
            ids.append((await at.send("POST", "/v1/notes", {"text": "It eats marzipan."}, user)).json["id"])
            if user is HERS:
                assert (await _delete(at))[0] == 200
        assert ids == ["c1", "c2"]
        answers = [await at.send("POST", "/v1/review", {"id": id, "decision": "approve"}) for id in ids]
        assert [reply.status for reply in answers] == [404, 200]
