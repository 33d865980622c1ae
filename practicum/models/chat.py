"""A model at an address of the OpenAI protocol, asked through the openai client alone.

pydantic-ai reads every reply that servers send, and knows what their errors mean; but its import takes as long as all
else before a run's first call, and its own work is a fifth of the CPU time of a call. So it is left aside for a plain
answer, and gets every other reply and every error to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from practicum.core.types import Usage
from practicum.models.client import JSON, Reply

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models.openai import OpenAIChatModel

STRICT_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems", "anyOf", "enum"),
        *("const", "minimum", "maximum", "description", "title", "$defs", "$ref"),
    }
)
"""Keywords of a JSON schema that mean the same to every server."""

_THINKING = "<think>"
"""Begins, in an answer, what pydantic-ai takes for thoughts."""


@dataclass(frozen=True)
class ChatModel:
    """A model behind a connection. `model_name` and `base_url` are what a model of pydantic-ai calls them."""

    connection: AsyncOpenAI
    model_name: str

    @property
    def base_url(self) -> str:
        return str(self.connection.base_url)

    @cached_property
    def provided(self) -> OpenAIChatModel:
        """The same as a model of pydantic-ai."""
        return _provided(self.model_name, self.connection)

    async def ask(self, body: JSON, settings: Mapping[str, Any]) -> Reply:
        """The answer to a request with this body. Raises errors of pydantic-ai."""
        body = {"model": self.model_name, **body, **settings}
        options: Any = {"timeout": body.pop("timeout", None)}
        try:
            # The SDK's method for completions also compares what is sent and received with the types of all variants.
            completion = await self.connection.post("/chat/completions", cast_to=object, body=body, options=options)
        except Exception as error:
            return await self._read(error)
        return plain_reply(completion) or await self._read(completion)

    async def _read(self, outcome: object) -> Reply:
        """What pydantic-ai makes of a completion, or of an error, which it raises as one of its own."""

        from openai.types.chat import ChatCompletion
        from pydantic_ai.models import ModelRequestParameters

        async def create(**_: Any) -> Any:
            if isinstance(outcome, Exception):
                raise outcome
            return ChatCompletion.construct(**outcome) if isinstance(outcome, dict) else outcome

        asked = SimpleNamespace(completions=SimpleNamespace(create=create))
        client: Any = SimpleNamespace(chat=asked, base_url=self.connection.base_url)
        response = await _provided(self.model_name, client).request([], None, ModelRequestParameters())
        return provided_reply(response)


def _provided(name: str, client: AsyncOpenAI) -> OpenAIChatModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    # Compatible servers know the older `max_tokens`; some refuse `max_completion_tokens`.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client), profile=profile)


def plain_reply(completion: Any) -> Reply | None:
    """The reply of a completion, as JSON, that is a text and nothing else; None for any other."""
    try:
        choice, usage = completion["choices"][0], completion["usage"]
        message, finish = choice["message"], choice["finish_reason"]
        text, cut = message["content"], finish == "length"
        plain = finish in ("stop", "length") and not (message.get("refusal") or message.get("tool_calls"))
        # Many servers say nothing of their cache.
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        counts = Usage(1, usage["prompt_tokens"], cached, usage["completion_tokens"])
    except (AttributeError, LookupError, TypeError):  # a server may send any JSON
        return None
    return Reply(text, counts, cut) if plain and isinstance(text, str) and text and _THINKING not in text else None


def provided_reply(response: ModelResponse) -> Reply:
    """The reply of a response of pydantic-ai: the arguments of a tool's call, or else the text."""
    from pydantic_ai.messages import ToolCallPart

    calls = [part.args_as_json_str() for part in response.parts if isinstance(part, ToolCallPart)]
    counts = response.usage
    usage = Usage(1, counts.input_tokens, counts.cache_read_tokens, counts.output_tokens)
    return Reply(calls[0] if calls else (response.text or ""), usage, cut=response.finish_reason == "length")


def is_strict(schema: Any) -> bool:
    """Whether a JSON schema is one of OpenAI's strict mode but for its titles. pydantic-ai can change others."""
    if not isinstance(schema, dict) or not schema.keys() <= STRICT_KEYWORDS or ("$ref" in schema and len(schema) > 1):
        return False
    properties: dict[str, Any] = schema.get("properties", {})
    if schema.get("type") == "object":
        complete = [*properties] == schema.get("required")
        if not complete or schema.get("additionalProperties") is not False:
            return False
    parts = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    return all(map(is_strict, [*parts, schema["items"]] if "items" in schema else parts))


def untitled(schema: Any, names: bool = False) -> Any:
    """A JSON schema without the titles that pydantic gives; with `names`, the parts of one by name."""
    if isinstance(schema, list):
        return [untitled(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: untitled(part, not names and key in ("properties", "$defs"))
        for key, part in schema.items()
        if names or key != "title"
    }
