"""Pages of versions: the list, the playbook of one version, and the changes between two versions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func
from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.views import render_full
from practicum.store import schema
from practicum.store.changes import changes
from practicum.store.dialects import array_length
from practicum.store.names import read_every_name
from practicum.store.versions import read_parents
from practicum.view.pages.entries import page_of_entries
from practicum.view.pages.shared import context_of, pages_of, turning
from practicum.view.read import sums
from practicum.view.visit import Visit

ROWS = 50
"""Number of versions per page."""

CHANGES = 200
"""Maximum number of changed entries on a page."""

COUNTED = 2_000
"""Tokens are only counted for playbooks of up to this number of entries."""


async def versions(visit: Visit) -> Response:
    """Show the versions of a space, newest first."""
    rows, total = await visit.subject("the versions", _rows, visit)
    validated = await visit.part("the steps", _validated, visit, [row["version"] for row in rows]) or {}
    return await visit.page(
        "versions.html", here="Versions", rows=rows, total=total, page=visit.page_number, pages=pages_of(total, ROWS),
        validated=validated, live=visit.space.live,
    )  # fmt: skip


def _rows(visit: Visit) -> tuple[list[dict[str, Any]], int]:
    store, t = visit.space.store, schema.versions.c
    ((total,),) = store.rows(store.select(func.count(t.version)))
    columns = (t.version, t.parent, t.step, array_length(t.applied).label("edits"))
    query = store.select(*columns).order_by(t.version.desc()).offset((visit.page_number - 1) * ROWS).limit(ROWS)
    rows = store.rows(query)
    names = _names(visit)
    credits = sums.credits(store, (f"version {row.version}" for row in rows))
    state = {row["version"]: row["state"] for row in sums.rollouts(store, 200)}
    return [
        {
            **row._mapping, "names": names.get(row.version, []), "credit": credits.get(f"version {row.version}"),
            "state": state.get(row.version, ""),
        }
        for row in rows
    ], int(total)  # fmt: skip


def _validated(visit: Visit, listed: list[int]) -> dict[int, float]:
    """Return version → validation score, for the versions in `listed` that a step validated."""
    if not listed:
        return {}
    store, v = visit.space.store, schema.versions.c
    versions = store.rows(store.select(v.step).where(v.version.in_(listed), v.step > 0))
    steps = visit.story.steps_at([row.step for row in versions])
    return {step.version: step.val for step in steps if step.val is not None}


def _names(visit: Visit) -> dict[int, list[str]]:
    """Return version → names of the version, such as "prod"."""
    names = dict[int, list[str]]()
    for name, version in read_every_name(visit.space.store).items():
        names.setdefault(version, []).append(name)
    return names


async def version(visit: Visit) -> Response:
    """Show the playbook at a version."""
    number = visit.path_number("version")
    context = await context_of(visit, number)

    def read() -> dict[str, Any]:
        store, t = visit.space.store, schema.versions.c
        rows = store.rows(store.select(t.version, t.parent, t.step).where(t.version == number))
        tokens = render_full(context).tokens if len(context) <= COUNTED else None
        numbers = sorted(read_parents(store))
        return {
            "row": rows[0] if rows else None, "tokens": tokens, "names": _names(visit).get(number, []),
            "last": numbers[-1] if numbers else 0, **_around(visit, numbers, number),
        }  # fmt: skip

    values = await visit.run(read)
    listed = await page_of_entries(visit, context, number)
    return await visit.page(
        "version.html", here="Versions", version=number, live=visit.space.live, in_all=len(context), **values, **listed
    )


def _around(visit: Visit, numbers: list[int], number: int) -> dict[str, Any]:
    """Return links to the previous and next version."""

    def link(other: int) -> tuple[str, str] | None:
        return (f"version {other}", f"{visit.url}/versions/{other}") if other in numbers else None

    return turning(link(number - 1), link(number + 1))


async def diff(visit: Visit) -> Response:
    """Show the changes from one version to another."""
    old, new = visit.number("old"), visit.number("new")
    if old is None or new is None:
        raise HTTPException(404)
    first, second = await context_of(visit, old), await context_of(visit, new)

    def read() -> dict[str, Any]:
        changed = changes(first, second)
        parents = read_parents(visit.space.store)
        t = schema.versions.c
        rows = visit.space.store.rows(visit.space.store.select(t.step).where(t.version == new, t.parent == old))
        counts = {word: sum(one.word == word for one in changed) for word in ("added", "changed", "removed")}
        return {
            "changes": changed[:CHANGES], "more": len(changed) - CHANGES, "counts": counts,
            "step": rows[0].step if rows else 0, "last": max(parents, default=0), **_steps(visit, parents, old, new),
        }  # fmt: skip

    return await visit.page("diff.html", here="Versions", old=old, new=new, **await visit.run(read))


def _steps(visit: Visit, parents: dict[int, int | None], old: int, new: int) -> dict[str, Any]:
    """Return links to the pages of the previous and the next change; no links if `old` is not the parent of `new`."""

    def link(a: int | None, b: int | None) -> tuple[str, str] | None:
        if a is None or b is None or b not in parents:
            return None
        return f"version {a} to {b}", f"{visit.url}/diff?old={a}&new={b}"

    if parents.get(new) != old:
        return turning(None, None)
    after = new + 1 if parents.get(new + 1) == new else None
    return turning(link(parents.get(old), old), link(new, after))
