"""Spaces are created and deleted as a whole: under kills, failures and concurrent writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from dying import in_child, killed, moments
from serving import CHAT, Place, Reply, Served, asynchronous, bearer, served, until
from sqlalchemy import make_url, select

from practicum.core.errors import StoreError
from practicum.store import schema
from practicum.store.spaces import UnknownSpace

NAME = {"name": "made"}
MADE = {"x-practicum-space": "made"}
KEY = "admin-0123456789abcdef"
ADMIN = {"authorization": f"Bearer {KEY}"}
QUESTION = "Which team handles lost cards?"
FACES = (
    *(f"/v1/corrections?state={state}" for state in ("live", "waiting", "replaced", "rejected")),
    "/v1/interactions", "/v1/playbook", "/v1/history", "/v1/review", "/v1/user?user=anna",
)  # fmt: skip
"""The operations that read the data of a space."""


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


async def notes(at: Served) -> int:
    return int((await at.send("GET", "/v1/corrections?state=live", None, MADE)).json["total"])


async def add_notes(at: Served, count: int) -> None:
    """Add notes until there are `count`."""
    for n in range(await notes(at), count):
        assert (await at.send("POST", "/v1/notes", {"text": f"Note {n}."}, MADE)).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_space_is_whole_or_absent_after_a_kill(method: str, place: Place) -> None:
    async def change(at: Served) -> None:
        assert (await at.send(method, "/v1/spaces", NAME)).status == 200

    async def prepare(at: Served) -> None:
        await at.send("POST", "/v1/spaces", NAME)
        await add_notes(at, 3)
        if method == "POST":
            await at.send("DELETE", "/v1/spaces", NAME)

    async def check(at: Served) -> None:
        if "made" in (await at.send("GET", "/v1/spaces")).json["spaces"]:
            assert await notes(at) == (3 if method == "DELETE" else 0)
        await at.send("POST", "/v1/spaces", NAME)
        await remake(at)
        live = select(schema.spaces.c.space).where(schema.spaces.c.state == "live")
        old = select(schema.corrections.c.space).where(schema.corrections.c.space.not_in(live))
        assert not at.service.database.rows(old)
        await add_notes(at, 1)
        assert await notes(at) == 1
        await prepare(at)

    async def served_once(*work: Callable[[Served], Awaitable[None]]) -> None:
        async with served(**place) as at:
            for part in work:
                await part(at)

    def once(*work: Callable[[Served], Awaitable[None]]) -> Callable[[], None]:
        return lambda: asyncio.run(served_once(*work))

    in_child(once(prepare))
    first = moments(once())
    count = moments(once(change)) - first
    assert count >= 3
    in_child(once(prepare))
    for number in range(3):
        killed(once(change), first + number * count // 3)
        in_child(once(check))


@asynchronous
async def test_a_deletion_or_creation_that_failed_is_finished_by_the_next_and_of_concurrent_deletions_one_succeeds(
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
        replies = await asyncio.gather(*(at.send("DELETE", "/v1/spaces", NAME) for _ in range(3)))
        assert sorted(reply.status for reply in replies) == [200, 404, 404]


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
