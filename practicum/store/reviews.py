"""The edits of a run that wait for review, and what became of those that were reviewed."""

from __future__ import annotations

import json

from practicum.core.edits import solved
from practicum.store import schema
from practicum.store.database import Store

PENDING, APPROVED, REJECTED = "pending", "approved", "rejected"
"""The states of what is to be reviewed."""

WHY = {
    PENDING: "an edit that says the same waits for review",
    REJECTED: "a review rejected an edit that says the same",
}
"""Why an edit is refused that says the same as one in this state."""


def read_known(store: Store, last_step: int | None = None) -> dict[str, str]:
    """What edits of the playbook up to a step (None: all) say that wait for review or were rejected, each with its
    state. Corrections, which may come at any time, are left out: a resume has to find the same."""
    table = schema.reviews
    mine = table.c.state.in_(WHY) & ~table.c.id.startswith("c")
    query = store.select(table.c.state, table.c.data).where(mine).order_by(table.c.id)
    rows = store.rows(query if last_step is None else query.where(table.c.step <= last_step))
    edits = ((edit, row.state) for row in rows for edit in json.loads(row.data)["edits"])
    return {solved(edit["text"], edit.get("data") or {}): state for edit, state in edits if edit.get("text")}
