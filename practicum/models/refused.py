"""Parameters that a model's server refused, and what later requests have in their place.

A server is asked once: what it refused is left out or replaced in every later request to its model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from practicum.core.types import Prompt

Structure = Literal["native", "tool", "prompted", "grammar"]
"""How a model is made to answer in JSON: a schema in the request, a tool call, instructions in the prompt, or a grammar
for llama.cpp."""

Form = Literal["native", "tool", "prompted", "grammar", "json_object", "text"]
"""How JSON is asked for: a `Structure`, or, where the server refused that, JSON without a schema, or text. The last two
put the schema into the prompt."""

LIMITS = ("max_tokens", "max_completion_tokens")
"""The two names of the limit of output tokens: a server that refuses one takes the other."""

_PHRASES: Mapping[str, str] = {
    "system": "instructions are sent in the first message of the user",
    "json_object": "JSON is asked for without a schema, which is in the prompt",
    "text": "JSON is asked for in the prompt",
}


@dataclass
class RefusedParameters:
    """What a model's server refused: by the name of the parameter, what is sent in its place. That is another parameter
    ("max_completion_tokens"), a form of answer ("json_object"), "user" for messages of the system, or None.

    `said` is called with the name, the replacement and the server's sentence when a parameter is refused first.
    """

    replaced: dict[str, str | None] = field(default_factory=dict)
    said: Callable[[str, str | None, str], None] = lambda name, instead, sentence: None

    def refuse(self, name: str, form: Form, sentence: str) -> None:
        """Replace a parameter that a request in this form had."""
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
            return  # another call met the same refusal before
        self.replaced[name] = instead
        self.said(name, instead, sentence)

    def form(self, structure: Structure) -> Form:
        """How JSON is asked for."""
        match self.replaced.get("response_format"):
            case "json_object":
                return "json_object"
            case "text":
                return "text"
        # pydantic-ai puts the schema into a message of the system.
        return "text" if structure == "prompted" and "system" in self.replaced else structure

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a request, with those of `extra_body`, without what was refused."""
        kept = {**settings}
        extra = {**kept.pop("extra_body", {})}
        for name, instead in self.replaced.items():
            extra.pop(name, None)
            value = kept.pop(name, None)
            if name in LIMITS and (instead is None or instead in self.replaced):
                kept.pop("max_tokens", None)
            elif name in LIMITS and (value := value or kept.get("max_tokens")) is not None:
                kept.pop("max_tokens", None)
                extra[str(instead)] = value
        return {**kept, **({"extra_body": extra} if extra else {})}

    def prompt(self, prompt: Prompt, form: Form, schema: Mapping[str, Any] | None) -> Prompt:
        """The prompt with the schema where the form has none, and without messages of the system where these were
        refused."""
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
    """One line about a refused parameter."""
    what = "messages of the system" if name == "system" else f"the parameter {name}"
    then = _PHRASES.get(name if name == "system" else instead or "") or (
        f"{instead} is sent in its place" if instead else "it is left out from now on"
    )
    return f"{model} refused {what}: {then} ({sentence})"
