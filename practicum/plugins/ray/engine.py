"""Engine `ray`: makes attempts on the workers of a Ray cluster."""

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
    """Engine that joins a cluster, or starts Ray on this machine for one run (`connection.joined`)."""

    @asynccontextmanager
    async def join(self, address: str | None, resources: Resources) -> AsyncIterator[Workers]:
        """Provide workers of the cluster within the block. `address` is HOST:PORT of the cluster's head, or "auto" for
        a cluster on this machine. For None, see `connection.joined`."""
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
        """Return a client of a local model, loaded by one actor per GPU, or by one actor per node if the cluster has no
        GPUs."""
        return hosted(name, settings)

    def spread(self, state: RunState, agent: str, scorer: str) -> AbstractAsyncContextManager[None]:
        """Run the agent and the scorer on the pool within the block."""
        return spread(state, self.pool, agent, scorer)


ENGINE = RayEngine()
