"""Models of providers, by pydantic-ai, with retries whose backoff respects Retry-After."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from practicum.core.errors import ModelError, ProviderError, WindowError
from practicum.core.types import Prompt, Usage
from practicum.core.words import quantity
from practicum.models.client import JSON, WINDOW_ADVICE, CallOptions, Reply, Structure, Wait, causes, once_per_schema
from practicum.models.keys import without_keys
from practicum.models.local import choice_grammar, compact_grammar
from practicum.models.prompting import prompt_tokens
from practicum.models.receiving import within_limit
from practicum.models.transport import RefusedReply

FIRST_TRIES = 3
"""Tries for a server that has never answered: users should learn of a wrong address within seconds."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LONGEST_REQUESTED_PAUSE = 120.0
"""Seconds between two tries: the backoff starts at the first and ends at the second; the third is the limit for a
provider's Retry-After."""


NO_SUCH_INTERFACE = (400, 404, 405, 501)
"""The statuses with which servers answer at an address of the protocol that they do not have."""


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
    key: str | None = field(default=None, repr=False)
    """The key that the server is sent; no message shows it."""
    fallback: Callable[[], Model] | None = None
    """Makes the model to go on with if the server does not know the interface of `model`."""
    on_close: Callable[[], Awaitable[None]] | None = None
    _reached: bool = field(default=False, init=False)
    _left: list[Model] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._output_format = once_per_schema(self._schema_format)
        if self.window is None:
            self.window = self.model.profile.get("context_window")

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
            async with model:
                pass  # on exit pydantic-ai closes the connections that it opened itself
        if self.on_close is not None:
            await self.on_close()

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Call the model and retry transient failures.

        `options.timeout` is the most seconds of one try, from the connection to the last byte. Raises ProviderError if
        it still fails after all attempts, and ModelError if no retry can help.
        """
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
            model = self.model
            try:
                # The timeout of the request is one between two bytes, which a server that drips never exceeds.
                async with asyncio.timeout(options.timeout):
                    response = await model.request(messages, settings, parameters)  # type: ignore[arg-type]
                reply = self._reply(response, prompt, options)
            # Whatever the libraries between here and the server raise, it is about what the server sent.
            except Exception as error:
                if self._fell_back(model, error):
                    continue
                failure = self._failure(error, tries, options)
                if failure is not None:
                    # A traceback shows the causes too.
                    raise failure from None if self._quoted(error) else error
                limited = isinstance(error, exceptions.ModelRateLimitError)
                wait = Wait(
                    self.name, _pause(error, tries), tries, self.attempts, self._said(_error_summary(error)), limited
                )
            else:
                self._reached = True
                return reply
            await options.wait(wait)

    def _failure(self, error: Exception, tries: int, options: CallOptions) -> ModelError | ProviderError | None:
        """What to raise after so many tries; None if the call is sent again."""
        failure: ModelError | ProviderError | None = None
        if refused := next((cause for cause in causes(error) if isinstance(cause, RefusedReply)), None):
            failure = ProviderError(f"{self.name} failed: {refused}")
        elif not _is_transient(error):
            failure = _permanent_error(self.name, error)
        elif not self._reached and tries >= FIRST_TRIES and _is_unreachable(error):
            failure = ModelError(_unanswered(self.name, error))
        elif tries >= self.attempts:
            failure = ProviderError(_unanswered(self.name, error, tries))
        if failure is not None:
            failure.args = (self._said(str(failure)),)
        return failure

    def _said(self, text: str) -> str:
        """What is said of a failure, without the key, which the server may have quoted."""
        return without_keys(text, self.key)

    def _quoted(self, error: Exception) -> bool:
        return any(self._said(str(cause)) != str(cause) for cause in causes(error))

    def _fell_back(self, used: Model, error: BaseException) -> bool:
        """Whether the call should be sent again, because another model is used from now on."""
        if used is not self.model:
            return True  # another call has fallen back meanwhile
        unknown = isinstance(error, exceptions.ModelHTTPError) and error.status_code in NO_SUCH_INTERFACE
        if self.fallback is None or self._reached or not unknown:
            return False
        self._left.append(self.model)
        self.model, self.fallback = self.fallback(), None
        self._output_format = once_per_schema(self._schema_format)
        return True

    def _schema_format(self, schema: JSON) -> tuple[ModelRequestParameters, JSON]:
        """The request parameters, and fields of the request's body, that ask for JSON of this schema."""
        name = str(schema.get("title", "answer"))
        if self.structure == "grammar":
            grammar = choice_grammar(schema["enum"]) if schema.keys() == {"enum"} else compact_grammar(schema)
            return ModelRequestParameters(), {"grammar": grammar}
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

    def _reply(self, response: ModelResponse, prompt: Prompt, options: CallOptions) -> Reply:
        calls = [part.args_as_json_str() for part in response.parts if isinstance(part, ToolCallPart)]
        text = calls[0] if calls else (response.text or "")
        counts = response.usage
        usage = Usage(1, counts.input_tokens, counts.cache_read_tokens, counts.output_tokens)
        sent = Reply(text, usage, cut=response.finish_reason == "length")
        reply = within_limit(sent, prompt_tokens(prompt), options.max_output_tokens)
        return replace(reply, usage=replace(reply.usage, usd=self.price(reply.usage)))


