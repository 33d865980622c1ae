"""Pages of calls: the list of effects in the journal by role, and one call with its prompt and answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func
from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.errors import UsageError
from practicum.store import schema
from practicum.store.journal import NOTE_ROLE
from practicum.view.read import CallStory
from practicum.view.visit import Visit

ROWS = 100
"""Number of calls per page."""


async def calls(visit: Visit) -> Response:
    """Show the calls of a space, in the order in which they ended."""
    role, after = visit.query_param("role"), visit.number("after") or 0

    def read() -> tuple[dict[str, int], list[Any]]:
        store, t = visit.space.store, schema.journal.c
        query = store.select(t.role, func.count().label("number")).where(t.role != NOTE_ROLE).group_by(t.role)
        roles = {row.role: row.number for row in store.rows(query.order_by(t.role))}
        return roles, visit.story.all_calls.page(role if role in roles else None, after, ROWS + 1)

    roles, rows = await visit.run(read)
    return await visit.page(
        "calls.html", here="Calls", calls=rows[:ROWS], role=role if role in roles else "", roles=roles, after=after,
        total=roles.get(role, sum(roles.values())), more=rows[ROWS - 1].id if len(rows) > ROWS else None,
    )  # fmt: skip


async def call(visit: Visit) -> Response:
    """Show one call."""
    number = visit.path_number("call")
    if number >= 2**62:
        raise HTTPException(404)

    def read() -> tuple[CallStory, Sequence[str]]:
        one = visit.story.call(str(number))
        return one, one.attempts

    try:
        one, attempts = await visit.run(read)
    except UsageError:
        raise HTTPException(404) from None
    return await visit.page("call.html", here="Calls", call=one, attempts=attempts)
