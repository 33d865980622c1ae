"""The one way to call a model: a prompt and an optional JSON schema go in, unparsed text and its usage come out.

The text is returned unparsed so that the caller can write it to the journal first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from practicum.core.counts import Count
from practicum.core.thoughts import SILENCES
from practicum.core.types import Prompt, Usage
from practicum.models.refused import RefusedParameters

T = TypeVar("T")
JSON = dict[str, Any]

KEPT_SCHEMAS = 256
"""Schemas for which `once_per_schema` keeps the result."""

WINDOW_ADVICE = (
    "shorten the task, lower the context budget if the method has one (`settings: budget=N`), or use a larger window: "
    "`window=N` if the model supports it, otherwise another model"
)
"""What to do when a prompt is larger than its model's window."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause of so many seconds before a call is sent again: the model, the tries so far, how many there are at most,
    why, and whether the model's provider limits the rate of calls. `moved` says that its server (`model`) has just
    failed, so that calls go to the model's other servers."""

    model: str
    seconds: float
    tries: int
    most: int
    reason: str
    limited: bool = False
    moved: bool = False


async def wait_out(wait: Wait) -> None:
    """Sleep through a pause."""
    await asyncio.sleep(wait.seconds)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Sampling options of one call. `timeout` is in seconds; None leaves a value to the provider.

    A client awaits `wait` between two tries of a call. It raises Stopped if the run stops meanwhile. `refused` are the
    parameters that the model's server refused so far: a client leaves them out, and adds those that it refuses now.
    """

    temperature: float | None = None
    max_output_tokens: int = 1024
    timeout: float = 120.0
    seed: int | None = None
    wait: Callable[[Wait], Awaitable[None]] = field(default=wait_out, compare=False, repr=False)
    refused: RefusedParameters = field(default_factory=RefusedParameters, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's unparsed answer. `cut` is set if the model reached its output limit, and `changed` counts what had to
    be changed about what was sent (see `models.receiving`), and why there is no text.

    A client may leave thoughts in the text. Those that the server sent in a field of their own are `thoughts`.
    `refused` and `filtered` say that the model, or the provider's content filter, withheld the answer.
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
        """Why there is no answer (see `core.thoughts`); None if there is one."""
        return next((count for count in self.changed if count in SILENCES), None)


class Client(Protocol):
    """A model that can be called.

    `window` is its context window in tokens, None if unknown. Clients of one `endpoint` share its slots: at most so
    many calls are in flight, None stands for the run's concurrency. `priced` says whether `cost` knows a price.
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
    def holds_to_choices(self) -> bool:
        """Whether a schema {"enum": [...]} makes it answer with one of these texts, plainly and not as JSON."""

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply: ...

    def cost(self, usage: Usage) -> float | None: ...

    async def close(self) -> None: ...


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
