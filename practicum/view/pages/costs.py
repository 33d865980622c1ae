"""Page of costs: the costs of requests over time and by model, and the costs of learning by role."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from practicum.core.types import Usage
from practicum.view.charts import MODELS, cost_charts
from practicum.view.pages.overview import price_of
from practicum.view.read import sums
from practicum.view.visit import Visit

MONTH = 30
"""Number of last days that the page shows by default."""


async def costs(visit: Visit) -> Response:
    """Show cost, latency and share of cached input over time by model, and the cost of learning."""
    days = visit.number("days")
    days = days if days in sums.RANGES else MONTH

    def read() -> dict[str, Any]:
        course = sums.course(visit.space.store, days, price_of(visit))
        by_role = visit.story.journal.by_role()
        return {
            "course": course, "charts": cost_charts(course), "usage": sum(by_role.values(), Usage()),
            "roles": sorted(by_role.items(), key=lambda role: -role[1].tokens),
        }  # fmt: skip

    return await visit.page(
        "costs.html", here="Costs", days=days, ranges=[*sums.RANGES], most_models=MODELS, **await visit.run(read)
    )
