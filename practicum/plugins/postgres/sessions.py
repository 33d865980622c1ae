"""Stores, for all nodes, the version that is shown to each session: the first node that gets a request of a session
stores the version, and the other nodes read this stored version."""

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
"""Pause (s) after a timeout or an error, during which the database is not asked for sessions."""

PRUNE = 10_000
"""Number of claims after which a node deletes expired sessions."""


@dataclass(frozen=True)
class _Claim:
    """Request to assign a version to a session."""

    key: tuple[str, str]
    """Id of the space, and name of the session."""

    version: int
    """Version to assign if the session has no version yet, or has the version `dead`."""

    dead: int | None
    """Version that was rolled back, as far as the node knows; None if the node knows of no rollback."""

    done: Future[int | None]
    """Version of the session; None if the space was deleted."""


class PostgresqlSessions:
    """Assigns a version to each session, the same on all nodes. The version expires `lasts` seconds after the last
    claim for the session.

    All claims that arrive during a transaction are written in the next transaction. Commits do not wait for the disk: a
    session whose version is lost in a crash is assigned a version again.
    """

    def __init__(self, backend: Backend, lasts: float) -> None:
        self._backend, self._lasts = backend, lasts
        self._queue: SimpleQueue[_Claim | None] = SimpleQueue()
        self._away, self._since_pruned = 0.0, 0
        self._thread = threading.Thread(target=self._loop, name="practicum-sessions", daemon=True)
        self._thread.start()

    async def claim(self, space: str, session: str, version: int, dead: int | None, late: float) -> int | None:
        """Return the version of a session. If the session has no version yet, or has the version `dead`, first assign
        `version`.

        Returns None if the database does not answer within `late` seconds, or if the space was deleted.
        """
        if time.monotonic() < self._away:
            return None
        claim = _Claim((space, session.replace("\0", "")), version, dead, Future())
        self._queue.put(claim)
        try:
            async with asyncio.timeout(late):
                return await asyncio.wrap_future(claim.done)
        except (TimeoutError, StoreError):
            # Do not ask the database for a moment, so that further claims do not each wait until the timeout.
            self._away = time.monotonic() + AGAIN
            return None

    def close(self) -> None:
        """Stop the thread."""
        self._queue.put(None)
        self._thread.join()

    def _loop(self) -> None:
        running = True
        while running:
            claims = [self._queue.get()]
            while not self._queue.empty():
                claims.append(self._queue.get())
            running = None not in claims
            active = [claim for claim in claims if claim is not None and claim.done.set_running_or_notify_cancel()]
            if active:
                self._settle(active)

    def _settle(self, claims: Sequence[_Claim]) -> None:
        # All nodes write sessions in the same order, which prevents deadlocks.
        by_key = {claim.key: claim for claim in sorted(claims, key=lambda claim: claim.key)}
        try:
            with self._backend.engine.begin() as db:
                versions = self._write(db, [*by_key.values()])
        # The thread must survive any error, for example from an invalid session name.
        except Exception as error:
            if not is_lost(error) and len(claims) > 1:
                # Write each claim by itself, so that one invalid claim does not fail the others.
                for claim in claims:
                    self._settle([claim])
                return
            failure = self._backend.failure("write to", error)
            for claim in claims:
                claim.done.set_exception(failure)
            return
        for claim in claims:
            claim.done.set_result(versions.get(claim.key))

    def _write(self, db: Connection, claims: Sequence[_Claim]) -> dict[tuple[str, str], int]:
        db.execute(text("SET LOCAL synchronous_commit = off"))
        for claim in claims:
            if claim.dead is not None:
                values = {"run": claim.key[0], "session": claim.key[1], "version": claim.version, "dead": claim.dead}
                db.execute(_REPLACE, values)
        values = {"runs": [claim.key[0] for claim in claims], "lasts": self._lasts}
        arrays = {"sessions": [claim.key[1] for claim in claims], "versions": [claim.version for claim in claims]}
        versions = {(row.space, row.session): row.version for row in db.execute(_CLAIM, {**values, **arrays})}
        self._since_pruned += len(claims)
        if self._since_pruned >= PRUNE:
            self._since_pruned = 0
            db.execute(_PRUNE, values)
        return versions


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
