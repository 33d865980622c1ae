"""Model at the address of a server with the OpenAI protocol, called through the `openai` client and, if possible,
without pydantic-ai.

pydantic-ai reads all kinds of replies and classifies errors. But importing pydantic-ai takes half of the time before a
run's first call, and reading with pydantic-ai takes a fifth of the CPU time of a call. So only errors, and replies
other than plain answers, are read with pydantic-ai.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from practicum.core.types import Usage
from practicum.models.client import JSON, Reply
from practicum.models.transport import reported_cost

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
"""Keywords of a JSON schema that all servers treat alike."""


_NOT_IN_BODY = ("timeout", "extra_body", "extra_headers")
"""Settings of a request that are not fields of the request's body."""


@dataclass(frozen=True)
class ChatModel:
    """Model that is called through `connection`. The attributes `model_name` and `base_url` have the same names as in
    pydantic-ai's models."""

    connection: AsyncOpenAI
    model_name: str

    @property
    def base_url(self) -> str:
        return str(self.connection.base_url)

    @cached_property
    def provided(self) -> OpenAIChatModel:
        """This model as a model of pydantic-ai."""
        return _provided(self.model_name, self.connection)

    async def ask(self, body: JSON, settings: Mapping[str, Any]) -> Reply:
        """Send a request with this body and return the reply. Raises errors of pydantic-ai."""
        extra, headers = settings.get("extra_body", {}), settings.get("extra_headers", {})
        plain = {name: value for name, value in settings.items() if name not in _NOT_IN_BODY}
        body = {"model": self.model_name, **body, **plain, **extra}
        options: Any = {"timeout": settings.get("timeout"), "headers": headers}
        try:
            # The SDK's method for completions is slower, because it also validates the request and the reply.
            completion = await self.connection.post("/chat/completions", cast_to=object, body=body, options=options)
        except Exception as error:
            return await self._read(error)
        return plain_reply(completion) or await self._read(completion)

    async def _read(self, outcome: object) -> Reply:
        """Read a completion with pydantic-ai. If `outcome` is an exception, raise the error that pydantic-ai raises for
        this exception."""

        from openai.types.chat import ChatCompletion
        from pydantic_ai.exceptions import UnexpectedModelBehavior
        from pydantic_ai.models import ModelRequestParameters

        if isinstance(outcome, dict) and not outcome.get("choices"):
            raise UnexpectedModelBehavior("the reply holds no answer (`choices` is empty)")

        async def create(**_: Any) -> Any:
            if isinstance(outcome, Exception):
                raise outcome
            return ChatCompletion.construct(**outcome) if isinstance(outcome, dict) else outcome

        chat = SimpleNamespace(completions=SimpleNamespace(create=create))
        client: Any = SimpleNamespace(chat=chat, base_url=self.connection.base_url)
        response = await _provided(self.model_name, client).request([], None, ModelRequestParameters())
        return provided_reply(response)


def _provided(name: str, client: AsyncOpenAI) -> OpenAIChatModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    # Compatible servers support the older name `max_tokens`; some of them refuse the newer name
    # `max_completion_tokens`.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client), profile=profile)


def plain_reply(completion: Any) -> Reply | None:
    """Convert a JSON completion without tool calls to a reply. Returns None for other completions. Speed is one reason
    to avoid pydantic-ai here. The other reason is that pydantic-ai treats thoughts without a closing tag as the
    answer."""
    try:
        choice, usage = completion["choices"][0], completion.get("usage") or {}
        message, finish = choice["message"], choice["finish_reason"]
        text, thoughts = _read_content(message.get("content"))
        thoughts = thoughts or message.get("reasoning_content") or message.get("reasoning") or ""
        if finish not in ("stop", "length", "content_filter") or message.get("tool_calls"):
            return None
        # Many servers report neither cached tokens nor a cost.
        details, cost = usage.get("prompt_tokens_details") or {}, usage.get("cost") or None
        counts = Usage(
            1, usage.get("prompt_tokens") or 0, details.get("cached_tokens") or 0, usage.get("completion_tokens") or 0,
            cost, details.get("cache_write_tokens") or 0,
        )  # fmt: skip
        refused = bool(message.get("refusal"))
    except (AttributeError, LookupError, TypeError):  # a server may send any JSON
        return None
    return Reply(text, counts, finish == "length", (), str(thoughts), refused, finish == "content_filter")


def _read_content(content: Any) -> tuple[str, str]:
    """Return the text and the thoughts of a message whose content is a string or a list of parts. Raises TypeError for
    other content."""
    if isinstance(content, str | None):
        return content or "", ""
    texts = {"text": list[str](), "thinking": list[str]()}
    for part in content:
        kind = part["type"]
        if kind in texts:
            inner = part[kind]
            texts[kind].append(inner if isinstance(inner, str) else _read_content(inner)[0])
    return "\n".join(texts["text"]), "\n".join(texts["thinking"])


def provided_reply(response: ModelResponse) -> Reply:
    """Convert a response of pydantic-ai to a reply: the arguments of a tool call, or else the text."""
    from pydantic_ai.messages import ThinkingPart, ToolCallPart

    calls = [part.args_as_json_str() for part in response.parts if isinstance(part, ToolCallPart)]
    thoughts = "\n".join(part.content for part in response.parts if isinstance(part, ThinkingPart))
    counts, details = response.usage, response.provider_details or {}
    # The details hold the text of a refusal (OpenAI, Anthropic), or "refusal" as the finish reason (Anthropic).
    refused = "refusal" in details or details.get("finish_reason") == "refusal"
    return Reply(
        calls[0] if calls else (response.text or ""),
        Usage(
            1, counts.input_tokens, counts.cache_read_tokens, counts.output_tokens,
            reported_cost({**details, "cost_details": details}) or None, counts.cache_write_tokens,
        ),
        cut=response.finish_reason == "length", thoughts=thoughts, refused=refused,
        filtered=response.finish_reason == "content_filter" and not refused,
    )  # fmt: skip


def is_strict(schema: Any) -> bool:
    """Return whether a JSON schema fits OpenAI's strict mode once `untitled` has removed the titles. pydantic-ai
    converts schemas that do not fit."""
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
    """Remove pydantic's titles from a JSON schema. With `names`, the keys of `schema` are names of properties or
    definitions, so the name "title" is kept."""
    if isinstance(schema, list):
        return [untitled(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: untitled(part, not names and key in ("properties", "$defs"))
        for key, part in schema.items()
        if names or key != "title"
    }
