"""Models of providers, by pydantic-ai, with retries whose backoff respects Retry-After."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from practicum.core.errors import ModelError, ProviderError
from practicum.core.types import Prompt, Usage
from practicum.models.chat import ChatModel, is_strict, provided_reply, untitled
from practicum.models.client import JSON, CallOptions, Reply, Structure, Wait, causes, once_per_schema
from practicum.models.keys import without_keys
from practicum.models.local import choice_grammar, compact_grammar
from practicum.models.prompting import prompt_tokens
from practicum.models.receiving import within_limit
from practicum.models.transport import RefusedReply

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters

FIRST_TRIES = 3
"""Tries for a server that has never answered: users should learn of a wrong address within seconds."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LONGEST_REQUESTED_PAUSE = 120.0
"""Seconds between two tries: the backoff starts at the first and ends at the second; the third is the limit for a
provider's Retry-After."""


@dataclass(kw_only=True)
class ProviderClient:
    """A model behind pydantic-ai, or one that speaks OpenAI's chat completions, which its plain answers need not."""

    name: str
    model: Model | ChatModel
    endpoint: str
    structure: Structure
    price: Callable[[Usage], float | None]
    """US dollars for a usage; None if no price is known."""
    attempts: int = 6
    slots: int | None = None
    window: int | None = None
    supports_seed: bool = False
    key: str | None = field(default=None, repr=False)
    """The key that the server is sent; no message shows it."""
    fallback: Callable[[], Model] | None = None
    """Makes the model to go on with if the server does not know the interface of `model`."""
    on_close: Callable[[], Awaitable[None]] | None = None
    _reached: bool = field(default=False, init=False)
    _left: list[Model | ChatModel] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._body_fields = once_per_schema(self._make_body_fields)
        self._parameters = once_per_schema(self._make_parameters)

    @property
    def holds_to_choices(self) -> bool:
        return self.structure == "grammar"

    @property
    def priced(self) -> bool:
        return self.price(Usage(1, 1000, 0, 100)) is not None

    def cost(self, usage: Usage) -> float | None:
        return self.price(usage)

    async def close(self) -> None:
        for model in (self.model, *self._left):
            if not isinstance(model, ChatModel):
                async with model:
                    pass  # on exit pydantic-ai closes the connections that it opened itself
        if self.on_close is not None:
            await self.on_close()

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Call the model and retry transient failures.

        `options.timeout` is the most seconds of one try, from the connection to the last byte. Raises ProviderError if
        it still fails after all attempts, and ModelError if no retry can help.
        """
        settings: dict[str, Any] = {"max_tokens": options.max_output_tokens, "timeout": options.timeout}
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.seed is not None and self.supports_seed:
            settings["seed"] = options.seed
        tries = 0
        while True:
            tries += 1
            model = self.model
            try:
                # The timeout of the request is one between two bytes, which a server that drips never exceeds.
                async with asyncio.timeout(options.timeout):
                    sent = await self._ask(model, prompt, schema, settings)
                reply = within_limit(sent, prompt_tokens(prompt), options.max_output_tokens)
            # Whatever the libraries between here and the server raise, it is about what the server sent.
            except Exception as error:
                if self._fell_back(model, error):
                    continue
                failure = self._failure(error, tries, options)
                if failure is not None:
                    # A traceback shows the causes too.
                    raise failure from None if self._quoted(error) else error
                from practicum.models import failures

                said, limited = self._said(failures.error_summary(error)), failures.is_rate_limit(error)
                wait = Wait(self.name, _pause(error, tries), tries, self.attempts, said, limited)
            else:
                self._reached = True
                return replace(reply, usage=replace(reply.usage, usd=self.price(reply.usage)))
            await options.wait(wait)

    async def _ask(
        self, model: Model | ChatModel, prompt: Prompt, schema: JSON | None, settings: dict[str, Any]
    ) -> Reply:
        """Send the prompt once."""
        if isinstance(model, ChatModel):
            if self.structure in ("native", "grammar"):
                fields = {} if schema is None else self._body_fields(schema)
                return await model.ask({**fields, "messages": _openai_messages(prompt)}, settings)
            model = model.provided
        from pydantic_ai.models import ModelRequestParameters

        parameters = ModelRequestParameters() if schema is None else self._parameters(schema)
        return provided_reply(await model.request(_messages(prompt), settings, parameters))  # type: ignore[arg-type]

    def _failure(self, error: Exception, tries: int, options: CallOptions) -> ModelError | ProviderError | None:
        """What to raise after so many tries; None if the call is sent again."""
        from practicum.models import failures

        failure: ModelError | ProviderError | None = None
        if refused := next((cause for cause in causes(error) if isinstance(cause, RefusedReply)), None):
            failure = ProviderError(f"{self.name} failed: {refused}")
        elif not failures.is_transient(error):
            failure = failures.permanent_error(self.name, error)
        elif not self._reached and tries >= FIRST_TRIES and failures.is_unreachable(error):
            failure = ModelError(failures.unanswered(self.name, error))
        elif tries >= self.attempts:
            failure = ProviderError(failures.unanswered(self.name, error, tries))
        if failure is not None:
            failure.args = (self._said(str(failure)),)
        return failure

    def _said(self, text: str) -> str:
        """What is said of a failure, without the key, which the server may have quoted."""
        return without_keys(text, self.key)

    def _quoted(self, error: Exception) -> bool:
        return any(self._said(str(cause)) != str(cause) for cause in causes(error))

    def _fell_back(self, used: Model | ChatModel, error: BaseException) -> bool:
        """Whether the call should be sent again, because another model is used from now on."""
        if used is not self.model:
            return True  # another call has fallen back meanwhile
        from practicum.models import failures

        if self.fallback is None or self._reached or not failures.is_unknown_interface(error):
            return False
        self._left.append(self.model)
        self.model, self.fallback = self.fallback(), None
        return True

    def _make_body_fields(self, schema: JSON) -> JSON:
        """Fields of the request's body that ask a server of the OpenAI protocol for JSON of this schema."""
        assert isinstance(self.model, ChatModel)
        if self.structure == "grammar":
            grammar = choice_grammar(schema["enum"]) if schema.keys() == {"enum"} else compact_grammar(schema)
            return {"grammar": grammar}
        form: JSON = {"schema": untitled(schema), "strict": True}
        if not is_strict(schema):
            output = self.model.provided.customize_request_parameters(self._parameters(schema)).output_object
            assert output is not None
            form = {"schema": output.json_schema, "strict": output.strict}
        json_schema = {"name": _name_of(schema), **form}
        return {"response_format": {"type": "json_schema", "json_schema": json_schema}}

    def _make_parameters(self, schema: JSON) -> ModelRequestParameters:
        """The parameters that ask pydantic-ai for JSON of this schema."""
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition
        from pydantic_ai.tools import ToolDefinition

        name = _name_of(schema)
        if self.structure == "tool":
            tool = ToolDefinition(
                name=name, parameters_json_schema=schema, description="Give your answer.", kind="output"
            )
            return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
        output = OutputObjectDefinition(json_schema=schema, name=name)
        return ModelRequestParameters(output_mode=self.structure, output_object=output)  # type: ignore[arg-type]


