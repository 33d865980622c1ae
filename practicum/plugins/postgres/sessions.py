"""The version of each session, which all nodes agree on: the first node that sees a session writes it down, and the
others ask."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError
from practicum.plugins.postgres.database import is_lost
from practicum.store.backend import Backend

AGAIN = 1.0
"""Seconds until sessions are asked for again, after that took too long."""

PRUNE = 10_000
"""Sessions that a node asks for, after which those that ended long ago are deleted."""


@dataclass(frozen=True)
class _Claim:
    """A version that a node would show a session, and the one that it knows to be taken back. The result is None for a
    space that was deleted."""

    key: tuple[str, str]
    version: int
    dead: int | None
    done: Future[int | None]


class PostgresqlSessions:
    """The version of each session, the same on all nodes, for `lasts` seconds after a node asked last.

    Claims that arrive while others are written share the next transaction. It waits for no disk, since what a crash
    forgets is decided anew.
    """

    def __init__(self, backend: Backend, lasts: float) -> None:
        self._backend, self._lasts = backend, lasts
        self._queue: SimpleQueue[_Claim | None] = SimpleQueue()
        self._away, self._since_pruned = 0.0, 0
        self._thread = threading.Thread(target=self._loop, name="practicum-sessions", daemon=True)
        self._thread.start()

    async def claim(self, space: str, session: str, version: int, dead: int | None, late: float) -> int | None:
        """The version of a session, which is this one if no node has shown it any, or a dead one; None if that is not
        known within so many seconds, or if the space was deleted."""
        if time.monotonic() < self._away:
            return None
        claim = _Claim((space, session.replace("\0", "")), version, dead, Future())
        self._queue.put(claim)
        try:
            async with asyncio.timeout(late):
                return await asyncio.wrap_future(claim.done)
        except (TimeoutError, StoreError):
            # Others need not wait for it, too.
            self._away = time.monotonic() + AGAIN
            return None

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join()

    def _loop(self) -> None:
        running = True
        while running:
            claims = [self._queue.get()]
            while not self._queue.empty():
                claims.append(self._queue.get())
            running = None not in claims
            wanted = [claim for claim in claims if claim is not None and claim.done.set_running_or_notify_cancel()]
            if wanted:
                self._settle(wanted)

    def _settle(self, claims: Sequence[_Claim]) -> None:
        # In one order on all nodes, so that no two wait for each other.
        by_key = {claim.key: claim for claim in sorted(claims, key=lambda claim: claim.key)}
        try:
            with self._backend.engine.begin() as db:
                found = self._written(db, [*by_key.values()])
        # The thread must go on, whatever a session is called.
        except Exception as error:
            if not is_lost(error) and len(claims) > 1:
                # One that cannot be written takes no others along.
                for claim in claims:
                    self._settle([claim])
                return
            failure = self._backend.failure("write to", error)
            for claim in claims:
                claim.done.set_exception(failure)
            return
        for claim in claims:
            claim.done.set_result(found.get(claim.key))

    def _written(self, db: Connection, claims: Sequence[_Claim]) -> dict[tuple[str, str], int]:
        db.execute(text("SET LOCAL synchronous_commit = off"))
        for claim in claims:
            if claim.dead is not None:
                values = {"run": claim.key[0], "session": claim.key[1], "version": claim.version, "dead": claim.dead}
                db.execute(_REPLACE, values)
        values = {"runs": [claim.key[0] for claim in claims], "lasts": self._lasts}
        asked = {"sessions": [claim.key[1] for claim in claims], "versions": [claim.version for claim in claims]}
        found = {(row.space, row.session): row.version for row in db.execute(_CLAIM, {**values, **asked})}
        self._since_pruned += len(claims)
        if self._since_pruned >= PRUNE:
            self._since_pruned = 0
            db.execute(_PRUNE, values)
        return found


_CLAIM = text("""
INSERT INTO sessions AS s (space, session, version, at)
SELECT c.*, extract(epoch FROM now())
FROM unnest(CAST(:runs AS text[]), CAST(:sessions AS text[]), CAST(:versions AS bigint[])) AS c (run, session, version)
JOIN spaces ON spaces.space = c.run AND spaces.state = 'live'
FOR KEY SHARE OF spaces
ON CONFLICT (space, session) DO UPDATE SET at = excluded.at,
version = CASE WHEN s.at < excluded.at - :lasts THEN excluded.version ELSE s.version END
RETURNING space, session, version""")
_REPLACE = text("UPDATE sessions SET version = :version WHERE space = :run AND session = :session AND version = :dead")
_PRUNE = text("DELETE FROM sessions WHERE space = ANY(:runs) AND at < extract(epoch FROM now()) - :lasts")
