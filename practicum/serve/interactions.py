"""Listing of interactions."""

from __future__ import annotations

import json

from sqlalchemy import func, select

from practicum.serve import answers
from practicum.store import schema
from practicum.store.scope import Transaction


def list_interactions(
    at: Transaction, session: str | None, user: str | None, since: float | None, limit: int
) -> list[answers.InteractionRow]:
    """Return the newest `limit` interactions of a space, newest first. `session`, `user` and `since` (time of the
    answer, seconds since 1970) restrict the list; None: no restriction. Requests that clients make for the title or the
    summary of a conversation are left out."""
    t = schema.interactions
    # JSON escapes quotes within texts, so the pattern matches only the field `purpose`, not a text that quotes it.
    query = at.select(t).where(t.c.data.not_like('%"purpose": "title"%'))
    if session is not None:
        query = query.where(t.c.session == session)
    if user is not None:
        query = query.where(t.c.user == user)
    if since is not None:
        # Limit the sequence numbers too, so that the query does not read older rows.
        later = t.alias()
        first = select(func.min(later.c.number)).where(at.mine(later, later.c.at >= since))
        query = query.where(t.c.at >= since, t.c.number >= first.scalar_subquery())
    rows = [(row, json.loads(row.data)) for row in at.rows(query.order_by(t.c.number.desc()).limit(limit))]
    return [
        answers.InteractionRow(
            id=row.id, at=row.at, session=row.session, session_from=data["session_from"], user=row.user,
            status=data["status"], question=data["question"], answer=data["answer"], version=row.version,
        )
        for row, data in rows
    ]  # fmt: skip
