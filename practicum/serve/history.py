"""Recent history of a space: rollouts, alarms, mean scores of requests by the entry or version that the requests were
shown, and deletions of user data."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from practicum.serve import answers
from practicum.serve.space import ServedSpace
from practicum.store import schema


async def space_history(space: ServedSpace, most: int = 50) -> answers.SpaceHistory:
    """Return the newest rollouts, alarms and deletions of user data of a space. Also return the mean scores of requests
    by the entry or version that the requests were shown. Each list has at most `most` rows."""
    r, a, c, e = schema.rollouts, schema.alarms, schema.credits, schema.erasures
    queries = [
        space.store.select(table).order_by(order.desc()).limit(most)
        for table, order in ((r, r.c.number), (a, a.c.number), (c, c.c.scored), (e, e.c.number))
    ]
    rollouts, alarms, credits, erasures = [await asyncio.to_thread(space.store.rows, query) for query in queries]
    rows: list[dict[str, Any]] = [
        {"version": row.version, "base": row.base, "state": row.state, **json.loads(row.data)} for row in rollouts
    ]
    for row in rows:
        del row["centroids"]
    return answers.SpaceHistory(
        space=space.name,
        rollouts=[answers.RolloutRow(**row) for row in rows],
        alarms=[answers.AlarmRow(at=x.at, kind=x.kind, text=x.text) for x in alarms],
        credits=[answers.Credit(item=x.item, scored=x.scored, mean=x.total / max(x.scored, 1)) for x in credits],
        erasures=[answers.Erasure(began=x.began, ended=x.ended, state=x.state) for x in erasures],
    )
