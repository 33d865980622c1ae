"""Pages of the site: their URL paths and the functions that render them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response

from practicum.view.pages.alarms import alarms
from practicum.view.pages.calls import call, calls
from practicum.view.pages.comparison import comparison
from practicum.view.pages.corrections import corrections
from practicum.view.pages.costs import costs
from practicum.view.pages.entries import entries, entry
from practicum.view.pages.episode import episode
from practicum.view.pages.episodes import list_episodes
from practicum.view.pages.home import folder, home
from practicum.view.pages.operations import operation, operations
from practicum.view.pages.overview import live, overview
from practicum.view.pages.review import review
from practicum.view.pages.steps import lessons, step, steps
from practicum.view.pages.versions import diff, version, versions
from practicum.view.visit import Visit

_SPACE = "/s/{space}"

GETS: Mapping[str, Callable[[Visit], Awaitable[Response]]] = {
    "/": home, "/f/{folder}": folder, "/c/{comparison}": comparison, _SPACE: overview, f"{_SPACE}/live": live,
    f"{_SPACE}/versions": versions, f"{_SPACE}/versions/{{version}}": version, f"{_SPACE}/diff": diff,
    f"{_SPACE}/entries": entries, f"{_SPACE}/entries/{{entry}}": entry, f"{_SPACE}/episodes": list_episodes,
    f"{_SPACE}/episodes/{{episode}}": episode, f"{_SPACE}/steps": steps, f"{_SPACE}/steps/{{step}}": step,
    f"{_SPACE}/lessons": lessons, f"{_SPACE}/calls": calls, f"{_SPACE}/calls/{{call}}": call,
    f"{_SPACE}/review": review, f"{_SPACE}/corrections": corrections, f"{_SPACE}/costs": costs,
    f"{_SPACE}/alarms": alarms, f"{_SPACE}/operations": operations,
    f"{_SPACE}/operations/{{operation}}": operation,
}  # fmt: skip
"""URL path of a page → the function that renders it."""
