"""From a configuration to an open state: models in their seats, the agent, the scorer, the journal and the budget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from practicum.core.errors import ModelError, UsageError
from practicum.engine.loop import Method
from practicum.engine.state import RunState, Seat, Slots
from practicum.models.budget import Budget
from practicum.models.client import CallOptions, Client
from practicum.models.registry import ClientSettings, Models
from practicum.retrieval.vectors import Embedder, Vectors, open_embedder
from practicum.session.components import Parts, make_agent, make_scorer
from practicum.session.config import Config, roles_used
from practicum.store.database import Store
from practicum.store.journal import Journal


@dataclass(frozen=True)
class Shared:
    """What runs side by side in one process share: every model opened once, and one count of what is in flight at each
    endpoint. Whoever made it closes its models."""

    models: Models
    slots: Slots = field(default_factory=dict)


@asynccontextmanager
async def furnished(
    store: Store,
    run_id: str,
    folder: Path,
    config: Config,
    parts: Parts,
    *,
    roles: Sequence[str],
    seats: Mapping[str, str] | None = None,
    agent: bool = True,
    seconds: float = 0.0,
    budget: Budget | None = None,
    lent: Store | None = None,
    shared: Shared | None = None,
) -> AsyncIterator[RunState]:
    """What all places of a run share, with every model that is needed open; all are closed in the end.

    `roles` are asked beside the judge and, where it runs at all, the `agent`; `seats` are models of seats that are no
    role; `seconds` is what earlier sittings took; `budget` holds in place of the run's own, and counts from nothing.
    Vectors are taken from, and kept in, the store `lent` where there is one. What is `shared` stays open.
    Raises UsageError where a name, a key or a price is missing.
    """
    models = shared.models if shared else Models(opening(config, folder, parts))
    try:
        clients = _clients(config, parts, models, roles_used(config, agent and config.asks, roles))
        clients |= {name: parts.clients.get(name) or models.open(model) for name, model in (seats or {}).items()}
        _check_prices(config, clients)
        options = CallOptions(config.temperature, config.max_output_tokens, config.timeout)
        journal = Journal(store, run_id)
        yield RunState(
            journal=journal,
            seats={role: Seat(client, options) for role, client in clients.items()},
            agent=make_agent(config, parts),
            scorer=make_scorer(config, parts),
            vectors=Vectors(parts.embedder or _embedder(config.embedder), lent or store),
            instructions=config.instructions,
            choices=config.choices,
            labels=config.labels,
            judged=config.judged,
            seed=config.seed,
            concurrency=config.concurrency,
            slots=shared.slots if shared else {},
            budget=budget or Budget(config.limits, spent=journal.before, seconds=seconds),
        )
    finally:
        if shared is None:
            await models.close()


def furnished_to_act(
    store: Store, run_id: str, folder: Path, config: Config, parts: Parts, method: Method, *,
    budget: Budget | None = None, lent: Store | None = None,
) -> AbstractAsyncContextManager[RunState]:  # fmt: skip
    """The same for attempts alone, as in evaluation: with the models that the method's `act` asks."""
    roles = method.act_roles
    return furnished(store, run_id, folder, config, parts, roles=roles, seats=method.models, budget=budget, lent=lent)


def opening(config: Config, folder: Path, parts: Parts) -> ClientSettings:
    """How a run opens its models; what they log goes to its folder."""
    return ClientSettings(config.concurrency, config.structure, config.attempts, config.window, folder, parts.progress)


def _embedder(name: str) -> Embedder:
    try:
        return open_embedder(name)
    except ModelError as error:
        raise UsageError(str(error)) from error


def _clients(config: Config, parts: Parts, models: Models, roles: Sequence[str]) -> dict[str, Client]:
    """A client for every role that is asked, and no model that is not needed."""
    clients: dict[str, Client] = {}
    for role in roles:
        passed = parts.clients.get(role) or (None if role in config.roles else parts.clients.get("agent"))
        clients[role] = passed or models.open(config.roles.get(role, config.model))
    return clients


def _check_prices(config: Config, clients: dict[str, Client]) -> None:
    unpriced = [(role, client) for role, client in clients.items() if not client.priced]
    if config.max_usd is not None and unpriced:
        role, client = unpriced[0]
        raise UsageError(
            f"the price of {client.name} ({role}) is not known, so --max-usd cannot be kept: use --max-tokens"
        )
