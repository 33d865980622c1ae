"""Protocols that pages depend on: a space, a visitor, and the operations of a service (`Actions`)."""

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
    """A space that pages show: read from its store, or open in a service.

    `live` is the version that agents see. `waiting` is the number of outcomes that learning has not used yet. `rollout`
    is the trial of a version (None: no version is on trial). `newest` is the context at the newest version (None: this
    context is not in memory)."""

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
    """A visitor who signed in with a key: the name of the key, the space that the key is for ("": all spaces), and the
    roles of the key."""

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
    """An operation that a page shows as a form. Each field has a name, a label, a control and a description."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def form(self) -> type[Form]: ...

    @property
    def fields(self) -> Sequence[Any]:
        """Fields that the visitor fills in. The space is left out: the page sets it."""
        ...

    def values(self, sent: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of a submitted form. Raises UsageError for a value without a field."""
        ...


class Actions(Protocol):
    """Functions of a service that pages call: sign-in, open spaces, and operations.

    The methods raise the errors of the service's operations. Spaces and visitors passed to a method are objects that
    the methods `space` and `visitor` returned."""

    @property
    def required(self) -> bool:
        """Whether visitors must sign in."""
        ...

    @property
    def learning(self) -> tuple[bool, str]:
        """Whether the service learns, and the state of its learner."""
        ...

    def begin(self) -> int:
        """Return the number of spaces deleted so far.

        A request passes this number to `space` and `perform` as `began`. If the space in the request is deleted
        after `begin`, the request does not act on a new space with the same name."""
        ...

    async def visitor(self, cookie: str) -> Visitor | None:
        """Return the visitor of a session cookie; None if the cookie gives no access to pages."""
        ...

    async def sign_in(self, key: str, address: str) -> str:
        """Sign in with a key. Returns the session cookie."""
        ...

    async def sign_out(self, cookie: str) -> None: ...

    def form_token(self, cookie: str) -> str: ...

    def is_form_token(self, cookie: str, token: str) -> bool: ...

    async def space(self, name: str, visitor: Any, began: int) -> ShownSpace: ...

    async def search(self, space: Any, text: str, section: str, skip: int, limit: int) -> tuple[Sequence[Entry], int]:
        """Search the live version for entries in `section` ("": all sections) that are similar to `text`. Return up to
        `limit` entries, the most similar first, without the first `skip` entries. Also returns the number of all
        matches."""
        ...

    async def show_again(
        self, space: Any, interaction: Mapping[str, Any], context: Context, corrections: Sequence[Correction]
    ) -> tuple[str, bool]:
        """Rebuild the text that the model saw in a past interaction. `context` and `corrections`: the context and the
        corrections of that interaction. Also returns whether the text has the entries and the corrections that the
        model saw."""
        ...

    async def follow(self, space: Any) -> None:
        """Reload the corrections that are in effect in a space."""
        ...

    async def perform(
        self, visitor: Visitor, space: str, began: int, operation: str, arguments: Mapping[str, Any]
    ) -> OperationAnswer:
        """Run an operation of the service, by its name."""
        ...

    def operations(self, visitor: Visitor | None) -> Sequence[OperationShown]:
        """Return the operations that the visitor may run."""
        ...

    def operation(self, visitor: Visitor | None, name: str) -> OperationShown | None:
        """Return the operation with this name; None if it does not exist. Raises Forbidden if the visitor may not run
        the operation: the error names the role or the space that the visitor's key lacks."""
        ...

    def price(self, model: str) -> Pricing: ...

    def status(self, error: PracticumError) -> tuple[int, Mapping[str, str]]:
        """Return the HTTP status and the response headers of an error."""
        ...

    def answer(self, path: str, status: int, error: ErrorBody) -> dict[str, Any]:
        """Return the JSON body of an error response."""
        ...

    def count(self, counter: str) -> None:
        """Increment a counter of failed or refused pages."""
        ...
