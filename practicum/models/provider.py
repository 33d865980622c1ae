"""Client of provider models through pydantic-ai, with retries whose backoff respects `Retry-After`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from practicum.core.counts import Count
from practicum.core.errors import ModelError, ProviderError, Stopped
from practicum.core.images import split_text
from practicum.core.types import Prompt, Usage
from practicum.models.caching import takes_breakpoints, with_breakpoints
from practicum.models.chat import ChatModel, is_strict, provided_reply, untitled
from practicum.models.client import JSON, CallOptions, Reply, Wait, causes, once_per_schema
from practicum.models.command_line import CommandLineModel
from practicum.models.keys import without_keys
from practicum.models.local import compact_grammar
from practicum.models.prompting import prompt_tokens
from practicum.models.receiving import within_limit
from practicum.models.refused import Form, RefusedParameters, Structure
from practicum.models.transport import RefusedReply

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters

    # `models.failures` imports pydantic-ai, which plain answers do not need.
    from practicum.models.failures import Kind

    AnyModel = Model | ChatModel | CommandLineModel

FIRST_TRIES = 3
"""Number of tries for a server that has not answered before, so that a wrong address is reported within seconds."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LONGEST_REQUESTED_PAUSE = 120.0
"""Pauses between two tries (s): the first and the longest pause of the backoff, and the maximum for a provider's
`Retry-After`."""


