"""`practicum key` on a folder and on a database, before the first start of a service."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import Done, run_command
from serving import Place, asynchronous, served

QUESTION = "Which team handles lost cards?"


def key(place: Place, *arguments: object) -> Done:
    """`practicum key ARGUMENTS` on the store of a place."""
    return run_command(["key", *arguments, *store(place)], place["folder"])


def store(place: Place) -> list[str]:
    where = place["store"]
    return ["--store", str(where) if isinstance(where, Path) else where.render_as_string(hide_password=False)]


@pytest.mark.slow
def test_a_key_that_is_created_before_the_first_start_is_required(place: Place) -> None:
    created = key(place, "add", "ci", "--grant", "ask", "--grant", "report", "--days", 90, "--a-minute", 600)
    secret, _ = created.out.splitlines()
    assert secret.startswith("pk-")
    assert secret not in key(place, "list").out + key(place, "list", "--json").out
    (listed,) = key(place, "list", "--json").json["keys"]
    assert (listed["name"], listed["space"], listed["roles"], listed["a_minute"]) == ("ci", "", ["ask", "report"], 600)

    @asynchronous
    async def locked() -> None:
        async with served(**place) as at:
            assert (await at.ask(QUESTION)).status == 401
            assert (await at.ask(QUESTION, {"Authorization": f"Bearer {secret}"})).status == 200

    locked()
