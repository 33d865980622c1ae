"""Corrections and notes, by their state."""

from __future__ import annotations

from starlette.responses import Response

from practicum.session.correcting import STATES, listed
from practicum.view.pages.shared import correction_row
from practicum.view.visit import Visit

ROWS = 50
"""Corrections and notes on a page."""


async def corrections(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """The corrections and notes in a state."""
    space, before = visit.space, visit.number("before")
    state = visit.asked("state") if visit.asked("state") in STATES else STATES[0]
    if visit.acts:
        await visit.actions.follow(space)
    some, total = await visit.run(lambda: listed(space.store, space.corrections, state, before, ROWS, newest=True))
    rows = [correction_row(one, state) for one in some]
    return await visit.page(
        "corrections.html", status, here="Corrections", rows=rows, total=total, state=state, states=STATES,
        more=rows[-1]["number"] if len(rows) == ROWS else None, before=before, failed=failed, wrote=visit.form,
        asked=space.question,
    )  # fmt: skip
