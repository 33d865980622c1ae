"""Spaces are created and deleted as a whole: under kills, failures and concurrent writes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import deaths
import pytest
from helpers import run_command
from serving import CHAT, Place, Reply, Served, asynchronous, served, until
from sqlalchemy import make_url, select

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.errors import StoreError
from practicum.session.records import create_seed
from practicum.store import schema
from practicum.store.spaces import UnknownSpace

NAME = {"name": "made"}
MADE = {"x-practicum-space": "made"}
KEY = "admin-0123456789abcdef"
ADMIN = {"authorization": f"Bearer {KEY}"}
ADD_KEY = ("key", "add", "agent", "--space", "made", "--grant", "ask", "--json", "--store")
QUESTION = "Which team handles lost cards?"
FACES = (
    *(f"/v1/corrections?state={state}" for state in ("live", "waiting", "replaced", "rejected")),
    "/v1/interactions", "/v1/playbook", "/v1/history", "/v1/review", "/v1/user?user=anna",
)  # fmt: skip
"""The operations that read the data of a space."""


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def remake(at: Served, headers: dict[str, str] | None = None) -> None:
    """Delete the space, and create a space with its name."""
    assert (await at.send("DELETE", "/v1/spaces", NAME, headers)).status == 200
    assert (await at.send("POST", "/v1/spaces", NAME, headers)).status == 200


async def showing(at: Served, word: str, headers: dict[str, str] | None = None) -> list[str]:
    """The operations that return a word."""
    await asyncio.wrap_future(at.service.database.do(lambda db: None))
    replies = {path: await at.send("GET", path, None, {**MADE, **(headers or {})}) for path in FACES}
    assert {reply.status for reply in replies.values()} <= {200, 404}
    return [path for path, reply in replies.items() if reply.status == 200 and word in reply.body.decode()]


def later(at: Served, path: str, first: bytes, rest: bytes, goes_on: asyncio.Event, **headers: str) -> Any:
    """A request whose body ends after the event."""

    async def body() -> AsyncIterator[bytes]:
        yield first
        await goes_on.wait()
        yield rest

    async def send() -> Reply:
        async with at.http.request("POST", at.url + path, data=body(), headers=headers) as response:
            return Reply(response.status, response.headers, await response.read())

    return asyncio.create_task(send())


# Kills


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "store"),
    [("start", ""), ("add", ""), ("remove", ""), pytest.param("remove", "postgresql", marks=pytest.mark.postgres)],
)
def test_a_space_is_whole_or_absent_after_a_kill(
    kind: str, store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = [request.getfixturevalue(store)] if store else []
    command = [sys.executable, str(Path(deaths.__file__)), kind, str(tmp_path), "3", *url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = [tuple(line.split(maxsplit=2)[1:]) for line in done.stdout.splitlines()]
    assert len(results) == 3
    assert {*results} <= {("0", "there"), ("0", "not there")}


@asynchronous
async def test_a_deletion_or_a_creation_that_failed_is_finished_by_the_next_request(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StoreError("store.unwritable", "the disk is full")

    async with served(**place) as at:
        await at.send("POST", "/v1/spaces", NAME)
        await at.send("POST", "/v1/notes", {"text": "Feed the quetzal."}, MADE)
        for method, part, there in (("DELETE", "remove", True), ("POST", "create", False)):
            with monkeypatch.context() as patch:
                patch.setattr(at.service.database, part, fails)
                assert (await at.send(method, "/v1/spaces", NAME)).status == 507
            assert ("made" in (await at.send("GET", "/v1/spaces")).json["spaces"]) is there
            assert (await at.ask(QUESTION, MADE)).status == (200 if there else 404)
            assert (await at.send(method, "/v1/spaces", NAME)).status == 200
        assert await showing(at, "quetzal") == []


# Identities


@pytest.mark.slow
@asynchronous
async def test_requests_in_progress_in_a_deleted_space_do_not_reach_the_next_space(place: Place) -> None:
    async with served(**place, keys=(KEY,)) as at:
        admin, there, goes_on = {**ADMIN, **MADE}, {**ADMIN, **MADE, "x-practicum-user": "anna"}, asyncio.Event()
        await at.send("POST", "/v1/spaces", NAME, ADMIN)
        old = at.service.spaces["made"]
        reply = await at.ask("What about quetzals?", there)
        await at.report(admin, interaction=reply.interaction, target="quetzals fly")
        await at.send("POST", "/v1/notes", {"text": "Feed the quetzal."}, admin)
        await at.send("POST", "/v1/playbook", {"text": "The quetzal is green.", "section": "rules"}, admin)
        assert len(await showing(at, "quetzal", ADMIN)) >= 4
        # Requests that began before its end, and are whole after that.
        started = [
            later(at, "/v1/notes", b'{"text": "A late ', b'quetzal."}', goes_on, **admin),
            later(at, "/v1/context", b'{"input": "A late ', b'quetzal?"}', goes_on, **there),
            later(at, "/v1/keys", b'{"name": "quetzal", "space": "made", ', b'"roles": ["ask"]}', goes_on, **ADMIN),
            later(at, CHAT, b'{"messages": [{"role": "user", ', b'"content": "A quetzal?"}]}', goes_on, **there),
        ]  # fmt: skip
        asked = {"messages": [{"role": "user", "content": "A late quetzal?"}], "stream": True}
        headers = {**there, "x-sim-fault": "endless"}
        async with at.http.request("POST", at.url + CHAT, json=asked, headers=headers) as stream:
            await stream.content.readany()
            await remake(at, ADMIN)
        goes_on.set()
        assert [(await one).status for one in started] == [404] * len(started)
        assert (await at.report(admin, interaction=reply.interaction, score=0.0)).status == 404
        # The client of the stream has left, and its answer would be stored.
        await until(lambda: at.service.database.writer.late)
        with pytest.raises(UnknownSpace):
            await asyncio.wrap_future(at.service.database.do(lambda db: None, old.id))
        assert await showing(at, "quetzal", ADMIN) == []
        assert (await at.shown("What about quetzals?", admin)).count("quetzal") == 1
        assert (await at.send("GET", "/v1/keys", None, ADMIN)).json == {"keys": []}
        assert at.service.database.writer.late == 1
        # Nothing of the old identity is left.
        for table in schema.metadata.tables.values():
            assert not at.service.database.rows(select(table.c.space).where(table.c.space == old.id))


@pytest.mark.postgres
@pytest.mark.slow
@asynchronous
async def test_a_node_that_missed_a_deletion_does_not_open_the_next_space_to_an_old_key(
    postgresql: str, tmp_path: Path
) -> None:
    url = make_url(postgresql)
    async with (
        served(url, folder=tmp_path / "a", keys=(KEY,)) as a,
        served(url, folder=tmp_path / "b", keys=(KEY,)) as b,
    ):
        await a.send("POST", "/v1/spaces", NAME, ADMIN)
        key = (await a.send("POST", "/v1/keys", {**NAME, "space": "made", "roles": ["admin"]}, ADMIN)).json["key"]
        assert (await b.send("POST", "/v1/notes", {"text": "Feed the quetzal."}, bearer(key))).status == 200
        old = b.service.spaces["made"]
        # The node caches the key for a second, and reads the deletion a moment later.
        await remake(a, ADMIN)
        late = await b.send("POST", "/v1/notes", {"text": "A late quetzal."}, bearer(key))
        assert late.status in (401, 403, 404)
        await until(lambda: b.service.spaces.get("made") is not old)
        assert await showing(b, "quetzal", ADMIN) == await showing(a, "quetzal", ADMIN) == []
        assert (await b.send("GET", "/v1/playbook", None, bearer(key))).status in (401, 403)
        assert not old.store.files.exists()


@asynchronous
async def test_a_run_in_the_folder_of_a_space_is_served_and_keeps_its_keys(tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY,)):
        pass
    created = run_command([*ADD_KEY, tmp_path], tmp_path)
    create_seed(tmp_path / "spaces" / "made", Context().apply(Delta((Add("rules", "Cards are blue."),))).context)
    async with served(tmp_path, keys=(KEY,), spaces=("default", "made")) as at:
        listed = await at.send("GET", "/v1/playbook", None, bearer(created.json["key"]))
        assert (listed.status, listed.json["total"]) == (200, 1)
