"""Alarms: each alarm is stored in the space that the alarm concerns, logged, and posted to the operator's webhook."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import aiohttp

from practicum.core.errors import StoreError
from practicum.serve.counts import ServiceCounts
from practicum.serve.watch import DRIFTS, Alarm, Watcher
from practicum.session.rollout import next_number
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.scope import Transaction
from practicum.store.spaces import UnknownSpace
from practicum.store.writer import UNWRITTEN, Failing

logger = logging.getLogger("practicum.serve")

QUIET = 3_600.0
"""Time (s) after an alarm about drift or a refused row, during which further alarms of the same kind in the same space
are dropped. All nodes detect the same drift at about the same time."""

FAILING = 3.0
"""Time (s) during which all writes to the store must fail before an alarm is raised. A shorter failure raises no alarm,
because it ends by itself."""


class Alarms:
    """Alarms of a service. `spawn` runs a coroutine in the event loop of the service."""

    def __init__(
        self, database: Database, webhook: str | None, counts: ServiceCounts,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:  # fmt: skip
        self._database, self._webhook, self._counts, self._spawn = database, webhook, counts, spawn
        self._watchers: dict[str, Watcher] = {}
        self._refused_at: dict[str, float] = {}
        """Time of the last alarm about a refused row (monotonic, s), by identity of the space."""
        self._fails: Failing | None = None
        """Failure of the store for which an alarm was raised. None while writes succeed."""
        database.writer.refused = self._row_refused

    def start(self) -> None:
        """Use the running event loop for alarms that other threads raise."""
        self._loop = asyncio.get_running_loop()

    def add(self, id: str, alarm: Alarm) -> None:
        """Record an alarm of the space with the identity `id`, and notify the operator."""
        logger.warning("space %s: %s: %s", alarm.space, alarm.kind, alarm.text)
        t = schema.alarms

        def write(at: Transaction) -> bool:
            now = at.now()
            same = at.select(t.c.number).where(t.c.kind == alarm.kind, t.c.at.between(now - QUIET, now)).limit(1)
            if alarm.kind in DRIFTS and at.first(same) is not None:
                return False
            at.insert(t, {"number": next_number(at, t), "at": now, "kind": alarm.kind, "text": alarm.text})
            return True

        self._spawn(self._notify(alarm, self._database.do(write, id)))

    async def _notify(self, alarm: Alarm, written: Future[bool]) -> None:
        try:
            first = await asyncio.wrap_future(written)
        except UnknownSpace:
            return
        except StoreError as error:
            # The webhook is called even if the alarm cannot be stored.
            first = True
            logger.error("cannot store an alarm: %s", error)
        self._counts["alarms"] += first
        if first and self._webhook:
            await self._call_webhook(self._webhook, asdict(alarm))

    async def _call_webhook(self, url: str, alarm: dict[str, Any]) -> None:
        try:
            timeout = aiohttp.ClientTimeout(total=10.0)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(url, json=alarm, allow_redirects=False) as response,
            ):
                if response.status >= 300:
                    raise aiohttp.ClientError(f"status {response.status}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._counts["failed_webhooks"] += 1
            logger.error("the webhook did not accept an alarm: %s", error)

    def _row_refused(self, id: str, table: str, error: str) -> None:
        """Raise an alarm about a row that the database refused. The writer calls this function in the writer's
        thread."""
        # Raise no alarm if the event loop is closed, because the service has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._alarm_refused, id, table, error)

    def _alarm_refused(self, id: str, table: str, error: str) -> None:
        self._counts["refused_rows"] += 1
        now = time.monotonic()
        if now - self._refused_at.get(id, float("-inf")) > QUIET:
            self._refused_at[id] = now
            text = f"the database refused a row of {table} ({error}): the row is lost, other rows are written"
            self._spawn(self._add_refused(id, text))

    async def _add_refused(self, id: str, text: str) -> None:
        try:
            names = await asyncio.to_thread(self._database.names_of, [id])
        except StoreError:
            names = {}
        self.add(id, Alarm(names.get(id, id), "store", text))

    def watcher(self, space: str) -> Watcher:
        """Return the drift watcher of a space."""
        if space not in self._watchers:
            self._watchers[space] = Watcher(space)
        return self._watchers[space]

    def forget(self, space: str) -> None:
        """Delete the drift watcher of a space, so that closed spaces do not fill the memory."""
        self._watchers.pop(space, None)

    def check_store(self, name: str, id: str) -> None:
        """Raise an alarm when writes to the store have failed for `FAILING` seconds, and a second alarm when writes
        succeed again. Both alarms concern all spaces, but are stored in one space: `name` with the identity `id`."""
        writer, failing = self._database.writer, self._database.writer.failing
        if failing is None and self._fails is not None:
            seconds, self._fails = time.monotonic() - self._fails.since, None
            text = f"the store can be written again after {seconds:.0f} s; {writer.lost} interactions were lost"
            self.add(id, Alarm(name, "store", text))
        elif failing is not None and self._fails is None and failing.last - failing.since >= FAILING:
            self._fails = failing
            text = (
                f"{failing.error}; requests are still answered, reports are refused, and {writer.unwritten} "
                f"interactions wait in memory (at most {UNWRITTEN:,})"
            )
            self.add(id, Alarm(name, "store", text))
