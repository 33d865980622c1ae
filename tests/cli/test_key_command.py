"""`practicum key`, on a folder and on a database, before a service is there and beside one at work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "ci", "--role", "ask"], "there is a key 'ci' already: remove it, or choose another name"),
        (["add", "x", "--role", "boss"], "there is no role 'boss': there are ask, report, review, admin"),
        (["add", "x"], "Missing option '--role'"),
        (["add", "x", "--role", "ask", "--space", "../etc"], "'../etc' is no name of a space"),
        (["add", "a\nb", "--role", "ask"], r"'a\nb' is no name of a key"),
        (["add", " ", "--role", "ask"], "' ' is no name of a key"),
        (["add", "x" * 201, "--role", "ask"], "is no name of a key: a line of at most 200 characters"),
        (["add", "x", "--role", "ask", "--days", "0"], "Invalid value for '--days'"),
        (["remove", "x"], "there is no key 'x': practicum key list shows those there are"),
        (["remove", "ci", "--space", "other"], "there is no key 'ci' for space other"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    place = {"store": tmp_path, "folder": tmp_path}
    assert key(place, "add", "ci", "--role", "ask").code == 0
    refused = key(place, *arguments)
    assert refused.code == 2
    assert said in refused.line
    assert len(key(place, "list", "--json").json["keys"]) == 1


@pytest.mark.parametrize("command", [["list"], ["remove", "x"]])
def test_a_store_that_is_not_there_is_not_made_to_look_at_it(command: list[str], tmp_path: Path) -> None:
    place = {"store": tmp_path / "none", "folder": tmp_path}
    assert "there is no store" in key(place, *command).line
    assert not (tmp_path / "none").exists()


def test_spaces_have_keys_of_the_same_name_and_they_are_listed(tmp_path: Path) -> None:
    place = {"store": tmp_path, "folder": tmp_path}
    assert key(place, "list", "--store", tmp_path).code == 2
    key(place, "add", "ci", "--role", "ask")
    made = key(place, "add", "ci", "--role", "review", "--space", "support", "--json").json
    assert made["key"].startswith("pk-")
    head, *rows = [line.split() for line in key(place, "list").out.splitlines() if line]
    assert head[:4] == ["key", "space", "roles", "expires"]
    assert rows == [["ci", "all", "ask", "-", "-"], ["ci", "support", "review", "-", "-"], ["2", "keys"]]
    assert key(place, "remove", "ci", "--space", "support").out == "the key ci is removed\n"
    assert [row["space"] for row in key(place, "list", "--json").json["keys"]] == [""]


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
