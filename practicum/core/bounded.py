"""What models write, as pydantic classes: bounds in the schema, leniency in reading.

The schema bounds every text and list, and forbids other keys: a small model held to it by a grammar would otherwise
write until it is cut off. A larger model that is only told the schema may overstep it somewhat without being asked
again, since a good answer that is a little long is not worth a second call.
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
"""How many times longer than its bound a text or list may be when it is read."""


class Output(BaseModel):
    """Base of everything a model is asked for."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})


@dataclass(frozen=True, slots=True)
class MaxChars:
    """Marks a text that should have at most `limit` characters: `Annotated[str, Upto(300)]`."""

    limit: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.str_schema(max_length=SLACK * self.limit)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.limit}


def rule_schema(limit: int, empty: bool) -> WithJsonSchema:
    """Holds a text to one sentence of the form "If ..., ...", where the server enforces schemas: small models lose
    themselves in talk without it. What a server that does not enforce it lets through is read as it is."""
    # A full stop may stand inside a number or a name, but not before a space: there the sentence ends.
    form = f'If ([^".\\\\\\n]|[.][^" .\\\\\\n]){{10,{limit}}}[.]'
    return WithJsonSchema({"type": "string", "pattern": f"^({form})?$" if empty else f"^{form}$"})


@dataclass(frozen=True, slots=True)
class MaxItems:
    """Marks a list that should have at most `limit` items: `Annotated[list[int], AtMost(3)]`."""

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
"""The id of an entry, with or without the brackets it is shown in."""
