"""One way to ask any model: a prompt and perhaps a schema go in, the raw text and what it cost come out.

pydantic-ai speaks to the providers; around it lie retries with backoff, which heed Retry-After. Output is returned
raw: it is journaled before anyone parses it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol

from practicum.core.errors import ModelError, ProviderError, WindowError
from practicum.core.types import Prompt, Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

Structure = Literal["native", "tool", "prompted", "grammar"]
JSON = dict[str, Any]

FIRST_TRIES = 3
"""Tries of a server that never answered yet: a wrong address or a server that is down should be told within seconds."""
LONGEST_PAUSE = 30.0
LONGEST_ASKED_PAUSE = 120.0
"""Seconds between two tries: by our own backoff, and where the provider asks for it."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How a model is asked. `timeout` in seconds; None leaves a value to the provider."""

    temperature: float | None = None
    max_output_tokens: int = 1024
    timeout: float = 120.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, unparsed. `cut` is set where the model ran into its output limit."""

    text: str
    usage: Usage
    cut: bool = False


class Client(Protocol):
    """A model that can be asked. `window` is its context in tokens, None where unknown. Clients of one `endpoint`
    share its slots: as many calls in flight as the run allows, and at most `slots`."""

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


WINDOW_ADVICE = (
    "shorten the task, lower the context's budget where the method has one (--set budget=N), or take a larger window: "
    "--window N where the model reads as much, else another model"
)
"""What to do where a prompt is larger than the window of its model."""

SHAPES = 256
"""Most schemas that a client keeps as its model is told them."""


class ProviderClient:
    """A model behind pydantic-ai. `cost_of` gives US dollars for a usage, or None where no price is known."""

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        structure: Structure,
        endpoint: str,
        slots: int | None = None,
        cost_of: Callable[[Usage], float | None],
        attempts: int = 6,
        wait: float = 0.5,
        window: int | None = None,
        seeds: bool = False,
        on_close: Callable[[], Any] | None = None,
    ) -> None:
        self._name = name
        self._customized: dict[int, ModelRequestParameters] = {}
        self._model = _lightened(model, self._customized)
        self._structure = structure
        self._endpoint = endpoint
        self._slots = slots
        self._cost_of = cost_of
        self._attempts = attempts
        self._wait = wait
        self._window = window if window is not None else model.profile.get("context_window")
        self._seeds = seeds
        self._on_close = on_close
        self._reached = False
        self._shapes: dict[int, tuple[JSON, ModelRequestParameters, dict[str, Any]]] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def endpoint(self) -> str:
        return self._endpoint

    @property
    def slots(self) -> int | None:
        return self._slots

    @property
    def window(self) -> int | None:
        return self._window

    @property
    def priced(self) -> bool:
        return self.cost(Usage(1, 1000, 0, 100)) is not None

    def cost(self, usage: Usage) -> float | None:
        return self._cost_of(usage)

    async def close(self) -> None:
        if self._on_close is not None:
            await self._on_close()

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Ask once, retrying what may pass. Raises ProviderError when it does not, ModelError when it cannot."""
        parameters, extra = self._shape(schema)
        settings = {**extra, "max_tokens": options.max_output_tokens, "timeout": options.timeout}
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.seed is not None and self._seeds:
            settings["seed"] = options.seed
        messages = _messages(prompt)
        return self._reply(await self._persist(lambda: self._model.request(messages, settings, parameters)))  # type: ignore[arg-type]

    async def _persist(self, ask: Callable[[], Awaitable[ModelResponse]]) -> ModelResponse:
        """Try again what may pass; translate what does not."""
        from pydantic_ai.exceptions import AgentRunError, UserError

        for tried in count(1):
            try:
                response = await ask()
            except (AgentRunError, UserError) as error:
                if not _passes(error):
                    raise _plain(self._name, error) from error
                if not self._reached and tried >= FIRST_TRIES and _unreachable(error):
                    raise _nobody_there(self._name, error) from error
                if tried >= self._attempts:
                    raise ProviderError(
                        f"{self._name} failed {tried} times: {_short(error)}; is the server up and not overloaded?"
                    ) from error
                pause = self._pause(error, tried)
            else:
                self._reached = True
                return response
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def _pause(self, error: BaseException, tried: int) -> float:
        """Seconds until the next try: what the provider asked for, else a random part of a growing span."""
        asked = getattr(error, "retry_after", None)
        if asked is not None:
            return min(float(asked), LONGEST_ASKED_PAUSE)
        return random.uniform(0, min(self._wait * 2 ** (tried - 1), LONGEST_PAUSE))

    def _shape(self, schema: JSON | None) -> tuple[ModelRequestParameters, dict[str, Any]]:
        """How this model is told its schema; made once for each of the last schema objects, which are kept
        alive with it: a curator has one for each set of rules."""
        from pydantic_ai.models import ModelRequestParameters

        if schema is None:
            return ModelRequestParameters(), {}
        known = self._shapes.get(id(schema))
        if known is None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
                self._customized.clear()
            known = self._shapes[id(schema)] = (schema, *_shape_of(schema, self._structure))
            self._customized[id(known[1])] = self._model.customize_request_parameters(known[1])
        return known[1], known[2]

    def _reply(self, response: ModelResponse) -> Reply:
        from pydantic_ai.messages import ToolCallPart

        calls = [part.args_as_json_str() for part in response.parts if isinstance(part, ToolCallPart)]
        text = calls[0] if calls else (response.text or "")
        counted = response.usage
        usage = Usage(1, counted.input_tokens, counted.cache_read_tokens, counted.output_tokens)
        usage = Usage(1, usage.input_tokens, usage.cached_tokens, usage.output_tokens, self._cost_of(usage))
        return Reply(text, usage, cut=response.finish_reason == "length")