SAMPLES = 3
"""Maximum number of times that an answer is requested if the provider fails to generate the answer in the requested
format."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """Request to send. `sent` are the names of the request's parameters, plus "system" if the request has a system
    message. `replaced` maps the parameters that the server refused before to their replacements."""

    form: Form
    prompt: Prompt
    schema: JSON | None
    settings: JSON
    sent: frozenset[str]
    replaced: Mapping[str, str | None]


@dataclass(kw_only=True)
class ProviderClient:
    """Client of a model through pydantic-ai. Plain answers of a server with OpenAI's chat completions are read without
    pydantic-ai, and so are the answers of a program."""

    name: str
    model: AnyModel
    endpoint: str
    structure: Structure
    price: Callable[[Usage], float | None]
    """Function from usage to US dollars; it returns None if the price is unknown."""
    attempts: int = 6
    slots: int | None = None
    window: int | None = None
    supports_seed: bool = False
    key: str | None = field(default=None, repr=False)
    """API key for the server. Messages show neither the key nor the `secrets`, which are values of headers."""
    extra_body: JSON = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    fallback: Callable[[], Model] | None = None
    """Function that creates the replacement for `model`, used if the server does not support the interface of
    `model`."""
    on_close: Callable[[], Awaitable[None]] | None = None
    _reached: bool = field(default=False, init=False)
    _left: list[AnyModel] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._body_fields = once_per_schema(self._make_body_fields)
        self._parameters = once_per_schema(self._make_parameters)

    @property
    def enforces_grammars(self) -> bool:
        return self.structure == "grammar"

    @property
    def priced(self) -> bool:
        return self.price(Usage(1, 1000, 0, 100)) is not None

    def cost(self, usage: Usage) -> float | None:
        return self.price(usage)

    async def close(self) -> None:
        for model in (self.model, *self._left):
            if not isinstance(model, ChatModel | CommandLineModel):
                async with model:
                    pass  # on exit pydantic-ai closes the connections that it opened
        if self.on_close is not None:
            await self.on_close()

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Call the model and retry transient failures.

        `options.timeout` is the maximum duration of one try (s), from the connection to the last byte. Raises
        ProviderError if all tries of the call fail, and ModelError if no retry can help.
        """
        settings = self._settings(options)
        tries = repeated = 0
        while True:
            tries += 1
            model = self.model
            request = self._request(model, prompt, schema, settings, options.refused)
            try:
                sent = await self._ask(model, request, options)
                reply = within_limit(sent, prompt_tokens(prompt), options.max_output_tokens)
            except (ModelError, Stopped):
                raise
            # Libraries raise exceptions of any type for the data that a server sends.
            except Exception as error:
                if self._fell_back(model, error):
                    continue
                from practicum.models import failures

                refusal = failures.classify(error, request.sent)
                message = self._without_secrets(failures.error_summary(error))
                if refusal.kind == "parameter":
                    options.refused.refuse(refusal.parameter, request.form, message)
                    if options.refused.replaced != request.replaced:
                        tries -= 1
                        continue
                if refusal.kind == "sample" and repeated < SAMPLES - 1:
                    repeated, tries = repeated + 1, tries - 1
                    settings |= {"seed": (settings["seed"] + 1) % 2**31} if "seed" in settings else {}
                    await options.wait(Wait(self.name, 0.0, repeated, SAMPLES, message))
                    continue
                failure = self._failure(error, refusal.kind, tries)
                if failure is not None:
                    # A traceback shows the causes, too, so the causes are left out if one of them quotes a secret.
                    raise failure from None if self._quotes_secret(error) else error
                limited = failures.is_rate_limit(error)
                wait = Wait(self.name, _pause(error, tries), tries, self.attempts, message, limited)
            else:
                self._reached = True
                changed = (*reply.changed, *[Count.REPEATED_SAMPLES] * repeated)
                usage = reply.usage
                usage = replace(usage, usd=self.price(usage)) if usage.usd is None else usage
                return replace(reply, usage=usage, changed=changed)
            await options.wait(wait)

    def _settings(self, options: CallOptions) -> dict[str, Any]:
        """Return the parameters of a call. Parameters that the server refused before are still included."""
        settings: dict[str, Any] = {"max_tokens": options.max_output_tokens}
        if self.endpoint != "bedrock":  # boto3 has a timeout for all calls: AWS_READ_TIMEOUT
            settings["timeout"] = options.timeout
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.seed is not None and self.supports_seed:
            settings["seed"] = options.seed
        if self.extra_body:
            settings["extra_body"] = self.extra_body
        if self.headers:
            settings["extra_headers"] = dict(self.headers)
        return settings

    def _request(
        self, model: AnyModel, prompt: Prompt, schema: JSON | None, settings: JSON, refused: RefusedParameters
    ) -> SentRequest:
        """Return the request, without parameters that the server refused before."""
        form = refused.form(self.structure)
        if schema is not None and form != "grammar" and schema.keys() == {"grammar"}:
            schema = None  # a grammar for plain text; the server refused grammars
        prompt, settings = refused.prompt(prompt, form, schema), refused.settings(settings)
        sent = {*settings, *settings.get("extra_body", ())}
        if "max_tokens" in settings and not isinstance(model, ChatModel):
            sent.add("max_completion_tokens")  # pydantic-ai may use this name for the limit
        if prompt.head or (schema is not None and form == "prompted"):
            sent.add("system")
        if schema is not None and form != "text":
            sent.add({"tool": "tools", "grammar": "grammar"}.get(form, "response_format"))
        return SentRequest(form, prompt, schema, settings, frozenset(sent), {**refused.replaced})

    async def _ask(self, model: AnyModel, request: SentRequest, options: CallOptions) -> Reply:
        """Send a request once."""
        form, schema = request.form, request.schema
        # The timeout in the settings limits only the time between two bytes, which a server that sends slowly never
        # exceeds.
        async with asyncio.timeout(options.timeout):
            if isinstance(model, CommandLineModel):
                return await model.ask(request.prompt, schema if form == "native" else None, request.settings)
            if isinstance(model, ChatModel):
                if schema is None or form in ("native", "grammar", "json_object", "text"):
                    fields = {} if schema is None else self._fields(form, schema)
                    return await model.ask({**fields, "messages": _openai_messages(request.prompt)}, request.settings)
                model = model.provided
            return provided_reply(await model.request(*self._arguments(model, request)))

    def _arguments(self, model: Model, request: SentRequest) -> tuple[list[ModelMessage], Any, ModelRequestParameters]:
        """Return the messages, settings and parameters with which a model of pydantic-ai sends a request."""
        from pydantic_ai.models import ModelRequestParameters

        form, settings = request.form, request.settings
        schema = None if form in ("json_object", "text") else request.schema
        if caches := takes_breakpoints(self.endpoint, model.model_name, settings.get("extra_body", {})):
            own_system = schema is None or form != "prompted"
            settings = with_breakpoints(settings, request.prompt, self.endpoint, own_system)
        parameters = ModelRequestParameters() if schema is None else self._parameters(schema)
        return _messages(request.prompt, caches and request.prompt.grows), settings, parameters

    def _fields(self, form: Form, schema: JSON) -> JSON:
        """Return the fields of a request's body that ask for JSON."""
        match form:
            case "json_object":
                return {"response_format": {"type": "json_object"}}
            case "text":
                return {}
        return self._body_fields(schema)

    def _failure(self, error: Exception, kind: Kind, tries: int) -> ModelError | ProviderError | None:
        """Return the exception to raise after `tries` tries, or None if the call is sent again."""
        from practicum.models import failures

        failure: ModelError | ProviderError | None = None
        if refused := next((cause for cause in causes(error) if isinstance(cause, RefusedReply)), None):
            failure = ProviderError("provider.failed", f"{self.name} failed: {refused}")
        elif kind != "transient":
            failure = failures.permanent_error(self.name, error, kind)
        elif not self._reached and tries >= FIRST_TRIES and failures.is_unreachable(error):
            failure = ModelError("model.unreachable", failures.unanswered(self.name, error))
        elif tries >= self.attempts:
            failure = ProviderError("provider.failed", failures.unanswered(self.name, error, tries))
        if failure is not None:
            failure.args = (self._without_secrets(str(failure)),)
        return failure

    def _without_secrets(self, text: str) -> str:
        """Remove the key and the secrets from a message, because the server may have quoted them."""
        for secret in (self.key, *self.secrets):
            text = without_keys(text, secret)
        return text

    def _quotes_secret(self, error: Exception) -> bool:
        return any(self._without_secrets(str(cause)) != str(cause) for cause in causes(error))

    def _fell_back(self, used: AnyModel, error: BaseException) -> bool:
        """Switch the client to the fallback model if the error means that the server does not support the interface of
        the model `used`. Return whether to send the call again, because the client has another model now."""
        if used is not self.model:
            return True  # a concurrent call has switched already
        from practicum.models import failures

        if self.fallback is None or self._reached or not failures.is_unknown_interface(error):
            return False
        self._left.append(self.model)
        self.model, self.fallback = self.fallback(), None
        return True

    def _make_body_fields(self, schema: JSON) -> JSON:
        """Return the body fields that ask a server of the OpenAI protocol for JSON of this schema."""
        assert isinstance(self.model, ChatModel)
        if self.structure == "grammar":
            return schema if schema.keys() == {"grammar"} else {"grammar": compact_grammar(schema)}
        form: JSON = {"schema": untitled(schema), "strict": True}
        if not is_strict(schema):
            output = self.model.provided.customize_request_parameters(self._parameters(schema)).output_object
            assert output is not None
            form = {"schema": output.json_schema, "strict": output.strict}
        json_schema = {"name": _name_of(schema), **form}
        return {"response_format": {"type": "json_schema", "json_schema": json_schema}}

    def _make_parameters(self, schema: JSON) -> ModelRequestParameters:
        """Return the parameters that ask pydantic-ai for JSON of this schema."""
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


