"""Edits and reviews over HTTP, while the space learns and without a learner."""

from __future__ import annotations

import pytest
from serving import Place, Reply, Served, add_learned, asynchronous, served
from users import edit_waits

from practicum.core.edits import Add
from practicum.serve import editing
from practicum.session.amend import writing


async def edit(at: Served) -> Reply:
    return await at.send("POST", "/v1/playbook", {"text": "Lost cards go to the blue team.", "section": "rules"})


async def decide(at: Served, id: str, decision: str) -> Reply:
    return await at.send("POST", "/v1/review", {"id": id, "decision": decision})


async def texts(at: Served) -> list[str]:
    return [entry["text"] for entry in (await at.send("GET", "/v1/playbook")).json["entries"]]


@asynchronous
async def test_edits_are_refused_while_the_space_learns_and_an_approved_one_is_live_at_once_without_a_learner(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(**place) as at:
        for id in ("3.1", "3.2"):
            await edit_waits(at, "Refunds take 30 days.", id)
        # The learner holds the space like this.
        with monkeypatch.context() as patch:
            patch.setattr(editing, "PATIENCE", 0.02)
            async with writing(at.service.spaces["default"].store):
                replies = [await edit(at), await decide(at, "3.1", "reject"), await decide(at, "3.1", "approve")]
                assert (await at.ask("Which team handles lost cards?")).status == 200
        assert [(reply.status, reply.json["error"]["code"]) for reply in replies] == [(409, "space.learning")] * 3
        assert (await edit(at)).status == 200
        approved = (await decide(at, "3.1", "approve")).json
        assert approved == {"id": "3.1", "state": "approved", "version": 2}
        assert at.service.spaces["default"].live == 2
        assert await texts(at) == ["Refunds take 30 days.", "Lost cards go to the blue team."]
        assert (await decide(at, "3.2", "reject")).json == {"id": "3.2", "state": "rejected", "version": None}
        again = await decide(at, "3.2", "approve")
        assert (again.status, again.json["error"]["code"]) == (409, "review.decided")
        assert (await decide(at, "99.1", "approve")).status == 404
        assert (await at.send("POST", "/v1/rollback", {})).status == 200
        assert await texts(at) == ["Lost cards go to the blue team."]


@asynchronous
async def test_an_edit_does_not_make_a_version_live_that_waits_for_its_canary(place: Place) -> None:
    async with served(**place, learn=True) as at:
        at.service.learner.stop()
        async with writing(at.service.spaces["default"].store) as store:
            add_learned(store, Add("rules", "Refunds take 30 days."))
        refused = await edit(at)
        assert (refused.status, refused.json["error"]["code"]) == (409, "rollout.pending")
        assert await texts(at) == []
