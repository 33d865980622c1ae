"""Engines: make the attempts of a run, in this process or on the workers of a cluster.

A run stays in one process with its method, journal, budget and model calls. An engine moves the work of the agent and
the scorer to other processes. Engines are plug-ins (entry point group `practicum.engines`); `local` moves nothing.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from practicum.core.plugins import Group, implements
from practicum.engine.resources import LOCAL, Resources
from practicum.engine.state import RunState, Scorer
from practicum.models.client import Client
from practicum.models.registry import ClientSettings
from practicum.tasks.scoring.registry import COMPARING


class Workers(Protocol):
    """Workers that a run has joined."""

    def host(self, name: str, settings: ClientSettings) -> Client:
        """Return a client of a local model that the workers load. Raises ModelError, which names the node, if a worker
        cannot load it."""

    def spread(self, state: RunState, agent: str, scorer: str) -> AbstractAsyncContextManager[None]:
        """Move the work of a run's agent and scorer to the workers within the block, as far as it can be moved
        (`Agent.moves`, `scorer_moves`). `agent` and `scorer` are their names in messages. Raises UsageError if one of
        them cannot be pickled or loaded."""


class Engine(Protocol):
    """Engine that makes attempts on other machines."""

    def join(self, address: str | None, resources: Resources) -> AbstractAsyncContextManager[Workers]:
        """Join a cluster for the length of the block. Each attempt takes `resources`. `address` is the address of the
        cluster; None: the engine's default. Raises UsageError if the cluster cannot be joined."""


ENGINES: Group[Engine] = Group("practicum.engines", "engine", implements(Engine), {LOCAL: None})


def scorer_moves(scorer: Scorer | None) -> bool:
    """Return whether workers can take over a scorer's work: the scorer runs code, and does not only compare texts."""
    return scorer is not None and not scorer.pure and scorer.name not in COMPARING
