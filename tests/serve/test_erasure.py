"""A removal of a user's data that is killed or fails is finished later, and leaves no byte.

The kills hit a few moments of all; `bench/kills_bench.py` has more.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dying import in_child, killed, moments
from helpers import files_with, run_command
from serving import Served, asynchronous, served, until
from sqlalchemy import select
from users import BEN, EPISODES, SECRETS, learn, rows, teach, texts

from practicum.core.errors import StoreError
from practicum.serve import erasing
from practicum.serve.erasing import finish_erasures
from practicum.session.forget import forget
from practicum.session.outcomes import HELD
from practicum.session.users import DONE, Forgotten, forget_user, spaces_of
from practicum.store import schema
from practicum.store.database import Database, Store
from practicum.store.folder import LOG_FILE

USER = "annamarquardt"
HERS = {"x-practicum-user": USER}
TRIED = 4
"""Kills of a removal, evenly spread over its moments."""

HER_QUESTION = "Which team looks after the quetzal number 3?"

MARKS = (*SECRETS, USER, "ANNAMODEL")
"""Her name, her model, and words that only she uses or receives."""


async def fill(folder: Path) -> list[str]:
    """A service that learned from her and from Ben, and ends. Returns the ids of her interactions."""
    async with served(folder, **EPISODES) as at:
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
    return folder, in_child(lambda: asyncio.run(fill(folder)))


def left_in(folder: Path, ids: list[str]) -> list[str]:
    return files_with(folder, *MARKS, *ids)


def copied(source: Path, folder: Path) -> Path:
    """A copy of a store, without the socket of its process."""
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(source, folder, ignore=shutil.ignore_patterns("socket"))


def offline(store: Path) -> Forgotten:
    """`practicum space forget STORE --user`."""
    with spaces_of(store, USER) as (space,):
        return forget_user(space, USER)


async def _served(store: Path, work: Callable[[Served], Any]) -> Any:
    async with served(store, **{**EPISODES, "learn": False}) as at:
        return await work(at)


async def _delete(at: Served) -> tuple[int, Any]:
    reply = await at.send("DELETE", "/v1/user", {"user": USER})
    return reply.status, reply.json


def online(store: Path) -> None:
    """The operation of a running service."""
    asyncio.run(_served(store, _delete))


async def _check(at: Served) -> None:
    """Require that none of her data is there, and all of Ben's; a removal is not begun twice."""
    assert not at.service.spaces.unfinished
    assert "quetzal" not in texts(at)
    assert "The albatross team" in texts(at)
    assert len(rows(at, schema.interactions)) == len(rows(at, schema.outcomes)) == 5
    assert (await _delete(at))[0] == 404
    (row,) = rows(at, schema.erasures)
    counts = json.loads(row.data)
    assert (row.state, row.user, counts["left"], counts["interactions"]) == (DONE, None, 0, 8)
    (report,) = (await at.send("GET", "/v1/history")).json["erasures"]
    assert (report["state"], report["ended"] >= report["began"]) == (DONE, True)
    assert set(map(type, counts.values())) == {int}


def finished(store: Path, ids: list[str]) -> None:
    """Require that a start of the service finishes the removal."""
    asyncio.run(_served(store, _check))
    assert left_in(store, ids) == []


def erasures(store: Path) -> list[Any]:
    """The states of the recorded removals."""
    with closing(Database.at(store, store)) as database:
        return [row.state for row in database.rows(select(schema.erasures))]


