"""Page of the alarms of a space."""

from __future__ import annotations

from starlette.responses import Response

from practicum.view.read import sums
from practicum.view.visit import Visit


async def alarms(visit: Visit) -> Response:
    """Show the alarms of a space, newest first."""
    before = visit.number("before")
    rows = await visit.run(sums.alarms, visit.space.store, before)
    return await visit.page(
        "alarms.html", here="Alarms", rows=rows, before=before,
        more=rows[-1].number if len(rows) == sums.ALARMS else None,
    )  # fmt: skip
