"""Interface of an open database: a SQLite file, or a server at a URL.

Databases at URLs are plug-ins: a package registers a `StoreKind` in the entry point group `practicum.stores`, under the
scheme of its URLs.
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
    """Number that increases with each holder. Writes of an earlier holder are refused."""

    @property
    def is_lost(self) -> bool:
        """Whether the connection that holds the lease has ended, as far as known without a query."""

    def renew(self) -> None:
        """Take the lease again if its connection was lost. Raises RunBusy if another process has it now, StoreAway if
        the database cannot be reached."""

    def close(self) -> None:
        """Release the lease."""


class Sessions(Protocol):
    """Version that each session sees, the same on all nodes."""

    async def claim(self, space: str, session: str, version: int, dead: int | None, late: float) -> int | None:
        """Return the version of a session: the stored version, or `version` if the session has none yet or its version
        is `dead`. Returns None if the database does not answer within `late` seconds, or if the space was deleted."""

    def close(self) -> None:
        """Release all resources."""


class Backend(Protocol):
    """An open database. Database errors are raised as StoreError unless noted."""

    name: str
    """Name in messages: the folder of a file, or the URL without its password."""
    engine: Engine
    shared: bool
    """Whether other machines also write to the database."""
    index: str
    """Kind of index for spaces with many entries, as registered in `practicum.indexes`."""
    patience: float
    """Time for which writes of learning wait for a database that cannot be reached (s)."""

    def rows(self, query: Any, waits: bool) -> list[Any]:
        """Return the rows of a query, as named tuples. `waits`: wait for a database that cannot be reached at the
        moment."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """Open a transaction that may write. Raises the errors of the database unchanged."""

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        """Lock these spaces (sorted) against other writers until the transaction ends."""

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        """Announce changes of these spaces to all nodes, with the commit."""

    def now(self, db: Connection) -> float:
        """Return the seconds since 1970, by the clock that all nodes share."""

    def failure(self, doing: str, error: Exception) -> StoreError:
        """Convert an error while `doing` ("read" or "write to") into a StoreError with advice."""

    def stops_all(self, error: BaseException) -> bool:
        """Whether all other writes would fail too: the database is unreachable, full, read-only or damaged."""

    def is_deadlock(self, error: BaseException) -> bool:
        """Whether the database ended a transaction because of a deadlock."""

    def changes(self, space: str, *, fresh: bool = True) -> int:
        """Return a number that differs after each change of the content that a space shows. Takes some microseconds. On
        a server, the old number may be returned for a moment after a write. Without `fresh`, the database is not asked,
        so the number may be as old as the last call with `fresh`, for any space."""

    def lease(self, space: str, files: Path) -> Lease:
        """Take the lease of a space, whose files are in this folder. Raises RunBusy if another process has it."""

    def is_leased(self, space: str, files: Path) -> bool:
        """Whether another process has the lease of a space."""

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Run the block on one node at a time; other nodes that enter a block with this name wait."""

    def serve(self) -> AbstractContextManager[None]:
        """Mark the database as served during the block. Raises RunBusy if another process serves from the folder."""

    def is_served(self) -> bool:
        """Whether another process serves spaces of the database, or may do so."""

    def sessions(self, seconds: float) -> Sessions | None:
        """Return the versions of sessions, which all nodes share. A version is kept for `seconds` after the last
        request of its session. None if only one process can serve."""

    def scrub(self) -> None:
        """Overwrite deleted rows, as far as the database can. Raises StoreError if another process keeps bytes of
        these rows."""

    def drop_index(self, db: Connection, space: str) -> None:
        """Delete the database's index of a space, if it exists."""

    def release(self) -> None:
        """Free the cache of the database."""

    def close(self) -> None:
        """Release all resources."""


class StoreKind(Protocol):
    """Databases at URLs of one scheme. Errors are raised as StoreError."""

    def parse(self, url: str) -> URL:
        """Parse the URL of a database. Raises UsageError, without the password, if it is not valid."""

    def address(self, url: URL) -> str:
        """Return the URL without its password, for storage and display."""

    def open(self, url: URL, *, create: bool) -> Backend:
        """Open the database at a URL. `create` creates its tables, or migrates them."""


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
