"""Where the rows of a run are. One interface, which SQLite (a file) and PostgreSQL (a shared database) implement."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, Engine

from practicum.core.errors import StoreError

if TYPE_CHECKING:
    from practicum.store.postgresql import Database


class Backend(Protocol):
    """The rows of one run, open. Errors of the database are raised as StoreError unless noted."""

    run_id: str
    engine: Engine
    generation: str
    """An SQL expression whose value is another one after rows of the run were removed for good."""
    pgvector: Database | None
    """The database that the index of the entries is in; None if it is in files of the folder."""

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
