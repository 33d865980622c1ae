"""Edits and reviews over HTTP: while the space learns, without a learner, and at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from serving import Place, Reply, Served, asynchronous, served, until

from practicum.serve import editing
from practicum.session.amend import writing

USER = {"x-practicum-user": "u1"}
EPISODES: dict[str, Any] = {"method": "episodes", "learn": True, "learn_every": 4, "canary": 0.5, "canary_length": 20}


async def edit(at: Served) -> Reply:
    return await at.send("POST", "/v1/playbook", {"text": "Lost cards go to the blue team.", "section": "rules"})


async def decide(at: Served, id: str, decision: str) -> Reply:
    return await at.send("POST", "/v1/review", {"id": id, "decision": decision})


async def texts(at: Served) -> list[str]:
    return [entry["text"] for entry in (await at.send("GET", "/v1/playbook")).json["entries"]]


@asynchronous
async def test_while_the_space_learns_edits_and_decisions_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "PATIENCE", 0.02)
    async with served(**place) as at:
        # The learner holds the space like this.
        async with writing(at.service.spaces["default"].store):
            replies = [await edit(at), await decide(at, "3.1", "reject"), await decide(at, "3.1", "approve")]
            assert (await at.ask("Which team handles lost cards?")).status == 200
        assert [(reply.status, reply.json["error"]["code"]) for reply in replies] == [(409, "space.learning")] * 3
        monkeypatch.undo()
        assert (await edit(at)).status == 200


@asynchronous
async def test_without_a_learner_an_approved_edit_is_live_at_once(place: Place) -> None:
    async with served(**place, **EPISODES) as at:
        for n in range(8):
            reply = await at.ask(f"Which team handles case {n}?", USER)
            assert (await at.report(USER, interaction=reply.interaction, target=f"team {n}")).status == 200
        await at.send("POST", "/v1/learn")
        await until(lambda: at.service.counts["learning_rounds"])
        first, second, *_ = [one["id"] for one in (await at.send("GET", "/v1/review")).json["edits"]]
    async with served(**place, **{**EPISODES, "learn": False}) as at:
        approved = (await decide(at, first, "approve")).json
        assert (approved["state"], at.service.spaces["default"].live) == ("approved", approved["version"])
        assert len(await texts(at)) == 1
        assert (await decide(at, second, "reject")).json == {"id": second, "state": "rejected", "version": None}
        again = await decide(at, second, "approve")
        assert (again.status, again.json["error"]["code"]) == (409, "review.decided")
        assert (await decide(at, "99.1", "approve")).status == 404
        assert (await at.send("POST", "/v1/rollback", {})).status == 200
        assert await texts(at) == []


@asynchronous
async def test_of_concurrent_deletions_of_a_space_one_succeeds(place: Place) -> None:
    async with served(**place) as at:
        await at.send("POST", "/v1/spaces", {"name": "made"})
        replies = await asyncio.gather(*(at.send("DELETE", "/v1/spaces", {"name": "made"}) for _ in range(3)))
        assert sorted(reply.status for reply in replies) == [200, 404, 404]
