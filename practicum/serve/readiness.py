"""Readiness of a service, for load balancers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from sqlalchemy import select

from practicum.core.errors import StoreError
from practicum.store.database import Database

LATELY = 30.0
"""Time (s) after the last answer of the database during which the service still counts as ready, so that a load
balancer does not drop the node because of a short failure of the database."""

PROBE = 1.0
"""Time (s) without an answer of the database after which the database is probed, and timeout (s) of the probe."""


class Readiness:
    """Readiness of a service. `spaces` are the names of the spaces that must be open for the service to be ready."""

    def __init__(self, database: Database, spaces: Sequence[str]) -> None:
        self._database, self._spaces = database, spaces
        self._asked_at = float("-inf")
        self._probe: Future[Any] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether readiness was requested in the last LATELY seconds."""
        return time.monotonic() - self._asked_at <= LATELY

    async def problem(self, stopping: bool, available: Container[str]) -> str | None:
        """Return the reason why this node should get no more requests; None if the node is ready. `available` has the
        names of spaces that are open, or closed for a deletion of user data."""
        self._asked_at = time.monotonic()
        if stopping:
            return "the service is stopping"
        if closed := [name for name in self._spaces if name not in available]:
            return f"space {closed[0]} is not open"
        if time.monotonic() - self._database.writer.worked > PROBE:
            # Run one probe at a time, even if readiness is requested often.
            if self._probe is None or self._probe.done():
                self._probe = self._database.do(lambda at: at.first(select(1)))
            with suppress(TimeoutError, StoreError):
                async with asyncio.timeout(PROBE):
                    await asyncio.shield(asyncio.wrap_future(self._probe))
        silent = time.monotonic() - self._database.writer.worked
        return f"the database has not responded for {silent:.0f} seconds" if silent > LATELY else None