def _messages(prompt: Prompt) -> list[ModelMessage]:
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


_PERMANENT: dict[type[Exception], tuple[type[ModelError], str]] = {
    exceptions.ModelAuthenticationError: (
        ModelError,
        "{name} refused the key: check the variable of its key in the environment (of an address: `api_key_env`)",
    ),
    exceptions.ModelNotFoundError: (
        ModelError,
        "{name} was not found: check the model's name and the address (most end in /v1)",
    ),
    exceptions.ModelContextWindowExceededError: (
        WindowError,
        f"the prompt is larger than the window of {{name}}: {WINDOW_ADVICE}",
    ),
    exceptions.ModelQuotaExceededError: (ModelError, "the account of {name} has no credit left"),
    exceptions.ModelRequestRejectedError: (
        ModelError,
        "{name} rejected the request: without support of JSON schemas, try `structure=tool` or `structure=prompted`",
    ),
    exceptions.UserError: (ModelError, "{name} cannot be used"),
}
"""The error that is raised, and its text."""


def _is_transient(error: BaseException) -> bool:
    """Whether a retry may help: rate limits, overload, server errors, broken connections, unreadable replies."""
    if isinstance(error, exceptions.ModelQuotaExceededError | exceptions.ModelRequestRejectedError):
        return isinstance(error, exceptions.ModelHTTPError) and error.status_code in (408, 409, 425)
    if isinstance(error, exceptions.ModelAPIError | exceptions.UnexpectedModelBehavior):
        return True
    return not isinstance(error, exceptions.AgentRunError | exceptions.UserError)


def _is_unreachable(error: BaseException) -> bool:
    """Whether there seems to be no model server: no connection, or a reply that is not one of a model server."""
    if isinstance(error, exceptions.ModelTimeoutError):
        return bool(_no_connection(error))
    unreadable = isinstance(error, exceptions.UnexpectedModelBehavior) or isinstance(error.__cause__, ValueError)
    return unreadable or isinstance(error, exceptions.ModelConnectionError)


def _no_connection(error: BaseException) -> str:
    """Why no connection was made; empty if one was. The transport of aiohttp reports a refused one as a timeout."""
    chain = causes(error)
    refused = any(type(cause).__name__.startswith(("Connect", "ClientConnect")) for cause in chain)
    return " ".join(str(chain[-1]).split()) if refused else ""


def _unanswered(name: str, error: BaseException, tries: int | None = None) -> str:
    """What to say of a call that stays without an answer after all tries, or (None) of a server that never gave one."""
    refused = _no_connection(error)
    if refused or (tries is None and isinstance(error, exceptions.ModelConnectionError)):
        often, refused = f" after {quantity(tries, 'try')}" if tries else "", refused or _error_summary(error)
        return f"cannot reach {name}{often}: is the server up, and the address right? ({refused})"
    if tries is None:
        return (
            f"{name} does not answer as a model server does: check the address (it ends in /v1) and whether a proxy or "
            f"a login page stands in between ({_error_summary(error)})"
        )
    said = _error_summary(error).rstrip(".")
    return f"{name} failed {quantity(tries, 'time')}: {said}; is the server up and not overloaded?"


def _permanent_error(name: str, error: BaseException) -> ModelError | ProviderError:
    """The error for a failure that no retry can fix."""
    for kind, (raised, text) in _PERMANENT.items():
        if isinstance(error, kind):
            return raised(f"{text.format(name=name)} ({_error_summary(error)})")
    return ProviderError(f"{name} failed: {_error_summary(error)}")


def _error_summary(error: BaseException) -> str:
    """What the provider said on one line, with its status; else the error and its cause. It is cut to 300 characters:
    some providers answer with pages of HTML."""
    if refused := _no_connection(error):
        return f"no connection: {refused}"
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    said = inner.get("message") if isinstance(inner, dict) else None
    if isinstance(error, TimeoutError):
        return "the call took longer than `timeout` allows"
    text = " ".join((f"{getattr(error, 'status_code', '')} {said}" if said else str(error)).split())
    text = text or type(error).__name__
    cause = " ".join(str(error.__cause__ or "").split())
    if cause and not said and cause not in text:
        text = f"{text} ({cause})"
    return text if len(text) <= 300 else text[:300] + "…"
