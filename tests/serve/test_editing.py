"""Edits, reviews and notes over HTTP: they hold from the next request on, and what somebody else decided stands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from serving import Place, Reply, Served, asynchronous, served, until

from practicum.serve import editing
from practicum.session.amend import writing

RULE, OTHER_RULE = "Lost cards go to the blue team.", "Loans go to the red team."
QUESTION = "Which team handles lost cards?"
USER = {"x-practicum-user": "u1"}
EPISODES: dict[str, Any] = {"method": "episodes", "learn": True, "learn_every": 4, "canary": 0.5, "canary_length": 20}


async def edit(at: Served, headers: dict[str, str] | None = None, **what: Any) -> Reply:
    return await at.send("POST", "/v1/playbook", what, headers)


async def decide(at: Served, id: str, decision: str, **more: Any) -> Reply:
    return await at.send("POST", "/v1/review", {"id": id, "decision": decision, **more})


async def texts(at: Served) -> list[str]:
    return [entry["text"] for entry in (await at.send("GET", "/v1/playbook")).json["entries"]]


async def teach(at: Served, count: int, headers: dict[str, str] | None = None) -> None:
    """Ask, and correct the answers."""
    for n in range(count):
        reply = await at.ask(f"Which team handles case {n}?", headers)
        assert (await at.report(headers, interaction=reply.interaction, target=f"team {n}")).status == 200


async def with_pending(at: Served) -> str:
    """Teach as a user, until edits wait for review; returns the id of the first."""
    await teach(at, 8, USER)
    await at.send("POST", "/v1/learn")
    await until(lambda: at.service.counts["learning_rounds"])
    return str((await at.send("GET", "/v1/review")).json["edits"][0]["id"])


# The playbook


@asynchronous
async def test_while_the_space_learns_an_edit_is_told_to_wait(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editing, "PATIENCE", 0.1)
    async with served(**place) as at:
        space = at.service.spaces["default"]
        # As the learner has it.
        async with writing(space.store):
            replies = [
                await edit(at, text=RULE, section="rules"), await decide(at, "3.1", "reject"),
                await decide(at, "3.1", "approve"),
            ]  # fmt: skip
            assert (await at.ask(QUESTION)).status == 200
        assert [(reply.status, "is learning now" in reply.said) for reply in replies] == [(409, True)] * 3
        monkeypatch.undo()
        assert (await edit(at, text=RULE, section="rules")).status == 200


# Reviews


@asynchronous
async def test_without_a_learner_what_is_approved_is_live_at_once(place: Place) -> None:
    async with served(**place, **EPISODES) as at:
        id = await with_pending(at)
        waiting = (await at.send("GET", "/v1/review")).json["edits"]
    async with served(**place, **{**EPISODES, "learn": False}) as at:
        told = (await decide(at, id, "approve")).json
        assert (told["state"], at.service.spaces["default"].live) == ("approved", told["version"])
        assert len(await texts(at)) == 1
        rejected = waiting[1]["id"]
        assert (await decide(at, rejected, "reject")).json == {"id": rejected, "state": "rejected", "version": None}
        again = await decide(at, rejected, "approve")
        assert (again.status, "rejected" in again.said) == (409, True)
        assert (await decide(at, "99.1", "approve")).status == 404
        assert (await at.send("POST", "/v1/rollback", {})).status == 200
        assert await texts(at) == []


# Spaces


@asynchronous
async def test_of_two_who_delete_a_space_the_second_is_told(place: Place) -> None:
    async with served(**place) as at:
        await at.send("POST", "/v1/spaces", {"name": "made"})
        replies = await asyncio.gather(*(at.send("DELETE", "/v1/spaces", {"name": "made"}) for _ in range(3)))
        assert sorted(reply.status for reply in replies) == [200, 404, 404]
