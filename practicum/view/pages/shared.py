"""Helpers of several pages: versions of a space, rows of corrections, and links to neighbouring pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException

from practicum.core.context import Context
from practicum.session.corrections import Correction
from practicum.store.snapshot import read_context
from practicum.store.versions import read_parents
from practicum.view.stored import StoredSpace
from practicum.view.visit import Visit


async def context_of(visit: Visit, version: int) -> Context:
    """Return the context at a version; for the live version of a service, the context in memory. Raises HTTPException
    (404) if the version does not exist."""
    space = visit.space
    if not isinstance(space, StoredSpace) and version == space.live:
        return space.context(version)
    context = await visit.subject("the versions", version_or_none, visit, version)
    if context is None:
        raise HTTPException(404)
    return context


async def context_part(visit: Visit, version: int) -> Context | None:
    """Return the context at a version for a part of a page; None if the version was removed or the context cannot be
    read. If the context cannot be read, the page lists "the versions" among the unreadable parts."""
    space = visit.space
    if not isinstance(space, StoredSpace) and version == space.live:
        return space.context(version)
    return await visit.part("the versions", version_or_none, visit, version)


def version_or_none(visit: Visit, version: int) -> Context | None:
    """Read the context at a version; None if the version was removed, for example by `forget`. Reads the
    store, so call this function in a worker thread."""
    space, parents = visit.space, read_parents(visit.space.store)
    if not parents and version == 0:
        return Context()
    if version not in parents:
        return None
    return space.context(version) if isinstance(space, StoredSpace) else read_context(space.store, version)


def correction_row(one: Correction, state: str = "") -> dict[str, Any]:
    """Return the template values of a correction or a note."""
    return {**asdict(one), "id": one.id, "state": state}


def turning(before: tuple[str, str] | None, after: tuple[str, str] | None) -> dict[str, Any]:
    """Return the template values of links to the previous and next page, each a text and a URL."""
    return {"before": before, "after": after}


def pages_of(total: int, size: int) -> int:
    """Return the number of pages of a list with `total` items, `size` per page."""
    return -(-total // size) or 1


def neighbours(numbers: Sequence[int], number: int) -> tuple[int | None, int | None]:
    """Return the numbers before and after `number` in `numbers`; None at the ends."""
    at = numbers.index(number)
    return (numbers[at - 1] if at else None), (numbers[at + 1] if at + 1 < len(numbers) else None)
