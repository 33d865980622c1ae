"""Table of operations: all requests about a space or a service, except the protocols of models.

An operation is one function with the pydantic models of its form and its answer. The HTTP routes and their OpenAPI
document, the tools for agents, the commands, the methods of the Python client and the forms of pages are generated from
the table. Each of these interfaces runs an operation by `perform`, which checks the role, the form and the space, and
limits the time of the operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Literal, TypeVar, get_type_hints

from practicum.core.errors import StoreAway, StoreError
from practicum.core.forms import Form, read_form
from practicum.serve.access import Grant, Keys, Role
from practicum.serve.answers import Answer
from practicum.serve.forms import FormField, fields_of, read_fields
from practicum.serve.service import Service

Verb = Literal["GET", "POST", "DELETE"]

MOST_BODY = 2**20
"""Largest size (bytes) of the body of an operation's request."""

PATIENCE = 20.0
"""Time limit (s) of an operation, except of operations whose time depends on the size of the data."""


@dataclass(frozen=True)
class OperationCall:
    """Caller and space of an operation. `screened`: an agent, not a person, decided to make the call, so text of the
    call that the injection filter flags waits for review."""

    service: Service
    keys: Keys
    grant: Grant
    space: str
    endings: int
    """Value of `OpenSpaces.endings` when the request arrived."""
    session: str | None = None
    user: str | None = None
    screened: bool = False


Do = Callable[[OperationCall, Any], Awaitable[Answer]]


@dataclass(frozen=True)
class Operation:
    """Operation, reached over HTTP by `verb` and `path`. `role`: role that a call needs. `status`: HTTP status of a
    successful call. `whole`: the operation concerns all spaces, so a call needs a key for all spaces. `patience`: time
    limit (s); None: no limit. `adds`: the operation only adds data, and a repeated call has no effect. `advice`: text
    for agents on when to call the operation."""

    name: str
    verb: Verb
    path: str
    role: Role
    do: Do
    form: type[Form]
    answer: type[Answer]
    status: int = 200
    whole: bool = False
    patience: float | None = PATIENCE
    adds: bool = False
    advice: str = ""
    question: str = ""
    """Question that a command asks on the terminal before the operation runs. The value of the field NAME replaces
    {NAME} in the question."""

    @property
    def label(self) -> str:
        """Name of the operation, with blanks in place of underscores."""
        return self.name.replace("_", " ")

    @property
    def fields(self) -> list[FormField]:
        """Fields of the form, without the field `space`: the page or a separate option sets the space."""
        return fields_of(self.form, but="space")

    def values(self, sent: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of the form from the texts that a browser sent. Empty texts are left out."""
        return read_fields(self.fields, sent)

    @property
    def about(self) -> str:
        """Description of the operation, in sentences: the docstring of its function."""
        return " ".join(cleandoc(self.do.__doc__ or "").split())

    @property
    def summary(self) -> str:
        """First sentence of `about`."""
        return self.about.partition(". ")[0].rstrip(".")

    def require(self, grant: Grant) -> None:
        """Raise Forbidden if the key lacks the role, or if the operation needs a key for all spaces and the key is for
        one space."""
        grant.require(self.role, f"the operation {self.name}")
        if self.whole:
            grant.require_all_spaces(f"the operation {self.name}")

    @property
    def reads(self) -> bool:
        """Whether the operation leaves the learned content of the space unchanged."""
        return self.verb == "GET" or self.role == "ask"


OPERATIONS: dict[str, Operation] = {}
"""Operations by name."""

F = TypeVar("F", bound=Form)
A = TypeVar("A", bound=Answer)


def operation(
    verb: Verb, path: str, role: Role, status: int = 200, *, whole: bool = False,
    patience: float | None = PATIENCE, adds: bool = False, advice: str = "", question: str = "",
) -> Callable[[Callable[[OperationCall, F], Awaitable[A]]], Callable[[OperationCall, F], Awaitable[A]]]:  # fmt: skip
    """Add a function to the table, under the name of the function. The docstring of the function becomes the
    description of the operation."""

    def add(do: Callable[[OperationCall, F], Awaitable[A]]) -> Callable[[OperationCall, F], Awaitable[A]]:
        types, name = get_type_hints(do), do.__name__
        form, answer = types["form"], types["return"]
        OPERATIONS[name] = Operation(
            name, verb, path, role, do, form, answer, status, whole, patience, adds, advice, question
        )
        return do

    return add


async def perform(operation: Operation, call: OperationCall, arguments: bytes | Mapping[str, Any]) -> Answer:
    """Run an operation. `arguments` are the bytes of a JSON object, or the values by field. Raise UsageError for an
    invalid form, Forbidden if the key lacks the role or is for another space, UnknownSpace if the space was deleted
    after the call arrived, and StoreError if the operation fails."""
    operation.require(call.grant)
    call.service.spaces.require_since(call.space, call.endings)
    if call.grant.identity:
        await call.service.spaces.current(call.space, call.endings, call.grant)
    form = read_form(operation.form, arguments)
    try:
        async with asyncio.timeout(operation.patience):
            return await operation.do(call, form)
    except StoreError:
        # If the space was deleted during the operation, raise UnknownSpace instead.
        call.service.spaces.require_since(call.space, call.endings)
        raise
    except TimeoutError:
        raise StoreAway(
            "service.timeout", f"the operation took more than {operation.patience:g} seconds: try again"
        ) from None
