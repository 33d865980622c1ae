"""Engines. An engine makes the attempts of a run, in this process or on the workers of a cluster.

A run stays in one process with its method, journal, budget and model calls. An engine moves the work of the agent and
the scorer to other processes. Engines are plug-ins (entry point group `practicum.engines`); the engine `local` leaves
all work in this process.
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
    """Workers of a cluster that a run has joined."""

    def host(self, name: str, settings: ClientSettings) -> Client:
        """Return a client of a local model that the workers load. Raises ModelError if a worker cannot load the model;
        the message names the node of the worker."""

    def spread(self, state: RunState, agent: str, scorer: str) -> AbstractAsyncContextManager[None]:
        """Make the workers run the agent and the scorer of a run within the block. An agent or a scorer that cannot be
        moved (`Agent.moves`, `scorer_moves`) still runs in this process. `agent` and `scorer` are the names of the
        agent and the scorer in messages. Raises UsageError if the agent or the scorer cannot be pickled here or loaded
        on the workers."""


class Engine(Protocol):
    """Engine that makes attempts on other machines."""

    def join(self, address: str | None, resources: Resources) -> AbstractAsyncContextManager[Workers]:
        """Join a cluster for the length of the block. Each attempt takes `resources`. `address` is the address of the
        cluster; None: the engine's default. Raises UsageError if the cluster cannot be joined."""


ENGINES: Group[Engine] = Group("practicum.engines", "engine", implements(Engine), {LOCAL: None})


def scorer_moves(scorer: Scorer | None) -> bool:
    """Return whether a scorer should run on the workers of a cluster. Scorers that run code should. A scorer that only
    compares texts or asks a judge stays in this process."""
    return scorer is not None and not scorer.pure and scorer.name not in COMPARING