def _name_of(schema: JSON) -> str:
    return str(schema.get("title", "answer"))


def _messages(prompt: Prompt) -> list[ModelMessage]:
    from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

    messages: list[ModelMessage] = []
    head: list[Any] = [SystemPromptPart(prompt.head)] if prompt.head else []
    for turn in prompt.turns:
        messages += [
            ModelRequest(parts=[*head, UserPromptPart(turn.user)]),
            ModelResponse(parts=[TextPart(turn.assistant)]),
        ]
        head = []
    messages.append(ModelRequest(parts=[*head, UserPromptPart(prompt.user)]))
    return messages


def _openai_messages(prompt: Prompt) -> list[JSON]:
    messages = [{"role": "system", "content": prompt.head}] if prompt.head else []
    for turn in prompt.turns:
        messages += [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.assistant}]
    return [*messages, {"role": "user", "content": prompt.user}]


def _pause(error: BaseException, tries: int) -> float:
    """Seconds until the next try: what the provider asks for, otherwise a random part of an exponential backoff."""
    requested = getattr(error, "retry_after", None)
    if requested is not None:
        return min(float(requested), LONGEST_REQUESTED_PAUSE)
    return backoff(tries)


def backoff(tries: int) -> float:
    """Seconds until a call is sent again that has failed so many times: a random part of what doubles each time."""
    return random.uniform(0, min(FIRST_PAUSE * 2 ** (tries - 1), LONGEST_PAUSE))
