"""`GET /v1/interactions` and the ids by which feedback names an interaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import CHAT, MESSAGES, RESPONSES, Place, Served, asynchronous, served

ANSWER = "The Falcon team."


async def listed(at: Served, query: str = "", headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    reply = await at.send("GET", f"/v1/interactions?{query}", None, headers)
    assert reply.status == 200, reply.body
    found: list[dict[str, Any]] = reply.json["interactions"]
    return found


@asynchronous
async def test_the_last_interactions_come_first_at_once_and_filtered(place: Place) -> None:
    async with served(**place, responder=lambda body: ANSWER) as at:
        for number, (session, user) in enumerate((("s 1", "anna"), ("s 1", "ben"), ("s 2", "anna"))):
            await at.ask(f"Question {number}?", {"x-practicum-session": session, "x-practicum-user": user})
        (last,) = await listed(at, "limit=1")
        assert last == {
            "id": last["id"], "at": last["at"], "session": "s 2", "session_from": "x-practicum-session",
            "user": "anna", "status": 200, "question": "Question 2?", "answer": ANSWER, "version": 0,
        }  # fmt: skip
        assert await listed(at) == sorted(await listed(at), key=lambda one: one["id"], reverse=True)
        for query, numbers in {
            "session=s%201": [1, 0], "user=anna": [2, 0], "session=s%201&user=anna": [0], "session=none": [],
            f"since={last['at']}": [2], "since=2000-01-01T00:00:00Z": [2, 1, 0], "since=2090-01-01": [],
        }.items():  # fmt: skip
            found = await listed(at, query)
            assert [one["question"] for one in found] == [f"Question {number}?" for number in numbers], query
        for query in ("limit=0", "limit=201", "since=yesterday", "since=nan", "session=", "before=3"):
            assert (await at.send("GET", f"/v1/interactions?{query}")).status == 400, query


@asynchronous
async def test_a_key_of_one_space_lists_its_own_interactions(tmp_path: Path) -> None:
    keys = ("all-0123456789abcdef", "a=space-a-0123456789", "b=space-b-0123456789")
    async with served(tmp_path, keys=keys, spaces=("a", "b")) as at:
        a, b = ({"authorization": f"Bearer {key.partition('=')[2]}"} for key in keys[1:])
        await at.ask("In a?", a)
        await at.ask("In b?", b)
        assert [one["question"] for one in await listed(at, headers=a)] == ["In a?"]
        assert [one["question"] for one in await listed(at, headers=b)] == ["In b?"]
        all_, other = {"authorization": f"Bearer {keys[0]}"}, {"x-practicum-space": "b"}
        assert [one["question"] for one in await listed(at, headers={**all_, **other})] == ["In b?"]
        assert (await at.send("GET", "/v1/interactions", None, {**a, **other})).status == 403


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@asynchronous
async def test_feedback_takes_the_id_that_the_provider_gave_its_response(
    path: str, stream: bool, tmp_path: Path
) -> None:
    async with served(tmp_path) as at:
        turns = [{"role": "user", "content": "Who?"}]
        body = {"input" if path == RESPONSES else "messages": turns, "max_tokens": 9, "stream": stream}
        reply = await at.send("POST", path, body)
        first = next(line for line in reply.body.split(b"\n") if line.startswith(b"data: ")) if stream else reply.body
        event = json.loads(first.removeprefix(b"data: "))
        id = (event.get("response") or event.get("message") or event)["id"]
        told = (await at.report(interaction=id, target=ANSWER)).json
        assert (told["interaction"], told["correction"]) == (reply.interaction, "in effect")
        # Also when it is in the memory of the service no more.
        at.service.recent.clear()
        assert (await at.report(interaction=id, target=ANSWER)).json["status"] == "repeated"
