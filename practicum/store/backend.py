"""The rows of a run, open: one interface for SQLite, a file in the run's folder, and for databases at URLs.

Databases at URLs are plug-ins: a package registers a `StoreKind` in the entry point group `practicum.stores`, under the
scheme of its URLs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine

from practicum.core.errors import StoreError, UsageError
from practicum.core.plugins import Group, implements


class Backend(Protocol):
    """The rows of one run, open. Errors of the database are raised as StoreError unless noted."""

    space: str
    engine: Engine
    generation: str
    """An SQL expression whose value is another one after rows of the run were removed for good."""
    index: str
    """The kind of index that the run's entries have, as registered in `practicum.indexes`."""

    def rows(self, query: Any) -> list[Any]:
        """The rows of a query, as named tuples."""

    def write(self, work: Callable[[Connection], None]) -> None:
        """Do work that may be done twice, in one transaction of the writer. Raises what the database raises."""

    def begin(self, alone: bool = False) -> AbstractContextManager[Connection]:
        """A transaction; with `alone`, one beside which nobody writes by another."""

    def failure(self, error: Exception) -> StoreError:
        """What an error of a write means, and what to do."""

    def is_written(self) -> bool:
        """Whether another process has the run open for writing."""

    def changes(self) -> int:
        """A number that is another one after each write by somebody else."""

    def scrub(self) -> None:
        """Overwrite deleted rows, as far as the database can."""

    def drop_index(self) -> None:
        """Delete the index of the entries that the database has, if it has one."""

    def remove(self) -> None:
        """Remove all rows of the run, and its name where others could take it."""

    def release(self) -> None:
        """Give back the memory that keeps what was read from it quick to read again."""

    def close(self) -> None:
        """Release what is held."""


class StoreKind(Protocol):
    """Databases at URLs of one scheme, each with the runs of many folders. Errors are raised as StoreError."""

    def parse(self, url: str) -> URL:
        """The URL of a database. Raises UsageError, without the password, if it is wrong."""

    def address(self, url: URL) -> str:
        """The URL without its password, as it is stored and shown."""

    def reserve(self, url: URL, name: str) -> bool:
        """Take a name for a new run, or that of a run without rows, which a killed process left. Returns False if the
        name is taken."""

    def open(self, url: URL, name: str, *, writer: bool, read_only: bool) -> Backend:
        """The run of this name. Raises NotARun if there is none, RunBusy if another process writes to it."""

    def service(self, url: URL) -> Any:
        """The tables of a service, which several nodes share (`serve.log.Database`)."""


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
