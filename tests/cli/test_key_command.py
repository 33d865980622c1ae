"""`practicum key`, on a folder and on a database, before a service is there and beside one at work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers import Done, Launcher, run_command
from serving import Place, Served, asynchronous, served

QUESTION = "Which team handles lost cards?"


def key(place: Place, *arguments: object) -> Done:
    """`practicum key ARGUMENTS` on the store of a place."""
    return run_command(["key", *arguments, *store(place)], place["folder"])


def store(place: Place) -> list[str]:
    where = place["store"]
    return ["--store", str(where) if isinstance(where, Path) else where.render_as_string(hide_password=False)]


async def answers(at: Served, status: int, headers: dict[str, str] | None) -> None:
    """Ask until it is answered with this status."""
    async with asyncio.timeout(30):
        while (await at.ask(QUESTION, headers)).status != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_the_first_key_is_made_before_the_first_start(place: Place) -> None:
    made = key(place, "add", "ci", "--role", "ask", "--role", "report", "--days", 90, "--a-minute", 600)
    secret, said = made.out.splitlines()
    assert secret.startswith("pk-")
    assert said.startswith("key ci for all spaces: ask, report; it expires at ")
    assert secret not in key(place, "list").out + key(place, "list", "--json").out
    (listed,) = key(place, "list", "--json").json["keys"]
    assert (listed["name"], listed["space"], listed["roles"], listed["a_minute"]) == ("ci", "", ["ask", "report"], 600)

    @asynchronous
    async def locked() -> None:
        async with served(**place) as at:
            assert (await at.ask(QUESTION)).status == 401
            assert (await at.ask(QUESTION, {"Authorization": f"Bearer {secret}"})).status == 200

    locked()


def test_beside_a_service_at_work_a_key_is_made_and_removed(long_place: Place, launcher: Launcher) -> None:
    def do(*arguments: object) -> Any:
        done = launcher.run(["key", *map(str, arguments), *store(long_place), "--json"], long_place["folder"])
        assert done.code == 0, done.err
        return done.json

    @asynchronous
    async def beside() -> None:
        async with served(**long_place) as at:
            assert (await at.ask(QUESTION)).status == 200
            made = await asyncio.to_thread(do, "add", "ci", "--role", "ask")
            # A service that asked for no key asks for one from now on.
            await answers(at, 401, None)
            headers = {"Authorization": f"Bearer {made['key']}"}
            await answers(at, 200, headers)
            await asyncio.to_thread(do, "remove", "ci")
            await answers(at, 401, headers)
            assert (await at.ask(QUESTION)).status == 401

    beside()
