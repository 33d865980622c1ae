"""The service's database in PostgreSQL, which several nodes share.

A change locks its space until it is committed, so two nodes never decide the same twice. It is announced with the
commit, and the other nodes look at the space anew. Each session has one version, whichever node it is served by: the
first node that sees it writes that down, and the others ask.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from shutil import rmtree

from sqlalchemy import Connection, func, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from practicum.core.errors import StoreAway, StoreError
from practicum.core.files import make_folder
from practicum.core.words import one_line
from practicum.plugins.postgres.database import address, announce, connected, is_lost, leases, lock_number
from practicum.plugins.postgres.database import tables as postgresql_tables
from practicum.plugins.postgres.runs import FORMAT as RUN_FORMAT
from practicum.plugins.postgres.runs import PostgresqlRun
from practicum.serve import tables
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import Elsewhere, is_run, write_elsewhere

SCHEMA = "practicum_service"
"""The PostgreSQL schema with the tables of the service."""

AGAIN = 1.0
"""Seconds until sessions are asked for again, after that took too long."""

PRUNE = 10_000
"""Sessions that a node asks for, after which those that ended long ago are deleted."""


TABLES = postgresql_tables(tables.metadata)
"""The tables as PostgreSQL has them, by name."""


FORMAT = replace(tables.FORMAT, create=TABLES["spaces"].metadata.create_all)


class SharedDatabase:
    """The tables in one database. Raises StoreError if it cannot be opened."""

    shared = True

    def __init__(self, url: URL) -> None:
        self.url = url
        self._database = connected(url, SCHEMA)
        self._database.bring_up_to_date(FORMAT)
        self.engine = self._database.engine
        # The connection that listens is that of the runs there.
        self._runs = connected(url)
        self._runs.bring_up_to_date(RUN_FORMAT)

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        for space in spaces:
            db.execute(select(func.pg_advisory_xact_lock(lock_number(_name(space)))))

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        for space in spaces:
            db.execute(announce(_name(space)))

    def now(self, db: Connection) -> float:
        return float(db.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def changes(self, space: str) -> int:
        return self._runs.changes(_name(space))

    def failure(self, doing: str, error: Exception) -> StoreError:
        said = one_line(str(getattr(error, "orig", None) or error), 300)
        text = f"cannot {doing} the store {self._database.name}: {said}"
        if is_lost(error) or not hasattr(error, "orig"):
            return StoreAway("store.unreachable", text)
        return StoreError("store.unwritable", text)

    @contextmanager
    def alone(self, what: str, wait: bool = False) -> Iterator[bool]:
        """The lock is of a connection: it ends with the node, or with the node's way to the database."""
        number = lock_number(f"{SCHEMA} {what}")
        take = func.pg_advisory_lock(number) if wait else func.pg_try_advisory_lock(number)
        with ExitStack() as stack:
            try:
                db = stack.enter_context(self.engine.connect())
                # Closed and not given back in the end: the lock would stay with it.
                db.detach()
                mine = db.execute(select(take)).scalar_one() is not False
                db.commit()
            except SQLAlchemyError as error:
                raise self.failure("write to", error) from error
            try:
                yield mine
            finally:
                # The server would do so a moment after it sees that the connection has ended.
                if mine:
                    with suppress(SQLAlchemyError):
                        db.execute(select(func.pg_advisory_unlock(number)))

    def sessions(self, seconds: float) -> Sessions:
        return Sessions(self, seconds)

    def has_run(self, space: str, folder: Path) -> bool:
        return bool(self._runs.rows(select(schema.runs.c.space).where(schema.runs.c.space == _run(space))))

    def connect_run(self, space: str, folder: Path) -> None:
        if not is_run(folder):
            make_folder(folder)
            write_elsewhere(folder, Elsewhere(address(self.url), _run(space)))

    def begin_run(self, space: str, folder: Path) -> None:
        Store.create(folder, self.url.render_as_string(hide_password=False), _run(space)).close()

    def remove_run(self, space: str, folder: Path) -> None:
        if self._runs.rows(select(leases.c.space).where(leases.c.space == _run(space))):
            run = PostgresqlRun(self.url, _run(space), writer=True, read_only=False)
            try:
                run.remove()
            finally:
                run.close()
        rmtree(folder, ignore_errors=True)

    def run_names(self) -> list[str]:
        known = select(schema.runs.c.space).where(schema.runs.c.space.startswith(_run(""), autoescape=True))
        return [row.space.removeprefix(_run("")) for row in self._runs.rows(known)]

    def close(self) -> None:
        """The connections are the process's, and stay open."""


def _name(space: str) -> str:
    return f"{SCHEMA} {space}"


def _run(space: str) -> str:
    """The name of a space's run in the database."""
    return f"spaces/{space}"


@dataclass(frozen=True)
class _Claim:
    """A version that a node would show a session, and the one that it knows to be taken back. The result is None for a
    space that was deleted."""

    key: tuple[str, str]
    version: int
    dead: int | None
    done: Future[int | None]


class Sessions:
    """The version of each session, the same on all nodes, for `lasts` seconds after a node asked last.

    Claims that arrive while others are written share the next transaction. It waits for no disk, since what a crash
    forgets is decided anew.
    """

    def __init__(self, database: SharedDatabase, lasts: float) -> None:
        self._database, self._lasts = database, lasts
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
            with self._database.engine.begin() as db:
                found = self._written(db, [*by_key.values()])
        # The thread must go on, whatever a session is called.
        except Exception as error:
            if not is_lost(error) and len(claims) > 1:
                # One that cannot be written takes no others along.
                for claim in claims:
                    self._settle([claim])
                return
            failure = self._database.failure("write to", error)
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
