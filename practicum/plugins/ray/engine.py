"""The engine `ray`: attempts on the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from practicum.engine.resources import Resources
from practicum.engine.state import RunState
from practicum.engine.workers import Workers
from practicum.models.client import Client
from practicum.models.registry import ClientSettings
from practicum.plugins.ray.connection import joined
from practicum.plugins.ray.models import hosted
from practicum.plugins.ray.pool import Pool
from practicum.plugins.ray.remote import spread


class RayEngine:
    """Joins a cluster, or starts a Ray of this machine for one run (`connection.joined`)."""

    @asynccontextmanager
    async def join(self, address: str | None, resources: Resources) -> AsyncIterator[Workers]:
        """Within the block, this process has workers of the cluster. `address` is HOST:PORT of its head, or "auto"."""
        async with joined(address):
            pool = Pool(resources)
            try:
                yield RayWorkers(pool)
            finally:
                await pool.close()


@dataclass(frozen=True)
class RayWorkers:
    """The workers of one run."""

    pool: Pool

    def host(self, name: str, settings: ClientSettings) -> Client:
        """A client of a local model that an actor on each node, or each GPU, loads."""
        return hosted(name, settings)

    def spread(self, state: RunState, agent: str, scorer: str) -> AbstractAsyncContextManager[None]:
        """Within the block, the agent and the scorer work on the pool."""
        return spread(state, self.pool, agent, scorer)


ENGINE = RayEngine()
