"""Opening of a run: its models, its journal, and its budget with a reserve for the final evaluation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.errors import ModelError, UsageError
from practicum.core.types import Task, Usage
from practicum.core.views import count_tokens, render_full
from practicum.core.words import quantity
from practicum.engine.admission import Admission
from practicum.engine.resources import LOCAL
from practicum.engine.state import ASSUMED_WINDOW, RunState, Seat, Slots
from practicum.engine.workers import ENGINES, Workers
from practicum.methods.blocks.show import default_sections
from practicum.methods.settings import RetrievalSettings
from practicum.models.budget import Budget, Need
from practicum.models.client import WINDOW_ADVICE, CallOptions, Client
from practicum.models.registry import ClientSettings, Models
from practicum.retrieval.search import DEFAULT, Retrieval, Retriever
from practicum.retrieval.vectors import Embedder, Vectors, open_embedder
from practicum.session.components import Parts, make_settings
from practicum.session.config import PYTHON, Config
from practicum.session.setup import Setup, passed_client
from practicum.store.database import Store
from practicum.store.flight import Flight
from practicum.store.journal import Journal
from practicum.store.reviews import read_reviewed
from practicum.store.schema import IN_FLIGHT
from practicum.tasks.sandbox.runner import UNFENCED, UNFENCED_WARNING
from practicum.tasks.scoring.registry import JUDGED, RUNS_CODE

WARNED_TASKS = 5
"""Maximum number of very large tasks that are named in warnings."""


@dataclass(frozen=True)
class Shared:
    """Resources that concurrent runs of one process share: open models, and the count of calls in flight per endpoint.

    The caller that created `models` closes these models. If there are `workers`, the workers run the attempts.
    """

    models: Models
    slots: Slots = field(default_factory=dict)
    workers: Workers | None = None


@asynccontextmanager
async def open_state(
    store: Store | None,
    folder: Path,
    setup: Setup,
    *,
    act_only: bool = False,
    seconds: float = 0.0,
    last_step: int | None = None,
    budget: Budget | None = None,
    retriever: Retriever | None = None,
    shared: Shared | None = None,
) -> AsyncIterator[RunState]:
    """Open the state of a run with all its models, and close the models at the end.

    `act_only` opens only the models of attempts, as in evaluation. `seconds` is the work time of the run before this
    call. Only reviews up to the step `last_step` are used (None: all reviews), so that a resume uses the same reviews
    as the run did before. `budget` replaces the budget of the run's configuration. Without a `store`, nothing is
    journaled. `retriever` replaces the retriever of the store. Models of `shared` stay open. Raises UsageError if a
    model, a key or a price is missing.
    """
    config, parts, method = setup.config, setup.parts, setup.method
    _check_redact_map(config, folder)
    async with nullcontext(shared.workers) if shared and shared.workers else join_workers(config) as workers:
        models = shared.models if shared else open_models(config, folder, parts, workers)
        try:
            clients = open_clients(config, parts, setup.act_roles if act_only else setup.roles, models)
            for seat, model in method.models.items():
                clients[seat] = parts.clients.get(seat) or models.open(model)
            if config.max_usd is not None and (unpriced := [(r, c.name) for r, c in clients.items() if not c.priced]):
                role, name = unpriced[0]
                raise UsageError(
                    "price.unknown",
                    f"the price of {name} ({role}) is unknown, so the budget of {config.max_usd:g} USD cannot be "
                    "enforced: pass `prices=in=0.4,cached=0.1,out=1.6` (US dollars per million tokens), or limit the "
                    "tokens instead (`max_tokens`)",
                    model=name,
                    role=role,
                )
            journal = Journal(store)
            flight = Flight() if store is None else store.flight
            before = journal.by_role()
            if retriever is None:
                vectors = Vectors(run_embedder(config, parts), store)
                retriever = Retriever(vectors, retrieval=method.retrieval)
            state = RunState(
                journal=journal,
                seats={role: Seat(client, call_options(config)) for role, client in clients.items()},
                agent=setup.agent,
                scorer=setup.scorer,
                vectors=retriever.vectors,
                retriever_override=retriever,
                instructions=config.instructions,
                choices=config.choices,
                profile=config.profile or "full",
                sections=config.sections or default_sections(config.profile or "full"),
                redactor=setup.redactor,
                labels=config.labels,
                targets=config.targets,
                judged=config.judged,
                admission=Admission(config.review, {} if store is None else read_reviewed(store, last_step)),
                trust_tools=config.trust_tools,
                nonce=config.nonce,
                seed=config.seed,
                concurrency=config.concurrency,
                slots=shared.slots if shared else {},
                budget=budget or Budget(config.limits, spent=sum(before.values(), Usage()), seconds=seconds),
                flight=flight,
            )
            state.restore_refused()
            state.counts[Count.LEFT_IN_FLIGHT] = before.get(IN_FLIGHT, Usage()).calls
            if workers is None:
                yield state
                return
            names = parts_name(parts, config, "agent"), parts_name(parts, config, "scorer")
            async with workers.spread(state, *names):
                yield state
        finally:
            if shared is None:
                await models.close()


def open_models(config: Config, folder: Path, parts: Parts, workers: Workers | None) -> Models:
    """Return the models of a run, not open yet. If there are `workers`, the workers load the local models."""
    settings = client_settings(config, folder, parts)
    return Models(settings if workers is None else replace(settings, host=workers.host))


def join_workers(config: Config) -> AbstractAsyncContextManager[Workers | None]:
    """Return the workers that run the attempts, or None if this process runs them. Raises UsageError if the workers
    cannot be reached."""
    if config.engine == LOCAL:
        return nullcontext()
    return ENGINES.load(config.engine).join(config.ray_address, config.resources)


def parts_name(parts: Parts, config: Config, part: Literal["agent", "scorer"]) -> str:
    """Return the name that messages use for the run's agent or scorer."""
    return f"Parts.{part}" if getattr(parts, part) is not None else str(getattr(config, part))


