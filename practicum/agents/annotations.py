"""What an agent tells beside its answer where its view asks for that: entries it doubted and guidance it missed
(an annotated view), and a note to go on from (a noting one). Fields to ask a model for it, and reading it back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Protocol

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


class _Doubted(Protocol):
    id: str
    why: str


class Remarking(Protocol):
    """An answer; each field is read only where the view asks for it."""

    @property
    def doubts(self) -> Iterable[_Doubted]: ...

    @property
    def missing(self) -> str: ...

    @property
    def note(self) -> str: ...


def remarks(answer: Remarking, view: View) -> dict[str, Any]:
    """What goes into the trace's data: doubts by the id of a shown entry, what was missing, the note."""
    told: dict[str, Any] = {}
    if view.annotated:
        told["doubts"] = {doubt.id: doubt.why for doubt in answer.doubts if doubt.id in view.ids}
        told["missing"] = answer.missing.strip()
    return {**told, "note": answer.note} if view.noting else told
