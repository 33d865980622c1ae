"""Engines: where the attempts of a run are made, in this process or on the workers of a cluster.

A run stays in one process with its method, journal, budget and model calls. An engine moves the work of its agent and
its scorer elsewhere. Engines are plug-ins (entry point group `practicum.engines`); `local` moves nothing.
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
    """The workers that a run has joined."""

    def host(self, name: str, settings: ClientSettings) -> Client:
        """A client of a local model that the workers load. Raises ModelError, which names the node, if one cannot."""

    def spread(self, state: RunState, agent: str, scorer: str) -> AbstractAsyncContextManager[None]:
        """Within the block, the workers do the work of the agent and of the scorer of a run, as far as it can be moved
        (`Agent.moves`, `scorer_moves`). `agent` and `scorer` are their names in messages. Raises UsageError if one of
        them cannot be pickled or loaded."""


class Engine(Protocol):
    """A way to make attempts elsewhere."""

    def join(self, address: str | None, resources: Resources) -> AbstractAsyncContextManager[Workers]:
        """Within the block, this process has workers; each attempt takes these resources. `address` is where the
        cluster is (None: the engine's default). Raises UsageError if it cannot be joined."""


ENGINES: Group[Engine] = Group("practicum.engines", "engine", implements(Engine), {LOCAL: None})


def scorer_moves(scorer: Scorer | None) -> bool:
    """Whether a scorer does work that workers can take over: it runs code, and does not only compare texts."""
    return scorer is not None and not scorer.pure and scorer.name not in COMPARING
