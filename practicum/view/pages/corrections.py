"""Page of corrections and notes, by state."""

from __future__ import annotations

from starlette.responses import Response

from practicum.session.correcting import STATES, listed
from practicum.view.pages.shared import correction_row
from practicum.view.visit import Visit

ROWS = 50
"""Number of corrections and notes per page."""


async def corrections(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """Show the corrections and notes in a state."""
    space, before = visit.space, visit.number("before")
    state = visit.query_param("state") if visit.query_param("state") in STATES else STATES[0]
    if visit.acts:
        await visit.actions.follow(space)
    page, total = await visit.run(lambda: listed(space.store, space.corrections, state, before, ROWS, newest=True))
    rows = [correction_row(one, state) for one in page]
    return await visit.page(
        "corrections.html", status, here="Corrections", rows=rows, total=total, state=state, states=STATES,
        more=rows[-1]["number"] if len(rows) == ROWS else None, before=before, failed=failed, form=visit.form,
        question=space.question,
    )  # fmt: skip