def _lightened(model: Any, customized: dict[int, ModelRequestParameters]) -> Model:
    """The same model, with a third less CPU a call (bench/calls_bench.py); what is sent stays the same.

    A schema is rewritten for the provider once (`customized`, by the id of its parameters), not in each call. What is
    asked is posted as it is: the OpenAI SDK's own method walks each value through every variant of its type to find
    fields to rename, of which plain JSON has none. It does so with a reply too, of which pydantic makes the same.
    """
    customize = model.customize_request_parameters
    model.customize_request_parameters = lambda parameters: customized.get(id(parameters)) or customize(parameters)
    client: Any = getattr(model, "client", None)
    if type(client).__module__.partition(".")[0] != "openai":
        return model  # type: ignore[no-any-return]
    from openai import NotGiven, Omit

    async def posted(*, extra_headers: Any, extra_body: Any, **asked: Any) -> Any:
        options = {"headers": extra_headers, "timeout": asked.pop("timeout")}
        body = {name: value for name, value in asked.items() if not isinstance(value, Omit | NotGiven)}
        body |= extra_body or {}
        return _read(await client.post("/chat/completions", cast_to=object, body=body, options=options))

    client.chat.completions.create = posted
    return model  # type: ignore[no-any-return]


def _read(reply: Any) -> Any:
    """The SDK's object of a reply, whatever its fields are like; what is no object is left as it is."""
    from openai.types.chat import ChatCompletion

    if not isinstance(reply, dict):
        return reply
    try:
        return ChatCompletion.model_validate(reply)
    except ValueError:
        return ChatCompletion.construct(**reply)


def _shape_of(schema: JSON, structure: Structure) -> tuple[ModelRequestParameters, dict[str, Any]]:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    name = str(schema.get("title", "answer"))
    if structure == "grammar":
        from practicum.models.local import compact_grammar

        return ModelRequestParameters(), {"extra_body": {"grammar": compact_grammar(schema)}}
    if structure == "tool":
        tool = ToolDefinition(name=name, parameters_json_schema=schema, description="Give your answer.", kind="output")
        return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False), {}
    mode: Literal["native", "prompted"] = "native" if structure == "native" else "prompted"
    output = OutputObjectDefinition(json_schema=schema, name=name)
    return ModelRequestParameters(output_mode=mode, output_object=output), {}


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


def _passes(error: BaseException) -> bool:
    """Whether asking again may help: limits, overload, server faults, broken connections, unreadable replies."""
    from pydantic_ai import exceptions as e

    if isinstance(error, e.ModelQuotaExceededError | e.ModelRequestRejectedError):
        return isinstance(error, e.ModelHTTPError) and error.status_code in (408, 409, 425)
    return isinstance(error, e.ModelAPIError | e.UnexpectedModelBehavior)


def _unreachable(error: BaseException) -> bool:
    """Whether it looks as if no model server were there: no connection, or words that are no reply of one."""
    from pydantic_ai import exceptions as e

    if isinstance(error, e.ModelTimeoutError):
        # A refused connection comes through aiohttp as one that timed out.
        return any(type(cause).__name__.startswith("Connect") for cause in _causes(error))
    unreadable = isinstance(error, e.UnexpectedModelBehavior) or isinstance(error.__cause__, ValueError)
    return unreadable or isinstance(error, e.ModelConnectionError)


def _nobody_there(name: str, error: BaseException) -> ModelError:
    from pydantic_ai import exceptions as e

    if isinstance(error, e.ModelConnectionError):
        why = " ".join(str(_causes(error)[-1] or error).split())
        return ModelError(f"cannot reach {name}: is the server up, and the address right? ({why})")
    return ModelError(
        f"{name} does not answer as a model server does: check the address (it ends in /v1) and what stands before it, "
        f"a proxy or a login page ({_short(error)})"
    )


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what it came from, the root last."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _short(error: BaseException | None) -> str:
    """The first line of an error, cut: providers answer with pages of HTML."""
    text = " ".join(str(error).split())
    cause = error.__cause__ if error is not None else None
    if cause is not None and str(cause) and str(cause) not in text:
        text = f"{text} ({' '.join(str(cause).split())})"
    return text if len(text) <= 300 else text[:300] + "…"


def _plain(name: str, error: BaseException) -> ModelError | ProviderError:
    """One clear line for what no retry can mend."""
    from pydantic_ai import exceptions as e

    match error:
        case e.ModelAuthenticationError():
            return ModelError(f"{name} refused the key: check its API key in the environment ({_short(error)})")
        case e.ModelNotFoundError():
            return ModelError(f"{name} was not found: check the model's name and the address ({_short(error)})")
        case e.ModelContextWindowExceededError():
            return WindowError(f"the prompt is larger than the window of {name}: {WINDOW_ADVICE} ({_short(error)})")
        case e.ModelQuotaExceededError():
            return ModelError(f"the account of {name} has no credit left ({_short(error)})")
        case e.ModelRequestRejectedError():
            return ModelError(
                f"{name} rejected the request: if it does not know JSON schemas try --structure tool or prompted "
                f"({_short(error)})"
            )
        case e.UserError():
            return ModelError(f"{name} cannot be used: {_short(error)}")
        case _:
            return ProviderError(f"{name} failed: {_short(error)}")
