"""The one way to call a model: a prompt and an optional JSON schema go in, unparsed text and its usage come out.

pydantic-ai talks to the providers; `ProviderClient` adds retries with backoff that respect Retry-After. The text is
returned unparsed so that the caller can write it to the journal first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from practicum.core.errors import ProviderError
from practicum.core.types import Prompt, Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

T = TypeVar("T")
Structure = Literal["native", "tool", "prompted", "grammar"]
"""How a model is made to answer in JSON: a schema in the request, a tool call, instructions in the prompt, or a grammar
for llama.cpp."""

JSON = dict[str, Any]

FIRST_TRIES = 3
"""Tries for a server that has never answered: users should learn of a wrong address within seconds."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LONGEST_REQUESTED_PAUSE = 120.0
"""Seconds between two tries: the backoff starts at the first and ends at the second; the third is the limit for a
provider's Retry-After."""

KEPT_SCHEMAS = 256
"""Schemas for which `once_per_schema` keeps the result."""

WINDOW_ADVICE = (
    "shorten the task, lower the context budget if the method has one (--set budget=N), or use a larger window: "
    "--window N if the model supports it, otherwise another model"
)
"""What to do when a prompt is larger than its model's window."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Sampling options of one call. `timeout` is in seconds; None leaves a value to the provider."""

    temperature: float | None = None
    max_output_tokens: int = 1024
    timeout: float = 120.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's unparsed answer. `cut` is set if the model reached its output limit."""

    text: str
    usage: Usage
    cut: bool = False


class Client(Protocol):
    """A model that can be called.

    `window` is its context window in tokens, None if unknown. Clients of one `endpoint` share its slots: the number of
    calls in flight is limited by the run's concurrency and by `slots`. `priced` says whether `cost` knows a price.
    """

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def slots(self) -> int | None: ...

    @property
    def window(self) -> int | None: ...

    @property
    def priced(self) -> bool: ...

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply: ...

    def cost(self, usage: Usage) -> float | None: ...

    async def close(self) -> None: ...


@dataclass(kw_only=True)
class ProviderClient:
    """A model behind pydantic-ai."""

    name: str
    model: Model
    endpoint: str
    structure: Structure
    price: Callable[[Usage], float | None]
    """US dollars for a usage; None if no price is known."""
    attempts: int = 6
    slots: int | None = None
    window: int | None = None
    supports_seed: bool = False
    openai_protocol: bool = False
    """Whether the server speaks OpenAI's chat completions."""
    on_close: Callable[[], Awaitable[None]] | None = None
    _reached: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._output_format = once_per_schema(self._schema_format)
        if self.window is None:
            self.window = self.model.profile.get("context_window")

    @property
    def priced(self) -> bool:
        return self.price(Usage(1, 1000, 0, 100)) is not None

    def cost(self, usage: Usage) -> float | None:
        return self.price(usage)

    async def close(self) -> None:
        if self.on_close is not None:
            await self.on_close()

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Call the model and retry transient failures.

        Raises ProviderError if it still fails after all attempts, and ModelError if no retry can help.
        """
        from pydantic_ai.exceptions import AgentRunError, UserError
        from pydantic_ai.models import ModelRequestParameters

        from practicum.models import provider_errors

        parameters, body = (ModelRequestParameters(), {}) if schema is None else self._output_format(schema)
        if self.openai_protocol and self.structure in ("native", "grammar"):
            # The SDK sends `extra_body` as it is. It compares arguments with all variants of their types, every message
            # and every value of the schema, which takes a third of a call's CPU time (bench/calls_bench.py).
            messages, body = [], {**body, "messages": _openai_messages(prompt)}
        else:
            messages = _messages(prompt)
        settings: dict[str, Any] = {"max_tokens": options.max_output_tokens, "timeout": options.timeout}
        if body:
            settings["extra_body"] = body
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.seed is not None and self.supports_seed:
            settings["seed"] = options.seed
        tries = 0
        while True:
            tries += 1
            try:
                response = await self.model.request(messages, settings, parameters)  # type: ignore[arg-type]
            except (AgentRunError, UserError) as error:
                if not provider_errors.is_transient(error):
                    raise provider_errors.permanent_error(self.name, error) from error
                if not self._reached and tries >= FIRST_TRIES and provider_errors.is_unreachable(error):
                    raise provider_errors.unreachable_error(self.name, error) from error
                if tries >= self.attempts:
                    reason = provider_errors.error_summary(error)
                    raise ProviderError(
                        f"{self.name} failed {tries} times: {reason}; is the server up and not overloaded?"
                    ) from error
                pause = _pause(error, tries)
            else:
                self._reached = True
                return self._reply(response)
            await asyncio.sleep(pause)

    def _schema_format(self, schema: JSON) -> tuple[ModelRequestParameters, JSON]:
        """The request parameters, and fields of the request's body, that ask for JSON of this schema."""
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition
        from pydantic_ai.tools import ToolDefinition

        name = str(schema.get("title", "answer"))
        if self.structure == "grammar":
            from practicum.models.local import compact_grammar

            return ModelRequestParameters(), {"grammar": compact_grammar(schema)}
        if self.structure == "tool":
            tool = ToolDefinition(
                name=name, parameters_json_schema=schema, description="Give your answer.", kind="output"
            )
            return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False), {}
        output = OutputObjectDefinition(json_schema=schema, name=name)
        parameters = ModelRequestParameters(output_mode=self.structure, output_object=output)
        if self.structure == "native" and self.openai_protocol:
            output = self.model.customize_request_parameters(parameters).output_object or output
            json_schema = {"name": name, "schema": output.json_schema, "strict": output.strict}
            return ModelRequestParameters(), {"response_format": {"type": "json_schema", "json_schema": json_schema}}
        return parameters, {}

    def _reply(self, response: ModelResponse) -> Reply:
        from pydantic_ai.messages import ToolCallPart

        calls = [part.args_as_json_str() for part in response.parts if isinstance(part, ToolCallPart)]
        text = calls[0] if calls else (response.text or "")
        counts = response.usage
        usage = Usage(1, counts.input_tokens, counts.cache_read_tokens, counts.output_tokens)
        return Reply(text, replace(usage, usd=self.price(usage)), cut=response.finish_reason == "length")


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
    return random.uniform(0, min(FIRST_PAUSE * 2 ** (tries - 1), LONGEST_PAUSE))


def causes(error: BaseException) -> list[BaseException]:
    """The error and its chain of causes, the root last."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def once_per_schema(function: Callable[[JSON], T]) -> Callable[[JSON], T]:
    """Compute a function of a schema once for each schema object, which is kept, so that its id stays its own."""
    known: dict[int, tuple[JSON, T]] = {}

    def computed(schema: JSON) -> T:
        if id(schema) not in known:
            if len(known) >= KEPT_SCHEMAS:
                known.clear()
            known[id(schema)] = (schema, function(schema))
        return known[id(schema)][1]

    return computed
