"""Entries: the list with a search, and one with its history, evidence and effect."""

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
"""Entries on a page."""

LESSONS = 10
"""Lessons and interactions that an entry shows, at most: the last ones."""

ATTEMPTS = 50
"""Attempts that an entry shows, at most."""


async def entries(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """The entries that are live."""
    live = await visit.subject("the versions", lambda: visit.space.live)
    context = await context_of(visit, live)
    return await visit.page(
        "entries.html", status, here="Entries", live=live, failed=failed, wrote=visit.form,
        **await page_of_entries(visit, context, live),
    )  # fmt: skip


async def page_of_entries(visit: Visit, context: Context, version: int) -> dict[str, Any]:
    """A page of the entries of a version: of a section, or those that a search finds."""
    q, section, page = visit.asked("q", 2_000).strip(), visit.asked("section"), visit.page_number
    skip = (page - 1) * ROWS
    similar = bool(q) and visit.acts and version == visit.space.live
    if similar:
        found, total = await visit.actions.search(visit.space, q, section, skip, ROWS)
    else:
        matching = await visit.run(_matching, context, q.casefold(), section)
        found, total = matching[skip : skip + ROWS], len(matching)

    def read() -> tuple[dict[str, int], dict[str, Any]]:
        sections: dict[str, int] = {}
        for one in context:
            sections[one.section] = sections.get(one.section, 0) + 1
        return sections, sums.credits(visit.space.store, (one.id for one in found))

    sections, credits = await visit.run(read)
    return {
        "entries": found, "total": total, "sections": sections, "credits": credits, "q": q, "section": section,
        "page": page, "pages": pages_of(total, ROWS), "similar": similar,
    }  # fmt: skip


def _matching(context: Context, words: str, section: str) -> Sequence[Entry]:
    """The entries of a section that have these words, the newest first."""
    return [
        entry for entry in context
        if section in ("", entry.section) and words in f"{entry.id}\n{entry.solved}".casefold()
    ][::-1]  # fmt: skip


async def entry(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """An entry, a correction or a note: its text, its sources, and its earlier texts."""
    space, id = visit.space, visit.given("entry")
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
    gone = now is None and (not visit.gaps.sentences if corrects else context is not None)
    found = await visit.run(_entry, visit, id, live)
    wrote = visit.form.get("text")
    between = marked(now.text, wrote) if status == 409 and wrote and now is not None else None
    return await visit.page(
        "entry.html", status, here="Corrections" if corrects else "Entries", id=id, now=now, live=live, wrote=wrote,
        between=between, failed=failed, entry_section=visit.form.get("section"), corrects=corrects,
        gone=gone, **found,
    )  # fmt: skip


def _entry(visit: Visit, id: str, live: int | None) -> dict[str, Any]:
    """The history of an entry (None: it cannot be read) with its evidence and its effect. Raises HTTPException if there
    was never one."""
    store, story = visit.space.store, visit.story
    edits = story.part("the versions", lambda: (story.entries.history(id), read_parents(store)))
    history, parents = edits or ([], {})
    if not history and not visit.gaps.sentences:
        raise HTTPException(404)
    line = None if id.startswith(LETTER) or not parents or live is None else {*lineage(parents, live)}
    sources = [*dict.fromkeys(source for one in history for source in one.edit.sources)]
    lessons = [*dict.fromkeys(id for one in history for id in one.edit.lessons)]
    asked = dict.fromkeys(match[1] for source in sources if (match := INTERACTION.search(source)))
    lines = story.part("the attempts", lambda: lines_with(story, id, ATTEMPTS + 1))
    return {
        "history": [
            {"change": one, "stands": line is None or one.event.version in line,
             "parent": parents.get(one.event.version), "attempts": story.attempts_of(one.edit.sources)}
            for one in reversed(history)
        ],
        "sources": sources,
        "known": story.part("the interactions", lambda: interactions_at(store, [*asked][:LESSONS])) or {},
        "attempts": story.attempts_of(sources), "lines": lines and lines[:ATTEMPTS],
        "more": len(lines or ()) > ATTEMPTS,
        "lessons": story.part("the lessons", lambda: story.lessons_with(lessons[-LESSONS:])) or [] if lessons else [],
        "credit": sums.credits(store, [id]).get(id),
    }  # fmt: skip
