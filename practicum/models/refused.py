"""Parameters that a model's server refused, and their replacements in later requests.

After a parameter was refused once, all later requests to the model omit or replace it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from practicum.core.types import Prompt

Structure = Literal["native", "tool", "prompted", "grammar"]
"""Method to get JSON from a model: a schema in the request, a tool call, instructions in the prompt, or a grammar for
llama.cpp."""

Form = Literal["native", "tool", "prompted", "grammar", "json_object", "text"]
"""Method of one request: a `Structure` or, if the server refused this structure, `json_object` (JSON without a schema)
or `text`. For `json_object` and `text`, the schema is in the prompt."""

LIMITS = ("max_tokens", "max_completion_tokens")
"""Names of the limit of output tokens: a server that refuses one of these names usually accepts the other name."""

_PHRASES: Mapping[str, str] = {
    "system": "instructions are sent in the first user message",
    "json_object": "JSON is requested without a schema; the schema is in the prompt",
    "text": "JSON is requested in the prompt",
}


@dataclass
class RefusedParameters:
    """Parameters that a model's server refused. `replaced` maps the name of each refused parameter to a replacement:
    another parameter ("max_completion_tokens"), a form of answer ("json_object"), "user" for system messages, or None
    (omitted).

    `on_refusal` is called with the name, the replacement and the server's sentence, when a parameter is refused for the
    first time.
    """

    replaced: dict[str, str | None] = field(default_factory=dict)
    on_refusal: Callable[[str, str | None, str], None] = lambda name, instead, sentence: None

    def refuse(self, name: str, form: Form, sentence: str) -> None:
        """Record the refusal of a parameter in a request of this form."""
        instead: str | None = None
        if name in LIMITS:
            other = LIMITS[1 - LIMITS.index(name)]
            instead = None if other in self.replaced else other
        elif name == "system":
            instead = "user"
        elif name in ("response_format", "tools", "grammar"):
            name, instead = "response_format", "text" if form in ("json_object", "prompted") else "json_object"
        late = self.replaced.get(name) in (instead, "text") if name == "response_format" else name in self.replaced
        if late:
            return  # another call recorded the same refusal before
        self.replaced[name] = instead
        self.on_refusal(name, instead, sentence)

    def form(self, structure: Structure) -> Form:
        """Return the form of the next request: `structure`, or a replacement if the server refused the parameters for
        `structure`."""
        match self.replaced.get("response_format"):
            case "json_object":
                return "json_object"
            case "text":
                return "text"
        # pydantic-ai puts the schema into a system message.
        return "text" if structure == "prompted" and "system" in self.replaced else structure

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request, including `extra_body`, with refused parameters omitted or replaced."""
        remaining = {**settings}
        extra = {**remaining.pop("extra_body", {})}
        for name, instead in self.replaced.items():
            extra.pop(name, None)
            value = remaining.pop(name, None)
            if name in LIMITS and (instead is None or instead in self.replaced):
                remaining.pop("max_tokens", None)
            elif name in LIMITS and (value := value or remaining.get("max_tokens")) is not None:
                remaining.pop("max_tokens", None)
                extra[str(instead)] = value
        return {**remaining, **({"extra_body": extra} if extra else {})}

    def prompt(self, prompt: Prompt, form: Form, schema: Mapping[str, Any] | None) -> Prompt:
        """Return the prompt for a request of this form. The prompt contains the schema if no field of the request
        contains the schema, and has no system messages if the server refused system messages."""
        if schema is not None and form in ("json_object", "text"):
            asked = f"Answer with one JSON object that fits this schema, and nothing else:\n{json.dumps(schema)}"
            prompt = replace(prompt, system="\n\n".join(filter(None, (prompt.system, asked))))
        if "system" not in self.replaced or not prompt.head:
            return prompt
        head, bare = prompt.head, replace(prompt, system="", pages=())
        if not bare.turns:
            return replace(bare, user=f"{head}\n\n{bare.user}", parts=())
        first = replace(bare.turns[0], user=f"{head}\n\n{bare.turns[0].user}")
        return replace(bare, turns=(first, *bare.turns[1:]))


def in_words(model: str, name: str, instead: str | None, sentence: str) -> str:
    """Return a one-line message about a refused parameter."""
    subject = "system messages" if name == "system" else f"the parameter {name}"
    then = _PHRASES.get(name if name == "system" else instead or "") or (
        f"{instead} is sent in its place" if instead else "it is omitted from now on"
    )
    return f"{model} refused {subject}: {then} ({sentence})"
