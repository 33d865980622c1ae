"""Edits of a run that wait for review, and decisions on reviewed edits."""

from __future__ import annotations

import json

from practicum.core.edits import solved
from practicum.store import schema
from practicum.store.database import Store

PENDING, APPROVED, REJECTED = "pending", "approved", "rejected"
"""States of a review."""

WHY = {
    PENDING: "an equal edit already waits for review",
    REJECTED: "a review rejected an equal edit",
}
"""State of an earlier edit → reason for refusing a new edit that is equal to it."""


def read_reviewed(store: Store, last_step: int | None = None) -> dict[str, str]:
    """Return the texts of playbook edits that wait for review or were rejected, each with its state. Only edits of
    steps up to `last_step` are included (None: all steps). Corrections are excluded: they may be added at any time, but
    a resumed run must get the same result as the run before the interruption."""
    table = schema.reviews
    condition = table.c.state.in_(WHY) & ~table.c.id.startswith("c")
    query = store.select(table.c.state, table.c.data).where(condition).order_by(table.c.id)
    rows = store.rows(query if last_step is None else query.where(table.c.step <= last_step))
    edits = ((edit, row.state) for row in rows for edit in json.loads(row.data)["edits"])
    return {solved(edit["text"], edit.get("data") or {}): state for edit, state in edits if edit.get("text")}
