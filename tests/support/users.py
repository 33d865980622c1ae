"""Two end users of a service, their questions, the edits that follow, and the places of their data."""

from __future__ import annotations

import json
from typing import Any

from rows import put
from serving import Served, until
from sqlalchemy import select

from practicum.core.edits import Add
from practicum.core.screen import flags
from practicum.engine.admission import Held
from practicum.session.amend import writing
from practicum.session.records import HELD
from practicum.store import schema
from practicum.store.names import LIVE, name_version

EPISODES: dict[str, Any] = {
    "method": "episodes", "learn": True, "learn_every": 10_000, "canary": 0.5, "trust_users": True
}  # fmt: skip
"""A method that learns without a model, when a test starts it, also from questions of users."""

BEN = {"x-practicum-user": "ben"}

SECRETS = ("quetzal", "marzipan")
"""Words that occur only in the messages of Anna and in the answers to her."""


async def teach(at: Served, user: dict[str, str], words: str, count: int, start: int = 0) -> list[str]:
    """Ask as a user, and report right answers as the operator. Returns the ids of the interactions."""
    ids = list[str]()
    for n in range(start, start + count):
        reply = await at.ask(f"Which team looks after the {words} number {n}?", user)
        assert (await at.report(interaction=reply.interaction, target=f"The {words} team {n}.")).status == 200
        ids.append(reply.interaction)
    return ids


async def learn(at: Served) -> None:
    """Learn from the waiting reports, and make the new version live by hand."""
    space = at.service.spaces["default"]
    at.service.learner.want("default")
    await until(lambda: space.rollout)
    rollout = space.rollout
    assert rollout is not None
    name_version(space.store, LIVE, rollout.version)
    await until(lambda: space.rollout is None)
    await until(lambda: at.service.learner.status == "waiting")


async def edit_waits(at: Served, text: str, id: str) -> None:
    """Add a learned edit that waits for review."""
    space = at.service.spaces["default"]
    held = Held((Add("rules", text, reason="three were wrong"),), "user", flags(text))
    data = {**HELD.dump_python(held, mode="json"), "base": space.live}
    async with writing(space.store, 5.0) as store:
        put(store, schema.reviews, [{"id": id, "step": 1, "state": "pending", "reason": "", "data": json.dumps(data)}])


def rows(at: Served, table: Any) -> list[Any]:
    return [*at.service.database.rows(select(table))]


async def stored(at: Served) -> list[dict[str, Any]]:
    """The stored interactions, the oldest first."""
    await until(lambda: not at.service.database.writer.unwritten)
    oldest_first = select(schema.interactions).order_by(schema.interactions.c.id)
    return [{**row._mapping, **json.loads(row.data)} for row in at.service.database.rows(oldest_first)]


def texts(at: Served) -> str:
    """All texts that are shown of the live version."""
    space = at.service.spaces["default"]
    return json.dumps([[entry.text, dict(entry.data)] for entry in space.context(space.live)])