def _check_redact_map(config: Config, folder: Path) -> None:
    if config.redact_map and Path(config.redact_map).resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            "settings.invalid",
            f"`redact_map={config.redact_map}` is in the run's folder, which must not hold the redacted values: name a "
            "file outside the folder",
        )


def open_clients(config: Config, parts: Parts, roles: Iterable[str], models: Models) -> dict[str, Client]:
    return {role: passed_client(config, parts, role) or models.open(config.model_of(role)) for role in roles}


def check_tasks(tasks: Iterable[Task], state: RunState) -> list[str]:
    """Return warnings about very large tasks, if the window of the agent's model is unknown, and about code that runs
    outside the sandbox.

    Raises UsageError for a task that is larger than a known window.
    """
    client = state.seats["agent"].client if "agent" in state.seats else None
    window = client.window if client is not None else None
    runs_code = state.scorer is not None and state.scorer.name in RUNS_CODE
    unfenced = [UNFENCED_WARNING] if runs_code and os.environ.get(UNFENCED) == "yes" else []
    warnings = []
    large: set[str] = set()
    for task in tasks:
        if (tokens := count_tokens(task.text)) <= (window or ASSUMED_WINDOW) or task.id in large:
            continue
        large.add(task.id)
        size = f"task {task.id!r} has about {tokens:,} tokens"
        if client is not None and window is not None:
            raise UsageError(
                "window.exceeded",
                f"{size}, and the window of {client.name} has {window:,}: {WINDOW_ADVICE}",
                task=task.id,
                tokens=tokens,
                window=window,
            )
        usd = client.cost(Usage(1, tokens, 0, 0)) if client is not None else None
        cost = f", {usd:,.2f} USD for each attempt" if usd else ""
        warnings.append(f"{size}{cost}: check that this size is intended")
    more = len(warnings) - WARNED_TASKS
    return [*unfenced, *warnings[:WARNED_TASKS], *([f"{more} more tasks are very large"] if more > 0 else [])]


def uncollected(config: Config, state: RunState) -> list[str]:
    """Return a warning if requests of the run are in a batch at the provider, and the run makes its calls directly."""
    if config.batch_api or not (count := len(state.journal.earlier_batches)):
        return []
    return [
        f"{quantity(count, 'request')} of this run may be in a batch at the provider: without `batch_api` they are "
        "sent, and paid, again"
    ]


def call_options(config: Config) -> CallOptions:
    """Return the options of the run's model calls."""
    return CallOptions(config.temperature, config.output_tokens, config.timeout)


def run_embedder(config: Config, parts: Parts) -> Embedder:
    """Return the embedder of a run. Raises UsageError for an unknown name."""
    try:
        return parts.embedder or open_embedder(config.embedder)
    except ModelError as error:
        raise UsageError(error.code, str(error)) from error