@pytest.mark.slow
@pytest.mark.parametrize("work", [offline, online])
def test_a_killed_removal_is_finished_later(
    work: Callable[..., object], filled: tuple[Path, list[str]], tmp_path: Path
) -> None:
    source, ids = filled
    store = copied(source, tmp_path / "store")
    assert {LOG_FILE, "practicum.sqlite"} <= {name.removesuffix("-wal") for name in left_in(store, ids)}
    count = moments(partial(work, store))
    finished(store, ids)
    assert count >= 25
    for number in range(TRIED):
        store = copied(source, tmp_path / "store")
        killed(partial(work, store), number * count // TRIED)
        left, states = left_in(store, ids), erasures(store)
        # A start of the service finishes a removal that was recorded. Otherwise, or at times, it is requested again.
        if not states or (number % 2 and states != [DONE]):
            again = in_child(partial(offline, store))
            assert (again.interactions, again.left) == (8, 0)
        elif states == [DONE]:
            assert left == []
        finished(store, ids)


def full(*args: Any, **named: Any) -> Any:
    raise StoreError("store.unwritable", "the disk is full")


@pytest.mark.slow
@asynchronous
async def test_an_unfinished_removal_closes_its_space_and_requests_pass_unchanged(
    tmp_path: Path, filled: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(copied(filled[0], tmp_path / "store"), **EPISODES) as at:
        assert "The quetzal team" in await at.shown(HER_QUESTION, BEN)
        with monkeypatch.context() as patch:
            patch.setattr("practicum.session.users.forget", full)
            for _ in range(2):
                status, body = await _delete(at)
                assert (status, body["error"]["code"]) == (507, "user.removal_unfinished")
            # Requests pass without learned text, and other spaces are created.
            assert (await at.shown(HER_QUESTION, BEN)).strip() == HER_QUESTION
            assert (await at.send("GET", "/v1/playbook")).status == 507
            assert (await at.send("GET", "/ready")).status == 200
            await until(lambda: "erasure" in {row.kind for row in rows(at, schema.alarms)})
            assert [row.kind for row in rows(at, schema.alarms)].count("erasure") == 1
            assert (await at.send("POST", "/v1/spaces", {"name": "other"})).status == 200
            assert USER not in str(rows(at, schema.alarms) + rows(at, schema.erasures))
        await finish_erasures(at.service)
        assert await _serves_the_others(at)
        assert not any(secret in str(rows(at, schema.versions)) for secret in SECRETS)


async def _serves_the_others(at: Served) -> bool:
    shown = await at.shown("Which team looks after the albatross number 3?", BEN)
    return "The albatross team" in shown and "The quetzal team" not in await at.shown(HER_QUESTION, BEN)


@pytest.mark.slow
@asynchronous
async def test_while_only_bytes_are_left_all_users_are_served(
    tmp_path: Path, filled: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied(filled[0], tmp_path / "store")
    monkeypatch.setattr("practicum.store.sqlite.SqliteBackend.scrub", full)
    async with served(store, **EPISODES) as at:
        assert (await _delete(at))[0] == 507
        assert await _serves_the_others(at)
    # A start that cannot finish it serves them too.
    async with served(store, **EPISODES) as at:
        assert await _serves_the_others(at)
        monkeypatch.undo()
        # Her later request is removed too.
        await at.ask("Where is the quetzal now?", HERS)
        status, body = await _delete(at)
        assert (status, body["state"], body["left"]) == (200, "done", 0)
        assert (await _delete(at))[0] == 404
        assert files_with(store, USER, *filled[1]) == []


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_forgets_is_finished(tmp_path: Path, filled: tuple[Path, list[str]]) -> None:
    source, ids = filled
    with Store.read(source) as store:
        # Not every outcome is learned from.
        learned = {row.task_id.partition(".")[0]: row.task_id for row in store.rows(store.select(schema.tasks))}
    number = next(number for number, id in enumerate(ids) if id in learned)
    name = f"task:{learned[ids[number]]}"
    run = tmp_path / "runs" / "run"

    def forgotten() -> int:
        with Store.open(run) as store:
            return forget(store, sources=[name], copy_to=run.with_name("copy")).left

    copied(source, run)
    count = moments(forgotten)
    assert count >= 8
    for at in range(0, count, count // 3):
        shutil.rmtree(run.parent)
        copied(source, run)
        killed(forgotten, at)
        shutil.rmtree(run.with_name("copy"), ignore_errors=True)
        with Store.read(run) as store:
            ((state,),) = store.rows(store.select(schema.spaces.c.learning))
        # The same command finishes it, and the next command reports that nothing is left.
        command = ["space", "forget", "run", "--source", name, "--yes", "--no-copy"]
        done = run_command(command, run.parent)
        assert done.code == (2 if state == schema.FORGOTTEN else 0), done.err
        assert files_with(run, f"quetzal number {number}?", ids[number]) == []
        assert [path.name for path in run.parent.iterdir() if "before" in path.name] in ([], [".run-before-forget"])
        assert run_command(command, run.parent).code == 2


@asynchronous
async def test_the_id_of_a_removed_note_is_not_reused(tmp_path: Path) -> None:
    """A decision on the removed note must not apply to a note of another user."""
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


@pytest.mark.slow
@asynchronous
async def test_a_removal_also_removes_the_test_tasks_of_the_replay_gate(tmp_path: Path) -> None:
    async with served(tmp_path, **{**EPISODES, "canary": 0.0}) as at:
        count = 0
        while sum(row.state == HELD for row in rows(at, schema.outcomes)) < 8:
            count += len(await teach(at, HERS, "quetzal", 10, count))
        at.service.learner.want("default")
        await until(lambda: rows(at, schema.rollouts))
        assert json.loads(rows(at, schema.rollouts)[0].data)["gate"]["tasks"] >= 8
        assert files_with(tmp_path, "quetzal")
        assert (await erasing.forget_user(at.service, "default", USER)).left == 0
        assert files_with(tmp_path, "quetzal") == []
