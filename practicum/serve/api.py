"""The table of operations: what can be asked of a space, or of a service, beside the protocols of models.

An operation is one function with the models of its form and of its answer. The HTTP routes and their OpenAPI document,
the tools for agents, the commands, the methods of the Python client and the forms of pages are made from the table.
Every face calls `perform`, which checks the role, the form, the space and the time.
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
"""Bytes of the largest body of an operation."""

PATIENCE = 20.0
"""Seconds that an operation may take, unless it takes as long as there is data."""


@dataclass(frozen=True)
class Asked:
    """Who asks for an operation, and where. `screened`: an agent speaks for itself, so what the filter flags in its
    words waits for review."""

    service: Service
    keys: Keys
    grant: Grant
    space: str
    endings: int
    """`OpenSpaces.endings` when the request came."""
    session: str | None = None
    user: str | None = None
    screened: bool = False


Do = Callable[[Asked, Any], Awaitable[Answer]]


@dataclass(frozen=True)
class Operation:
    """An operation. `whole`: it concerns all spaces, so the key must be for all. `patience` is the most seconds that it
    may take; without, it takes as long as there is data. `adds`: it replaces nothing, and does no more when it is
    repeated. `advice` tells an agent when to call it."""

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
    """What a terminal asks before it is done; {name} is the value of a field."""

    @property
    def label(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")

    @property
    def fields(self) -> list[FormField]:
        """The fields of its form. Its space is that of the page, or an option of its own."""
        return fields_of(self.form, but="space")

    def values(self, sent: Mapping[str, str]) -> dict[str, Any]:
        """The values that a browser sent, as texts; empty ones are left out."""
        return read_fields(self.fields, sent)

    @property
    def about(self) -> str:
        """What it does, in sentences."""
        return " ".join(cleandoc(self.do.__doc__ or "").split())

    @property
    def summary(self) -> str:
        """The first sentence of `about`."""
        return self.about.partition(". ")[0].rstrip(".")

    def require(self, grant: Grant) -> None:
        """Raises Forbidden with the role, or with the space, that a key lacks for it."""
        grant.require(self.role, f"the operation {self.name}")
        if self.whole:
            grant.require_all_spaces(f"the operation {self.name}")

    @property
    def reads(self) -> bool:
        """Whether it changes nothing that is learned."""
        return self.verb == "GET" or self.role == "ask"


OPERATIONS: dict[str, Operation] = {}
"""All operations by name."""

F = TypeVar("F", bound=Form)
A = TypeVar("A", bound=Answer)


def operation(
    verb: Verb, path: str, role: Role, status: int = 200, *, whole: bool = False,
    patience: float | None = PATIENCE, adds: bool = False, advice: str = "", question: str = "",
) -> Callable[[Callable[[Asked, F], Awaitable[A]]], Callable[[Asked, F], Awaitable[A]]]:  # fmt: skip
    """Add a function to the table, under its name. Its docstring says what it does."""

    def add(do: Callable[[Asked, F], Awaitable[A]]) -> Callable[[Asked, F], Awaitable[A]]:
        types, name = get_type_hints(do), do.__name__
        form, answer = types["form"], types["return"]
        OPERATIONS[name] = Operation(
            name, verb, path, role, do, form, answer, status, whole, patience, adds, advice, question
        )
        return do

    return add


async def perform(operation: Operation, asked: Asked, given: bytes | Mapping[str, Any]) -> Answer:
    """Do what is asked, from the bytes of a JSON object or from fields. Raises UsageError for a form that is wrong,
    Forbidden for a role or a space that the key is not for, and StoreError if it cannot be done."""
    operation.require(asked.grant)
    asked.service.spaces.require_since(asked.space, asked.endings)
    if asked.grant.identity:
        await asked.service.spaces.current(asked.space, asked.endings, asked.grant)
    form = read_form(operation.form, given)
    try:
        async with asyncio.timeout(operation.patience):
            return await operation.do(asked, form)
    except StoreError:
        # Of a space that was deleted meanwhile, there is no run.
        asked.service.spaces.require_since(asked.space, asked.endings)
        raise
    except TimeoutError:
        raise StoreAway(
            "service.timeout", f"this was not done in {operation.patience:g} seconds: send it again"
        ) from None
