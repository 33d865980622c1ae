"""What an agent reports besides its answer, if its view asks for it: entries it doubted and guidance it missed (an
annotated view), or a note for a later attempt (a noting view). Defines the fields and reads them back."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from practicum.core.bounded import EntryId, MaxChars, MaxItems, Output
from practicum.core.views import View


class Doubt(Output):
    """An entry the agent was not sure about."""

    id: EntryId
    why: Annotated[str, MaxChars(120)]


ANNOTATING: dict[str, Any] = {
    "doubts": (Annotated[list[Doubt], MaxItems(3)], Field(description="entries you were not sure about")),
    "missing": (Annotated[str, MaxChars(160)], Field(description="guidance that was missing; empty if none")),
}
"""Fields of an answer to an annotated view."""

NOTING: dict[str, Any] = {
    "note": (Annotated[str, MaxChars(200)], Field(description="what you checked and found, to go on from")),
}
"""Fields of an answer to a noting view."""


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
