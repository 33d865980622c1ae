"""What pages know of where they stand: spaces as they are shown, and what a service adds (`Actions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.errors import ErrorBody, PracticumError
from practicum.core.forms import Form
from practicum.models.prices import Pricing
from practicum.session.corrections import Correction, CorrectionsInEffect
from practicum.store.database import Store


class ShownSpace(Protocol):
    """A space as pages show it: read from its store, or at work in a service. `live` is the version that agents see,
    `waiting` the number of outcomes that can be learned from, `rollout` the version on trial."""

    name: str
    store: Store
    waiting: int
    rollout: Any

    @property
    def live(self) -> int: ...

    @property
    def corrections(self) -> CorrectionsInEffect: ...

    @property
    def newest(self) -> Context | None: ...

    def context(self, version: int) -> Context: ...

    def question(self, data: Mapping[str, Any]) -> str: ...


class Visitor(Protocol):
    """Who is signed in: the name of the key, the space that it is for ("" for all), and its roles."""

    @property
    def name(self) -> str: ...

    @property
    def space(self) -> str: ...

    def may(self, role: Any) -> bool: ...


class OperationAnswer(Protocol):
    """The answer of an operation."""

    def as_json(self) -> dict[str, Any]: ...

    def as_text(self) -> str: ...


class OperationShown(Protocol):
    """An operation as a page shows it. A field has a name, a label, a control and what it is about."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def form(self) -> type[Form]: ...

    @property
    def fields(self) -> Sequence[Any]:
        """The fields that a visitor fills in: all but the space, which is that of the page."""
        ...

    def values(self, sent: Mapping[str, str]) -> dict[str, Any]:
        """The values of a form that a browser sent. Raises UsageError for a value that belongs to no field."""
        ...


class Actions(Protocol):
    """What a service adds to the pages: who is signed in, its open spaces, and operations. Its methods raise what the
    operations of the service raise. A space and a visitor are those that it has given."""

    @property
    def required(self) -> bool:
        """Whether visitors must sign in."""
        ...

    @property
    def learning(self) -> tuple[bool, str]:
        """Whether the service learns, and what its learner does now."""
        ...

    def begin(self) -> int:
        """The number of spaces that were deleted so far: a request does not act on a space that is made later."""
        ...

    async def visitor(self, cookie: str) -> Visitor | None:
        """Who has this cookie; None if nobody who may see pages."""
        ...

    async def sign_in(self, key: str, address: str) -> str:
        """The cookie of who signs in with a key."""
        ...

    async def sign_out(self, cookie: str) -> None: ...

    def form_token(self, cookie: str) -> str: ...

    def is_form_token(self, cookie: str, token: str) -> bool: ...

    async def space(self, name: str, visitor: Any, began: int) -> ShownSpace: ...

    async def search(self, space: Any, text: str, section: str, skip: int, limit: int) -> tuple[Sequence[Entry], int]:
        """The live entries that are most similar to a text, and how many a search finds."""
        ...

    async def show_again(
        self, space: Any, interaction: Mapping[str, Any], context: Context, corrections: Sequence[Correction]
    ) -> tuple[str, bool]:
        """The text that a request was shown, made again, and whether the same entries are looked up now."""
        ...

    async def follow(self, space: Any) -> None:
        """Know the corrections that are in effect now."""
        ...

    async def perform(
        self, visitor: Visitor, space: str, began: int, operation: str, given: Mapping[str, Any]
    ) -> OperationAnswer:
        """Do an operation of the service, by its name."""
        ...

    def operations(self, visitor: Visitor | None) -> Sequence[OperationShown]:
        """The operations that the visitor may do."""
        ...

    def operation(self, visitor: Visitor | None, name: str) -> OperationShown | None:
        """An operation by its name; None if there is none. Raises Forbidden with the role or the space that the
        visitor's key lacks for it."""
        ...

    def price(self, model: str) -> Pricing: ...

    def status(self, error: PracticumError) -> tuple[int, Mapping[str, str]]:
        """The HTTP status of an error, and headers of its answer."""
        ...

    def answer(self, path: str, status: int, error: ErrorBody) -> dict[str, Any]:
        """An error as programs read it."""
        ...

    def count(self, what: str) -> None:
        """Count a page that failed or was refused."""
        ...
