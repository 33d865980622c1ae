"""Pages of the steps of learning: the list, one step, and the lessons of all steps."""

from __future__ import annotations

from itertools import islice
from typing import Any

from sqlalchemy import func
from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.edits import Applied
from practicum.session.records import REFUSED
from practicum.store import schema
from practicum.store.changes import EntryChange, changes
from practicum.store.database import Store
from practicum.store.versions import EntryEvent, read_edits
from practicum.view.pages.shared import pages_of, turning
from practicum.view.read.parts import LessonStory
from practicum.view.visit import Visit

ROWS = 100
"""Number of steps per page."""

CARDS = 50
"""Number of lessons per page."""


async def steps(visit: Visit) -> Response:
    """Show the steps of learning, newest first."""

    def read() -> tuple[Any, int]:
        store, t = visit.space.store, schema.steps.c
        ((total,),) = store.rows(store.select(func.count(t.step)))
        query = store.select(t.step).order_by(t.step.desc()).offset((visit.page_number - 1) * ROWS).limit(ROWS)
        return visit.story.steps_at([row.step for row in store.rows(query)]), int(total)

    rows, total = await visit.subject("the steps", read)
    return await visit.page(
        "steps.html", here="Steps", steps=rows, total=total, page=visit.page_number, pages=pages_of(total, ROWS)
    )


async def step(visit: Visit) -> Response:
    """Show one step: its attempts, its lessons and their fates, its edits, and its calls."""
    values = await visit.subject("the steps", _step, visit, visit.path_number("step"))
    return await visit.page("step.html", here="Steps", **values)


def _step(visit: Visit, number: int) -> dict[str, Any]:
    story, store = visit.story, visit.space.store
    steps = story.steps_at([number])
    if not steps:
        raise HTTPException(404)
    (one,) = steps
    part = story.part

    def edited() -> tuple[int | None, list[EntryChange], list[Applied], list[EntryEvent]]:
        """Return the parent of the version that the step created, and the changes, votes and merges of the step."""
        t = schema.versions.c
        versions = store.rows(store.select(t.parent).where(t.version == one.version, t.step == number))
        parent = versions[0].parent if versions else None
        changed = [] if parent is None else changes(story.context(parent), story.context(one.version))
        votes = [done for done in _applied(store, number) if done.edit.op == "vote"]
        return parent, changed, votes, list(story.merges(number))

    parent, changed, votes, merges = part("the versions", edited) or (None, None, [], [])
    rows = store.rows(store.select(schema.steps.c.refused).where(schema.steps.c.step == number))
    return {
        "step": one, "lines": part("the attempts", lambda: list(story.attempts(step=number))),
        "lessons": part("the lessons", lambda: list(story.lessons(number))),
        "changes": changed, "votes": votes, "merges": merges, "parent": parent,
        "refused": [edit for row in rows for edit in REFUSED.validate_json(row.refused)],
        "calls": part("the calls", lambda: list(story.calls(number))), **_around(visit, number),
    }  # fmt: skip


def _applied(store: Store, step: int) -> list[Applied]:
    """Return the edits that a step applied."""
    v = schema.versions.c
    versions = store.rows(store.select(v.version).where(v.step == step, v.parent.is_not(None)).order_by(v.version))
    return [done for row in versions for done in read_edits(store, row.version)]


def _around(visit: Visit, number: int) -> dict[str, Any]:
    store, t = visit.space.store, schema.steps.c
    before = store.rows(store.select(func.max(t.step)).where(t.step < number))[0][0]
    after = store.rows(store.select(func.min(t.step)).where(t.step > number))[0][0]

    def link(step: int | None) -> tuple[str, str] | None:
        return None if step is None else (f"step {step}", f"{visit.url}/steps/{step}")

    return turning(link(before), link(after))


async def lessons(visit: Visit) -> Response:
    """Show the lessons of all steps, in order."""

    def read() -> tuple[list[LessonStory], int]:
        store = visit.space.store
        ((total,),) = store.rows(store.select(func.count(schema.lessons.c.step)))
        return _lessons_from(visit, (visit.page_number - 1) * CARDS) if total else [], int(total)

    rows, total = await visit.subject("the lessons", read)
    return await visit.page(
        "lessons.html", here="Lessons", lessons=rows, total=total, page=visit.page_number, pages=pages_of(total, CARDS)
    )


def _lessons_from(visit: Visit, first: int) -> list[LessonStory]:
    """Return a page of lessons, starting at the index `first` (from 0). Steps before the first
    lesson of the page are not read."""
    store, t, rows = visit.space.store, schema.lessons.c, list[LessonStory]()
    numbers = store.select(t.step, func.count()).group_by(t.step).order_by(t.step)
    for step, number in store.rows(numbers):
        if first >= number:
            first -= number
            continue
        rows += islice(visit.story.lessons(step), first, first + CARDS - len(rows))
        first = 0
        if len(rows) == CARDS:
            break
    return rows
