"""Bounds on what models write: strict in the JSON schema, lenient in validation.

The schema bounds every text and list and forbids other keys, because a small model that a grammar holds to it would
otherwise write until it is cut off. A larger model that only reads the schema may exceed a bound by some: an answer
that is a little long is not worth a second call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

SLACK = 4
"""How many times longer than its bound a text or list may be in validation."""


class Output(BaseModel):
    """Base class of all structured outputs."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})


@dataclass(frozen=True, slots=True)
class MaxChars:
    """A text of at most `limit` characters: `Annotated[str, MaxChars(300)]`."""

    limit: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.str_schema(max_length=SLACK * self.limit)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.limit}


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
        return cast(CoreSchema, {**handler(source), "max_length": SLACK * self.limit})

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "maxItems": self.limit}


EntryId = Annotated[
    str,
    AfterValidator(lambda id: id.strip(" []()#")),
    WithJsonSchema({"type": "string", "pattern": "^e[0-9]{1,6}$"}),
]
"""The id of an entry; the brackets in which it is shown are removed."""
