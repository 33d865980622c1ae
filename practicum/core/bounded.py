"""Length limits on the outputs of models. The JSON schema states these limits for small models only; validation accepts
longer outputs.

A small model that a grammar constrains to a schema would fill an unbounded text or list until its output is cut off. A
capable model needs no limit in the schema: its prompts state 2,000 characters for each text, and a longer answer is not
worth a second call.
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
"""Maximum characters that validation accepts in a text, unless the schema has a higher limit for the text."""

MOST_ITEMS = 100
"""Maximum items that validation accepts in a list, unless the schema has a higher limit for the list."""

LENIENT = frozenset({"maxLength", "maxItems", "pattern", "default"})
"""Keywords of a JSON schema that limit lengths or make a field optional. Strict modes of some providers reject these
keywords."""


class Output(BaseModel):
    """Base class of all structured outputs.

    `SHORT` defines the short form, which small models are asked for. It maps the field names, in order, to limits: the
    maximum characters of a text, the maximum items of a list, or None to keep the field unchanged. A field that only
    the short form has is declared as (type, Field), and `from_short` converts it into a field of the full form. An
    answer in the short form is converted into the full form; fields that were not requested are empty.
    """

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})

    SHORT: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def from_short(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Convert the values of the short form into the values of the full form."""
        return values


@cache
def short_form(form: type[Output]) -> type[Output]:
    """Return the form that small models fill: the short form of `form`, or `form` itself without a short form."""
    if not form.SHORT:
        return form
    fields: dict[str, Any] = {}
    for name, bound in form.SHORT.items():
        fields[name] = bound if isinstance(bound, tuple) else _bounded(form.model_fields[name], bound)
    return create_model(f"Short{form.__name__}", __base__=Output, __doc__=form.__doc__, **fields)


def _bounded(field: FieldInfo, bound: int | None) -> tuple[Any, FieldInfo]:
    limited = copy(field)
    if bound is not None:
        limit = MaxChars(bound) if field.annotation is str else MaxItems(bound)
        limited.metadata = [*(item for item in field.metadata if not isinstance(item, MaxChars | MaxItems)), limit]
    return field.annotation, limited


def read_short(form: type[F], answer: BaseModel) -> F:
    """Convert an answer in the short form into the full form."""
    values = form.from_short({name: getattr(answer, name) for name in type(answer).model_fields})
    empty = {name: "" if field.annotation is str else [] for name, field in form.model_fields.items()}
    return form.model_construct(**{**empty, **values})


@dataclass(frozen=True, slots=True)
class MaxChars:
    """Text of at most `limit` characters: `Annotated[str, MaxChars(300)]`. Validation accepts up to `accepted`
    characters, or up to `limit` if it is higher; a text that is a whole document may need a higher `accepted`."""

    limit: int
    accepted: int = MOST_CHARS

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.str_schema(max_length=max(self.accepted, self.limit))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.limit}


LongText = Annotated[str, MaxChars(2_000)]
"""A text that prompts limit to 2,000 characters."""


def rule_schema(limit: int, empty: bool) -> WithJsonSchema:
    """Return a schema for one sentence of the form "If ..., ..." with about `limit` characters at most; with `empty`,
    also for an empty text. The schema is for servers that enforce schemas; validation accepts any text. Without the
    schema, small models ramble."""
    # A full stop may occur inside a number or a name, but not before a space, where it ends the sentence.
    form = f'If ([^".\\\\\\n]|[.][^" .\\\\\\n]){{10,{limit}}}[.]'
    return WithJsonSchema({"type": "string", "pattern": f"^({form})?$" if empty else f"^{form}$"})


@dataclass(frozen=True, slots=True)
class MaxItems:
    """List of at most `limit` items: `Annotated[list[int], MaxItems(3)]`."""

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
"""Id of an entry. Prompts show ids in brackets, so validation removes brackets around an id."""


def clean(text: str) -> str:
    """Return the text without blank lines around it and without spaces at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def strict_schema(schema: Any) -> Any:
    """Return the JSON schema in the form that the strict modes of providers accept: every property is required, and no
    text or list has a limit."""
    if isinstance(schema, list):
        return [strict_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {k: strict_schema(v) for k, v in schema.items() if k not in LENIENT and k != "properties"}
    if "properties" not in schema:
        return result
    properties = {name: strict_schema(part) for name, part in schema["properties"].items()}
    return {**result, "properties": properties, "required": list(properties)}