def _messages(prompt: Prompt, cache_turns: bool) -> list[ModelMessage]:
    from pydantic_ai.messages import (
        BinaryContent,
        CachePoint,
        ImageUrl,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        UserPromptPart,
    )

    def content(text: str) -> Any:
        """Return the text, or a list of texts and images if the text has images."""
        parts: list[Any] = []
        for piece, address in split_text(text, prompt.images):
            image: Any = BinaryContent.from_data_uri if address.startswith("data:") else ImageUrl
            parts += [piece, image(address)] if address else [piece]
        return text if parts == [text] else parts

    messages: list[ModelMessage] = []
    head: list[Any] = [SystemPromptPart(prompt.head)] if prompt.head else []
    for turn in prompt.turns:
        messages += [
            ModelRequest(parts=[*head, UserPromptPart(content(turn.user))]),
            ModelResponse(parts=[TextPart(turn.assistant)]),
        ]
        head = []
    # A leading cache point is at the end of the turns.
    user = content(prompt.user)
    if cache_turns:
        user = [CachePoint(), *([user] if isinstance(user, str) else user)]
    messages.append(ModelRequest(parts=[*head, UserPromptPart(user)]))
    return messages


def _openai_messages(prompt: Prompt) -> list[JSON]:
    def content(text: str) -> Any:
        """Return the text, or a list of parts if the text has images."""
        parts: list[JSON] = []
        for piece, address in split_text(text, prompt.images):
            parts.append({"type": "text", "text": piece})
            parts += [{"type": "image_url", "image_url": {"url": address}}] if address else []
        return parts if len(parts) > 1 else text

    messages: list[JSON] = [{"role": "system", "content": prompt.head}] if prompt.head else []
    for turn in prompt.turns:
        messages += [{"role": "user", "content": content(turn.user)}, {"role": "assistant", "content": turn.assistant}]
    return [*messages, {"role": "user", "content": content(prompt.user)}]


def _pause(error: BaseException, tries: int) -> float:
    """Return the seconds until the next try: the provider's `Retry-After`, otherwise a random part of an exponential
    backoff."""
    requested = getattr(error, "retry_after", None)
    if requested is not None and requested >= 0:
        return min(float(requested), LONGEST_REQUESTED_PAUSE)
    return backoff(tries)


def backoff(tries: int) -> float:
    """Return the seconds until the next try after `tries` failures: a random part of a pause that doubles each time."""
    return random.uniform(0, min(FIRST_PAUSE * 2 ** (tries - 1), LONGEST_PAUSE))