def run_retrieval(config: Config, parts: Parts) -> Retrieval:
    """Return the similarity measure of a run. A run does not store the measure of a Method object, so the default
    measure is returned if the object is missing."""
    if parts.method is not None:
        return parts.method.retrieval
    if config.method.startswith(PYTHON):
        return DEFAULT
    settings = make_settings(config)
    return settings.retrieval if isinstance(settings, RetrievalSettings) else DEFAULT


def client_settings(config: Config, folder: Path, parts: Parts) -> ClientSettings:
    """Return the settings for opening a run's models, which write their logs to the run's folder."""
    return ClientSettings(
        config.concurrency, config.structure, config.retries + 1, config.window, folder, config.prices, parts.progress,
        config.api_key_env, config.max_reply_mb, config.model_options, config.output_tokens,
        batch_api=config.batch_api,
    )  # fmt: skip


@dataclass(frozen=True)
class Reserve:
    """Estimate of the cost of the final evaluation and of a step, from the highest number of calls in one attempt so
    far and the largest prompt so far."""

    setup: Setup
    state: RunState
    seed: Context

    def need(self) -> Need:
        """Return the estimated need of the final evaluation. The output of one call counts as the full output limit,
        and the output of each other call as a quarter of the limit."""
        config = self.setup.config
        # Before the first attempt, an agent with tools is assumed to need half of the maximum number of turns.
        per_attempt = self.state.most_calls or (self.state.agent.max_turns + 1) // 2
        calls_per_act = per_attempt + (config.scorer in JUDGED)
        return self._of(self.setup.method.act_calls * calls_per_act * len(self.setup.splits.test))

    def step(self) -> Need:
        """Return the minimum need of a step that learns: one call for each attempt, and one for each learning role."""
        config, method, train = self.setup.config, self.setup.method, self.setup.splits.train
        if not train or not method.roles:
            return Need()
        if method.calls is not None or self.setup.parts.method is not None:
            return self._of(method.calls[0] if method.calls else 1)
        batch = getattr(self.setup.settings, "batch", 1)
        attempts = min(batch if isinstance(batch, int) else 1, len(train)) if config.asks else 0
        need = self._of((0 if config.from_traces else attempts) + len(method.roles))
        # Calls usually cost much less than their maximum cost. So the budget must cover the maximum cost of one call
        # only.
        return replace(need, usd=self._of(1).usd)

    def _of(self, calls: int) -> Need:
        """Return the maximum estimated need of this number of calls."""
        config = self.setup.config
        if not calls:
            return Need()
        seats = self.state.seats
        one = Need()
        if seats:
            client = (seats.get("agent") or next(iter(seats.values()))).client
            guess = count_tokens(config.instructions) + self._longest + render_full(self.seed).tokens + 64
            one = Need.of(self.state.most(client, self.state.largest.get("agent", guess), config.output_tokens))
        spare = int(config.output_tokens * 0.75)
        return Need(1, max(one.tokens - spare, 1), one.usd) * calls + Need(0, spare)

    @cached_property
    def _longest(self) -> int:
        """Number of tokens of the largest training task or test task."""
        return max(self.setup.survey.longest, *(count_tokens(task.text) for task in self.setup.splits.test), 0)

    def seconds(self) -> float:
        """Return the estimated seconds of the final evaluation at the pace of attempts so far, at most half of
        `max_minutes`."""
        count, seconds = self.state.pace
        config = self.setup.config
        if not count or config.max_minutes is None:
            return 0.0
        rounds = -(-len(self.setup.splits.test) // config.concurrency)
        return min(1.5 * rounds * seconds / count, config.max_minutes * 30)

    def check(self) -> None:
        """Raise UsageError if the budget does not cover the final evaluation and one step."""
        final, step = self.need(), self.step()
        both = "one step and the final evaluation" if final.calls else "one step"
        for need, subject in ((final, "the final evaluation"), (final + step, both)):
            if (exceeded := Budget(self.setup.config.limits).exceeded_by(need)) is not None:
                out = ", or leave out `test`" if final.calls else ""
                raise UsageError(
                    "budget.too_small",
                    f"{exceeded.removesuffix(' is spent')} is too small: {subject} may need "
                    f"{quantity(need.calls, 'call')} and {quantity(need.tokens, 'token')}. Raise the limit{out}",
                    calls=need.calls,
                    tokens=need.tokens,
                )
