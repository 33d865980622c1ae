"""The driver of PostgreSQL. Modules import it from here, so that one line names the extra if it is missing."""

from __future__ import annotations

from practicum.core.errors import UsageError
from practicum.core.requirements import pip_install

try:
    import psycopg
except ImportError as error:
    raise UsageError("extra.missing", f"a store in PostgreSQL needs: {pip_install('postgres')} ({error})") from error

__all__ = ["psycopg"]
