"""Local models on the machines of a cluster: an actor for each GPU, or for each node where there is none.

Each actor has a llama.cpp of its own, which answers as one on this machine does. Calls go to the actor that has the
beginning of their prompts cached, while it has room (`models.spread`). Ray starts an actor that ends again, and
meanwhile the others answer its calls.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from practicum.core.errors import ModelError, PracticumError, ProviderError, RequestError
from practicum.core.types import Prompt, Usage
from practicum.models.client import JSON, CallOptions, Client, Reply, Wait, wait_out
from practicum.models.prices import Pricing
from practicum.models.provider import backoff
from practicum.models.refused import RefusedParameters
from practicum.models.registry import LOCAL_SLOTS, ClientSettings, Models, price_of
from practicum.models.spread import Server, Spread

STARTED = 600.0
"""Seconds within which each node must have loaded the model, which it may have to download before."""

RESTARTS = 10
"""How often Ray starts an actor again."""


def hosted(name: str, settings: ClientSettings) -> Client:
    """A client of a local model on the cluster that this process is part of.

    Raises ModelError, which names the node, if the model cannot be used on one: the file must be on each, or be one
    that is downloaded.
    """
    import ray

    path = name.partition(":")[2]
    there = f"local:{Path(path).absolute()}" if path and not path.startswith(("hf:", "~")) else name
    own = replace(settings, attempts=1, progress=None, host=None, prices={}, api_key_env=None)
    own = replace(own, options=own.options.without_secrets())
    actors = [(node, host.remote(there, own)) for node, host in _places()]
    try:
        clients = dict(_opened(name, settings, actors))
    except BaseException:
        for _, actor in actors:
            ray.kill(actor)
        raise
    return Spread(name=name, clients=clients, attempts=settings.attempts)


def _places() -> Iterator[tuple[str, Any]]:
    """The address of a node and the class of an actor that is bound to it, for each actor."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    gpus = {node["NodeID"]: int(node["Resources"].get("GPU", 0)) for node in nodes}
    for node in nodes:
        # An actor takes no processor, so that it never waits for the attempts that ask it.
        how: dict[str, Any] = {
            "num_cpus": 0, "num_gpus": 1 if any(gpus.values()) else 0, "max_restarts": RESTARTS,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        }  # fmt: skip
        for _ in range(gpus[node["NodeID"]] if any(gpus.values()) else 1):
            yield node["NodeManagerAddress"], ray.remote(**how)(Host)


def _opened(name: str, settings: ClientSettings, actors: list[tuple[str, Any]]) -> Iterator[tuple[Server, Client]]:
    """The clients of actors, as soon as all have loaded the model."""
    import ray

    opening = [actor.window.remote() for _, actor in actors]
    late = ray.wait(opening, num_returns=len(opening), timeout=STARTED)[1]
    slots = min(settings.concurrency, LOCAL_SLOTS)
    for n, ((address, actor), opened) in enumerate(zip(actors, opening, strict=True), 1):
        if opened in late:
            raise ModelError(
                "model.load_failed",
                f"{name} was not loaded on node {address} within {STARTED:g} s: is a GPU of it free?",
            )
        try:
            window = ray.get(opened)
        except ray.exceptions.RayError as error:
            window = ModelError("model.load_failed", f"its actor ended ({_brief(error)})")
        if isinstance(window, PracticumError):
            raise ModelError("model.unusable", f"{name} cannot be used on node {address}: {window}")
        at = f"{name} on node {address} ({n} of {len(actors)})"
        price = price_of(name, settings.prices)
        yield Server(at, slots), HostedClient(at, actor, settings.attempts, window, slots, price)


class Host:
    """What an actor does: it opens the model when it is first asked, also after it was started again. A failure is
    returned and not raised, because Ray would put a traceback around it."""

    def __init__(self, name: str, settings: ClientSettings) -> None:
        self._name = name
        log = Path(tempfile.mkdtemp(prefix="practicum-"))
        self._models = Models(replace(settings, log=log))

    async def window(self) -> int | PracticumError | None:
        """The model's window in tokens, when it is loaded."""
        try:
            return self._open().window
        except PracticumError as error:
            return error

    async def complete(
        self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions
    ) -> Reply | PracticumError:
        try:
            return await self._open().complete(role, prompt, schema, options)
        except PracticumError as error:
            return error

    def _open(self) -> Client:
        return self._models.open(self._name)


@dataclass(frozen=True)
class HostedClient:
    """The client of one actor. Its model ends when the client is closed."""

    name: str
    actor: Any
    attempts: int
    window: int | None
    slots: int
    price: Pricing
    holds_to_choices: bool = True

    @property
    def endpoint(self) -> str:
        return self.name

    @property
    def priced(self) -> bool:
        return self.cost(Usage(1, 1000, 0, 100)) is not None

    def cost(self, usage: Usage) -> float | None:
        return self.price(usage)

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Ask the actor, and ask again after a failure that may pass, or when it was lost. Raises ProviderError if it
        still fails after all attempts, and ModelError if no retry can help."""
        tries = 0
        while True:
            tries += 1
            answer = await self._ask(role, prompt, schema, replace(options, wait=wait_out, refused=RefusedParameters()))
            if isinstance(answer, Reply):
                return replace(answer, usage=replace(answer.usage, usd=self.cost(answer.usage)))
            if not isinstance(answer, ProviderError) or isinstance(answer, RequestError) or tries >= self.attempts:
                raise answer
            await options.wait(Wait(self.name, backoff(tries), tries, self.attempts, str(answer)))

    async def _ask(self, *call: Any) -> Reply | PracticumError:
        import ray

        asked = self.actor.complete.remote(*call)
        try:
            answer: Reply | PracticumError = await asked
        except ray.exceptions.RayError as error:
            return ProviderError("provider.failed", f"{self.name} was lost ({_brief(error)})")
        except asyncio.CancelledError:
            ray.cancel(asked)
            raise
        return answer

    async def close(self) -> None:
        import ray

        ray.kill(self.actor)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
