"""Pages of entries: the list with its search, and one entry with its history, evidence and effect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.session.corrections import LETTER
from practicum.store.changes import marked
from practicum.store.versions import lineage, read_parents
from practicum.view.kit import INTERACTION
from practicum.view.pages.shared import context_of, context_part, pages_of
from practicum.view.read import sums
from practicum.view.read.episodes import interactions_at, lines_with
from practicum.view.visit import Visit

ROWS = 50
"""Number of entries per page."""

LESSONS = 10
"""Maximum number of lessons and of interactions on the page of an entry."""

ATTEMPTS = 50
"""Maximum number of attempts on the page of an entry."""


async def entries(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """Show the entries of the live version."""
    live = await visit.subject("the versions", lambda: visit.space.live)
    context = await context_of(visit, live)
    return await visit.page(
        "entries.html", status, here="Entries", live=live, failed=failed, form=visit.form,
        **await page_of_entries(visit, context, live),
    )  # fmt: skip


async def page_of_entries(visit: Visit, context: Context, version: int) -> dict[str, Any]:
    """Return the template values of a page of the entries of a version, filtered by section and search."""
    q, section, page = visit.query_param("q", 2_000).strip(), visit.query_param("section"), visit.page_number
    skip = (page - 1) * ROWS
    similar = bool(q) and visit.acts and version == visit.space.live
    if similar:
        matches, total = await visit.actions.search(visit.space, q, section, skip, ROWS)
    else:
        all_matches = await visit.run(_matching, context, q.casefold(), section)
        matches, total = all_matches[skip : skip + ROWS], len(all_matches)

    def read() -> tuple[dict[str, int], dict[str, Any]]:
        sections: dict[str, int] = {}
        for one in context:
            sections[one.section] = sections.get(one.section, 0) + 1
        return sections, sums.credits(visit.space.store, (one.id for one in matches))

    sections, credits = await visit.run(read)
    return {
        "entries": matches, "total": total, "sections": sections, "credits": credits, "q": q, "section": section,
        "page": page, "pages": pages_of(total, ROWS), "similar": similar,
    }  # fmt: skip


def _matching(context: Context, words: str, section: str) -> Sequence[Entry]:
    """Return the entries of a section ("": all) that contain a casefolded text, newest first."""
    return [
        entry for entry in context
        if section in ("", entry.section) and words in f"{entry.id}\n{entry.solved}".casefold()
    ][::-1]  # fmt: skip


async def entry(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """Show an entry, a correction or a note, with its sources and its earlier texts."""
    space, id = visit.space, visit.path_param("entry")
    if not re.fullmatch(r"[ce][0-9]{1,12}", id):
        raise HTTPException(404)
    corrects = id.startswith(LETTER)
    live = await visit.part("the versions", lambda: space.live)
    if corrects:
        now = await visit.part("the corrections", lambda: space.corrections.entry(id))
        context = None
    else:
        context = None if live is None else await context_part(visit, live)
        now = None if context is None else context.get(id)
    removed = now is None and (not visit.gaps.sentences if corrects else context is not None)
    details = await visit.run(_entry, visit, id, live)
    draft = visit.form.get("text")
    between = marked(now.text, draft) if status == 409 and draft and now is not None else None
    return await visit.page(
        "entry.html", status, here="Corrections" if corrects else "Entries", id=id, now=now, live=live, draft=draft,
        between=between, failed=failed, entry_section=visit.form.get("section"), corrects=corrects,
        removed=removed, **details,
    )  # fmt: skip


def _entry(visit: Visit, id: str, live: int | None) -> dict[str, Any]:
    """Return the template values of the history, evidence and effect of an entry. Raises HTTPException (404) if the
    space never had an entry with this id."""
    store, story = visit.space.store, visit.story
    edits = story.part("the versions", lambda: (story.entries.history(id), read_parents(store)))
    history, parents = edits or ([], {})
    if not history and not visit.gaps.sentences:
        raise HTTPException(404)
    line = None if id.startswith(LETTER) or not parents or live is None else {*lineage(parents, live)}
    sources = [*dict.fromkeys(source for one in history for source in one.edit.sources)]
    lessons = [*dict.fromkeys(id for one in history for id in one.edit.lessons)]
    interactions = dict.fromkeys(match[1] for source in sources if (match := INTERACTION.search(source)))
    lines = story.part("the attempts", lambda: lines_with(story, id, ATTEMPTS + 1))
    return {
        "history": [
            {"change": one, "in_live": line is None or one.event.version in line,
             "parent": parents.get(one.event.version), "attempts": story.attempts_of(one.edit.sources)}
            for one in reversed(history)
        ],
        "sources": sources,
        "interactions": story.part("the interactions", lambda: interactions_at(store, [*interactions][:LESSONS])) or {},
        "attempts": story.attempts_of(sources), "lines": lines and lines[:ATTEMPTS],
        "more": len(lines or ()) > ATTEMPTS,
        "lessons": story.part("the lessons", lambda: story.lessons_with(lessons[-LESSONS:])) or [] if lessons else [],
        "credit": sums.credits(store, [id]).get(id),
    }  # fmt: skip
