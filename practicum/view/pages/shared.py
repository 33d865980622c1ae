"""What several pages read: versions of a space, corrections as rows, and the turning of lists."""

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
    """A version of the space. What a service has in memory is not read. Raises HTTPException if there is none."""
    space = visit.space
    if not isinstance(space, StoredSpace) and version == space.live:
        return space.context(version)
    found = await visit.subject("the versions", version_or_none, visit, version)
    if found is None:
        raise HTTPException(404)
    return found


async def context_part(visit: Visit, version: int) -> Context | None:
    """The same for a part of a page; None if it cannot be read, which the page says."""
    space = visit.space
    if not isinstance(space, StoredSpace) and version == space.live:
        return space.context(version)
    return await visit.part("the versions", version_or_none, visit, version)


def version_or_none(visit: Visit, version: int) -> Context | None:
    """A version of the space; None if it is gone, such as by `forget`. It is called in a thread."""
    space, parents = visit.space, read_parents(visit.space.store)
    if not parents and version == 0:
        return Context()
    if version not in parents:
        return None
    return space.context(version) if isinstance(space, StoredSpace) else read_context(space.store, version)


def correction_row(one: Correction, state: str = "") -> dict[str, Any]:
    """A correction or a note as a page shows it."""
    return {**asdict(one), "id": one.id, "state": state}


def turning(before: tuple[str, str] | None, after: tuple[str, str] | None) -> dict[str, Any]:
    """The links to the pages before and after, each a text and an address."""
    return {"before": before, "after": after}


def pages_of(total: int, size: int) -> int:
    """The number of pages of a list."""
    return -(-total // size) or 1


def neighbours(numbers: Sequence[int], number: int) -> tuple[int | None, int | None]:
    """The numbers before and after one."""
    at = numbers.index(number)
    return (numbers[at - 1] if at else None), (numbers[at + 1] if at + 1 < len(numbers) else None)
