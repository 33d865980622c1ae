"""Page of a space: scores, outcomes, learning curve, pending reviews, costs, and the version on trial."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from practicum.core.counts import counted
from practicum.core.types import Usage
from practicum.models.prices import Pricing
from practicum.view.charts import learning_curve, outcomes_chart, version_marks
from practicum.view.library import shown_state
from practicum.view.pages.shared import context_part
from practicum.view.read import scores, sums
from practicum.view.visit import Visit

WEEK = 7
"""Number of last days that the page shows by default."""

STEPS = 20
"""Number of last steps on the overview."""


async def overview(visit: Visit) -> Response:
    """Show the overview of a space."""
    return await _overview(visit, "overview.html")


async def live(visit: Visit) -> Response:
    """Render the part of the overview that an open page reloads every few seconds."""
    return await _overview(visit, "live.html")


def price_of(visit: Visit) -> Any:
    """Return a function from the name of a model to the prices of the model. Without a service, all prices are unknown
    (None)."""

    def unknown(model: str) -> Pricing:
        def price(usage: Usage) -> float | None:
            return None

        return price

    return visit.actions.price if visit.acts else unknown


async def _overview(visit: Visit, template: str) -> Response:
    space = visit.space
    days = visit.number("days")
    days = days if days in sums.RANGES else WEEK
    served = await visit.part("the requests", _served, visit, days, template == "live.html")
    values: dict[str, Any] = {"served": served}
    if template != "live.html":
        values["learned"] = await visit.part("the learning", _learned, visit)
    state = await _state(visit)
    learns, learning = visit.actions.learning if visit.acts else (False, "off")
    return await visit.page(
        template, here="Overview", days=days, ranges=[*sums.RANGES], canary=_canary(space.rollout),
        learning=learning, learns=learns, waiting=space.waiting, **state, **values,
    )  # fmt: skip


async def _state(visit: Visit) -> dict[str, Any]:
    """Return the live version, the number of its entries, and the number of corrections; None for a value that cannot
    be read."""
    space = visit.space
    live = await visit.part("the versions", lambda: space.live)
    context = None if live is None else await context_part(visit, live)
    return {
        "live": live, "entries": None if context is None else len(context),
        "corrections": await visit.part("the corrections", lambda: len(space.corrections)),
    }  # fmt: skip


def _served(visit: Visit, days: int, brief: bool) -> dict[str, Any]:
    """Return the template values about the requests of the last `days` days: sums, latencies, rollouts, alarms and the
    chart. `brief`: only the sums and the latencies."""
    store = visit.space.store
    course = sums.course(store, days, price_of(visit))
    values = {"course": course, "latencies": sums.latencies(store)}
    if brief:
        return values
    rollouts, alarms = sums.rollouts(store), sums.alarms(store, None)
    marks = version_marks(course, rollouts, alarms, sums.first_shown(store))
    chart = outcomes_chart(course, marks) if course.models or visit.acts else None
    return {**values, "rollouts": rollouts, "alarms": alarms[:5], "chart": chart}


def _learned(visit: Visit) -> dict[str, Any]:
    """Return the scores, counters, learning curve, settings and costs of learning in the space."""
    story = visit.story
    info, steps = story.info, story.part("the steps", story.steps) or []
    return {
        "info": info, "run": story.config, "counts": counted(info.counts),
        "state": shown_state(story.store.database, story.store.space, info.state),
        "scores": {name: scores.score_interval(story, name) for name in info.scores},
        "refused": sum(step.refused for step in steps), "curve": learning_curve(steps, info.scores),
        "steps": steps[-STEPS:], "in_all": len(steps),
        "roles": sorted(info.by_role.items(), key=lambda role: -role[1].tokens),
    }  # fmt: skip


def _canary(rollout: Any) -> dict[str, Any] | None:
    """Return the version on trial, with the evidence about it; None if no version is on trial."""
    if rollout is None:
        return None
    both = rollout.test.all
    better = both.better
    return {
        "number": rollout.number, "version": rollout.version, "base": rollout.base, "share": rollout.share,
        "length": rollout.length, "began": rollout.began, "gate": rollout.gate,
        "canary": both.canary, "live": both.live, "worse": (both.worse.wealth, both.worse.goal),
        "better": None if better is None else (better.wealth, better.goal),
        "kinds": [kind for kind in rollout.test.kinds if kind.canary.count or kind.live.count],
    }  # fmt: skip
