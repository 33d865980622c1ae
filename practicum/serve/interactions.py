"""Interactions as they are listed."""

from __future__ import annotations

import json

from sqlalchemy import func, select

from practicum.serve import answers
from practicum.store import schema
from practicum.store.scope import Transaction


def list_interactions(
    at: Transaction, session: str | None, user: str | None, since: float | None, limit: int
) -> list[answers.InteractionRow]:
    """The newest interactions of a space: of a session, of a user, answered since a time (seconds since 1970). Those
    in which a client asked for a title are left out."""
    t = schema.interactions
    # Quotes within texts are escaped in JSON, so only the field itself is found.
    found = at.select(t).where(t.c.data.not_like('%"purpose": "title"%'))
    if session is not None:
        found = found.where(t.c.session == session)
    if user is not None:
        found = found.where(t.c.user == user)
    if since is not None:
        # Rows before the first one of these need not be read.
        later = t.alias()
        first = select(func.min(later.c.number)).where(at.mine(later, later.c.at >= since))
        found = found.where(t.c.at >= since, t.c.number >= first.scalar_subquery())
    rows = [(row, json.loads(row.data)) for row in at.rows(found.order_by(t.c.number.desc()).limit(limit))]
    return [
        answers.InteractionRow(
            id=row.id, at=row.at, session=row.session, session_from=data["session_from"], user=row.user,
            status=data["status"], question=data["question"], answer=data["answer"], version=row.version,
        )
        for row, data in rows
    ]  # fmt: skip
