"""What an open database does in a way of its own: a SQLite file, or a server at a URL.

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
    """The right to write what a space learns, which one process at a time has."""

    token: int
    """Goes up with each holder. A write of an earlier holder is refused by it."""

    @property
    def is_lost(self) -> bool:
        """Whether the connection that holds it has ended, as far as is known here without asking."""

    def renew(self) -> None:
        """Take the lease again if the connection that holds it was lost. Raises RunBusy if somebody else has it now,
        StoreAway if that is not known yet."""

    def close(self) -> None:
        """Give the lease back."""


class Sessions(Protocol):
    """The version that each session sees, the same on all nodes."""

    async def claim(self, space: str, session: str, version: int, dead: int | None, late: float) -> int | None:
        """The version of a session, which is this one if no node has shown it any, or a `dead` one; None if that is not
        known within `late` seconds, or if the space was deleted."""

    def close(self) -> None:
        """Release what is held."""


class Backend(Protocol):
    """An open database. Errors of the database are raised as StoreError unless noted."""

    name: str
    """How messages call it: the folder of a file, or the URL without its password."""
    engine: Engine
    shared: bool
    """Whether other machines write to it too."""
    index: str
    """The kind of index that spaces with many entries have, as registered in `practicum.indexes`."""
    patience: float
    """Seconds for which writes of learning wait for a database that went away."""

    def rows(self, query: Any, waits: bool) -> list[Any]:
        """The rows of a query, as named tuples. `waits`: for a database that is away for a moment."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction that may write. Raises what the database raises."""

    def begin(self, db: Connection, spaces: Sequence[str]) -> None:
        """Let nobody else change these spaces until the transaction ends; they are sorted."""

    def end(self, db: Connection, spaces: Sequence[str]) -> None:
        """Announce changes to these spaces, with the commit."""

    def now(self, db: Connection) -> float:
        """Seconds since 1970, by the one clock of all nodes."""

    def failure(self, doing: str, error: Exception) -> StoreError:
        """What an error means for whoever wanted to "read" or "write to" the database, and what to do."""

    def stops_all(self, error: BaseException) -> bool:
        """Whether no other write would succeed either: the database is away, full, read-only or damaged."""

    def is_deadlock(self, error: BaseException) -> bool:
        """Whether a transaction was ended because it waited for another one in a circle."""

    def changes(self, space: str, *, fresh: bool = True) -> int:
        """A number that differs after each change of what a space shows, for some microseconds' work. On a server it
        may be the old one for a moment after a write. Without `fresh` it is the number as of the last look at any
        space."""

    def lease(self, space: str, files: Path) -> Lease:
        """The lease of a space, whose files are in this folder. Raises RunBusy if somebody else has it."""

    def is_leased(self, space: str, files: Path) -> bool:
        """Whether another process has the lease of a space."""

    def alone(self, what: str) -> AbstractContextManager[None]:
        """A block that one node at a time is in; the others wait."""

    def serve(self) -> AbstractContextManager[None]:
        """A block in which spaces are served from here. Raises RunBusy if another process serves from the folder."""

    def is_served(self) -> bool:
        """Whether another process serves spaces from here, or may."""

    def sessions(self, seconds: float) -> Sessions | None:
        """The versions of sessions, which all nodes agree on, for so many seconds after a session was last seen; None
        where one process serves alone."""

    def scrub(self) -> None:
        """Overwrite deleted rows, as far as the database can. Raises StoreError if another process keeps bytes of
        them."""

    def drop_index(self, db: Connection, space: str) -> None:
        """Delete the index that the database has of a space, if it has one."""

    def release(self) -> None:
        """Give back the memory that keeps what was read quick to read again."""

    def close(self) -> None:
        """Release what is held."""


class StoreKind(Protocol):
    """Databases at URLs of one scheme. Errors are raised as StoreError."""

    def parse(self, url: str) -> URL:
        """The URL of a database. Raises UsageError, without the password, if it is wrong."""

    def address(self, url: URL) -> str:
        """The URL without its password, as it is stored and shown."""

    def open(self, url: URL, *, create: bool) -> Backend:
        """The database at a URL. `create` makes its tables, or migrates them."""


STORES: Group[StoreKind] = Group("practicum.stores", "store", implements(StoreKind))


def store_at(url: str) -> tuple[StoreKind, URL]:
    """The kind of the store at a URL, and the URL. Raises UsageError, without the password, if it is wrong."""
    scheme, separator, _ = url.partition("://")
    # SQLAlchemy's form of a URL may also name the driver: postgresql+psycopg://.
    scheme = scheme.partition("+")[0]
    registered = STORES.registered()
    if not separator or scheme not in registered:
        # A kind that is registered under several schemes is named once.
        kinds = {entry.value: name for name, entry in registered.items()}
        known = ", ".join(f"{name}://USER@HOST/DATABASE" for name in kinds.values())
        raise UsageError(
            "store.invalid_address",
            f"the store must be written as a URL: {known or 'no package registers a kind of store'}",
        )
    kind = STORES.load(scheme)
    return kind, kind.parse(url)
