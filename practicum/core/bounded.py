"""Bounds on what models write: strict in the JSON schema of small models, absent in that of others, and lenient in
validation.

A small model that a grammar holds to a schema would write into an unbounded text or list until it is cut off. A capable
model needs no bound: its prompts state one of 2,000 characters for each text, and an answer that is longer is not worth
a second call.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

F = TypeVar("F", bound="Output")

MOST_CHARS = 8_000
MOST_ITEMS = 100
"""What validation accepts of a text or a list, whatever its bound in a schema."""

LENIENT = frozenset({"maxLength", "maxItems", "pattern", "default"})
"""Keywords of a JSON schema that bound how much is written, or make a field optional. Some strict modes refuse them."""


class Output(BaseModel):
    """Base class of all structured outputs.

    `SHORT` derives the form of small models: the fields that they are asked for, in order, each with its bound (the
    characters of a text, the items of a list; None: as it is). A field that only the short form has is given as (type,
    Field), and `from_short` turns it into a field of this form. An answer in the short form is read into this form;
    fields that were not asked for are empty.
    """

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})

    SHORT: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def from_short(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values of this form by those of the short one."""
        return values


@cache
def short_form(form: type[Output]) -> type[Output]:
    """The form in which small models are asked; the same form if it has no other."""
    if not form.SHORT:
        return form
    fields: dict[str, Any] = {}
    for name, bound in form.SHORT.items():
        fields[name] = bound if isinstance(bound, tuple) else _bounded(form.model_fields[name], bound)
    return create_model(f"Short{form.__name__}", __base__=Output, __doc__=form.__doc__, **fields)


def _bounded(field: FieldInfo, bound: int | None) -> tuple[Any, FieldInfo]:
    kept = copy(field)
    if bound is not None:
        limit = MaxChars(bound) if field.annotation is str else MaxItems(bound)
        kept.metadata = [*(one for one in field.metadata if not isinstance(one, MaxChars | MaxItems)), limit]
    return field.annotation, kept


def read_short(form: type[F], answer: BaseModel) -> F:
    """What a small model answered in the short form, in the full one."""
    values = form.from_short({name: getattr(answer, name) for name in type(answer).model_fields})
    empty = {name: "" if field.annotation is str else [] for name, field in form.model_fields.items()}
    return form.model_construct(**{**empty, **values})


@dataclass(frozen=True, slots=True)
class MaxChars:
    """A text of at most `limit` characters: `Annotated[str, MaxChars(300)]`. Validation accepts up to `accepted`, for a
    text that is a whole document."""

    limit: int
    accepted: int = MOST_CHARS

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.str_schema(max_length=max(self.accepted, self.limit))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.limit}


LongText = Annotated[str, MaxChars(2_000)]
"""A text for which prompts state a bound of 2,000 characters."""


def rule_schema(limit: int, empty: bool) -> WithJsonSchema:
    """One sentence of the form "If ..., ...", if the server enforces schemas; validation accepts any text. Without it
    small models ramble."""
    # A full stop may stand inside a number or a name, but not before a space, where it ends the sentence.
    form = f'If ([^".\\\\\\n]|[.][^" .\\\\\\n]){{10,{limit}}}[.]'
    return WithJsonSchema({"type": "string", "pattern": f"^({form})?$" if empty else f"^{form}$"})


@dataclass(frozen=True, slots=True)
class MaxItems:
    """A list of at most `limit` items: `Annotated[list[int], MaxItems(3)]`."""

    limit: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return cast(CoreSchema, {**handler(source), "max_length": max(MOST_ITEMS, self.limit)})

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "maxItems": self.limit}


EntryId = Annotated[
    str,
    AfterValidator(lambda id: id.strip(" []()#")),
    WithJsonSchema({"type": "string", "pattern": "^e[0-9]{1,6}$"}),
]
"""The id of an entry; the brackets in which it is shown are removed."""


def clean(text: str) -> str:
    """A text as it is kept: with its lines, without spaces at their ends and blank lines around it."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def strict_schema(schema: Any) -> Any:
    """A JSON schema in the form that the strict modes of providers take: every property is required, and nothing
    bounds a text or a list."""
    if isinstance(schema, list):
        return [strict_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: strict_schema(v) for k, v in schema.items() if k not in LENIENT and k != "properties"}
    if "properties" not in schema:
        return kept
    properties = {name: strict_schema(part) for name, part in schema["properties"].items()}
    return {**kept, "properties": properties, "required": list(properties)}
