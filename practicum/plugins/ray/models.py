"""Local models on the nodes of a cluster: one actor per GPU, or one actor per node if the cluster has no GPUs.

Each actor runs its own llama.cpp server, as a local model does on this machine. A call goes to the actor that has the
prefix of the call's prompt cached, if that actor has free slots (`models.spread`). Ray restarts an actor that ends;
until this actor runs again, the other actors answer all calls.
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
"""Timeout (s) for loading the model on all nodes, including its download."""

RESTARTS = 10
"""Maximum number of restarts of an actor by Ray."""


def hosted(name: str, settings: ClientSettings) -> Client:
    """Return a client of a local model on the cluster that this process has joined.

    The model's file must exist on each node, or each node must be able to download it. Raises ModelError, with the
    address of the node, if a node cannot use the model.
    """
    import ray

    path = name.partition(":")[2]
    located = f"local:{Path(path).absolute()}" if path and not path.startswith(("hf:", "~")) else name
    own = replace(settings, attempts=1, progress=None, host=None, prices={}, api_key_env=None)
    own = replace(own, options=own.options.without_secrets())
    actors = [(node, host.remote(located, own)) for node, host in _places()]
    try:
        clients = dict(_opened(name, settings, actors))
    except BaseException:
        for _, actor in actors:
            ray.kill(actor)
        raise
    return Spread(name=name, clients=clients, attempts=settings.attempts)


def _places() -> Iterator[tuple[str, Any]]:
    """For each actor, yield the address of its node and the actor class bound to that node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    gpus = {node["NodeID"]: int(node["Resources"].get("GPU", 0)) for node in nodes}
    for node in nodes:
        # An actor reserves no CPU. Otherwise the actor could wait for a CPU that is used by attempts, which in turn
        # wait for the actor.
        options: dict[str, Any] = {
            "num_cpus": 0, "num_gpus": 1 if any(gpus.values()) else 0, "max_restarts": RESTARTS,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        }  # fmt: skip
        for _ in range(gpus[node["NodeID"]] if any(gpus.values()) else 1):
            yield node["NodeManagerAddress"], ray.remote(**options)(Host)


def _opened(name: str, settings: ClientSettings, actors: list[tuple[str, Any]]) -> Iterator[tuple[Server, Client]]:
    """Yield a server and a client for each actor, once all actors have loaded the model."""
    import ray

    opening = [actor.window.remote() for _, actor in actors]
    late = ray.wait(opening, num_returns=len(opening), timeout=STARTED)[1]
    slots = min(settings.concurrency, LOCAL_SLOTS)
    for n, ((address, actor), opened) in enumerate(zip(actors, opening, strict=True), 1):
        if opened in late:
            raise ModelError(
                "model.load_failed",
                f"{name} was not loaded on node {address} within {STARTED:g} s: check that the node has a free GPU",
            )
        try:
            window = ray.get(opened)
        except ray.exceptions.RayError as error:
            window = ModelError("model.load_failed", f"the actor of the model ended ({_brief(error)})")
        if isinstance(window, PracticumError):
            raise ModelError("model.unusable", f"{name} cannot be used on node {address}: {window}")
        at = f"{name} on node {address} ({n} of {len(actors)})"
        price = price_of(name, settings.prices)
        yield Server(at, slots), HostedClient(at, actor, settings.attempts, window, slots, price)


class Host:
    """Actor that loads the model at the actor's first call, and at the first call after a restart of the actor. Errors
    are returned, not raised, because Ray would wrap a raised error in a traceback."""

    def __init__(self, name: str, settings: ClientSettings) -> None:
        self._name = name
        log = Path(tempfile.mkdtemp(prefix="practicum-"))
        self._models = Models(replace(settings, log=log))

    async def window(self) -> int | PracticumError | None:
        """Load the model and return its context window in tokens (None: unknown), or the error."""
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
    """Client of one actor. Closing the client stops the actor and its model."""

    name: str
    actor: Any
    attempts: int
    window: int | None
    slots: int
    price: Pricing
    enforces_grammars: bool = True

    @property
    def endpoint(self) -> str:
        return self.name

    @property
    def priced(self) -> bool:
        return self.cost(Usage(1, 1000, 0, 100)) is not None

    def cost(self, usage: Usage) -> float | None:
        return self.price(usage)

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Send the call to the actor, and retry after a temporary failure or the loss of the actor. Raise ProviderError
        if all tries fail. Raise an error without a retry if a retry cannot help."""
        tries = 0
        while True:
            tries += 1
            answer = await self._ask(
                role, prompt, schema, replace(options, wait=wait_out, refused=RefusedParameters(), record=None)
            )
            if isinstance(answer, Reply):
                return replace(answer, usage=replace(answer.usage, usd=self.cost(answer.usage)))
            if not isinstance(answer, ProviderError) or isinstance(answer, RequestError) or tries >= self.attempts:
                raise answer
            await options.wait(Wait(self.name, backoff(tries), tries, self.attempts, str(answer)))

    async def _ask(self, *call: Any) -> Reply | PracticumError:
        import ray

        reference = self.actor.complete.remote(*call)
        try:
            answer: Reply | PracticumError = await reference
        except ray.exceptions.RayError as error:
            return ProviderError("provider.failed", f"{self.name} was lost ({_brief(error)})")
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise
        return answer

    async def close(self) -> None:
        import ray

        ray.kill(self.actor)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
