"""What every request to a model also has, beside what practicum sends: fields of its body, and headers.

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

OWN = ("model", "messages", "stream", "max_tokens", "max_completion_tokens", "temperature", "seed", "response_format")
"""Fields of a body that practicum sets by itself."""

_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)


class ModelOptions(BaseModel):
    """`extra_body` are fields of every request's body, and `headers` its headers; env:NAME in the value of a header
    stands for the value of that environment variable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    extra_body: dict[str, Any] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("extra_body")
    @classmethod
    def _check_body(cls, body: dict[str, Any]) -> dict[str, Any]:
        if own := sorted({*body} & {*OWN}):
            raise ValueError(f"extra_body has {own[0]!r}, which practicum sets by itself: use the option for it")
        if find(json.dumps(body), ("secrets",)):
            raise ValueError("extra_body holds a secret, which the run would store: put it into a header as env:NAME")
        return body

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or re.search(r"[^\t\x20-\x7e]", value):
                raise ValueError(f"{name!r} is no header: a name and a text of printable ASCII")
            if not _VARIABLE.search(value) and (_SECRET_NAME.search(name) or find(value, ("secrets",))):
                raise ValueError(
                    f"the header {name} looks like a secret, which the run would store: export it as an environment "
                    'variable, and write "env:NAME" in its place'
                )
        return headers

    @property
    def secrets(self) -> list[str]:
        """The names of the headers that hold values of the environment."""
        return [name for name, value in self.headers.items() if _VARIABLE.search(value)]

    def without_secrets(self) -> ModelOptions:
        """The same for another server."""
        return self.model_copy(update={"headers": {n: v for n, v in self.headers.items() if n not in self.secrets}})

    def resolved(self) -> dict[str, str]:
        """The headers with the values of the environment. Raises UsageError for a variable that is not set."""

        def value(found: re.Match[str]) -> str:
            if not (set_ := os.environ.get(found[1])):
                raise UsageError(
                    "model.no_key",
                    f"`model_options` names the environment variable {found[1]}, which is not set "
                    f"(export {found[1]}=...)",
                    variable=found[1],
                )
            return set_

        return {name: _VARIABLE.sub(value, text) for name, text in self.headers.items()}


def read_json(value: Any) -> Any:
    """Options from their JSON text. Raises ValueError for a text that is none."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f'not JSON ({error}): write {{"extra_body": {{...}}, "headers": {{...}}}}') from error
