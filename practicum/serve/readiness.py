"""Whether a service is ready: a balancer asks before it sends requests."""

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
"""Seconds since the database answered within which the service is ready: a short failure takes no node away."""

PROBE = 1.0
"""Seconds since the database answered after which it is asked, and for which that is waited for."""


class Readiness:
    """Whether a service is ready that serves these spaces from a database."""

    def __init__(self, database: Database, spaces: Sequence[str]) -> None:
        self._database, self._spaces = database, spaces
        self._asked = float("-inf")
        self._probe: Future[Any] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether somebody has asked lately."""
        return time.monotonic() - self._asked <= LATELY

    async def problem(self, stopping: bool, known: Container[str]) -> str | None:
        """Why no more requests should be sent here; None if they should. `known` are the spaces that are open, or
        closed for a removal."""
        self._asked = time.monotonic()
        if stopping:
            return "the service stops"
        if closed := [name for name in self._spaces if name not in known]:
            return f"space {closed[0]} is not open"
        if time.monotonic() - self._database.writer.worked > PROBE:
            # One question at a time, however often this is asked.
            if self._probe is None or self._probe.done():
                self._probe = self._database.do(lambda at: at.first(select(1)))
            with suppress(TimeoutError, StoreError):
                async with asyncio.timeout(PROBE):
                    await asyncio.shield(asyncio.wrap_future(self._probe))
        silent = time.monotonic() - self._database.writer.worked
        return f"the database has not answered for {silent:.0f} seconds" if silent > LATELY else None
