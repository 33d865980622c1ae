"""Page of one episode: an interaction of the service, or an attempt at a task."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.errors import UsageError
from practicum.core.thoughts import SILENCES
from practicum.core.types import Usage
from practicum.session.correcting import corrections_of, with_numbers
from practicum.view.kit import INTERACTION
from practicum.view.names import slug, unslug
from practicum.view.pages.attempt import attempt_values
from practicum.view.pages.overview import price_of
from practicum.view.pages.shared import correction_row, turning, version_or_none
from practicum.view.read.episodes import interaction, reported
from practicum.view.read.parts import AttemptStory
from practicum.view.visit import Visit


async def episode(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """Show an interaction or an attempt."""
    id = visit.path_param("episode")
    if INTERACTION.fullmatch(id):
        return await _interaction(visit, id, failed, status)
    return await visit.page("attempt.html", here="Episodes", **await visit.subject("the attempts", _attempt, visit, id))


def _attempt(visit: Visit, name: str) -> dict[str, Any]:
    id = unslug(name)
    if id is None:
        # A name that was shortened to a hash: compare it with the names of all attempts.
        id = next((line.id for line in visit.story.attempts() if slug(line.id) == name), None)
    if id is None:
        raise HTTPException(404)
    story = visit.story
    try:
        attempt = story.attempt(id)
    except UsageError:
        raise HTTPException(404) from None
    return {**attempt_values(story, attempt), **_around(visit, attempt)}


def _around(visit: Visit, attempt: AttemptStory) -> dict[str, Any]:
    """Return links to the previous and next attempt of the same step."""
    line = attempt.line
    if line.step is None:
        return turning(None, None)
    ids = [other.id for other in visit.story.attempts(step=line.step)]
    at = ids.index(line.id)

    def link(at: int) -> tuple[str, str] | None:
        return (ids[at], f"{visit.url}/episodes/{slug(ids[at])}") if 0 <= at < len(ids) else None

    return turning(link(at - 1), link(at + 1))


async def _interaction(visit: Visit, id: str, failed: str, status: int) -> Response:
    space = visit.space
    data = await visit.run(interaction, space.store, id)
    if data is None:
        raise HTTPException(404)

    def read() -> tuple[Any, Any, Context | None, float | None]:
        shown = with_numbers(space.store, space.corrections, data["corrections"])
        corrections = [
            correction_row(each, state) for state, each in corrections_of(space.store, space.corrections, id)
        ]
        read_in, cached, output, written = data["tokens"]
        price = price_of(visit)(data["model"])
        usage = Usage(1, read_in, cached, output, cache_write_tokens=written)
        cost = price(usage) if read_in or output else None
        live = data["version"] == space.live
        return shown, corrections, None if live and visit.acts else version_or_none(visit, data["version"]), cost

    shown, corrections, context, cost = await visit.run(read)
    if context is None and data["version"] == space.live:
        context = space.context(space.live)
    rebuilt, unchanged = "", False
    if context is not None and visit.acts:
        rebuilt, unchanged = await visit.actions.show_again(space, data, context, [each for _, each in shown])
    entries: list[tuple[str, float, Entry | None]] = [
        (entry_id, similarity, context.get(entry_id) if context else None) for entry_id, similarity in data["entries"]
    ]
    reports = [(report, reported(report)) for report in (data["outcome"] or {"reports": []})["reports"]]
    return await visit.page(
        "interaction.html", status, here="Episodes", interaction=data, entries=entries, corrections=corrections,
        shown=[correction_row(each, state) for state, each in shown], rebuilt=rebuilt, unchanged=unchanged, cost=cost,
        removed=context is None, failed=failed, form=visit.form, thoughts=data.get("thoughts", ""),
        silence=SILENCES.get(data.get("silence", ""), "").partition(";")[0], question=space.question, reports=reports,
    )  # fmt: skip
