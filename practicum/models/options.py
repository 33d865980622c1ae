"""User-defined additions to every request to a model: body fields and headers.

The values of headers are stored with a run, so a secret is written as the name of an environment variable.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from practicum.core.errors import UsageError
from practicum.core.sensitive import find
from practicum.models.keys import SECRET_NAME

RESERVED_FIELDS = (
    "model",
    "messages",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "seed",
    "response_format",
)
"""Body fields that practicum sets."""

_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


class ModelOptions(BaseModel):
    """Additions to every request: `extra_body` are body fields, `headers` are headers. `env:NAME` in a header's value
    is replaced by the value of the environment variable `NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    extra_body: dict[str, Any] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("extra_body")
    @classmethod
    def _check_body(cls, body: dict[str, Any]) -> dict[str, Any]:
        if own := sorted({*body} & {*RESERVED_FIELDS}):
            raise ValueError(f"extra_body has {own[0]!r}, which practicum sets: use practicum's own setting")
        if find(json.dumps(body), ("secrets",)):
            raise ValueError("extra_body holds a secret, which the run would store: use a header with env:NAME")
        return body

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or re.search(r"[^\t\x20-\x7e]", value):
                raise ValueError(f"{name!r} is not a valid header: name and value must be printable ASCII")
            if not _VARIABLE.search(value) and (SECRET_NAME.search(name) or find(value, ("secrets",))):
                raise ValueError(
                    f"the header {name} looks like a secret, which the run would store: export it as an environment "
                    'variable, and write "env:NAME" instead'
                )
        return headers

    @property
    def secrets(self) -> list[str]:
        """Names of the headers that use environment variables."""
        return [name for name, value in self.headers.items() if _VARIABLE.search(value)]

    def without_secrets(self) -> ModelOptions:
        """Return the options without headers that use environment variables. These headers hold secrets of one server,
        and must not be sent to another server."""
        return self.model_copy(update={"headers": {n: v for n, v in self.headers.items() if n not in self.secrets}})

    def resolved(self) -> dict[str, str]:
        """Return the headers with environment variables replaced. Raises UsageError for a variable that is not set."""

        def value(match: re.Match[str]) -> str:
            if not (secret := os.environ.get(match[1])):
                raise UsageError(
                    "model.no_key",
                    f"`model_options` names the environment variable {match[1]}, which is not set "
                    f"(export {match[1]}=...)",
                    variable=match[1],
                )
            return secret

        return {name: _VARIABLE.sub(value, text) for name, text in self.headers.items()}


def read_json(value: Any) -> Any:
    """Parse options from JSON text. Return other values unchanged. Raises ValueError if the text is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f'not JSON ({error}): write {{"extra_body": {{...}}, "headers": {{...}}}}') from error
