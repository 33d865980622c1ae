"""What an agent reports besides its answer: the entries it used and, if its view asks for it, entries it doubted and
guidance it missed (an annotated view), or a note for a later attempt (a noting view). Defines the fields and reads
them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from practicum.core.bounded import EntryId, MaxChars, MaxItems, Output
from practicum.core.views import View


class Doubt(Output):
    """An entry the agent was not sure about."""

    id: EntryId
    why: Annotated[str, MaxChars(120)]


CITING: dict[str, Any] = {
    "used": (Annotated[list[EntryId], MaxItems(3)], Field(description="ids of the entries that apply, best first")),
}
"""Fields of an answer to a view whose entries can be cited."""

ANNOTATING: dict[str, Any] = {
    "doubts": (Annotated[list[Doubt], MaxItems(3)], Field(description="entries you were not sure about")),
    "missing": (Annotated[str, MaxChars(160)], Field(description="guidance that was missing; empty if none")),
}
"""Fields of an answer to an annotated view."""

NOTING: dict[str, Any] = {
    "note": (Annotated[str, MaxChars(200)], Field(description="what you checked and found, to go on from")),
}
"""Fields of an answer to a noting view."""


def read_citations(ids: Iterable[str], view: View) -> dict[str, Any]:
    """The fields of a trace about cited entries: the ids that the view has, and the number of the others."""
    distinct = dict.fromkeys(ids)
    used = tuple(id for id in distinct if id in view.ids)
    return {"used": used, "unknown": len(distinct) - len(used)}


def read_annotations(answer: Any, view: View) -> dict[str, Any]:
    """The values for the trace's data: doubts by the id of a shown entry, what was missing, the note. Each field of
    the answer is read only if the view asks for it."""
    data: dict[str, Any] = {}
    if view.annotated:
        data["doubts"] = {doubt.id: doubt.why for doubt in answer.doubts if doubt.id in view.ids}
        data["missing"] = answer.missing.strip()
    if view.noting:
        data["note"] = answer.note
    return data
