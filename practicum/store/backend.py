"""Interface of an open database: a SQLite file, or a server at a URL.

Databases at URLs are plug-ins: a package registers a `StoreKind` in the entry point group `practicum.stores`, under a
name that is the scheme of the URLs, such as `postgresql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine

from practicum.core.errors import StoreError, UsageError
from practicum.core.plugins import Group, implements


class Lease(Protocol):
    """Exclusive right of one process to write what a space learns."""

    token: int
    """Number that increases each time a process takes the lease. Writes with an earlier number are refused."""

    @property
    def is_lost(self) -> bool:
        """Whether the connection that holds the lease has ended, as far as known without a query."""

    def renew(self) -> None:
        """Take the lease again if the connection that held the lease was lost. Raises RunBusy if another process has
        the lease now, StoreAway if the database cannot be reached."""

    def close(self) -> None:
        """Release the lease."""


class Sessions(Protocol):
    """The versions that sessions see. All nodes show the same version to a session."""

    async def claim(self, space: str, session: str, version: int, dead: int | None, late: float) -> int | None:
        """Return the version that is stored for a session. If no version is stored, or if the stored version is `dead`
        (a version that sessions may no longer see), store `version` and return `version`. Returns None if the database
        does not answer within `late` seconds, or if the space was deleted."""

    def close(self) -> None:
        """Release all resources."""


class Backend(Protocol):
    """An open database. Database errors are raised as StoreError unless noted."""

    name: str
    """Name of the database in messages: the folder of its file, or its URL without the password."""
    engine: Engine
    shared: bool
    """Whether other machines also write to the database."""
    index: str
    """Kind of index for spaces with many entries, as registered in `practicum.indexes`."""
    patience: float
    """Maximum time (s) for which rows of learning (see `writer`) wait for a database that cannot be reached."""

    def rows(self, query: Any, waits: bool) -> list[Any]:
        """Return the rows of a query, as named tuples. `waits`: whether to wait if the database cannot be reached at
        the moment."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """Open a transaction that may write. Raises the errors of the database unchanged."""

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        """Lock the spaces with these ids, which must be sorted, against other writers until the transaction ends."""

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        """Announce to all nodes that these spaces changed. The announcement is part of the transaction, so it takes
        effect with the commit."""

    def now(self, db: Connection) -> float:
        """Return the seconds since 1970, by the clock that all nodes share."""

    def failure(self, doing: str, error: Exception) -> StoreError:
        """Convert an error of the database into a StoreError with advice. `doing` is the operation that failed: "read"
        or "write to"."""

    def stops_all(self, error: BaseException) -> bool:
        """Whether an error of one write means that all writes fail: the database is unreachable, full, read-only or
        damaged."""

    def is_deadlock(self, error: BaseException) -> bool:
        """Whether the database ended a transaction because of a deadlock."""

    def changes(self, space: str, *, fresh: bool = True) -> int:
        """Return a number that changes with each change of the content that a space shows. A call takes some
        microseconds. On a server, the old number may be returned for a moment after a write. Without `fresh`, no query
        is made: the returned number was read by the last call with `fresh` for any space of the database."""

    def lease(self, space: str, files: Path) -> Lease:
        """Take the lease of a space. `files` is the folder with the files of the space. Raises RunBusy if another
        process has the lease."""

    def is_leased(self, space: str, files: Path) -> bool:
        """Whether another process has the lease of a space."""

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Run the block while no other block with this name runs on any node; if another such block runs, wait until it
        ends."""

    def serve(self) -> AbstractContextManager[None]:
        """Mark the database as served during the block. Raises RunBusy if another process serves the same database
        file."""

    def is_served(self) -> bool:
        """Whether another process serves spaces of the database. Also True if practicum cannot find this out, as for a
        database on a server."""

    def sessions(self, seconds: float) -> Sessions | None:
        """Return an object that stores the version that each session sees. The version of a session is kept for
        `seconds` after the last request of the session. Returns None if only one process can serve the database."""

    def scrub(self) -> None:
        """Overwrite deleted rows, as far as the database can. Raises StoreError if bytes of deleted rows remain because
        another process reads the database."""

    def drop_index(self, db: Connection, space: str) -> None:
        """Delete the index of a space, if the index is stored in the database."""

    def release(self) -> None:
        """Free the memory that the database uses as a cache."""

    def close(self) -> None:
        """Release all resources."""


class StoreKind(Protocol):
    """Databases at URLs of one scheme. Errors are raised as StoreError."""

    def parse(self, url: str) -> URL:
        """Parse the URL of a database. Raises UsageError, without the password, if it is not valid."""

    def address(self, url: URL) -> str:
        """Return the URL without its password, for storage and display."""

    def open(self, url: URL, *, create: bool) -> Backend:
        """Open the database at a URL. `create`: whether to create missing tables, and to migrate tables of an earlier
        format."""


STORES: Group[StoreKind] = Group("practicum.stores", "store", implements(StoreKind))


def store_at(url: str) -> tuple[StoreKind, URL]:
    """Return the kind of the store at a URL, and the parsed URL. Raises UsageError, without the password, if the URL is
    not valid."""
    scheme, separator, _ = url.partition("://")
    # SQLAlchemy's URLs may also name the driver: postgresql+psycopg://.
    scheme = scheme.partition("+")[0]
    registered = STORES.registered()
    if not separator or scheme not in registered:
        # A kind that is registered under several schemes is listed once.
        kinds = {entry.value: name for name, entry in registered.items()}
        forms = ", ".join(f"{name}://USER@HOST/DATABASE" for name in kinds.values())
        raise UsageError(
            "store.invalid_address",
            f"the store must be a URL of the form {forms}"
            if forms
            else "no installed package can open a store at a URL",
        )
    kind = STORES.load(scheme)
    return kind, kind.parse(url)
