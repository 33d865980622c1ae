"""Who may do what: each role at each route, keys that are none any more, and limits."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from serving import CHAT, MESSAGES, RESPONSES, Place, Reply, Served, asynchronous, served

from practicum.serve import access
from practicum.serve.access import WRONG_A_MINUTE, add_key, remove_key, stored_keys
from practicum.serve.operations import OPERATIONS

ROUTES: dict[tuple[str, str], str] = {
    ("POST", CHAT): "ask",
    ("POST", RESPONSES): "ask",
    ("POST", MESSAGES): "ask",
    ("GET", "/v1/models"): "ask",
    ("GET", "/metrics"): "ask, for all spaces",
    ("POST", "/v1/context"): "ask",
    ("GET", "/v1/playbook"): "ask",
    ("GET", "/v1/history"): "ask",
    ("POST", "/v1/feedback"): "report",
    ("POST", "/v1/notes"): "report",
    ("GET", "/v1/interactions"): "review",
    ("GET", "/v1/corrections"): "review",
    ("GET", "/v1/review"): "review",
    ("POST", "/v1/review"): "review",
    ("POST", "/v1/playbook"): "review",
    ("POST", "/v1/remove"): "report",
    ("POST", "/v1/rollback"): "review",
    ("POST", "/v1/learn"): "review",
    ("GET", "/v1/user"): "admin",
    ("DELETE", "/v1/user"): "admin",
    ("GET", "/v1/keys"): "admin",
    ("POST", "/v1/keys"): "admin",
    ("DELETE", "/v1/keys"): "admin",
    ("GET", "/v1/spaces"): "ask, for all spaces",
    ("POST", "/v1/spaces"): "admin, for all spaces",
    ("DELETE", "/v1/spaces"): "admin, for all spaces",
}
"""Each route with what its key must have, written down by hand."""

OPEN = (("GET", "/health"), ("GET", "/ready"), ("GET", "/openapi.json"))
"""Routes that take no key."""

MINE, OTHER = "mine", "other"
SPACES: Any = {"spaces": (MINE, OTHER)}
QUESTION = "Which team handles lost cards?"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def visit(at: Served, route: tuple[str, str], headers: dict[str, str] | None) -> int:
    """The status at a route. What is sent there changes nothing; who may not send it is told so before it is read."""
    method, path = route
    body = None if method == "GET" else b"no json"
    if path in (CHAT, RESPONSES, MESSAGES):
        body = b'{"messages": [{"role": "user", "content": "Hi"}], "input": "Hi", "max_tokens": 9}'
    return (await at.send(method, path, body, headers)).status


async def answered(at: Served, status: int, headers: dict[str, str] | None) -> Reply:
    """Ask until it is answered with this status, which nothing but a change of the stored keys can bring about."""
    async with asyncio.timeout(30):
        while (reply := await at.ask(QUESTION, headers)).status != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return reply


def test_no_operation_is_missing_in_the_table() -> None:
    assert OPERATIONS.keys() <= ROUTES.keys()
    assert ROUTES.keys() - OPERATIONS.keys() == {("POST", p) for p in (CHAT, RESPONSES, MESSAGES)} | {
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
    }


@pytest.mark.parametrize("role", ["ask", "report", "review", "admin"])
@asynchronous
async def test_each_role_at_each_route_of_its_own_and_of_another_space(role: str, tmp_path: Path) -> None:
    async with served(tmp_path, **SPACES) as at:
        own, whole = add_key(at.service.log, "own", MINE, [role]), add_key(at.service.log, "whole", "", [role])
        await answered(at, 401, None)
        elsewhere, wrong = {"x-practicum-space": OTHER}, {}
        for route, needed in ROUTES.items():
            may = role in (needed.partition(",")[0], "admin")
            expected = {
                "own space": (bearer(own), may and ", for all" not in needed),
                "own space by name": ({**bearer(own), "x-practicum-space": MINE}, may and ", for all" not in needed),
                "other space": ({**bearer(own), **elsewhere}, False),
                "key for all": (bearer(whole), may),
                "key for all, other space": ({**bearer(whole), **elsewhere}, may),
                "in another header": ({"x-api-key": own}, may and ", for all" not in needed),
            }
            for case, (headers, allowed) in expected.items():
                status = await visit(at, route, headers)
                if (status != 403) != allowed or status in (401, 429) or status >= 500:
                    wrong[route, case] = status
        assert not wrong
        for route in OPEN:
            assert await visit(at, route, bearer(own)) == await visit(at, route, bearer(whole)) == 200
        told = [(await at.send("GET", "/health", None, bearer(key))).json for key in (own, whole)]
        assert told[0] == {"status": "ok"}
        assert ("spaces" in told[1]) == (role in ("ask", "admin"))


@pytest.mark.parametrize("kind", ["no key", "wrong", "expired", "removed"])
@asynchronous
async def test_without_a_key_that_is_right_nothing_is_answered(kind: str, tmp_path: Path) -> None:
    async with served(tmp_path, **SPACES) as at:
        log = at.service.log
        add_key(log, "stays", "", ["admin"])
        key = "w" * 40
        if kind in ("expired", "removed"):
            key = add_key(log, "x", "", ["admin"], days=1e-9 if kind == "expired" else None)
        if kind == "removed":
            await answered(at, 401, None)
            await answered(at, 200, bearer(key))
            remove_key(log, "x", "")
        headers = {} if kind == "no key" else bearer(key)
        reply = await answered(at, 401, headers)
        said = {"no key": "there is no key", "expired": "the key x has expired"}.get(kind, "this key is wrong")
        assert said in reply.said
        assert reply.headers["www-authenticate"] == "Bearer"
        assert {route: status for route in ROUTES if (status := await visit(at, route, headers)) != 401} == {}
        assert [await visit(at, route, headers) for route in OPEN] == [200, 200, 200]
        assert (await at.send("GET", "/health", None, headers)).json == {"status": "ok"}


@pytest.mark.parametrize(("given", "whole"), [("k" * 20, True), (f"{MINE}={'k' * 20}", False)])
@asynchronous
async def test_a_key_that_is_given_at_the_start_may_do_everything_in_its_space(
    given: str, whole: bool, tmp_path: Path
) -> None:
    async with served(tmp_path, keys=(given,), **SPACES) as at:
        for route, needed in ROUTES.items():
            assert (await visit(at, route, bearer("k" * 20)) != 403) == (whole or ", for all" not in needed)
        assert (await at.ask(QUESTION, {**bearer("k" * 20), "x-practicum-space": OTHER})).status == (
            200 if whole else 403
        )


@pytest.mark.parametrize("given", ["short", "schlüssel-0123456789", "with space 0123456789", "../x=0123456789abcdefg"])
@asynchronous
async def test_what_cannot_be_a_key_is_told_at_the_start(given: str, tmp_path: Path) -> None:
    with pytest.raises(access.UsageError, match=r"a key has at least 16 characters|is no name of a space"):
        async with served(tmp_path, keys=(given,)):
            pass


@asynchronous
async def test_a_key_of_one_space_manages_keys_of_that_space_alone(place: Place) -> None:
    async with served(**place, **SPACES) as at:
        admin = bearer(add_key(at.service.log, "admin", MINE, ["admin"]))
        add_key(at.service.log, "all", "", ["admin"])
        add_key(at.service.log, "theirs", OTHER, ["admin"])
        await answered(at, 200, admin)

        async def keys(method: str, **body: Any) -> Reply:
            return await at.send(method, "/v1/keys", body or None, admin)

        assert (await keys("POST", name="new", roles=["ask"], space=OTHER)).status == 403
        made = (await keys("POST", name="new", roles=["admin"])).json
        assert made["space"] == MINE
        listed = (await keys("GET")).json["keys"]
        assert [(key["name"], key["space"]) for key in listed] == [("admin", MINE), ("new", MINE)]
        # What was made here is known at once.
        assert (await at.ask(QUESTION, bearer(made["key"]))).status == 200
        assert (await at.send("GET", "/v1/spaces", None, bearer(made["key"]))).status == 403
        assert (await keys("DELETE", name="theirs", space=OTHER)).status == 403
        # The name is looked for in the key's own space.
        assert (await keys("DELETE", name="all")).status == 400
        assert (await keys("DELETE", name="new")).json == {"name": "new", "space": MINE}
        assert (await at.ask(QUESTION, bearer(made["key"]))).status == 401
        assert {grant.name for grant in stored_keys(at.service.log)} == {"admin", "all", "theirs"}


def test_the_store_has_the_digest_of_a_key_alone(tmp_path: Path) -> None:
    @asynchronous
    async def used() -> str:
        async with served(tmp_path, keys=("k" * 20,)) as at:
            made = await at.send("POST", "/v1/keys", {"name": "ci", "roles": ["ask"]}, bearer("k" * 20))
            assert (await at.ask(QUESTION, bearer(made.json["key"]))).status == 200
            return str(made.json["key"])

    key = used()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert sha256(key.encode()).hexdigest().encode() in kept
    assert key.encode() not in kept
    assert b"k" * 20 not in kept


@asynchronous
async def test_a_service_stays_locked_when_its_last_key_is_removed(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        assert (await at.ask(QUESTION)).status == 200
        key = add_key(at.service.log, "only", "", ["ask"])
        await answered(at, 401, None)
        remove_key(at.service.log, "only", "")
        await answered(at, 401, bearer(key))
        assert (await at.ask(QUESTION)).status == 401


@asynchronous
async def test_a_service_whose_last_key_has_expired_is_locked_also_after_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        key = add_key(at.service.log, "only", "", ["admin"], days=1e-9)
        await answered(at, 401, None)
    async with served(tmp_path) as at:
        assert (await at.ask(QUESTION)).status == 401
        assert "the key only has expired" in (await at.ask(QUESTION, bearer(key))).said


@asynchronous
async def test_of_too_many_wrong_keys_one_is_told_to_wait(tmp_path: Path) -> None:
    async with served(tmp_path, keys=("k" * 20,)) as at:
        replies = [await at.ask(QUESTION, bearer(f"{n:040}")) for n in range(WRONG_A_MINUTE + 5)]
        assert {reply.status for reply in replies[:WRONG_A_MINUTE]} == {401}
        assert replies[-1].status == 429
        assert int(replies[-1].headers["retry-after"]) >= 1
        # Whoever has a key is not locked out by others at the same address.
        assert (await at.ask(QUESTION, bearer("k" * 20))).status == 200


@asynchronous
async def test_each_key_may_send_its_number_of_requests_a_minute(tmp_path: Path) -> None:
    async with served(tmp_path, keys=("k" * 20,), a_minute=6) as at:
        slow = add_key(at.service.log, "slow", "", ["ask", "report"], a_minute=3)
        for key, most, name in ((slow, 3, "slow"), ("k" * 20, 6, "--key")):
            statuses = [(await at.ask(QUESTION, bearer(key))).status for _ in range(most)]
            assert statuses == [200] * most
            reply = await at.report(bearer(key), interaction="x", score=1.0)
            assert reply.status == 429
            assert f"too many requests with the key {name}: {most} a minute are allowed" in reply.said
            assert 1 <= int(reply.headers["retry-after"]) <= 60 // most
            assert (await at.send("GET", "/health", None, bearer(key))).json == {"status": "ok"}
