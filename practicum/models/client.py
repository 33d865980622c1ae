"""Protocol of model clients: a call takes a prompt and an optional JSON schema, and returns unparsed text with the
usage of the call.

The client does not parse the text, so that the caller can write the text to the journal before parsing it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from practicum.core.counts import Count
from practicum.core.thoughts import SILENCES
from practicum.core.types import Prompt, Usage
from practicum.models.refused import RefusedParameters

T = TypeVar("T")
JSON = dict[str, Any]

CACHED_SCHEMAS = 256
"""Number of schemas for which `once_per_schema` caches the result."""

WINDOW_ADVICE = (
    "shorten the task, lower the method's context budget if the method has such a setting (`settings: budget=N`), set "
    "`window=N` if the model supports a larger window, or use another model"
)
"""Advice for a prompt that is larger than its model's window."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Pause before a call is sent again: the model, the seconds, the number of tries so far, the maximum number of
    tries, the reason, and whether the reason is the provider's rate limit (`limited`). `moved`: `model` is the name of
    a server that has just failed, one of several servers of a model; the calls that were sent to this server move to
    the other servers. `batch`: the call waits until a batch of this many requests is sent or checked; `reason`
    is then the id of the batch, or empty before it is sent."""

    model: str
    seconds: float
    tries: int
    most: int
    reason: str
    limited: bool = False
    moved: bool = False
    batch: int = 0


class BatchRecord(Protocol):
    """Record of the batches in which a run sent its requests. `key` identifies a request (see `CallOptions.key`), and
    `batch` is a handle from which the batch's results can be read later."""

    def take_batch(self, key: str) -> JSON | None:
        """Return the batch in which an earlier process of the run sent a request, if the request has no answer yet. A
        second call with the same key returns None."""

    async def note_batch(self, id: str, batch: JSON, keys: Sequence[str]) -> None:
        """Write to disk that requests were sent in a batch with this id."""


async def wait_out(wait: Wait) -> None:
    """Sleep for the duration of a pause."""
    await asyncio.sleep(wait.seconds)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Sampling options of one call. If `temperature` or `seed` is None, the provider's default applies. `timeout` is in
    seconds.

    A client awaits `wait` between two tries of a call. The `wait` that a run passes raises Stopped if the run stops
    during the pause. `refused` holds the parameters that the model's server refused before: a client omits these
    parameters, and adds the parameters that the server refuses during this call. `key` identifies the call among all
    calls of the run, also after a resume, and `record` is the run's record of batches; both are for clients that send
    calls in batches.
    """

    temperature: float | None = None
    max_output_tokens: int = 1024
    timeout: float = 120.0
    seed: int | None = None
    wait: Callable[[Wait], Awaitable[None]] = field(default=wait_out, compare=False, repr=False)
    refused: RefusedParameters = field(default_factory=RefusedParameters, compare=False, repr=False)
    key: str = field(default="", compare=False, repr=False)
    record: BatchRecord | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """Unparsed answer of a model. `cut`: the model reached its output limit. `changed` lists counters to increment: for
    repairs of the received reply (see `models.receiving`), for repeated samples, for a move to another server, and for
    the reason why `text` is empty.

    A client may leave thoughts in the text. `thoughts` are thoughts that the server sent in a separate field.
    `refused`: the model withheld the answer. `filtered`: the provider's content filter withheld the answer.
    """

    text: str
    usage: Usage
    cut: bool = False
    changed: tuple[Count, ...] = ()
    thoughts: str = ""
    refused: bool = False
    filtered: bool = False

    @property
    def silence(self) -> Count | None:
        """Reason for a missing answer (see `core.thoughts`); None if the reply has an answer."""
        return next((count for count in self.changed if count in SILENCES), None)


class Client(Protocol):
    """Protocol of a model that can be called.

    `window` is the context window of the model (tokens); None: unknown. `slots` is the maximum number of calls in
    flight at `endpoint`, for all clients with this endpoint together; None: only the run's concurrency limits the
    calls. `priced`: whether the price of calls is known, so that `cost` does not return None.
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

    @property
    def enforces_grammars(self) -> bool:
        """Whether a schema {"grammar": "..."} forces the answer to match this grammar of llama.cpp. Such an answer is
        plain text, not JSON."""

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply: ...

    def cost(self, usage: Usage) -> float | None: ...

    async def close(self) -> None: ...


def causes(error: BaseException) -> list[BaseException]:
    """Return a list of the error, the cause of the error, the cause of this cause, and so on."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def once_per_schema(function: Callable[[JSON], T]) -> Callable[[JSON], T]:
    """Cache the results of a function by the id of its argument, a schema object. The cache keeps the schema object
    alive, so that no other object gets the same id."""
    cache: dict[int, tuple[JSON, T]] = {}

    def computed(schema: JSON) -> T:
        if id(schema) not in cache:
            if len(cache) >= CACHED_SCHEMAS:
                cache.clear()
            cache[id(schema)] = (schema, function(schema))
        return cache[id(schema)][1]

    return computed
